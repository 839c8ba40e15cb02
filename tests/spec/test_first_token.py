"""The first token is the target's own and waits for no drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from localspec.spec.costs import Learned
from localspec.spec.drafter import Draft, Drafter, More, Offer, Pacer, Sampler
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Step
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary, says
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import ModelDrafter
from localspec.spec.pacer import AutoPacer

N_VOCAB = 20
PROMPT = [1, 2, 3, 4] * 8
ANSWER = [5, 6, 7, 8] * 10

KEEN = Learned(
    widths=dict.fromkeys(range(2, 33), (1.0, 8)),
    drafts={"draft": ((0.01, 8),) * 4},
    trust={"draft": (100.0, 100.0)},
    prompt_rate=0.01,
)
"""What makes drafting look free: a pacer that knows this drafts as soon as it may."""


class Watched:
    """A drafter that notes in ``log`` when it is asked to guess."""

    def __init__(self, inner: Drafter, log: list[str]) -> None:
        self.name = inner.name
        self._inner, self._log = inner, log

    def begin(self, tokens: Sequence[int], sampler: Sampler) -> None:
        self._inner.begin(tokens, sampler)

    def offer(self) -> Offer | None:
        return self._inner.offer()

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        self._log.append(f"propose {self.name}")
        return self._inner.propose(limit, more, cancelled)

    def commit(self, tokens: Sequence[int]) -> None:
        return self._inner.commit(tokens)

    def costs(self) -> tuple[float, int, float, int]:
        return self._inner.costs()


class Loud(FakeDecoder):
    """Notes its decodes."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER]))
        self._name, self._log = name, log

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        self._log.append(f"decode {self._name}")
        super().decode(tokens, n_rows)


@pytest.mark.parametrize(
    "pacer",
    [
        FixedPacer("draft", 4),
        FixedPacer("lookup", 4),
        AutoPacer({"draft": 0.01}, KEEN),
        AutoPacer({"draft": 0.01}),
    ],
    ids=["draft", "lookup", "auto, costs known", "auto, cold"],
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_nothing_is_drafted_before_the_first_token(pacer: Pacer, temperature: float) -> None:
    log: list[str] = []
    model = ModelDrafter(Loud("draft model", log), rng=np.random.default_rng(1))
    drafters = [Watched(Lookup(), log), Watched(model, log)]
    engine = Engine(
        Loud("target", log), FakeVocabulary([b"x"] * N_VOCAB), drafters, pacer, n_chunk=8
    )
    for _ in range(3):  # later answers too, when the pacer has learned that drafting pays
        request = Request(
            PROMPT, FakeSampler(temperature), np.random.default_rng(1), max_tokens=30,
            temperature=temperature,
        )  # fmt: skip
        for event in engine.generate(request):
            if isinstance(event, Step) and event.is_first:
                assert set(log) == {"decode target"}
        log.clear()


def test_the_test_would_notice() -> None:
    """With costs known, drafting does begin right after the first token."""
    log: list[str] = []
    model = ModelDrafter(Loud("draft model", log), rng=np.random.default_rng(1))
    engine = Engine(
        Loud("target", log), FakeVocabulary([b"x"] * N_VOCAB), [Watched(model, log)],
        AutoPacer({"draft": 0.01}, KEEN),
    )  # fmt: skip
    request = Request(PROMPT, FakeSampler(), np.random.default_rng(1), max_tokens=30)
    list(engine.generate(request))
    assert "propose draft" in log
    assert log.index("propose draft") > log.index("decode target")
