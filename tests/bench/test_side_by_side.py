"""Answers by turns: who goes on, and that every answer is read to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from bench import side_by_side as module
from bench.side_by_side import Answered, Answering, Task, session_answers, side_by_side
from localspec.benchmark import BenchPrompt
from localspec.session import Session
from localspec.spec.events import Event, Finished, Prefill, Step
from localspec.spec.stats import Stats

TASK = Task(BenchPrompt("a", "code", "x"), [], 30, 0.0, 1)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)


def given(name: str, n_turns: int, order: list[str], speed: float | None) -> Answering:
    for _ in range(n_turns):
        order.append(name)
        yield
    order.append(f"{name} ended")
    return None if speed is None else Answered(speed)


def test_they_take_turns_until_all_have_ended() -> None:
    order: list[str] = []
    answers = [given("a", 4, order, 10.0), given("b", 2, order, 25.0), given("c", 1, order, None)]
    assert side_by_side(answers) == [Answered(10.0), Answered(25.0), None]
    assert order[:5] == ["a", "b", "c", "a", "b"]
    assert order[5:] == ["c ended", "a", "b ended", "a", "a ended"]


class Scripted:
    """A session whose steps have the given sizes."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.told: list[str] = []
        self.given = 0

    def set_mode(self, mode: str) -> None:
        self.told.append(mode)

    def clear(self) -> None:
        self.told.append("cleared")

    def ask(self, *_: Any, max_tokens: int) -> Iterator[Event]:
        assert max_tokens == 30
        stats = Stats(n_prompt=8, first_token_s=0.5)
        yield Prefill(8, 8, 0)
        for index, n in enumerate(self.sizes):
            first = index == 0
            step = Step((7,) * n, ("x",) * n, n - 1, n - 1, n - 1, "lookup", 0, 0, is_first=first)
            stats.add(step)
            self.given += n
            stats.generate_s += 0.0 if first else 0.1
            yield step
        self.told.append("ended")
        yield Finished("stop", stats)


def test_a_session_hands_over_after_its_first_token_and_then_after_each_turn() -> None:
    session = Scripted([1, 1, 4, 2, 9, 17, 2])
    turns = session_answers(cast(Session, session), "auto")(TASK)
    assert not session.told  # nothing is done before its turn
    for n_given in (1, 17, 34):
        next(turns)
        assert session.given == n_given
    assert session.told == ["auto", "cleared"]
    with pytest.raises(StopIteration) as ended:
        next(turns)
    answered = ended.value.value
    assert (answered.speed, answered.first_token_s) == (pytest.approx(35 / 0.6), 0.5)
    assert session.told[-1] == "ended"


def test_one_token_says_nothing_about_speed() -> None:
    answer = session_answers(cast(Session, Scripted([1])), "off")(TASK)
    assert side_by_side([answer]) == [None]
