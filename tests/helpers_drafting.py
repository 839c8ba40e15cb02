"""Real targets of every kind, with every drafter: tiny models that count, and stray from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from helpers_tiny_models import (
    write_counting_assistant,
    write_counting_gemma4,
    write_counting_qwen35,
    write_counting_step35,
    write_gemma3,
    write_lfm2,
    write_mamba,
)

from localspec.gguf import read_header
from localspec.history import History
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.mtp import MtpHeads
from localspec.nextn import heads_of
from localspec.spec.drafter import Drafter
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fakes import FakeSampler, FakeVocabulary
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import ModelDrafter
from localspec.spec.mtp_drafter import MtpDrafter

N = 300
"""Tokens of a long answer."""
TIE = 0.003
"""Batches of other sizes differ by less."""
PROMPT = list(range(10, 40))
WINDOW = 32

# Writers of the target and of its heads' file (None: no heads, or in its own).
Write = Callable[[Path], Path]
TARGETS: dict[str, tuple[Write, Write | None]] = {
    "mamba": (lambda p: write_mamba(p, noise=2.4, seed=2), None),
    "lfm2": (lambda p: write_lfm2(p, noise=0.8, seed=4), None),
    "qwen35": (lambda p: write_counting_qwen35(p, noise=1.4, heads="none"), None),
    "qwen35 with a head": (lambda p: write_counting_qwen35(p, noise=1.4), None),
    "window": (lambda p: write_gemma3(p, noise=4.6, window=WINDOW), None),
    "window with heads": (lambda p: write_counting_step35(p, n_heads_mtp=3, noise=2.0), None),
    "shared": (
        lambda p: write_counting_gemma4(p, noise=6.0, seed=6),
        lambda p: write_counting_assistant(p, noise=0.2),
    ),
}
DRAFTS: dict[str, Write] = {
    "mamba": lambda p: write_mamba(p, noise=0.3),
    "lfm2": lambda p: write_lfm2(p, noise=0.3),
    "window": lambda p: write_gemma3(p, noise=1.0, window=WINDOW),
}
# Each kind of draft drafts for its like and for others.
PAIRED = {
    "mamba": "mamba",
    "lfm2": "lfm2",
    "qwen35": "window",
    "qwen35 with a head": "lfm2",
    "window": "window",
    "window with heads": "mamba",
    "shared": "lfm2",
}
WITH_HEADS = ("qwen35 with a head", "window with heads", "shared")
CASES = [
    (target, drafter)
    for target in TARGETS
    for drafter in ("lookup", "history", "draft", "mtp")
    if drafter != "mtp" or target in WITH_HEADS
]
N_VOCAB = 258
VOCABULARY = FakeVocabulary([b"%d " % n for n in range(N_VOCAB)])


def answer(
    engine: Engine, prompt: Sequence[int], n: int = N, **how: Any
) -> tuple[list[int], Finished]:
    """The answer's tokens, greedy unless ``how`` says otherwise; ``finished`` has the statistics.
    ``how``: the other fields of the request."""
    how.setdefault("sampler", FakeSampler())
    how.setdefault("rng", np.random.default_rng(0))
    tokens: list[int] = []
    for event in engine.generate(Request(prompt, max_tokens=n, **how)):
        if isinstance(event, Step):
            tokens.extend(event.tokens)
        last = event
    assert isinstance(last, Finished)
    return tokens, last


@dataclass
class Target:
    """A target with what it says alone, which is asked once."""

    context: Context
    heads: MtpHeads | None
    said: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def plain(self, prompt: Sequence[int], n: int) -> list[int]:
        """The answer to ``prompt``, decoded here token by token; leaves the memory empty."""
        if self.heads is not None:
            self.heads.rest()
        key = tuple(prompt)
        if len(self.said.get(key, ())) < n:
            self.said[key] = self._decode(prompt, n)
        self.context.clear()
        return self.said[key][:n]

    def _decode(self, prompt: Sequence[int], n: int) -> list[int]:
        context, text = self.context, []
        context.clear()
        for start in range(0, len(prompt), 64):
            context.decode(prompt[start : start + 64], 1)
        while len(text) < n:
            row = context.row(0)
            second, best = np.sort(row)[-2:]
            assert best - second > TIE, "rounding could decide here: take another model"
            text.append(int(row.argmax()))
            context.decode([text[-1]], 1)
        return text


class Models:
    """Makes each target and draft once, in files under ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._targets: dict[str, Target] = {}
        self._drafts: dict[str, Context] = {}
        self._opened: list[Any] = []

    def target(self, kind: str) -> Target:
        """One of ``TARGETS``; its heads follow it only once they are asked to draft."""
        if kind not in self._targets:
            write, write_heads = TARGETS[kind]
            path = write(self._home / f"{kind}.gguf")
            with_heads = write_heads(self._home / f"{kind}-heads.gguf") if write_heads else path
            found = heads_of(read_header(with_heads))
            model = Model(path, load_mtp=found is not None and with_heads == path)
            other = Model(with_heads, load_mtp=True) if with_heads != path else None
            context = self._context(model)
            heads = MtpHeads(context, found, other) if found is not None else None
            self._opened[:0] = [heads] if heads is not None else []
            self._targets[kind] = Target(context, heads)
        return self._targets[kind]

    def draft(self, kind: str) -> Context:
        """The draft model that goes with a target, empty."""
        name = PAIRED[kind]
        if name not in self._drafts:
            model = Model(DRAFTS[name](self._home / f"draft-{name}.gguf"))
            self._drafts[name] = self._context(model, drafts=True)
        self._drafts[name].clear()
        return self._drafts[name]

    def _context(self, model: Model, *, drafts: bool = False) -> Context:
        settings = ContextSettings(
            1024, n_batch=64, n_ubatch=64, n_rs_seq=4, type_k="f32", type_v="f32", drafts=drafts
        )
        context = Context(model, settings)
        assert context.can_roll_back()
        self._opened += [context, model]
        return context

    def drafter(self, name: str, kind: str) -> Drafter:
        """A new drafter; heads follow the target only where they draft."""
        target = self.target(kind)
        if target.heads is not None and name != "mtp":
            target.heads.rest()
        if name == "lookup":
            return Lookup()
        if name == "mtp":
            assert target.heads is not None
            target.heads.follow()
            return MtpDrafter(target.heads, rng=np.random.default_rng(1))
        if name == "draft":
            return ModelDrafter(self.draft(kind), rng=np.random.default_rng(0), n_chunk=64)
        # What it has read is nearly this text.
        text = [*PROMPT, *target.plain(PROMPT, N)]
        rng = np.random.default_rng(3)
        history = History.in_memory()
        for _ in range(2):
            seen = [token if rng.random() < 0.9 else int(rng.integers(256)) for token in text]
            history.remember(seen, None)
        return HistoryDrafter(history, history.calibration, N_VOCAB)

    def close(self) -> None:
        """Free all of it, heads before what they follow."""
        for part in self._opened:
            part.close()
