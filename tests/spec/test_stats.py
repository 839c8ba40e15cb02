"""The numbers of an answer, from steps with known times."""

from __future__ import annotations

import pytest

from localspec.spec.events import PLAIN, Step
from localspec.spec.stats import Stats


def step(n_tokens: int, verify_s: float, n_verified: int = 0, n_accepted: int = 0) -> Step:
    return Step(
        tokens=tuple(range(n_tokens)),
        texts=("x",) * n_tokens,
        n_drafted=n_verified,
        n_verified=n_verified,
        n_accepted=n_accepted,
        drafter="draft" if n_verified else PLAIN,
        draft_s=0.0,
        verify_s=verify_s,
    )


def first() -> Step:
    return Step((7,), ("x",), 0, 0, 0, PLAIN, 0.0, 0.0, is_first=True)


def play(*steps: tuple[Step, float | None]) -> Stats:
    stats = Stats()
    stats.add(first())
    for one, baseline in steps:
        stats.add(one)
        stats.generate_s += one.draft_s + one.verify_s
        stats.compare(one, baseline)
    return stats


def test_plain_decoding_gains_nothing_however_the_machine_changes() -> None:
    """A machine that slows down half-way is no gain and no loss."""
    stats = play(*[(step(1, 0.05), 0.05)] * 10, *[(step(1, 0.20), 0.20)] * 10)
    assert stats.gain == pytest.approx(1.0)
    assert stats.saved_s == pytest.approx(0.0)
    assert stats.baseline_tokens_per_s == pytest.approx(stats.tokens_per_s)


def test_each_drafted_token_is_worth_a_plain_decode_of_its_time() -> None:
    stats = play((step(1, 0.1), 0.1), (step(4, 0.2, 3, 3), 0.1), (step(2, 0.3, 3, 1), 0.2))
    # 0.1 + 4 x 0.1 + 2 x 0.2 plain, against 0.6.
    assert stats.plain_s == pytest.approx(0.9)
    assert stats.gain == pytest.approx(1.5)
    assert stats.saved_s == pytest.approx(0.3)
    assert stats.mean_accepted_length == pytest.approx(7 / 3)


def test_tokens_from_before_the_first_measurement_count_at_the_first_one() -> None:
    stats = play((step(3, 0.2, 2, 2), None))
    assert (stats.gain, stats.saved_s, stats.baseline_tokens_per_s) == (None, None, None)
    stats = play((step(3, 0.2, 2, 2), None), (step(1, 0.1), 0.1))
    assert stats.plain_s == pytest.approx(0.4)


def test_a_draft_that_was_thrown_away_is_time_lost() -> None:
    wasted = Step((1,), ("x",), 4, 0, 0, "draft", draft_s=0.1, verify_s=0.1)
    stats = play((step(1, 0.1), 0.1), (wasted, 0.1))
    assert stats.gain == pytest.approx(0.2 / 0.3)
    assert stats.acceptance_rate is None
