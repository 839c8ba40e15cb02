"""The draft that was chosen does not fit: a smaller one is fetched, checked, loaded and used."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers_gguf import byte_metadata, byte_vocab, write_gguf, write_tiny_llama

from localspec import loading, opening
from localspec.chat import Message
from localspec.config import Config
from localspec.errors import AllocationError, MemoryPlanError
from localspec.files import ModelFile, NoProgress, Shard
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.planning import shapes_on
from localspec.select import Selection
from localspec.session import Session
from localspec.spec.events import Finished
from localspec.spec.sampling import Sampling
from localspec.store import Store, local_model

NUMBERS = {
    "n_layer": 1, "n_head": 2, "n_head_kv": 2, "n_embd_head_k": 32, "n_embd_head_v": 32,
    "n_embd": 64, "n_vocab": 258, "n_ctx_train": 512,
}  # fmt: skip


class Notes(NoProgress):
    """A Progress that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


class Shop(Store):
    """A store that "downloads" one file from a directory beside it."""

    def __init__(self, shelf: Path, cache: Path) -> None:
        super().__init__(source="mirror", offline=True)
        self.shelf, self.here = shelf, cache
        self.fetched: list[str] = []

    def find(self, file: ModelFile) -> Path | None:
        path = file.path or self.here / file.shards[0].name
        return path if path.exists() else None

    def fetch(self, files: Sequence[ModelFile]) -> list[Path]:
        for file in files:
            if self.find(file) is None:
                self.fetched.append(file.id)
                self.here.mkdir(exist_ok=True)
                name = file.shards[0].name
                shutil.copy(self.shelf / name, self.here / name)
        return [file.path or self.here / file.shards[0].name for file in files]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target and two drafts of one vocabulary, ``draft.gguf`` and the much smaller ``small``."""
    for name in ("HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    write_tiny_llama(tmp_path / "target.gguf", seed=1, n_embd=256, n_layer=7)
    write_tiny_llama(tmp_path / "draft.gguf", seed=2, n_embd=256, n_layer=6)
    write_tiny_llama(tmp_path / "small.gguf", seed=3)
    return tmp_path


def selected(
    monkeypatch: pytest.MonkeyPatch, models: Path, *others: ModelFile, store: Store | None = None
) -> None:
    """As if the catalog had chosen ``draft.gguf`` and knew ``others``."""
    prepare = opening.prepare

    def prepared(config: Config, *rest: Any) -> Any:
        machine, found, real = prepare(config, *rest)
        named = config.draft is not None
        draft = local_model(models / "draft.gguf")
        selection = Selection(
            found.target, draft, "the pair", config.mode == "draft" or named,
            draft_named=named, others=others,
        )  # fmt: skip
        used = store or real
        return replace(machine, shapes=shapes_on(machine.hardware, used)), selection, used

    monkeypatch.setattr(opening, "prepare", prepared)


def config(models: Path, **more: Any) -> Config:
    target = str(models / "target.gguf")
    return Config(model=target, n_ctx=256, history=False, learn=False, **more)


def limit_for_small(models: Path) -> int:
    """Bytes that are too few for ``draft.gguf`` and enough for ``small.gguf``."""
    needed = []
    for draft in ("draft.gguf", "small.gguf"):
        wanted = config(models, draft=str(models / draft))
        with closing(opening.open_session(wanted, Notes())) as session:
            assert session.status.plan is not None
            needed.append(session.status.plan.needed_bytes("CPU"))
    assert needed[1] < needed[0]
    return sum(needed) // 2


def answers(session: Session) -> None:
    events = list(session.ask([Message("user", "a")], Sampling(0.0, seed=1), max_tokens=8))
    assert isinstance(events[-1], Finished)


def test_a_smaller_draft_that_is_here(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = limit_for_small(models)
    selected(monkeypatch, models, local_model(models / "small.gguf"))
    notes = Notes()
    with closing(opening.open_session(config(models, memory_limit=limit), notes)) as session:
        plan = session.status.plan
        assert plan is not None
        assert (session.status.mode, session.status.draft) == ("draft", "small.gguf")
        assert plan.draft == "small.gguf"
        assert plan.reason.startswith(
            "Draft small.gguf on the CPU: draft draft.gguf on the CPU needs "
        )
        assert notes.said == [plan.reason], "one line, once"
        answers(session)


def distant(models: Path, tokens: list[str] | None = None) -> tuple[ModelFile, Shop]:
    """``small.gguf`` as a file that must be downloaded first, and from where."""
    shelf = models / "shelf"
    shelf.mkdir()
    path = shelf / "distant.gguf"
    if tokens is None:
        write_tiny_llama(path, seed=3)
    else:
        types = byte_vocab()[1]
        metadata = {**byte_metadata(), "llama.block_count": 1}
        write_gguf(path, metadata, tokens=tokens, token_types=types)
    shard = Shard(path.name, (models / "small.gguf").stat().st_size)
    file = ModelFile("distant", (shard,), repo="a/b", numbers=NUMBERS)
    return file, Shop(shelf, models / "cache")


def test_a_smaller_draft_is_downloaded(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = limit_for_small(models)
    file, shop = distant(models)
    selected(monkeypatch, models, file, store=shop)
    notes = Notes()
    with closing(opening.open_session(config(models, memory_limit=limit), notes)) as session:
        assert (session.status.mode, session.status.draft) == ("draft", "distant")
        assert shop.fetched == ["distant"]
        assert notes.said[0].startswith("Draft distant on the CPU: draft draft.gguf on the CPU ")
        answers(session)


def test_what_was_downloaded_is_compared_before_it_is_used(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog took it for a match; its file shows another token."""
    limit = limit_for_small(models)
    tokens = byte_vocab()[0]
    tokens[70] = "other"
    file, shop = distant(models, tokens)
    selected(monkeypatch, models, file, store=shop)
    notes = Notes()
    with closing(opening.open_session(config(models, memory_limit=limit), notes)) as session:
        assert (session.status.mode, session.status.draft) == ("lookup", None)
        plan = session.status.plan
        assert plan is not None
        unfit = next(step for step in plan.steps if step.name == "draft distant")
        assert unfit.verdict == "not possible"
        assert "token 70" in unfit.reason
        answers(session)


def test_a_smaller_draft_after_an_allocation_that_failed(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first draft fits on paper, and its context cannot be made: the next one is loaded."""
    selected(monkeypatch, models, local_model(models / "small.gguf"))
    failures = []

    class Once(Context):
        def __init__(self, model: Model, settings: ContextSettings) -> None:
            if settings.drafts and not failures:
                failures.append(settings)
                raise AllocationError("no memory for this context")
            super().__init__(model, settings)

    monkeypatch.setattr(loading, "Context", Once)
    notes = Notes()
    with closing(opening.open_session(config(models), notes)) as session:
        assert (session.status.mode, session.status.draft) == ("draft", "small.gguf")
        assert notes.said == [
            "Draft small.gguf on the CPU: draft draft.gguf on the CPU could not be loaded (no "
            "memory for this context).",
        ]
        answers(session)


def test_a_draft_that_was_named_is_refused_before_anything_is_loaded(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = limit_for_small(models)
    selected(monkeypatch, models, local_model(models / "small.gguf"))

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(loading, "Model", never)
    wanted = config(models, memory_limit=limit, draft=str(models / "draft.gguf"))
    with pytest.raises(MemoryPlanError) as refused:
        opening.open_session(wanted, Notes())
    assert refused.value.message.startswith(
        "target.gguf (draft draft.gguf on the CPU) does not fit into memory: it needs "
    )
    assert refused.value.hint.splitlines()[:2] == [
        "These drafts would fit: small.gguf (--draft NAME).",
        "It would fit in another mode: leave --draft out, and the mode on auto.",
    ]


def test_a_draft_of_other_tokens_is_never_loaded(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F02: the same size and family, one other token: refused by its header, and lookup goes on."""
    tokens, types = byte_vocab()
    tokens[70] = "other"
    metadata = {**byte_metadata(), "llama.block_count": 1}
    write_gguf(models / "draft.gguf", metadata, tokens=tokens, token_types=types)
    selected(monkeypatch, models)
    loaded: list[str] = []

    class Watched(Model):
        def __init__(self, path: Path, **more: Any) -> None:
            loaded.append(path.name)
            super().__init__(path, **more)

    monkeypatch.setattr(loading, "Model", Watched)
    notes = Notes()
    with closing(opening.open_session(config(models), notes)) as session:
        assert (session.status.mode, session.status.draft) == ("lookup", None)
        assert loaded == ["target.gguf"]
        assert notes.said == [
            "Lookup: draft draft.gguf is not possible (Their vocabularies differ: token 70 is "
            '"F" in the target and "other" in the draft).'
        ]
        answers(session)
