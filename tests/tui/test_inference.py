"""The model's thread: one call at a time, stops that are never lost, faults that end nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

import pytest

from localspec.chat import Message
from localspec.config import Config
from localspec.errors import DecodeError
from localspec.spec.sampling import Sampling
from localspec.tui.fakes import OverlapError, Script, ScriptedOpener, ScriptedSession, words
from localspec.tui.inference import Inference, Outbox
from localspec.tui.told import (
    AnswerFailed,
    Ask,
    Began,
    Ended,
    LoadAdvanced,
    Noted,
    Open,
    Opened,
    OpenFailed,
    Reading,
    SetMode,
    StatusChanged,
    Stepped,
    Told,
)  # fmt: skip

PATIENCE_S = 60.0


class Desk:
    """An inference thread and what it tells."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.told: list[Told] = []
        self._woken: SimpleQueue[None] = SimpleQueue()
        self.outbox = Outbox(lambda: self._woken.put(None))
        self.inference = Inference(ScriptedOpener(script), self.outbox, n_bytes_used=lambda: 7)

    def until(self, kind: type[Told] | tuple[type[Told], ...]) -> Told:
        """Wait for the next event of a kind, or of one of several."""
        while True:
            for place, event in enumerate(self.told):
                if isinstance(event, kind):
                    del self.told[: place + 1]
                    return event
            if self.outbox.rest():
                self._woken.get(timeout=PATIENCE_S)
            self.told += self.outbox.take()


@pytest.fixture
def desk() -> Callable[..., Desk]:
    made: list[Desk] = []

    def make(**given: object) -> Desk:
        made.append(Desk(Script(**given)))
        made[-1].inference.start()
        made[-1].inference.put(Open(Config()))
        return made[-1]

    yield make
    for one in made:
        assert one.inference.quit(PATIENCE_S)


def question(number: int, text: str = "hello") -> Ask:
    return Ask(number, (Message("user", text),), Sampling(seed=1), None)


def test_an_answer_in_order(desk: Callable[..., Desk]) -> None:
    one = desk(prompt_end="<think>\n")
    opened = one.until(Opened)
    assert opened.n_ctx == 4096
    one.inference.put(question(5))
    began = one.until(Began)
    assert (began.id, began.seed, began.is_thinking) == (5, 1, True)
    assert one.until(Reading).prefill.n_total == 1
    step = one.until(Stepped)
    assert step.step.is_first
    assert step.baseline_step_s == 0.05
    assert one.until(Ended).finished.reason == "stop"


def test_a_stop_before_the_answer_has_begun_is_not_lost(desk: Callable[..., Desk]) -> None:
    one = desk(load_gate=threading.Event())
    one.inference.put(question(1))
    one.inference.stop()
    one.script.load_gate.set()
    one.until(OpenFailed)  # the stop holds for the loading as well
    assert one.until(AnswerFailed).id == 1
    one.inference.put(Open(Config()))
    one.until(Opened)
    one.inference.put(question(2))
    assert one.until(Ended).finished.reason == "stop"


def test_a_stop_in_the_prompt_pass(desk: Callable[..., Desk]) -> None:
    one = desk(prefill_s=600.0)
    one.until(Opened)
    one.inference.put(question(1))
    one.until(Reading)
    one.inference.stop()
    assert one.until(Ended).finished.reason == "cancelled"


def test_errors_are_told_and_the_thread_goes_on(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(fail=DecodeError("broken", hint="ask again"), fail_after=1)
    one.until(Opened)
    one.inference.put(question(1, "a b c d e f g h"))
    failed = one.until(AnswerFailed)
    assert (failed.message, failed.hint, failed.is_fatal) == ("broken", "ask again", False)
    one.script.fail = KeyError("oops")
    one.inference.put(question(2, "a b c d e f g h"))
    failed = one.until(AnswerFailed)
    assert failed.is_fatal
    assert "KeyError" in failed.message
    assert "Traceback" in caplog.text
    assert one.script.n_closed == 1
    one.inference.put(question(3))
    assert "no model is loaded" in one.until(AnswerFailed).message
    one.inference.put(Open(replace(Config(), mode="off")))
    assert one.until(Opened).status.mode == "off"
    one.inference.put(SetMode("lookup", 3))
    assert one.until(StatusChanged).status.mode == "lookup"


def test_loading_another_model_frees_the_first(desk: Callable[..., Desk]) -> None:
    one = desk(notes=["it is near"])
    assert one.until(Noted).text == "it is near"
    one.until(Opened)
    one.inference.put(Open(Config()))
    one.until(Opened)
    assert one.script.n_closed == 1


def test_quit_while_loading_ends_the_thread(desk: Callable[..., Desk]) -> None:
    one = desk(load_s=600.0)
    assert one.inference.quit(PATIENCE_S)


def test_the_outbox_wakes_once_and_joins_progress() -> None:
    woken = []
    outbox = Outbox(lambda: woken.append(1))
    for _ in range(1000):
        outbox.put(LoadAdvanced(2))
    assert len(woken) == 1
    assert outbox.take() == [LoadAdvanced(2000)]
    assert outbox.rest()
    outbox.put(Noted("x"))
    assert len(woken) == 2
    assert not outbox.rest()


def test_the_scripted_session_notices_two_calls_at_once() -> None:
    session = ScriptedSession(Script())
    events = session.ask([Message("user", "a b c")], Sampling())
    next(events)
    with pytest.raises(OverlapError):
        session.set_mode("off")
    with pytest.raises(OverlapError):
        next(session.ask([Message("user", "b")], Sampling()))
    list(events)
    session.set_mode("off")


def test_fifty_requests_from_many_threads_are_answered_one_by_one(
    desk: Callable[..., Desk],
) -> None:
    """F35: the scripted session fails if two calls meet."""
    one = desk(answer=lambda messages: words(messages[-1].content))
    one.until(Opened)

    def put(first: int) -> None:
        for number in range(first, first + 10):
            one.inference.put(question(number, f"question {number}"))

    threads = [threading.Thread(target=put, args=(first,)) for first in range(0, 50, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts: dict[int, str] = {}
    ended: list[int] = []
    while len(ended) < 50:
        event = one.until((Stepped, Ended, AnswerFailed))
        assert not isinstance(event, AnswerFailed), event
        if isinstance(event, Stepped):
            texts[event.id] = texts.get(event.id, "") + event.step.text
        else:
            ended.append(event.id)
    assert texts == {number: f"question {number}" for number in range(50)}
    assert sorted(ended) == list(range(50))


def test_words() -> None:
    assert words("a b\n\n c") == ["a", " b", "\n\n c"]
    assert "".join(words("x  y\tz ")) == "x  y\tz "
