"""A file in the making: it grows, is hashed as it grows, and appears under its name only when it is
whole and right."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from localspec.errors import IntegrityError
from localspec.paths import write_private
from localspec.store.work import cancel_error
from localspec.terminal import label, size

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Promise:
    """What the whole file must be: its length and hash, each None when nobody told us.

    ``git-sha1`` is git's blob hash, which the Hub uses for files outside large-file storage; it
    needs ``n_bytes``.
    """

    n_bytes: int | None
    kind: Literal["sha256", "git-sha1", "none"] = "none"
    digest: str = ""

    def new_hash(self) -> Any:
        """A fresh hash object of this kind."""
        if self.kind == "git-sha1":
            return hashlib.sha1(b"blob %d\0" % (self.n_bytes or 0), usedforsecurity=False)
        return hashlib.sha256()


class PartialFile:
    """``path`` opened for appending, with what is already there counted and hashed.

    Use as a context manager, from one thread at a time. ``on_growth`` is told the new length.
    """

    def __init__(self, path: Path, promise: Promise, stop: Callable[[], bool]) -> None:
        """Open or create ``path``. Reads what is there (to hash it) unless ``stop()``.

        Raises OSError, DownloadCancelledError.
        """
        self.path = path
        self.promise = promise
        self.n_bytes = 0
        self._hash = promise.new_hash()
        self._stop = stop
        self.on_growth: Callable[[int], None] = lambda _: None
        self._file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        try:
            self.cut_to(path.stat().st_size)
        except BaseException:
            self._file.close()
            raise
        self.n_resumed = self.n_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def is_full(self) -> bool:
        """Whether the promised length has been reached (False if none was promised)."""
        return self.promise.n_bytes is not None and self.n_bytes >= self.promise.n_bytes

    def cut_to(self, n_bytes: int) -> None:
        """Keep the first ``n_bytes`` and hash them again; more than was promised is cut to 0.

        Raises OSError, DownloadCancelledError.
        """
        if self.promise.n_bytes is not None and n_bytes > self.promise.n_bytes:
            n_bytes = 0
        self._file.truncate(n_bytes)
        self._file.seek(0)
        self._hash = self.promise.new_hash()
        self.n_bytes = 0
        while self.n_bytes < n_bytes:
            if self._stop():
                raise cancel_error()
            data = self._file.read(min(CHUNK, n_bytes - self.n_bytes))
            if not data:
                break
            self._hash.update(data)
            self.n_bytes += len(data)
        self._file.seek(self.n_bytes)
        self._file.truncate()
        self.on_growth(self.n_bytes)

    def append(self, data: bytes) -> None:
        """Add ``data``. Raises OSError, and IntegrityError if there is more than was promised."""
        if self.promise.n_bytes is not None and self.n_bytes + len(data) > self.promise.n_bytes:
            raise IntegrityError(
                f"more than the promised {size(self.promise.n_bytes)} arrived for this file."
            )
        view = memoryview(data)
        while view:
            # Unbuffered: when a disk fills up, the count and the hash still follow the file.
            n_written = self._file.write(view)
            self._hash.update(view[:n_written])
            self.n_bytes += n_written
            view = view[n_written:]
        self.on_growth(self.n_bytes)

    def flush(self) -> None:
        """Hand everything to the disk. Raises OSError."""
        os.fsync(self._file.fileno())

    def publish(self, target: Path, name: str) -> None:
        """Check length and hash, then move to ``target`` in one step.

        A file that is complete but wrong is emptied. Raises IntegrityError, OSError.
        """
        promise = self.promise
        if promise.n_bytes is not None and self.n_bytes != promise.n_bytes:
            raise IntegrityError(
                f"{label(name)} ended after {size(self.n_bytes)} of {size(promise.n_bytes)}."
            )
        found = self._hash.hexdigest()
        if promise.kind != "none" and found != promise.digest:
            self.cut_to(0)
            raise IntegrityError(
                f"{label(name)} arrived with the wrong content: its hash is {found[:12]}…, "
                f"and {promise.digest[:12]}… was promised."
            )
        self.flush()
        self._file.close()
        self.path.replace(target)


class Journal:
    """What a partial file is and, for a mirror, where each whole part of it ends.

    Beside ``X.incomplete`` as ``X.incomplete.json``; a journal that cannot be read counts as empty.
    """

    def __init__(self, partial: Path) -> None:
        self.path = partial.with_name(partial.name + ".json")
        self.name = ""
        self.plan = ""
        self.ends: list[int] = []
        try:
            found = json.loads(self.path.read_bytes()[:100_000])
            name, plan, ends = found["name"], found["plan"], found["ends"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        ordered = isinstance(ends, list) and all(type(end) is int and end >= 0 for end in ends)
        if isinstance(name, str) and isinstance(plan, str) and ordered and ends == sorted(ends):
            self.name, self.plan, self.ends = name, plan, ends

    def write(self) -> None:
        """Save it in one step. Raises OSError."""
        content = {"name": self.name, "plan": self.plan, "ends": self.ends}
        write_private(self.path, json.dumps(content).encode())

    def remove(self) -> None:
        """Forget it. Raises OSError."""
        self.path.unlink(missing_ok=True)
