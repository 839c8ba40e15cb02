"""The candidates that top-k would keep are found without sorting a vocabulary: none may be missing,
wherever in the row they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.llama.sampler import _Scratch

N_VOCAB = 10_007
"""No multiple of any group size: the last tokens are in no group."""


def rows(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    usual = rng.normal(0, 3, N_VOCAB).astype(np.float32)
    climbing = np.sort(usual)
    forbidden = usual.copy()
    forbidden[rng.random(N_VOCAB) < 0.9] = -np.inf
    few = np.full(N_VOCAB, -np.inf, np.float32)
    few[rng.integers(0, N_VOCAB, 9)] = 1.0
    side_by_side = usual.copy()
    side_by_side[4000:4060] += 40.0
    apart = usual.copy()
    apart[5::157] += 40.0
    return {
        "usual": usual,
        "best in the first group": climbing[::-1].copy(),
        "best in no group": climbing,
        "most forbidden": forbidden,
        "few possible": few,
        "side by side": side_by_side,
        "a stride apart": apart,
        "rounded": np.round(usual),
        "all the same": np.zeros(N_VOCAB, np.float32),
    }


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(rows(0))), st.integers(1, 300))
def test_none_of_the_best_is_missing(seed: int, kind: str, n: int) -> None:
    row = rows(seed)[kind]
    found = _Scratch(N_VOCAB).at_least(row, n)
    possible = int((row > -np.inf).sum())
    last = np.sort(row)[-min(n, possible)]
    assert set(np.flatnonzero(row >= last)) <= set(found["id"].tolist())
    assert found["id"].tolist() == sorted(found["id"].tolist())
    np.testing.assert_array_equal(found["logit"], row[found["id"]])
    assert (found["logit"] > -np.inf).all()


@pytest.mark.parametrize("n", [1, 40, 60])
def test_few_others_come_along(n: int) -> None:
    """As many as share a group with a better one."""
    for seed in range(20):
        row = rows(seed)["usual"]
        assert len(_Scratch(N_VOCAB).at_least(row, n)) < 3 * n + 20


def test_a_longer_row_than_the_scratch_was_made_for() -> None:
    row = rows(0)["usual"]
    scratch = _Scratch(100)
    assert len(scratch.fill(row)) == N_VOCAB
    assert len(scratch.at_least(row, 40)) >= 40
