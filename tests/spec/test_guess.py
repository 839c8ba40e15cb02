"""A drafted token and the drafter's confidence in it."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.spec.drafter import Draft, Row
from localspec.spec.fakes import FakeSampler
from localspec.spec.guess import guess

ROW = np.array([0.0, 200.0, 1.0], np.float32)


class Picky(FakeSampler):
    """A grammar that allows only token 0."""

    def best(self, row: Row) -> int:
        return 0


def test_a_token_far_below_the_best_has_no_confidence_and_does_not_overflow() -> None:
    token, confidence = guess(ROW, Draft(), Picky(), np.random.default_rng(0))
    assert token == 0
    assert confidence == pytest.approx(0.0, abs=1e-30)


def test_the_best_token_is_as_likely_as_its_softmax_says() -> None:
    row = np.log(np.array([0.2, 0.5, 0.3], np.float32))
    token, confidence = guess(row, Draft(), FakeSampler(), np.random.default_rng(0))
    assert (token, confidence) == (1, pytest.approx(0.5, abs=1e-6))


def test_a_drawn_token_brings_its_distribution() -> None:
    draft = Draft(dists=[])
    token, confidence = guess(ROW, draft, FakeSampler(1.0), np.random.default_rng(0))
    assert draft.dists is not None
    assert draft.dists[0].of(token) == confidence
