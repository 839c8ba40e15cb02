"""The self-check on a real model: all is well as it is, and a broken rule is found out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from localspec.config import Config
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.drafter import Dist, Draft, Row, Sampler
from localspec.spec.verify import Verifier
from localspec.verification import Effort, Verifying

pytestmark = pytest.mark.real

SMALL = Effort(n_prompts=4, n_greedy=8, n_sampled=60)
"""Short answers: a small model that takes the best tokens soon repeats itself, and then is as sure
as one that draws them. So a broken rule has a p-value of 1e-30 here, and not of 1e-5 at times."""


@pytest.fixture(scope="module")
def session(model_file) -> Iterator[Session]:  # type: ignore[no-untyped-def]
    path = str(model_file("smollm2-135m"))
    opened = open_session(Config(model=path, mode="lookup", threads=1, n_ctx=512, history=False))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What users get is drawn without a seed; here chance must not decide how much is drafted."""
    default_rng, seeds = np.random.default_rng, count(1)
    monkeypatch.setattr(
        np.random,
        "default_rng",
        lambda seed=None: default_rng(next(seeds) if seed is None else seed),
    )


def test_drafting_as_it_is_passes(session: Session) -> None:
    found = Verifying(session, SMALL).run(["lookup"])
    assert found.n_violations == 0
    assert all(result.first_difference is None for result in found.greedy)
    assert found.sampled[0].n_verified > 20
    assert found.widths is not None


def test_keeping_every_draft_is_a_violation(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(
        self: Verifier, row: Row, draft: Draft, index: int, sampler: Sampler
    ) -> tuple[bool, int]:
        return True, draft.tokens[index]

    monkeypatch.setattr(Verifier, "_check", keep)
    found = Verifying(session, SMALL).run(["lookup"])
    assert any(result.is_violation for result in found.greedy)


def test_taking_the_best_instead_of_drawing_is_a_violation(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best(self: Verifier, dist: Dist) -> int:
        return int(dist.ids[int(dist.probs.argmax())])

    monkeypatch.setattr(Verifier, "_draw", best)
    found = Verifying(session, SMALL).run(["lookup"])
    assert found.sampled[0].is_violation
    assert not any(result.is_violation for result in found.greedy)
