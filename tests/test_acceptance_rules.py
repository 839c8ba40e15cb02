"""The rejection rule's gain over keep-if-equal on the recorded answers."""

from __future__ import annotations

import pytest

from bench.acceptance_rules import geometric_mean, ratios, tokens_per_step
from bench.replay.traces import Trace


def test_tokens_per_step_counts_the_bonus_token() -> None:
    trace = Trace("t", "r", [1], [5, 6, 7, 8, 9, 4], [5, 6, 0, 8, 9, 4], [1.0] * 6, {})
    # 5 6 and the correction 7; then 8 9 and the bonus 4.
    assert tokens_per_step(trace, 2) == 3.0


@pytest.mark.parametrize("n_draft", [4, 8])
def test_the_rejection_rule_brings_a_tenth_more(n_draft: int) -> None:
    rows = ratios(n_draft)
    assert len(rows) == 16
    assert geometric_mean(rows) >= 1.10
