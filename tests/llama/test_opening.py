"""From a selection to a session: memory that runs out in spite of the plan, drafts that fail."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers_gguf import write_tiny_llama

from localspec import loading, opening, shapes
from localspec.chat import Message
from localspec.config import Config
from localspec.errors import AllocationError, MemoryPlanError, PairError
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.memory import Plan
from localspec.select import Selection
from localspec.spec.events import Finished
from localspec.spec.sampling import Sampling
from localspec.store import local_model


class Notes:
    """A Progress that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self, label: str, total: int | None) -> None: ...
    def advance(self, n: int) -> None: ...
    def finish(self) -> None: ...

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tiny models of one vocabulary, chosen as if by the catalog."""
    write_tiny_llama(tmp_path / "target.gguf", seed=1)
    write_tiny_llama(tmp_path / "draft.gguf", seed=2)
    prepare = opening.prepare

    def prepared(config: Config, *rest: Any) -> Any:
        machine, found, store = prepare(config, *rest)
        draft = local_model(tmp_path / "draft.gguf")
        wanted = config.mode == "draft"
        return machine, Selection(found.target, draft, "the pair", draft_wanted=wanted), store

    monkeypatch.setattr(opening, "prepare", prepared)
    return tmp_path / "target.gguf"


class Short:
    """Makes contexts until told that memory has run out; counts what is open."""

    open = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Any) -> None:
        short = self

        class Counted(Context):
            def __init__(self, model: Model, settings: ContextSettings) -> None:
                if fails(settings):
                    raise AllocationError("no memory for this context")
                super().__init__(model, settings)
                short.open += 1

            def close(self) -> None:
                short.open -= bool(self.handle)
                super().close()

        monkeypatch.setattr(loading, "Context", Counted)


def config(target: Path, **more: Any) -> Config:
    return Config(model=str(target), n_ctx=256, history=False, learn=False, **more)


def test_a_draft_that_does_not_fit_after_all_leaves_lookup_with_a_reason(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F17: everything half-loaded is freed, and one line says what happened."""
    short = Short(monkeypatch, lambda settings: settings.drafts)
    notes = Notes()
    session = opening.open_session(config(pair), notes)
    try:
        assert session.status.mode == "lookup"
        assert session.status.draft is None
        assert "no memory for this context" in session.status.reason
        assert short.open == 1
        assert notes.said == [
            "Lookup: draft draft.gguf on the CPU could not be loaded (no memory for this context)."
        ]
        events = list(session.ask([Message("user", "a")], Sampling(0.0, seed=1), max_tokens=8))
        assert isinstance(events[-1], Finished)
    finally:
        session.close()
    assert short.open == 0


def test_a_target_that_does_not_fit_at_all_is_refused_and_leaves_nothing(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Short(monkeypatch, lambda _: True)
    with pytest.raises((MemoryPlanError, AllocationError), match="no memory for this context"):
        opening.open_session(config(pair), Notes())
    assert short.open == 0


def test_an_explicit_draft_is_refused_and_not_replaced(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Short(monkeypatch, lambda settings: settings.drafts)
    with pytest.raises((MemoryPlanError, PairError, AllocationError)):
        opening.open_session(config(pair, mode="draft"), Notes())
    assert short.open == 0


def test_without_trouble_the_draft_is_there(pair: Path) -> None:
    session = opening.open_session(config(pair), Notes())
    try:
        assert (session.status.mode, session.status.draft) == ("draft", "draft.gguf")
    finally:
        session.close()


def test_who_can_show_the_plan_is_told_before_anything_is_loaded(pair: Path) -> None:
    class View(Notes):
        plans: list[Plan]

        def start(self, label: str, total: int | None) -> None:
            assert self.plans, f"{label} before the plan"

        def planned(self, plan: Plan) -> None:
            self.plans.append(plan)

    view = View()
    view.plans = []
    session = opening.open_session(config(pair), view)
    session.close()
    assert session.status.plan == view.plans[-1]
    assert not view.said


def test_without_memory_even_for_lookup_it_decodes_plainly_and_says_so(pair: Path) -> None:
    needed = []
    for mode in ("lookup", "off"):
        with closing(opening.open_session(config(pair, mode=mode), Notes())) as session:
            plan = session.status.plan
            assert plan is not None
            needed.append(plan.needed_bytes("CPU"))
    limit = sum(needed) // 2
    assert needed[1] < limit < needed[0]
    notes = Notes()
    with closing(opening.open_session(config(pair, memory_limit=limit), notes)) as session:
        assert session.status.mode == "off"
        assert session.status.reason.startswith("Plain decoding: lookup needs ")
        assert notes.said.count(session.status.reason) == 1


def test_each_header_is_read_once_for_all_plans(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header of 150,000 tokens takes a tenth of a second, and there are several plans."""
    asked: list[str] = []
    real = shapes.header_of

    def header_of(file: Any, store: Any) -> Any:
        asked.append(file.id)
        return real(file, store)

    monkeypatch.setattr(shapes, "header_of", header_of)
    opening.open_session(config(pair), Notes()).close()
    assert len(asked) == len(set(asked)) == 2
