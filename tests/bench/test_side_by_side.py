"""Answers by turns: who goes on, and that every answer is read to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def given(name: str, totals: Sequence[int], order: list[str], speed: float | None) -> Answering:
    for total in totals:
        order.append(name)
        yield total
    order.append(f"{name} ended")
    return None if speed is None else Answered(speed)


def test_the_one_that_has_given_the_fewest_tokens_goes_on() -> None:
    order: list[str] = []
    slow, fast = given("a", [1, 9, 17, 25], order, 10.0), given("b", [1, 21, 29], order, 25.0)
    assert side_by_side([slow, fast]) == [Answered(10.0), Answered(25.0)]
    assert order == ["a", "b", "a", "b", "a", "a", "b", "a ended", "b ended"]


def test_an_answer_too_short_to_tell_does_not_stop_the_other() -> None:
    order: list[str] = []
    assert side_by_side([given("a", [1], order, None), given("b", [1, 9], order, 3.0)]) == [
        None,
        Answered(3.0),
    ]
    assert order[-1] == "b ended"


class Scripted:
    """A session whose steps have the given sizes."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.told: list[str] = []

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
            stats.generate_s += 0.0 if first else 0.1
            yield step
        self.told.append("ended")
        yield Finished("stop", stats)


def test_a_session_hands_over_after_its_first_token_and_then_after_each_turn() -> None:
    session = Scripted([1, 1, 4, 2, 1, 9, 2])
    turns = session_answers(cast(Session, session), "auto")(TASK)
    assert not session.told  # nothing is done before its turn
    assert [next(turns) for _ in range(3)] == [1, 9, 18]
    assert session.told == ["auto", "cleared"]
    with pytest.raises(StopIteration) as ended:
        next(turns)
    answered = ended.value.value
    assert (answered.speed, answered.first_token_s) == (pytest.approx(19 / 0.6), 0.5)
    assert session.told[-1] == "ended"


def test_one_token_says_nothing_about_speed() -> None:
    answer = session_answers(cast(Session, Scripted([1])), "off")(TASK)
    assert side_by_side([answer]) == [None]
