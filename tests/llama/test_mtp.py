"""MTP heads on tiny models that are built so that their heads are right most of the time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from helpers_drafting import VOCABULARY, N, answer
from helpers_tiny_models import (
    write_counting_assistant,
    write_counting_gemma4,
    write_counting_qwen35,
    write_counting_step35,
    write_lfm2,
    write_qwen35,
)

from localspec.errors import DecodeError, ModelLoadError
from localspec.gguf import read_header
from localspec.llama import ext
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.mtp import MtpHeads
from localspec.nextn import Heads, heads_of, mismatch
from localspec.spec.drafter import Choice, Offer, Pacer
from localspec.spec.engine import Engine
from localspec.spec.fakes import FakeVocabulary
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.lookup import Lookup
from localspec.spec.mtp_drafter import MtpDrafter
from localspec.spec.pacer import AutoPacer

PROMPT = list(range(10, 40))
NOISE = 1.2  # the hybrid then strays from what its head expects at one token in five

# kind of heads: writers of the target's file and of the file of heads (None: the same one)
KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path] | None]] = {
    "inside": (lambda p: write_counting_qwen35(p, noise=NOISE), None),
    "apart": (
        lambda p: write_counting_qwen35(p, noise=NOISE, heads="none"),
        lambda p: write_counting_qwen35(p, noise=NOISE, heads="only"),
    ),
    "several": (lambda p: write_counting_step35(p, n_heads_mtp=3, noise=2.0), None),
    "shared": (
        lambda p: write_counting_gemma4(p, noise=6.0, seed=6),
        lambda p: write_counting_assistant(p, noise=0.2),
    ),
    "random": (lambda p: write_qwen35(p, n_heads_mtp=1), None),
    "by state": (lambda p: write_counting_qwen35(p, noise=0.9, by_token=0.0), None),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    home = tmp_path_factory.mktemp("mtp")
    found = {}
    for name, (write, write_heads) in KINDS.items():
        target = write(home / f"{name}.gguf")
        found[name] = (target, write_heads(home / f"{name}-heads.gguf") if write_heads else target)
    return found


@dataclass
class Rig:
    """A target with its heads."""

    context: Context
    heads: MtpHeads
    drafter: MtpDrafter

    def engine(self, pacer: Pacer | None = None, *more: Any) -> Engine:
        drafters = [*more, self.drafter]
        return Engine(self.context, VOCABULARY, drafters, pacer or FixedPacer("mtp", 4), n_chunk=64)


Build = Callable[..., Rig]


@pytest.fixture
def rig(files: dict[str, tuple[Path, Path]]) -> Iterator[Build]:
    opened: list[Any] = []

    def build(name: str, **settings: Any) -> Rig:
        target, with_heads = files[name]
        model = Model(target, load_mtp=target == with_heads)
        other = None if target == with_heads else Model(with_heads, load_mtp=True)
        wanted: dict[str, Any] = {"n_ctx": 1024, "n_batch": 64, "n_ubatch": 64, "n_rs_seq": 4}
        wanted |= {"type_k": "f32", "type_v": "f32"} | settings
        context = Context(model, ContextSettings(**wanted))
        found = heads_of(read_header(with_heads))
        assert found is not None
        assert mismatch(read_header(target), read_header(with_heads)) == ""
        assert context.can_roll_back()
        heads = MtpHeads(context, found, other)
        opened.extend([heads, context, model, other])
        return Rig(context, heads, MtpDrafter(heads, rng=np.random.default_rng(1)))

    yield build
    for part in opened:
        if part is not None:
            part.close()


def plain(context: Context, prompt: Sequence[int], n: int = N, **how: Any) -> list[int]:
    """What the target says alone, from an empty memory and into one."""
    listener, context.listener = context.listener, None
    context.clear()
    text = answer(Engine(context, VOCABULARY, [], PlainPacer(), n_chunk=64), prompt, n, **how)[0]
    context.listener = listener
    context.clear()
    return text


# -- exact and worth it -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_that_of_plain_decoding(rig: Build, kind: str) -> None:
    built = rig(kind)
    text = plain(built.context, PROMPT)
    tokens, finished = answer(built.engine(), PROMPT)
    assert tokens == text
    assert finished.stats.n_drafted > 0
    assert finished.stats.n_verified - finished.stats.n_accepted > 5, "too little was rejected"


@pytest.mark.parametrize("kind", ["inside", "apart", "several", "shared"])
def test_good_heads_save_decodes(rig: Build, kind: str) -> None:
    """More than half of what is drafted stands, and the target decodes far less than tokens."""
    built = rig(kind)
    _, finished = answer(built.engine(), PROMPT)
    counts = finished.stats
    assert counts.n_accepted / counts.n_verified > 0.5
    assert counts.n_steps < 0.6 * counts.n_tokens
    # What was rejected is taken back from the heads, too: they never start again half-way.
    if kind in ("inside", "apart"):
        assert llama_cpp.llama_memory_seq_pos_min(built.heads._memory, 0) == 0


def test_heads_get_the_state_that_belongs_to_each_token(rig: Build) -> None:
    """These heads see nothing but the state: one row off, and none of their drafts would stand.
    Plain steps, rejections and drafts of each length come between."""
    built = rig("by state")
    _, finished = answer(built.engine(), PROMPT)
    counts = finished.stats
    assert counts.n_accepted / counts.n_verified > 0.5
    assert counts.n_verified > counts.n_accepted


@pytest.mark.parametrize("n_rs_seq", [0, 2])
def test_heads_go_with_every_way_of_taking_back(rig: Build, n_rs_seq: int) -> None:
    """Field report: a hybrid's state is corrupted by a partly accepted draft."""
    built = rig("inside", n_rs_seq=n_rs_seq)
    text = plain(built.context, PROMPT)
    tokens, finished = answer(built.engine(), PROMPT)
    assert tokens == text
    assert finished.stats.n_accepted / finished.stats.n_verified > 0.5


def test_lookup_and_heads_take_turns(rig: Build) -> None:
    built = rig("inside")
    text = plain(built.context, PROMPT)

    class Turns(FixedPacer):
        def choose(self, offers: Sequence[Offer], room: int) -> Choice:
            wanted = ("mtp", "mtp", "lookup", "plain")[self._n_steps % 4]
            n = min([5, room, *(o.available for o in offers if o.drafter == wanted)])
            return Choice(wanted, n, "its turn")

    tokens, finished = answer(built.engine(Turns("mtp", 5), Lookup()), PROMPT)
    assert tokens == text
    assert set(finished.stats.drafters) == {"lookup", "mtp"}


@pytest.mark.parametrize(("head_cost", "pays"), [(0.1, True), (3.0, False)])
def test_the_pacer_uses_heads_by_what_they_cost(rig: Build, head_cost: float, pays: bool) -> None:
    """In simulated seconds: a decode of the target takes 1 and a little per row, one of the heads
    ``head_cost``."""
    built = rig("inside")
    text = plain(built.context, PROMPT)
    now = [0.0]
    run, decode = built.context._run, built.heads._decode

    def slow_run(tokens: Sequence[int], *arguments: Any, **how: Any) -> int:
        now[0] += 1 + 0.05 * len(tokens)
        return run(tokens, *arguments, **how)

    def slow_decode(*arguments: Any, **how: Any) -> None:
        now[0] += head_cost
        decode(*arguments, **how)

    built.context._run, built.heads._decode = slow_run, slow_decode  # type: ignore[method-assign]
    drafter = MtpDrafter(built.heads, rng=np.random.default_rng(0), clock=lambda: now[0])
    pacer = AutoPacer({"mtp": head_cost})
    engine = Engine(built.context, VOCABULARY, [drafter], pacer, n_chunk=64, clock=lambda: now[0])
    started = now[0]
    tokens, finished = answer(engine, PROMPT)
    assert tokens == text
    taken = (now[0] - started) / (1.05 * N)
    assert taken < 0.65 if pays else taken < 1.1
    assert (finished.stats.n_accepted > 100) == pays


# -- turns, ends, failures ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inside", "several", "shared"])
def test_regenerated_and_trimmed_turns(rig: Build, kind: str) -> None:
    built = rig(kind)
    prompts = [PROMPT, PROMPT, [*PROMPT[4:], 50, 51, 52], PROMPT + list(range(60, 160))]
    expected = [plain(built.context, prompt, 60) for prompt in prompts]
    engine = built.engine()
    for prompt, text in zip(prompts, expected, strict=True):
        tokens, finished = answer(engine, prompt, 60)
        assert tokens == text
        assert finished.stats.n_accepted > 20


def test_an_end_and_a_stop_inside_a_draft(rig: Build) -> None:
    built = rig("inside")
    text = plain(built.context, PROMPT, 60)
    for place in range(5, 12):
        ends = FakeVocabulary([b"%d " % n for n in range(258)], [text[place]])
        engine = built.engine()
        engine._vocabulary = ends
        tokens, finished = answer(engine, PROMPT, 60)
        assert tokens == text[: text.index(text[place]) + 1]
        assert finished.reason == "stop"
        assert built.heads.n_known <= len(PROMPT) + len(tokens)
        engine._vocabulary = VOCABULARY
        tokens, _ = answer(engine, PROMPT, 60, stops=[f"{text[place]} "])
        assert tokens == text[: len(tokens)]


def test_a_prompt_longer_than_a_batch_and_a_full_context(rig: Build) -> None:
    built = rig("inside", n_ctx=256)
    prompt = [n % 250 for n in range(180)]
    text = plain(built.context, prompt, 200)
    tokens, finished = answer(built.engine(), prompt, 200)
    assert tokens == text
    assert finished.detail == "context full"
    assert finished.stats.n_accepted > 20


def test_a_cancelled_draft_ends_the_answer_and_not_the_next(rig: Build) -> None:
    built = rig("inside")
    text = plain(built.context, PROMPT, 80)
    for n_allowed in (12, 19, 26, 33):
        left = [n_allowed]

        def cancelled(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        tokens, finished = answer(built.engine(), PROMPT, 80, cancelled=cancelled)
        assert finished.reason == "cancelled"
        assert tokens == text[: len(tokens)]
        tokens, finished = answer(built.engine(), PROMPT, 80)
        assert tokens == text
        assert finished.stats.n_accepted > 20


def test_heads_that_fail_leave_the_answer_alone(
    rig: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = rig("inside")
    text = plain(built.context, PROMPT)
    decode, n_calls = built.heads._decode, itertools.count(1)

    def sometimes(*arguments: Any, **how: Any) -> None:
        if next(n_calls) % 7 == 0:
            raise DecodeError("told to fail")
        decode(*arguments, **how)

    monkeypatch.setattr(built.heads, "_decode", sometimes)
    tokens, finished = answer(built.engine(), PROMPT)
    assert tokens == text
    assert finished.stats.n_accepted > 50, "the heads did not recover"


def test_heads_that_rest_cost_nothing_and_can_be_woken(rig: Build) -> None:
    built = rig("inside")
    text = plain(built.context, PROMPT, 60)
    built.heads.rest()
    assert built.context.listener is None
    tokens, finished = answer(built.engine(), PROMPT, 60)
    assert tokens == text
    assert finished.stats.n_drafted == 0
    built.heads.follow()
    tokens, finished = answer(built.engine(), PROMPT + text[:10], 50)
    assert tokens == text[10:60]
    assert finished.stats.n_accepted > 10


# -- what cannot be run is refused ---------------------------------------------------------------


def _context(path: Path, **how: Any) -> Context:
    return Context(Model(path, **how), ContextSettings(n_ctx=256, n_batch=64, n_ubatch=64))


def _close(context: Context) -> None:
    context.close()
    context.model.close()


def test_heads_that_were_not_loaded_are_refused(files: dict[str, tuple[Path, Path]]) -> None:
    """llama.cpp ends the process there."""
    context = _context(files["inside"][0])
    with pytest.raises(ModelLoadError, match="loaded without them"):
        MtpHeads(context, Heads("inside", 1))
    _close(context)


def test_more_tokens_than_the_heads_take_at_once_are_refused(rig: Build) -> None:
    """Here, too, llama.cpp ends the process."""
    heads = rig("several", n_batch=32).heads
    n_embd = heads._hidden.shape[1]
    for n, position in ((0, 0), (33, 0), (2, heads.n_ctx - 1)):
        with pytest.raises(DecodeError, match="too many for the MTP heads"):
            heads._decode([1] * n, np.zeros((n, n_embd), np.float32), position, with_logits=False)


def test_heads_of_a_model_without_any_are_refused(tmp_path: Path) -> None:
    context = _context(write_lfm2(tmp_path / "m.gguf"), load_mtp=True)
    with pytest.raises(ModelLoadError, match="finds none"):
        MtpHeads(context, Heads("inside", 1))
    _close(context)


def test_heads_with_another_vocabulary_or_width_are_refused(
    files: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    context = _context(files["apart"][0])
    only = write_counting_qwen35(tmp_path / "only.gguf", heads="only", n_vocab=30)
    other = Model(only, load_mtp=True)
    with pytest.raises(ModelLoadError, match="vocabulary of 30"):
        MtpHeads(context, Heads("apart", 1), other)
    other.close()
    _close(context)


def test_unusable_heads_are_refused_with_the_reason_of_the_header(
    files: dict[str, tuple[Path, Path]],
) -> None:
    context = _context(files["inside"][0], load_mtp=True)
    with pytest.raises(ModelLoadError, match="because"):
        MtpHeads(context, Heads("inside", 1, unusable="because"))
    _close(context)


def test_a_library_without_the_functions_is_said_so(
    files: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, reason = ext.load({})
    assert found is None
    assert "llama_set_embeddings_nextn" in reason
    monkeypatch.setattr(ext, "load", lambda: (None, reason))
    context = _context(files["inside"][0], load_mtp=True)
    with pytest.raises(ModelLoadError, match="lacks what MTP heads need"):
        MtpHeads(context, Heads("inside", 1))
    _close(context)


def test_the_functions_of_this_library_are_found() -> None:
    found, reason = ext.load()
    assert found is not None, reason
