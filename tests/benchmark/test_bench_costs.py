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


def test_the_least_of_the_passes_counts() -> None:
    clock = Clock()
    n_calls = 0

    def noisy(n: int) -> float:
        nonlocal n_calls
        n_calls += 1
        return 1.0 + (n_calls % 3) * 0.5

    found = cost_by_width(CostlyDecoder(clock, noisy), PREFIX, (2, 5), clock=clock, budget_s=1e9)
    assert found == {2: 1.0, 5: 1.0}


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
