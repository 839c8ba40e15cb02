"""What the engine around the rule must not do: drop a drawn token because of what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import chisquare

from localspec.spec.drafter import Choice, Dist, Draft, More, Offer
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Step
from localspec.spec.fakes import FakeDecoder, FakeDrafter, FakeSampler, FakeVocabulary
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.verify import draw

N_VOCAB = 4
TARGET = np.array([0.1, 0.2, 0.3, 0.4])
DRAFT = np.array([0.4, 0.3, 0.2, 0.1])
N_DRAWS = 20_000


class Drawing(FakeDrafter):
    """Draws from ``DRAFT`` and says how sure it is of each token."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(lambda _: [], name="drawing")
        self._rng = rng

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        dist = Dist(np.arange(N_VOCAB, dtype=np.int32), DRAFT)
        tokens = [draw(dist, self._rng) for _ in range(limit)]
        return Draft(tokens, [dist.of(token) for token in tokens], [dist] * limit)


class Picky(FixedPacer):
    """Would like to verify only tokens that the drafter is sure of."""

    def __init__(self) -> None:
        super().__init__("drawing", 2)

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        return Choice("drawing", min(2, room), "") if offers and room else Choice("plain", 0, "")

    def n_to_verify(self, draft: Draft) -> int:
        sure = [confidence > 0.25 for confidence in draft.confidence]
        return next((i for i, ok in enumerate(sure) if not ok), len(sure))


def counts_of(*, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    row = np.log(TARGET).astype(np.float32)
    rng = np.random.default_rng(8)
    drafter = Drawing(rng)
    if not guarded:
        whole = drafter.propose

        def cut(limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
            draft = whole(limit, more, cancelled)
            draft.cut(Picky().n_to_verify(draft))
            return draft

        monkeypatch.setattr(drafter, "propose", cut)
    engine = Engine(
        FakeDecoder(N_VOCAB, lambda _: row, n_ctx=1000),
        FakeVocabulary([b"a"] * N_VOCAB),
        [drafter],
        Picky(),
    )
    counts: Counter[int] = Counter()
    n_drafted = 0
    for _ in range(N_DRAWS // 500):
        request = Request([0], FakeSampler(1.0), rng, max_tokens=500, temperature=1.0)
        for event in engine.generate(request):
            if isinstance(event, Step):
                counts.update(event.tokens)
                n_drafted += event.n_drafted
    assert n_drafted > 1000
    return counts


def p_value(counts: Counter[int]) -> float:
    n = sum(counts.values())
    return float(chisquare([counts[i] for i in range(N_VOCAB)], TARGET * n).pvalue)


def test_drawn_tokens_are_verified_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert p_value(counts_of(guarded=True, monkeypatch=monkeypatch)) > 0.01


def test_dropping_unsure_tokens_before_verification_would_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same pacer without the engine's guard: the test above is able to fail."""
    assert p_value(counts_of(guarded=False, monkeypatch=monkeypatch)) < 1e-6
