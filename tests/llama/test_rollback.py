"""Rollback on real memories: plain attention, sliding window, recurrent and hybrid, on tiny models
with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from helpers_drafting import VOCABULARY, N, answer
from helpers_gguf import write_tiny_llama
from helpers_tiny_models import write_gemma3, write_lfm2, write_mamba, write_qwen35

from localspec.llama import rollback
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.spec.drafter import Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished
from localspec.spec.fakes import FakeDrafter, FakeSampler
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.model_drafter import ModelDrafter

WINDOW = 32
WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": write_tiny_llama,
    "window": lambda path: write_gemma3(path, window=WINDOW),
    "mamba": write_mamba,
    "lfm2": write_lfm2,
    "qwen35": write_qwen35,
}
RECURRENT = ["mamba", "lfm2", "qwen35"]
PROMPT = [7, 8, 9, 10, 11, 12, 7, 8, 9, 10, 11, 12, 7, 8, 9, 10, 11, 12, 7, 8]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("tiny")
    return {name: write(home / f"{name}.gguf") for name, write in WRITERS.items()}


Open = Callable[..., Context]


@pytest.fixture
def open_context(files: dict[str, Path]) -> Iterator[Open]:
    opened: list[Context] = []

    def make(name: str, **settings: object) -> Context:
        wanted = {"n_ctx": 1024, "n_batch": 64, "n_ubatch": 64, "n_rs_seq": 4, "type_k": "f32"}
        wanted |= {"type_v": "f32"} | settings
        model = Model(files[name])
        context = Context(model, ContextSettings(**wanted))  # type: ignore[arg-type]
        opened.append(context)
        return context

    yield make
    for context in opened:
        context.close()
        context.model.close()


def row_after(context: Context, tokens: Sequence[int]) -> Row:
    """What the model says after ``tokens``, read one by one into an empty memory."""
    context.clear()
    for token in tokens:
        context.decode([token], 1)
    return context.row(0).copy()


def plain(context: Context, prompt: Sequence[int], n: int = N) -> list[int]:
    return answer(Engine(context, VOCABULARY, [], PlainPacer(), n_chunk=64), prompt, n)[0]


def half_right(text: Sequence[int], seed: int = 1, n: int = 6) -> FakeDrafter:
    """Knows the answer but errs at random: every length of acceptance comes up."""
    rng = np.random.default_rng(seed)

    def guess(tokens: Sequence[int]) -> list[int]:
        coming = text[len(tokens) : len(tokens) + n]
        return [t if rng.random() < 0.7 else (t + 1) % 258 for t in coming]

    return FakeDrafter(guess)


# -- which policy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("llama", {"attention"}),
        ("window", {"sliding window"}),
        ("mamba", {"snapshot", "spare sequence"}),
        ("lfm2", {"kept states"}),
        ("qwen35", {"kept states"}),
    ],
)
def test_each_memory_gets_the_policy_that_it_can_do(
    open_context: Open, name: str, policy: set[str]
) -> None:
    context = open_context(name)
    assert context.can_roll_back()
    assert context.policy.name in policy
    assert list(context.tokens) == []


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
def test_without_kept_states_a_hybrid_uses_a_checkpoint(open_context: Open, name: str) -> None:
    context = open_context(name, n_rs_seq=0)
    assert context.can_roll_back()
    assert context.policy.name == "snapshot"


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("keeper", ["Snapshot", "SpareSequence"])
def test_both_ways_of_keeping_a_state_work(
    open_context: Open, monkeypatch: pytest.MonkeyPatch, name: str, keeper: str
) -> None:
    monkeypatch.setattr(rollback, "KEEPS_ROWS", frozenset())
    other = "SpareSequence" if keeper == "Snapshot" else "Snapshot"
    context = open_context(name, n_rs_seq=0)
    monkeypatch.setattr(getattr(rollback, other), "restore", lambda *_: False)
    assert context.can_roll_back()
    assert context.policy.name == getattr(rollback, keeper).name
    text = plain(context, PROMPT, 80)
    context.clear()
    engine = Engine(context, VOCABULARY, [half_right(PROMPT + text)], FixedPacer("scripted", 6))
    assert answer(engine, PROMPT, 80)[0] == text


def test_a_memory_that_takes_nothing_back_is_found_out(
    open_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback.Checkpoint, "rollback", lambda *_: False)
    context = open_context("mamba")
    assert not context.can_roll_back()
    assert not context.policy.can
    assert context.policy.reason


def test_a_stale_state_is_found_out_at_the_start(
    open_context: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory that says True and is then in the state of another text."""

    def wrong(policy: rollback.Rows, n_keep: int) -> bool:
        context = policy._memory
        llama_cpp.llama_memory_clear(context.memory, False)
        context.decode_again([5] * n_keep, 0)
        return True

    monkeypatch.setattr(rollback.Rows, "_cut", wrong)
    context = open_context("qwen35")
    assert not context.can_roll_back()
    assert context.policy.reason


# -- the trap -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
def test_llama_cpp_says_true_to_a_cut_that_leaves_a_stale_state(
    open_context: Open, name: str
) -> None:
    """The reason for the bookkeeping; if this ever fails, llama.cpp has learnt to say no."""
    context = open_context(name)
    expected = row_after(context, [*PROMPT, 50])
    context.clear()
    context.decode(PROMPT, 0)
    context.decode([40, 41, 42, 43], 4)
    assert llama_cpp.llama_memory_seq_rm(context.memory, 0, len(PROMPT), -1)
    del context._tokens[len(PROMPT) :]
    context.decode([50], 1)
    assert np.abs(context.row(0) - expected).max() > 1.0


@pytest.mark.parametrize("name", RECURRENT)
def test_a_whole_batch_is_never_taken_back_into_a_stale_state(
    open_context: Open, name: str
) -> None:
    context = open_context(name)
    expected = row_after(context, [*PROMPT, 50])
    context.clear()
    context.decode(PROMPT, 0)
    context.decode([40, 41, 42, 43], 4)
    if not context.rollback(len(PROMPT)):
        context.clear()
        context.decode(PROMPT, 0)
    context.decode([50], 1)
    assert np.abs(context.row(0) - expected).max() < 1e-2


@pytest.mark.parametrize("name", RECURRENT)
def test_single_decodes_are_never_taken_back_into_a_stale_state(
    open_context: Open, name: str
) -> None:
    context = open_context(name)
    expected = row_after(context, [*PROMPT, 50])
    context.clear()
    context.decode(PROMPT, 0)
    for token in (40, 41, 42):
        context.decode([token], 1)
    if not context.rollback(len(PROMPT)):
        context.clear()
        context.decode(PROMPT, 0)
    context.decode([50], 1)
    assert np.abs(context.row(0) - expected).max() < 1e-2


@pytest.mark.parametrize("name", RECURRENT)
def test_two_rollbacks_without_a_decode_between_stay_right(open_context: Open, name: str) -> None:
    context = open_context(name)
    expected = row_after(context, [*PROMPT, 40, 50])
    context.clear()
    context.decode(PROMPT, 0)
    context.decode([40, 41, 42, 43], 4)
    n = len(PROMPT)
    assert context.rollback(n + 3)
    if not context.rollback(n + 1):
        context.clear()
        context.decode([*PROMPT, 40], 0)
    context.decode([50], 1)
    assert np.abs(context.row(0) - expected).max() < 1e-2


def test_a_window_that_moved_on_is_not_rolled_back(open_context: Open) -> None:
    context = open_context("window", n_batch=64, n_ubatch=64)
    text = [(7 * n) % 250 for n in range(600)]
    for at in range(0, 600, 60):
        context.decode(text[at : at + 60], 1)
    assert not context.rollback(150)
    assert len(context.tokens) == 600
    assert context.rollback(590)
    context.decode(text[590:], 1)
    got = context.row(0).copy()
    context.clear()
    for at in range(0, 600, 60):
        context.decode(text[at : at + 60], 1)
    assert np.abs(context.row(0) - got).max() < 1e-2


# -- the whole loop -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_rejections_of_every_length_leave_the_text_as_it_was(open_context: Open, name: str) -> None:
    context = open_context(name)
    assert context.can_roll_back()
    text = plain(context, PROMPT)
    for n in (3, 6):  # within the kept states, and wider than they reach
        context.clear()
        drafter = half_right(PROMPT + text, seed=n, n=n)
        engine = Engine(context, VOCABULARY, [drafter], FixedPacer("scripted", n))
        tokens, finished = answer(engine, PROMPT)
        assert tokens == text
        assert engine.broken == ""
        assert finished.stats.n_verified - finished.stats.n_accepted > 20


@pytest.mark.parametrize("swa_full", [False, True])
def test_far_past_the_window_with_rejections(open_context: Open, swa_full: bool) -> None:
    """Field report: sliding-window models failed past the window unless the cache was full-size."""
    context = open_context("window", swa_full=swa_full, n_batch=32, n_ubatch=32)
    assert context.can_roll_back()
    text = plain(context, PROMPT, 10 * WINDOW)
    context.clear()
    drafter = half_right(PROMPT + text, n=20)
    engine = Engine(context, VOCABULARY, [drafter], FixedPacer("scripted", 20), n_chunk=32)
    tokens, finished = answer(engine, PROMPT, 10 * WINDOW)
    assert tokens == text
    assert engine.broken == ""
    assert finished.stats.n_verified > finished.stats.n_accepted


def test_how_many_states_to_keep() -> None:
    assert rollback.rows_worth_keeping("qwen35", 50_000_000, 2_600_000_000) == 5
    assert rollback.rows_worth_keeping("qwen35", 150_000_000, 16_500_000_000) == 8
    assert rollback.rows_worth_keeping("lfm2", 1_000_000_000, 2_000_000_000) == 1
    assert rollback.rows_worth_keeping("mamba", 10_000_000, 2_000_000_000) == 1


@pytest.mark.parametrize("name", ["lfm2", "mamba", "window"])
def test_a_draft_model_is_never_in_a_stale_state(open_context: Open, name: str) -> None:
    """With the target's own weights for a draft, whatever it gets wrong would be its state."""
    context = open_context(name)
    assert context.can_roll_back()
    other = open_context(name, drafts=True)
    assert other.can_roll_back()
    drafter = ModelDrafter(other, rng=np.random.default_rng(0), n_chunk=64)
    engine = Engine(context, VOCABULARY, [drafter], FixedPacer("draft", 4))
    _, finished = answer(engine, PROMPT)
    assert finished.stats.n_drafted > 100
    assert finished.stats.n_accepted / finished.stats.n_verified > 0.95


@pytest.mark.parametrize("name", WRITERS)
def test_a_draft_model_says_how_much_it_will_have_to_read(
    open_context: Open, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A recurrent draft puts an earlier state back after a rejection, and reads from there again:
    the pacer is told so before, and what that took afterwards."""
    context = open_context(name, drafts=True)
    assert context.can_roll_back()
    run, n_read = context._run, [0]

    def counting(tokens: Sequence[int], *arguments: Any, **how: Any) -> int:
        n_read[0] += len(tokens)
        return run(tokens, *arguments, **how)

    monkeypatch.setattr(context, "_run", counting)
    drafter = ModelDrafter(context, rng=np.random.default_rng(0), n_chunk=64)
    drafter.begin(PROMPT, FakeSampler())
    most = 0
    for n_accepted in (0, 3, 2, 4, 1):
        offer = drafter.offer()
        assert offer is not None
        n_read[0] = 0
        draft = drafter.propose(4, lambda *_: True, lambda: False)
        assert n_read[0] == offer.lag + 3  # and three more drafted tokens
        _, n_decodes, _, n_caught = drafter.costs()
        assert n_decodes == 4
        assert (n_caught > 0) == (offer.lag > 2)
        drafter.commit([*draft.tokens[:n_accepted], 250])
        most = max(most, offer.lag - len(PROMPT) if n_accepted == 0 else offer.lag)
    assert most == (4 if name in RECURRENT else 2)
    drafter.begin([*PROMPT[:5], 9, 9, 9], FakeSampler())  # another text
    offer = drafter.offer()
    assert offer is not None
    n_read[0] = 0
    drafter.propose(1, lambda *_: True, lambda: False)
    assert n_read[0] == offer.lag == (8 if name in RECURRENT else 3)


@pytest.mark.parametrize("name", WRITERS)
def test_a_regenerated_turn_and_a_trimmed_history_give_what_a_fresh_memory_gives(
    open_context: Open, name: str
) -> None:
    context = open_context(name)
    assert context.can_roll_back()
    text = plain(context, PROMPT, 60)
    context.clear()
    engine = Engine(context, VOCABULARY, [half_right(PROMPT + text)], FixedPacer("scripted", 6))
    assert answer(engine, PROMPT, 60)[0] == text
    again, finished = answer(engine, PROMPT, 60)
    assert again == text
    assert finished.stats.n_reused == len(PROMPT) - 1, "the prompt was read again"
    trimmed = PROMPT[3:] + text[:20]
    got = answer(engine, trimmed, 60)[0]
    context.clear()
    assert plain(context, trimmed, 60) == got


@pytest.mark.parametrize("name", RECURRENT)
def test_what_a_kept_prompt_end_has_read_is_not_used_for_another_text(
    open_context: Open, name: str
) -> None:
    context = open_context(name)
    assert context.can_roll_back()
    engine = Engine(context, VOCABULARY, [], PlainPacer())
    first = PROMPT + list(range(100, 120))
    answer(engine, first, 5)
    second = PROMPT + list(range(120, 140))
    got = answer(engine, second, 30)[0]
    context.clear()
    assert plain(context, second, 30) == got


@pytest.mark.parametrize("name", RECURRENT)
def test_a_cancelled_prompt_leaves_nothing_half_read(open_context: Open, name: str) -> None:
    context = open_context(name, n_batch=512, n_ubatch=128)
    text = [(11 * n) % 250 for n in range(400)]
    expected = answer(Engine(context, VOCABULARY, [], PlainPacer()), text, 10)[0]
    context.clear()
    n_asked = 0

    def cancelled() -> bool:
        nonlocal n_asked
        n_asked += 1
        return n_asked > 200

    context.watch(cancelled)
    request = Request(text, FakeSampler(), np.random.default_rng(0), max_tokens=10)
    events = list(Engine(context, VOCABULARY, [], PlainPacer()).generate(request))
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "cancelled"
    assert n_asked > 200
    context.watch(None)
    assert answer(Engine(context, VOCABULARY, [], PlainPacer()), text, 10)[0] == expected
