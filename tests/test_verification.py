"""The self-check's own arithmetic and verdicts, without a model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from localspec.cli.verify import verdict
from localspec.exact import EXACT, judge
from localspec.verification import (
    GreedyResult,
    SampledResult,
    Verification,
    uniform_p_value,
)


def test_the_p_value_is_that_of_kolmogorov_and_smirnov() -> None:
    rng = np.random.default_rng(0)
    for n in (200, 1000, 5000):
        places = rng.random(n) ** 1.05
        assert uniform_p_value(places) == pytest.approx(kstest(places, "uniform").pvalue, rel=0.05)


def test_drawing_from_p_passes_and_drawing_from_something_else_does_not() -> None:
    rng = np.random.default_rng(1)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    before = np.array([0.0, 0.5, 0.8, 0.95])

    def places(q: np.ndarray) -> list[float]:
        tokens = rng.choice(4, size=3000, p=q)
        return list(before[tokens] + rng.random(3000) * p[tokens])

    assert uniform_p_value(places(p)) > 0.01
    assert uniform_p_value(places(np.array([0.6, 0.25, 0.12, 0.03]))) < 1e-6


def test_extreme_places_do_not_overflow() -> None:
    assert uniform_p_value([0.5] * 100_000) == 0.0
    assert uniform_p_value([]) == 1.0
    assert uniform_p_value([(i + 0.5) / 2100 for i in range(2100)]) == 1.0


def result(first: int | None, gap: float | None) -> GreedyResult:
    return GreedyResult(1, "lookup", 48, 20, first, gap)


GOOD = SampledResult("lookup", 256, 90, 0.4, None)


@pytest.mark.parametrize(
    ("greedy", "sampled", "n", "says"),
    [
        (result(None, None), GOOD, 0, "OK: every greedy text is identical"),
        (result(7, 0.1), GOOD, 0, "1 of 1 greedy texts fork"),
        (result(7, 0.5), GOOD, 1, "VIOLATION"),
        (result(None, None), SampledResult("lookup", 99, 1, 1e-9, 0.2), 0, "OK"),
        (result(None, None), SampledResult("lookup", 99, 1, 1e-9, 1e-5), 1, "VIOLATION"),
    ],
)
def test_what_counts_as_a_violation(
    greedy: GreedyResult, sampled: SampledResult, n: int, says: str
) -> None:
    found = Verification([greedy], [sampled], {2: 0.0})
    assert found.n_violations == n
    assert says in verdict(found, "")


def test_nothing_drafted_is_nothing_checked() -> None:
    assert "Nothing to check" in verdict(Verification(), "no rollback")


@pytest.mark.parametrize(
    ("differences", "width", "text"),
    [
        ({2: 0.0, 3: 0.0, 4: 0.0}, 4, EXACT),
        ({2: 0.0, 3: 0.0, 4: 0.3}, 3, EXACT),
        ({2: 0.25, 3: 0.0, 4: 0.3}, 1, "rounding (max difference 0.3)"),
        (None, 1, "not known: the context is too short to compare"),
    ],
)
def test_the_width_up_to_which_drafting_is_exact(
    differences: dict[int, float] | None, width: int, text: str
) -> None:
    found = judge(differences)
    assert (found.max_width, found.text) == (width, text)
    assert found.usable == (width > 1) == (found.reason == "")
