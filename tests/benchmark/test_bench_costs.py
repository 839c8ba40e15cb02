"""Costs by width, on a decoder whose costs are known."""

from __future__ import annotations

import pytest
from helpers_bench import Clock, CostlyDecoder

from localspec.benchmark.costs import WIDTHS, cost_by_width

PREFIX = [3, 4, 5]


def curve(n: int) -> float:
    return 1 + 0.1 * (n - 1)


def test_the_curve_is_found_and_the_cache_left_empty() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, curve)
    found = cost_by_width(decoder, PREFIX, clock=clock, budget_s=1e9)
    assert list(found) == list(WIDTHS)
    for width, seconds in found.items():
        assert seconds == pytest.approx(curve(width))
    assert not decoder.tokens


def test_one_lucky_or_unlucky_pass_does_not_count() -> None:
    clock = Clock()
    passes = {2: iter((9.0, 1.0, 1.2, 1.4)), 5: iter((9.0, 2.0, 9.0, 2.2))}  # the first warms up
    decoder = CostlyDecoder(clock, lambda n: next(passes[n]) if n in passes else 1.0)
    found = cost_by_width(decoder, PREFIX, (2, 5), clock=clock, budget_s=1e9)
    assert found == {2: pytest.approx(1.2), 5: pytest.approx(2.2)}


def test_a_machine_that_is_slower_for_a_while_is_slower_for_all_widths() -> None:
    """Plain decodes are measured all along, so the ratios to them hold."""
    for moment in range(0, 160, 10):
        clock = Clock()
        decoder = CostlyDecoder(
            clock,
            lambda n, clock=clock, moment=moment: curve(n) * (1.5 if clock.now > moment else 1.0),
        )
        found = cost_by_width(decoder, PREFIX, clock=clock, budget_s=1e9)
        for width, seconds in found.items():
            assert seconds / found[1] == pytest.approx(curve(width))


def test_a_slow_machine_gets_one_whole_pass() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, lambda _: 10.0)
    found = cost_by_width(decoder, PREFIX, (1, 2, 4), clock=clock, budget_s=1.0)
    assert list(found) == [1, 2, 4]
    assert decoder.widths.count(4) == 1


def test_only_what_fits_and_only_until_stopped() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, curve, n_ctx=8)
    assert list(cost_by_width(decoder, PREFIX, clock=clock)) == [1, 2, 3, 4, 5]
    assert cost_by_width(decoder, PREFIX, clock=clock, cancelled=lambda: True) == {}


def test_a_model_that_cannot_take_tokens_back_reads_the_prefix_again() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, curve, can_roll_back=False)
    found = cost_by_width(decoder, PREFIX, (1, 3), clock=clock, budget_s=1e9)
    assert found == {1: pytest.approx(1.0), 3: pytest.approx(1.2)}
