"""One process at a time fetches a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from localspec.files import Cancelled, Progress
from localspec.store.work import cancel_error

_LOCK_POLL_S = 0.2


@contextmanager
def locked(path: Path, what: str, *, cancelled: Cancelled, progress: Progress) -> Iterator[None]:
    """Hold the lock file ``path``; the system frees it when a process dies.

    Says so when it has to wait. Raises DownloadCancelledError, OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    told = False
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL_S)
            break
        except Timeout:
            if not told:
                progress.note(f"waiting for another localspec (or program) to fetch {what}")
                told = True
            if cancelled():
                raise cancel_error() from None
    try:
        yield
    finally:
        lock.release()


def is_free(path: Path) -> bool:
    """Whether no process holds the lock file ``path``. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    lock.release()
    return True
