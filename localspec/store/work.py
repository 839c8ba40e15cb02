"""Slow calls that cannot be interrupted (a connection, a read) made so that they can be left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from localspec.errors import DownloadCancelledError
from localspec.files import Cancelled

T = TypeVar("T")

POLL_S = 0.05
_LEAVE_S = 1.0


def cancel_error() -> DownloadCancelledError:
    """What a cancelled download raises."""
    return DownloadCancelledError(
        "the download was stopped.", hint="What has arrived is kept; the next run goes on from it."
    )


def interruptible(
    work: Callable[[threading.Event], T],
    *,
    cancelled: Cancelled,
    tick: Callable[[], None] = lambda: None,
    deadline_s: float | None = None,
) -> T:
    """The result of ``work(stop)``, run in a thread of its own while this one stays responsive.

    ``tick`` is called in this thread every ``POLL_S`` and once at the end. ``work`` must look at
    ``stop`` between its steps and change nothing once it is set; it is given a second to end and is
    then left alone. Raises what ``work`` raised, DownloadCancelledError when ``cancelled()``,
    TimeoutError after ``deadline_s``, and KeyboardInterrupt at once.
    """
    stop = threading.Event()
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(work(stop))
        except BaseException as error:  # noqa: BLE001 - handed on to the thread that waits
            future.set_exception(error)

    thread = threading.Thread(target=body, name="localspec-download", daemon=True)
    thread.start()
    waited = 0.0
    try:
        while True:
            thread.join(POLL_S)
            tick()
            if not thread.is_alive():
                return future.result()
            if cancelled():
                raise cancel_error()
            waited += POLL_S
            if deadline_s is not None and waited >= deadline_s:
                raise TimeoutError
    finally:
        if thread.is_alive():
            stop.set()
            thread.join(_LEAVE_S)
