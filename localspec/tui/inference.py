"""The one thread that touches the model, and what passes between it and the screen.

The app puts requests on a queue; the thread puts events into an ``Outbox`` and wakes the app at
most once until the app has taken them. However slow the drawing is, events only gather; however
slow the model is, nothing on the screen waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from localspec.config import Config
from localspec.errors import LocalspecError
from localspec.spec.events import Finished, Prefill, Step
from localspec.tui.drawing import plan_text
from localspec.tui.told import (
    AnswerFailed,
    Ask,
    Began,
    Count,
    Counted,
    Ended,
    LoadAdvanced,
    LoadFinished,
    LoadStarted,
    Noted,
    Open,
    Opened,
    Opener,
    OpenFailed,
    Planned,
    Reading,
    Request,
    SessionLike,
    SetMode,
    StatusChanged,
    Stepped,
    Told,
    Usage,
)

if TYPE_CHECKING:
    from localspec.memory import Plan

log = logging.getLogger(__name__)

USAGE_EVERY_S = 1.0
"""How often the use of context and memory is looked at while an answer is written."""
_THINKING_TAGS = ("<think>", "<thinking>", "<thought>")


class Outbox:
    """Events on their way to the app. ``wake`` is called from the thread that puts the first one
    after ``rest`` found nothing more to do."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._events: list[Told] = []
        self._is_awake = False

    def put(self, event: Told) -> None:
        """Append, and wake the app unless it is awake."""
        with self._lock:
            if isinstance(event, LoadAdvanced) and self._events:
                last = self._events[-1]
                if isinstance(last, LoadAdvanced):
                    # A download reports far more often than anyone looks.
                    self._events[-1] = LoadAdvanced(last.n + event.n)
                    return
            self._events.append(event)
            must_wake, self._is_awake = not self._is_awake, True
        if must_wake:
            self._wake()

    def take(self) -> list[Told]:
        """All that is there; the app stays awake."""
        with self._lock:
            events, self._events = self._events, []
            return events

    def rest(self) -> bool:
        """Whether there is nothing to do; then the next event wakes the app again."""
        with self._lock:
            self._is_awake = bool(self._events)
            return not self._is_awake


class _Reporter:
    """A ``files.Progress`` that tells the app."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def start(self, label: str, total: int | None) -> None:
        self._outbox.put(LoadStarted(label, total))

    def advance(self, n: int) -> None:
        self._outbox.put(LoadAdvanced(n))

    def finish(self) -> None:
        self._outbox.put(LoadFinished())

    def note(self, text: str) -> None:
        self._outbox.put(Noted(text))

    def planned(self, plan: Plan) -> None:
        self._outbox.put(Planned(plan_text(plan)))


class Inference:
    """The thread. Its methods may be called from any thread and return at once."""

    def __init__(
        self,
        opener: Opener,
        outbox: Outbox,
        *,
        n_bytes_used: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._opener = opener
        self._outbox = outbox
        self._n_bytes_used = n_bytes_used
        self._clock = clock
        self._requests: SimpleQueue[tuple[int, Request] | None] = SimpleQueue()
        self._quit = threading.Event()
        # Requests are numbered, and a stop holds for those put before it: one that comes before
        # its request has begun is not lost, and it does not hold for the next one.
        self._lock = threading.Lock()
        self._n_put = self._n_stopped = 0
        self._current = 0
        self._session: SessionLike | None = None
        self._used_at = 0.0
        # A daemon: native code that does not return must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def start(self) -> None:
        """Begin to work on requests."""
        self._thread.start()

    def put(self, request: Request) -> None:
        """Do ``request`` after all earlier ones."""
        with self._lock:
            self._n_put += 1
            self._requests.put((self._n_put, request))

    def stop(self) -> None:
        """End the answer, the loading or the download that was asked for last."""
        with self._lock:
            self._n_stopped = self._n_put

    def quit(self, timeout_s: float) -> bool:
        """Stop all, free the model; whether that was done within ``timeout_s``."""
        self._quit.set()
        self.stop()
        self._requests.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _cancelled(self) -> bool:
        return self._quit.is_set() or self._current <= self._n_stopped

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._quit.is_set():
                item = self._requests.get()
                if item is None:
                    break
                self._current, request = item
                self._do(request)
        finally:
            self._close()

    def _do(self, request: Request) -> None:
        try:
            match request:
                case Open(config):
                    self._open(config)
                case Ask():
                    self._ask(request)
                case SetMode(mode, draft_max):
                    if self._session is not None:
                        self._session.set_mode(mode, draft_max)
                        self._outbox.put(StatusChanged(self._session.status))
                case Count(messages):
                    if self._session is not None:
                        prompt = self._session.template.prompt_for(messages)
                        self._outbox.put(Counted(len(self._session.tokenize(prompt))))
        except KeyboardInterrupt:
            self._fail(request, "stopped", "", is_fatal=False, cancelled=True)
        except LocalspecError as error:
            stopped = self._cancelled() and not isinstance(request, Ask)
            self._fail(request, error.message, error.hint, is_fatal=False, cancelled=stopped)
        except Exception as error:
            log.exception("the inference thread failed")
            self._close()
            self._fail(
                request,
                f"something went wrong that should not have: {type(error).__name__}: {error}",
                "The details are in the log. /reload loads the model again.",
                is_fatal=True,
                cancelled=False,
            )

    def _fail(
        self, request: Request, message: str, hint: str, *, is_fatal: bool, cancelled: bool
    ) -> None:
        match request:
            case Open():
                self._close()
                self._outbox.put(LoadFinished())
                self._outbox.put(OpenFailed(message, hint, cancelled))
            case Ask(id=number):
                self._outbox.put(AnswerFailed(number, message, hint, is_fatal))
            case _ if is_fatal:
                self._outbox.put(OpenFailed(message, hint))
            case _:
                self._outbox.put(Noted(message))

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self, config: Config) -> None:
        self._close()  # first: two models may not fit into memory
        session = self._opener(config, _Reporter(self._outbox), self._cancelled)
        self._session = session
        if self._cancelled():
            raise KeyboardInterrupt
        self._outbox.put(Opened(session.status, session.n_ctx, session.template.note))
        self._tell_usage()

    def _ask(self, request: Ask) -> None:
        session = self._session
        if session is None:
            raise LocalspecError("no model is loaded", hint="/reload loads it again.")
        # Room for the answer: a quarter of the context, or what it may be at most if that is less.
        n_reserve = max(1, min(request.max_tokens or session.n_ctx, session.n_ctx // 4))
        messages, n_dropped = session.fit(request.messages, n_reserve, request.n_dropped)
        ending = session.template.prompt_for(messages).text[-64:].rstrip()
        sampling = request.sampling
        self._outbox.put(
            Began(request.id, n_dropped, sampling.seed, ending.endswith(_THINKING_TAGS))
        )
        events = session.ask(
            messages,
            sampling,
            max_tokens=request.max_tokens,
            cancelled=self._cancelled,
            source=request.source,
        )
        while True:
            started = self._clock()
            event = next(events, None)
            seconds = self._clock() - started
            match event:
                case None:
                    return
                case Prefill():
                    self._outbox.put(Reading(request.id, event))
                case Step():
                    self._outbox.put(Stepped(request.id, event, seconds, session.baseline_step_s))
                    self._tell_usage(USAGE_EVERY_S)
                case Finished():
                    self._tell_usage()
                    self._outbox.put(Ended(request.id, event, session.status))

    def _tell_usage(self, interval_s: float = 0.0) -> None:
        now = self._clock()
        if self._session is None or now - self._used_at < interval_s:
            return
        self._used_at = now
        n_bytes = self._n_bytes_used() if self._n_bytes_used is not None else None
        self._outbox.put(Usage(self._session.n_used, n_bytes))
