"""Answers by turns: who goes on, and that every answer is read to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.peers import Answered
from bench.side_by_side import side_by_side
from localspec.spec.events import Event, Finished, Prefill, Step
from localspec.spec.stats import Stats


def answer(name: str, sizes: list[int], order: list[str]) -> Iterator[Event]:
    """One that gives so many tokens in each step, a tenth of a second each."""
    stats = Stats(n_prompt=8, first_token_s=0.5)
    for n_done in (0, 4, 8):
        order.append(name)
        yield Prefill(n_done, 8, 0)
    for index, size in enumerate(sizes):
        order.append(name)
        step = Step((7,) * size, ("x",) * size, size - 1, size - 1, size - 1, "lookup", 0.0, 0.1,
                    is_first=index == 0)  # fmt: skip
        stats.add(step)
        stats.generate_s += 0.0 if index == 0 else 0.1
        yield step
    order.append(f"{name} ended")
    yield Finished("stop", stats)


def test_the_one_with_fewer_tokens_goes_on_after_an_unbroken_prompt() -> None:
    order: list[str] = []
    found = side_by_side([answer("a", [1] * 6, order), answer("b", [1, 4, 1], order)])
    assert order[:8] == ["a"] * 4 + ["b"] * 4  # both prompts, each to its first token
    # One token each now; b's four of one step are made up for by four steps of a.
    assert order[8:15] == ["a", "b", "a", "a", "a", "a", "b"]
    assert order.count("a ended") == order.count("b ended") == 1
    assert found == [
        Answered(pytest.approx(10.0), 0.5, None),
        Answered(pytest.approx(25.0), 0.5, None),
    ]


def test_an_answer_too_short_to_tell_does_not_stop_the_other() -> None:
    order: list[str] = []
    found = side_by_side([answer("a", [1], order), answer("b", [1] * 9, order)])
    assert found[0] is None
    assert found[1] is not None
    assert "b ended" in order
