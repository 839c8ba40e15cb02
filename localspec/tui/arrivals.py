"""What the chat view does with what the inference thread tells."""

from __future__ import annotations

import time

from textual.events import Event, Key

from localspec.report import as_dict
from localspec.spec.events import Finished
from localspec.terminal import duration
from localspec.tui.base import ChatBase
from localspec.tui.drawing import DASH
from localspec.tui.garbage import keep_what_there_is, look_through_all, look_through_young
from localspec.tui.told import (
    AnswerFailed,
    Began,
    Counted,
    Ended,
    LoadAdvanced,
    LoadFinished,
    LoadStarted,
    Noted,
    Opened,
    OpenFailed,
    Planned,
    Reading,
    StatusChanged,
    Stepped,
    Told,
    Usage,
)
from localspec.tui.turns import Run, Turn

SHARE = 2.0
"""After each batch the view rests so many times as long as it has worked, so that drawing never
takes more than a third of one processor from the model."""
SLOWEST_S = 0.25
KEY_FIRST_S = 0.08
"""After a key the answer waits so long, until the key's letter is drawn; but never longer than
``SLOWEST_S`` in all, however quickly somebody types."""
KEY_PAUSE_S = 0.25
"""After that the next key is not likely to come at once."""
REST_S = 1.5
"""So long after the last answer and the last key nobody waits for anything."""
PANEL_EVERY = 5
"""The numbers are drawn again once in so many of the shortest rests: nobody reads faster."""


class Arrivals(ChatBase):
    """Takes events in batches; between two of them it rests as long as the last one asks for."""

    def on_chat_base_arrived(self) -> None:
        self.call_later(self._take)

    async def _take(self) -> None:
        if not self.is_running:
            return
        await self._apply(self.outbox.take())
        if time.monotonic() - self.key_at > KEY_PAUSE_S:
            look_through_all(at_rest=False)
        # What this thread has worked since the last time: that batch, its layout and its painting.
        worked = time.thread_time()
        spent, self.worked_s = worked - self.worked_s, worked
        self.took_at = time.monotonic()
        self.set_timer(min(SLOWEST_S, max(self.pace_s, spent * SHARE)), self._rest)

    async def _rest(self) -> None:
        now = time.monotonic()
        wait = min(self.key_at + KEY_FIRST_S, self.took_at + SLOWEST_S) - now
        if wait > 0:
            self.set_timer(wait, self._rest)
        elif not self.outbox.rest():
            look_through_young()
            await self._take()

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key):
            self.key_at = time.monotonic()
        await super().on_event(event)

    async def _apply(self, events: list[Told]) -> None:
        """All events of a batch; the text of an answer is drawn once."""
        new: list[Run] = []
        for event in events:
            match event:
                case Stepped():
                    new += self._stepped(event)
                case Ended(id=number) | AnswerFailed(id=number):
                    turn = self.conversation.find(number)
                    if turn is not None:
                        await self._write(turn, new)
                        new = []
                        await self._ended(turn, event)
                case Began() | Reading():
                    await self._started(event)
                case _:
                    await self._told(event)
        if new and self.running is not None:
            await self._write(self.running, new)
            self.keeper.progress(self.running)
        now = time.monotonic()
        if now - self.panel_at >= PANEL_EVERY * self.pace_s:
            self.panel_at = now
            self.refresh_panel()

    async def _write(self, turn: Turn, runs: list[Run]) -> None:
        if runs:
            await self.view.write(turn, runs)

    # -- the model --------------------------------------------------------------------------------

    async def _told(self, event: Told) -> None:
        loading = self.loading_view
        match event:
            case LoadStarted(what, total):
                loading.start(what, total)
            case LoadAdvanced(n):
                loading.advance(n)
            case LoadFinished():
                loading.finish()
            case Noted(text):
                if self.is_loading:
                    loading.note(text)
                else:
                    self.say(text)
            case Planned(text):
                loading.plan(text)
            case Opened():
                await self._opened(event)
            case OpenFailed():
                self._lose_model(
                    "loading was stopped" if event.cancelled else event.message,
                    event.hint or "/reload tries again; /model NAME takes another model.",
                )
                self._fail_running("the model is not loaded any more")
            case StatusChanged(status):
                self.status = status
            case Usage(n_used, n_bytes):
                self.panel_data.n_used, self.panel_data.n_bytes = n_used, n_bytes
            case Counted(n_tokens):
                await self._counted(n_tokens)
            case _:
                pass

    async def _opened(self, event: Opened) -> None:
        keep_what_there_is()
        self.is_loading, self.status = False, event.status
        self.loading_view.display = False
        self.panel_data.n_ctx = event.n_ctx
        self.refresh_title()
        self.refresh_bindings()
        if event.note:
            await self.view.note(event.note)
        if self.conversation.turns and self.running is None:
            self.count_prompt()
        await self.next_in_queue()

    async def _counted(self, n_tokens: int) -> None:
        text = f"This chat has {n_tokens:,} tokens, which the model reads before its next answer"
        if self.prompt_rate:
            text += f": about {duration(n_tokens / self.prompt_rate)} at the speed of last time"
        await self.view.note(text + ".")

    # -- an answer --------------------------------------------------------------------------------

    async def _started(self, event: Began | Reading) -> None:
        turn = self.conversation.find(event.id)
        if turn is None:
            return
        if isinstance(event, Reading):
            if turn.prefill is None:
                turn.reading_since = time.monotonic()
            turn.reading_s = time.monotonic() - turn.reading_since
            turn.prefill = event.prefill
            if turn.state == "waiting":
                turn.state = "reading"
        else:
            turn.seed, turn.is_thinking = event.seed, event.is_thinking
            if event.n_dropped > self.conversation.n_dropped:
                await self.view.note(
                    f"The first {event.n_dropped} messages no longer fit into the context and are "
                    "left out of the prompt; the system message and your last question stay."
                )
            self.conversation.n_dropped = event.n_dropped
        self._refresh_foot(turn)

    def _stepped(self, event: Stepped) -> list[Run]:
        turn = self.conversation.find(event.id)
        if turn is None:
            return []
        step = event.step
        if not step.is_first:
            data = self.panel_data
            data.last_drafter, data.last_reason = step.drafter, step.reason
            data.last_drafted, data.last_accepted = step.n_verified, step.n_accepted
        was_writing = turn.state == "writing"
        if turn.prefill is not None and turn.stats is None:
            self.conversation.count_prompt(turn)
        runs = self.conversation.step(turn, step, event.seconds, event.baseline_step_s)
        if not was_writing:
            self._refresh_foot(turn)
        return runs

    async def _ended(self, turn: Turn, event: Ended | AnswerFailed) -> None:
        self.running = None
        if isinstance(event, Ended):
            self.status = event.status
            await self._write(turn, self.conversation.finish(turn, event.finished))
            turn.numbers = self._numbers(turn, event.finished)
            self.prompt_rate = event.finished.stats.prompt_tokens_per_s or self.prompt_rate
        else:
            self.conversation.fail(turn, f"{event.message}\n{event.hint}".strip())
            if event.is_fatal:
                self._lose_model(event.message, event.hint)
        await self.view.finish(turn)
        self.keeper.finish(turn)
        self.refresh_panel()
        self.refresh_bindings()
        self.set_timer(REST_S, self._at_rest)
        await self.become_idle()

    def _at_rest(self) -> None:
        if self.running is None and time.monotonic() - self.key_at >= REST_S:
            look_through_all(at_rest=True)

    def _numbers(self, turn: Turn, finished: Finished) -> dict[str, object]:
        """What is saved with the answer."""
        assert self.status is not None
        numbers = as_dict(finished, "", self.status, turn.seed)  # type: ignore[arg-type]
        del numbers["text"]
        return numbers

    def _lose_model(self, message: str, hint: str) -> None:
        self.is_loading, self.status = False, None
        self.panel_data.mode, self.panel_data.reason = DASH, "no model is loaded"
        self.loading_view.fail(message, hint)
        self.refresh_bindings()

    def _fail_running(self, why: str) -> None:
        turn = self.running
        if turn is not None:
            self.outbox.put(AnswerFailed(turn.id, why))

    def _refresh_foot(self, turn: Turn) -> None:
        view = self.view.view_of(turn)
        if view is not None:
            view.refresh_foot()

    # -- what the rest of the app does ------------------------------------------------------------

    async def become_idle(self) -> None:
        """The answer is over: what waited for that, then the next question."""
        raise NotImplementedError

    async def next_in_queue(self) -> None:
        """Ask what waits, if the model is there and free."""
        raise NotImplementedError

    def count_prompt(self) -> None:
        """Ask how long the chat is."""
        raise NotImplementedError
