"""MTP heads from the file to the answer: found, planned, loaded, used, left out with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helpers_tiny_models as tiny
import pytest
from helpers_gguf import write_tiny_llama
from helpers_tiny_models import (
    write_counting_assistant,
    write_counting_gemma4,
    write_counting_qwen35,
)

from localspec.config import Config
from localspec.errors import LocalspecError, ModelLoadError, PairError
from localspec.llama import ext, rollback
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.engine import NO_ROLLBACK
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling

NOISE = 1.2
GREEDY = Sampling(temperature=0.0, seed=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with and without heads; the two targets have the same name."""
    home = tmp_path_factory.mktemp("models")
    write_counting_qwen35(home / "with" / "count.gguf", noise=NOISE)
    write_counting_qwen35(home / "without" / "count.gguf", noise=NOISE, heads="none")
    write_counting_qwen35(home / "heads.gguf", noise=NOISE, heads="only")
    write_counting_gemma4(home / "gemma4.gguf", noise=1.0)
    write_counting_assistant(home / "assistant.gguf", noise=0.2)
    write_tiny_llama(home / "llama.gguf")
    return home


Start = Callable[..., Session]
Write = Callable[[Path], Path]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    opened: list[Session] = []

    def build(model: Path, **how: Any) -> Session:
        # Several threads would wait for each other most of the time in models this small.
        config = Config(model=str(model), n_ctx=512, threads=1, offline=True, history=False, **how)
        opened.append(open_session(config))
        return opened[-1]

    yield build
    for session in opened:
        session.close()


def ask(session: Session, n: int = 120, sampling: Sampling = GREEDY) -> tuple[str, Finished]:
    text = ""
    for event in session.ask("<=>?@ABC", sampling, max_tokens=n):
        if isinstance(event, Step):
            text += "".join(event.texts)
    assert isinstance(event, Finished)
    return text + event.text, event


def test_a_file_with_heads_is_run_with_them(home: Path, start: Start) -> None:
    session = start(home / "with" / "count.gguf")
    assert session.status.mode == "draft"
    assert session.status.draft == "its own MTP heads"
    assert "the model's own MTP heads and lookup" in session.status.reason
    assert session.status.plan is not None
    assert session.status.plan.draft == "its own MTP heads"
    assert ask(session)[1].stats.n_tokens == 120


def test_a_file_of_the_same_name_without_heads_is_not(home: Path, start: Start) -> None:
    session = start(home / "without" / "count.gguf")
    assert session.status.mode == "lookup"
    assert session.status.draft is None


@pytest.mark.parametrize(
    ("model", "draft"),
    [
        ("with/count.gguf", None),
        ("without/count.gguf", "heads.gguf"),
        ("gemma4.gguf", "assistant.gguf"),
    ],
)
def test_every_kind_of_heads_drafts_well_and_changes_nothing(
    home: Path, start: Start, model: str, draft: str | None
) -> None:
    plain, _ = ask(start(home / model, mode="off"))
    how = {"draft": str(home / draft)} if draft else {}
    session = start(home / model, mode="draft", draft_max=4, **how)
    assert session.status.draft == (draft or "its own MTP heads")
    text, finished = ask(session)
    assert text == plain
    assert set(finished.stats.drafters) == {"mtp"}
    assert finished.stats.n_accepted / finished.stats.n_verified > 0.5
    assert finished.stats.n_steps < 0.7 * finished.stats.n_tokens
    again, _ = ask(session)
    assert again == plain


def test_the_mode_can_be_changed_between_answers(home: Path, start: Start) -> None:
    session = start(home / "with" / "count.gguf", mode="draft", draft_max=4)
    text, _ = ask(session)
    for mode, drafters in (("off", set()), ("lookup", {"lookup"}), ("draft", {"mtp"})):
        session.set_mode(mode, 4)  # type: ignore[arg-type]
        assert session.status.mode == mode
        again, finished = ask(session)
        assert again == text
        assert set(finished.stats.drafters) <= drafters
    assert finished.stats.n_accepted > 20


def test_the_same_seed_gives_the_same_text(home: Path, start: Start) -> None:
    session = start(home / "with" / "count.gguf", mode="draft", draft_max=4)
    sampling = Sampling(temperature=1.0, seed=7)
    first, finished = ask(session, 60, sampling)
    assert finished.stats.n_accepted > 0
    assert ask(session, 60, sampling)[0] == first


def test_heads_are_no_model(home: Path, start: Start) -> None:
    for name in ("heads.gguf", "assistant.gguf"):
        with pytest.raises(LocalspecError, match="holds only MTP heads"):
            start(home / name)


def test_heads_of_another_model_are_refused(home: Path, start: Start) -> None:
    with pytest.raises(PairError, match="heads are for a qwen35 model, and the target is llama"):
        start(home / "llama.gguf", draft=str(home / "heads.gguf"))


def test_heads_that_this_library_cannot_run_are_left_out_with_the_reason(
    home: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ext, "load", lambda: (None, "something is missing"))
    session = start(home / "with" / "count.gguf")
    assert session.status.mode == "lookup"
    assert "something is missing" in session.status.reason
    with pytest.raises(ModelLoadError, match="something is missing"):
        start(home / "with" / "count.gguf", mode="draft")


def test_a_hybrid_keeps_states_within_its_plan(home: Path, start: Start) -> None:
    session = start(home / "with" / "count.gguf")
    plan = session.status.plan
    assert plan is not None
    assert session.target_context.policy.name == "kept states"
    assert session.target_context.settings.n_rs_seq == plan.settings.n_rs_seq > 0
    assert start(home / "with" / "count.gguf", mode="off").target_context.settings.n_rs_seq == 0


def test_where_nothing_can_be_taken_back_nothing_is_drafted_and_it_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Field report: drafts from the text went on where a model's state cannot roll back."""
    path = tiny.write_mamba(tmp_path / "m.gguf", noise=2.4, seed=2)
    with monkeypatch.context() as patched:
        patched.setattr(rollback.Checkpoint, "rollback", lambda *_: False)
        session = start(path)
        assert (session.status.mode, session.status.reason) == ("off", NO_ROLLBACK)
        text, finished = ask(session)
        assert finished.stats.n_drafted == 0
        with pytest.raises(PairError, match="--mode lookup is not possible"):
            start(path, mode="lookup")
    session = start(path, mode="lookup", draft_max=6)
    assert session.status.mode == "lookup"
    again, finished = ask(session)
    assert again == text
    assert finished.stats.n_verified > finished.stats.n_accepted > 0


def test_a_model_of_an_unknown_architecture_is_refused_with_the_reason(
    start: Start, tmp_path: Path
) -> None:
    metadata = tiny.qwen35_metadata(4, 1)
    tensors = tiny.qwen35_tensors(0, 4, 1, tiny.size_of(0))
    path = tiny.write_model(tmp_path / "m.gguf", "novel", metadata, tensors)
    with pytest.raises(LocalspecError, match="unknown model architecture: 'novel'"):
        start(path)


# -- exact mode ------------------------------------------------------------------------------------

# Weights that llama.cpp computes with alike for one row and for several.
EXACT_KINDS: dict[str, tuple[Write, Write | None]] = {
    "inside": (lambda p: tiny.write_counting_qwen35(p, noise=1.4), None),
    "several": (lambda p: tiny.write_counting_step35(p, n_heads_mtp=3, noise=2.0), None),
    "shared": (
        lambda p: tiny.write_counting_gemma4(p, noise=6.0, seed=6),
        lambda p: tiny.write_counting_assistant(p, noise=0.2),
    ),
}


@pytest.mark.parametrize("kind", EXACT_KINDS)
def test_exact_mode_with_heads_changes_no_bit(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Also beyond 256 tokens in the cache, where llama.cpp may take another way. The check compares
    bits of logits while the heads follow; the texts are compared with those without heads."""
    monkeypatch.setattr(tiny, "QUANTISED", True)
    write, write_heads = EXACT_KINDS[kind]
    path = write(tmp_path / "m.gguf")
    how = {"draft": str(write_heads(tmp_path / "h.gguf"))} if write_heads else {}
    plain, _ = ask(start(path, mode="off", exact=True), 320)
    session = start(path, mode="draft", draft_max=4, exact=True, **how)
    assert session.status.exactness == "exact"
    assert session.status.mode == "draft"
    text, finished = ask(session, 320)
    assert text == plain
    assert set(finished.stats.drafters) == {"mtp"}
    assert finished.stats.n_accepted > 30
    assert finished.stats.n_verified - finished.stats.n_accepted > 30


def test_exact_mode_runs_plain_where_heads_would_change_bits(home: Path, start: Start) -> None:
    """Of float32 weights llama.cpp multiplies one row and several in different ways."""
    session = start(home / "with" / "count.gguf", exact=True)
    assert session.status.mode == "off"
    assert session.status.exactness.startswith("rounding (max difference")
    assert "--exact: drafting would change the text" in session.status.reason
    assert session.target_context.listener is None, "heads that do not draft still follow"
    text, finished = ask(session)
    assert finished.stats.n_drafted == 0
    assert text == ask(start(home / "with" / "count.gguf", mode="off"))[0]
