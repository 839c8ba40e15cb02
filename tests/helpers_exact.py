"""An engine over real model files, small enough for every machine: the same file may be target and
draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.errors import DecodeError
from localspec.history import History
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.sampler import Chain
from localspec.spec.drafter import Choice, Drafter, Offer
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import ModelDrafter
from localspec.spec.sampling import Sampling

GREEDY = Sampling(temperature=0.0, seed=1)
NEAR_TIE = 0.5


@dataclass
class Answer:
    tokens: list[int]
    text: str
    finished: Finished
    steps: list[Step]


class FailingContext(Context):
    """Its next decode fails when it is told so."""

    fails = False

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        if self.fails:
            self.fails = False
            raise DecodeError("told to fail")
        super().decode(tokens, n_rows)


class Eager(FixedPacer):
    """Drafts at every step with whatever drafter is there."""

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        if room < 1 or not offers:
            return Choice("plain", 0, "")
        best = max(offers, key=lambda offer: (offer.drafter == "draft", offer.evidence))
        n = min(6, room, best.available)
        return Choice(best.drafter if best.evidence else "plain", n, "")

    def more(self, n_so_far: int, confidence: float) -> bool:
        return n_so_far < 6


class Pair:
    """A target and maybe a draft with one context each, driven by the real engine."""

    def __init__(
        self, target: Path, draft: Path | None, n_ctx: int = 512, n_batch: int = 512,
        settings: ContextSettings | None = None, repack: bool = True,
    ) -> None:  # fmt: skip
        settings = settings or ContextSettings(n_ctx=n_ctx, n_batch=n_batch)
        self.model = Model(target, repack=repack)
        self.context = FailingContext(self.model, settings)
        self.draft_model = Model(draft) if draft else None
        self.draft = FailingContext(self.draft_model, settings) if self.draft_model else None
        self.drafter: ModelDrafter | None = None
        if self.draft is not None:
            self.drafter = ModelDrafter(self.draft, rng=np.random.default_rng(0))
        self.history = History.in_memory()
        self.earlier = HistoryDrafter(self.history, self.history.calibration, self.context.n_vocab)
        self.engine = Engine(
            self.context, self.model, [], PlainPacer(), n_chunk=self.context.n_batch
        )

    def use(self, mode: str) -> None:
        drafters: dict[str, list[Drafter]] = {
            "off": [], "lookup": [Lookup()], "draft": [], "both": [Lookup()],
            "history": [self.earlier],
        }  # fmt: skip
        chosen = drafters[mode]
        if mode in ("draft", "both") and self.drafter is not None:
            chosen.append(self.drafter)
        self.engine.drafters = chosen
        self.engine.pacer = Eager("draft", 6) if chosen else PlainPacer()
        self.engine.broken = ""

    def ask(
        self, prompt: Sequence[int] | str, mode: str, sampling: Sampling = GREEDY,
        max_tokens: int | None = 32, cancel_after: int | None = None, rng: int = 0,
    ) -> Answer:  # fmt: skip
        tokens = self.tokens(prompt) if isinstance(prompt, str) else list(prompt)
        self.use(mode)
        asked = 0

        def cancelled() -> bool:
            nonlocal asked
            asked += 1
            return cancel_after is not None and asked > cancel_after

        chain = Chain(self.model, sampling, tokens)
        if self.drafter is not None:
            self.drafter.rng = np.random.default_rng(5)
        request = Request(
            tokens, chain, np.random.default_rng(rng), max_tokens, cancelled=cancelled,
            temperature=sampling.temperature,
        )  # fmt: skip
        events = list(self.engine.generate(request))
        chain.close()
        steps = [event for event in events if isinstance(event, Step)]
        finished = events[-1]
        assert isinstance(finished, Finished)
        said = [token for step in steps for token in step.tokens]
        text = "".join(step.text for step in steps) + finished.text
        self.history.remember([*tokens, *said], None)
        return Answer(said, text, finished, steps)

    def tokens(self, text: str) -> list[int]:
        return self.model.tokenize(text, add_special=True, parse_special=True)

    def gap_after(self, tokens: Sequence[int]) -> float:
        """Gap between the two best logits after ``tokens``, read afresh."""
        self.context.clear()
        for start in range(0, len(tokens), self.context.n_batch):
            chunk = tokens[start : start + self.context.n_batch]
            self.context.decode(chunk, 1 if start + len(chunk) == len(tokens) else 0)
        best = np.sort(self.context.row(0))[-2:]
        self.context.clear()
        return float(best[1] - best[0])

    def assert_same_or_near_tie(
        self, prompt: Sequence[int], plain: Sequence[int], said: Sequence[int]
    ) -> None:
        if list(plain) == list(said):
            return
        n = min(len(plain), len(said))
        fork = next((i for i in range(n) if plain[i] != said[i]), n)
        gap = self.gap_after([*prompt, *plain[:fork]])
        assert gap < NEAR_TIE, f"differs at {fork}, where the gap is {gap}"

    def close(self) -> None:
        for part in (self.draft, self.draft_model, self.context, self.model):
            if part is not None:
                part.close()
