"""What the recorded answers of two sessions must show of the history drafter."""

from __future__ import annotations

from itertools import combinations

import pytest

from bench.history_replay import (
    MACHINES,
    Answer,
    calibrated,
    compare,
    foresight,
    load_answers,
    shared,
    tasks,
)
from bench.replay.curves import CPU_Q8, LAPTOP


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return load_answers()


def test_the_tasks_are_related_but_not_the_same(answers: list[Answer]) -> None:
    assert [(one.id, one.session) for one in answers] == [(t.id, t.session) for t in tasks()]
    assert [one.session for one in answers] == [1] * 6 + [2] * 6
    for one, other in combinations(answers, 2):
        assert one.prompt != other.prompt
        assert one.out != other.out
    first = answers[:6]
    shares = [shared(one, first) for one in answers[6:]]
    assert 0.2 < sum(shares) / 6 < 0.8, shares
    assert max(shares) < 0.95, "no answer is a copy"


def test_what_is_shared_and_foreseen_is_counted() -> None:
    earlier = Answer("a", 1, [], list(range(100)))
    half = Answer("b", 2, [], [*range(20, 60), *range(200, 240)])
    assert shared(half, [earlier]) == 0.5
    assert shared(half, []) == 0
    # 39 tokens to come from the index in one decode of width 40, then 40 plain ones.
    assert foresight(half, [earlier], LAPTOP) == pytest.approx(79 / (1 + 0.04 * 39 + 40), rel=0.05)
    assert foresight(half, [], LAPTOP) == pytest.approx(1.0)


def test_the_second_session_gains_and_unrelated_prompts_do_not_lose(answers: list[Answer]) -> None:
    """Issue "Faster with use": 1.5 x on the memory-bound curve, 0.98 x on unrelated prompts."""
    report = compare(answers, [LAPTOP])[LAPTOP.name]
    assert report["second session"]["gain"] >= 1.5
    assert report["unrelated"]["gain"] >= 0.98
    assert CPU_Q8 in MACHINES


def test_the_chances_come_true(answers: list[Answer]) -> None:
    bins = calibrated(answers[6:], answers[:6])
    assert sum(n for *_, n in bins) > 200
    for high, promised, right, n in bins:
        if n >= 40:
            assert abs(promised - right) < 0.15, (high, promised, right, n)
