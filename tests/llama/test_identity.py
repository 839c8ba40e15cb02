"""Greedy text is that of plain decoding: every kind of memory, every drafter, real decoding.

The models count, but stray from it now and then, so that a draft is right for a while and then not.
Field reports: drafts corrupt a hybrid's state, or fail past a sliding window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from localspec.spec.pacer import FixedPacer

N = 300
MANY = 30
"""Fewest drafted tokens that must be rejected, and fewest that must stand."""
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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    home = tmp_path_factory.mktemp("identity")
    opened: dict[str, Any] = {}

    def settings(**more: Any) -> ContextSettings:
        return ContextSettings(
            1024, n_batch=64, n_ubatch=64, n_rs_seq=4, type_k="f32", type_v="f32", **more
        )

    def target(name: str) -> Target:
        write, write_heads = TARGETS[name]
        path = write(home / f"{name}.gguf")
        with_heads = write_heads(home / f"{name}-heads.gguf") if write_heads else path
        found = heads_of(read_header(with_heads))
        model = Model(path, load_mtp=found is not None and with_heads == path)
        other = Model(with_heads, load_mtp=True) if with_heads != path else None
        context = Context(model, settings())
        assert context.can_roll_back()
        heads = MtpHeads(context, found, other) if found is not None else None
        return Target(context, heads)

    def draft(name: str) -> Context:
        context = Context(Model(DRAFTS[name](home / f"d-{name}.gguf")), settings(drafts=True))
        assert context.can_roll_back()
        return context

    def get(name: str) -> Any:
        if name not in opened:
            make, _, which = name.partition(" ")
            opened[name] = target(which) if make == "target" else draft(which)
        return opened[name]

    yield get
    for part in opened.values():
        if isinstance(part, Target):
            if part.heads is not None:
                part.heads.close()
            part.context.close()
        else:
            part.close()
        (part.context.model if isinstance(part, Target) else part.model).close()


def drafter_for(name: str, kind: str, models: Callable[[str], Any]) -> Drafter:
    """A new drafter; heads follow the target only where they draft."""
    target: Target = models(f"target {kind}")
    if target.heads is not None and name != "mtp":
        target.heads.rest()
    if name == "lookup":
        return Lookup()
    if name == "mtp":
        assert target.heads is not None
        target.heads.follow()
        return MtpDrafter(target.heads, rng=np.random.default_rng(1))
    if name == "draft":
        context: Context = models(f"draft {PAIRED[kind]}")
        context.clear()
        return ModelDrafter(context, rng=np.random.default_rng(0), n_chunk=64)
    # What it has read is nearly this text.
    text = [*PROMPT, *target.plain(PROMPT, N)]
    rng = np.random.default_rng(3)
    history = History.in_memory()
    for _ in range(2):
        history.remember([t if rng.random() < 0.9 else int(rng.integers(256)) for t in text], None)
    return HistoryDrafter(history, history.calibration, N_VOCAB)


def answer(engine: Engine, prompt: Sequence[int], n: int, **how: Any) -> tuple[list[int], Finished]:
    """The answer's tokens; ``finished`` has the statistics."""
    request = Request(prompt, FakeSampler(), np.random.default_rng(0), max_tokens=n, **how)
    tokens: list[int] = []
    for event in engine.generate(request):
        if isinstance(event, Step):
            tokens.extend(event.tokens)
        last = event
    assert isinstance(last, Finished)
    return tokens, last


def start(models: Callable[[str], Any], kind: str, drafter: str) -> tuple[Target, Engine]:
    """The target, empty, and an engine that drafts five tokens whenever it can."""
    target: Target = models(f"target {kind}")
    drafting = drafter_for(drafter, kind, models)
    target.context.clear()
    pacer = FixedPacer(drafting.name, 5)
    return target, Engine(target.context, VOCABULARY, [drafting], pacer, n_chunk=64)


@pytest.mark.parametrize(("kind", "drafter"), CASES)
def test_the_text_is_that_of_plain_decoding(
    models: Callable[[str], Any], kind: str, drafter: str
) -> None:
    text = models(f"target {kind}").plain(PROMPT, N)
    _, engine = start(models, kind, drafter)
    tokens, finished = answer(engine, PROMPT, N)
    counts = finished.stats
    assert tokens == text
    assert engine.broken == ""
    assert counts.n_verified - counts.n_accepted > MANY, "too little was rejected"
    assert counts.n_accepted > MANY, "too little stood"


@pytest.mark.parametrize(("kind", "drafter"), CASES)
def test_stopped_regenerated_continued_and_trimmed_turns(
    models: Callable[[str], Any], kind: str, drafter: str
) -> None:
    """One conversation in one memory; each answer is that of an empty one."""
    target: Target = models(f"target {kind}")
    text = target.plain(PROMPT, N)
    following = [*PROMPT, *text[:60], 7, 8, 9, 90, 91, 92]
    trimmed = [*PROMPT[5:], *text[:60], 7, 8, 9, 90, 91, 92]
    expected = [target.plain(prompt, 60) for prompt in (following, trimmed)]
    target, engine = start(models, kind, drafter)
    for place in (37, 44):  # mostly inside a draft
        until = text.index(text[place]) + 1
        tokens, finished = answer(engine, PROMPT, N, stops=[f"{text[place]} "])
        assert finished.reason == "stop"
        assert text[: until - 1] == tokens[: until - 1]
        assert len(tokens) <= until
    assert answer(engine, PROMPT, 60)[0] == text[:60]
    again, finished = answer(engine, PROMPT, 60)
    assert again == text[:60]
    assert finished.stats.n_reused == len(PROMPT) - 1, "the prompt was read again"
    n_rejected = 0
    for prompt, wanted in zip((following, trimmed), expected, strict=True):
        tokens, finished = answer(engine, prompt, 60)
        assert tokens == wanted
        n_rejected += finished.stats.n_verified - finished.stats.n_accepted
    assert n_rejected > 5
    assert engine.broken == ""
