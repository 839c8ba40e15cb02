"""When the chosen draft does not fit: which smaller ones there are, and what the plan makes of it.

Machines are fakes, files are the shipped catalog's, so that every number is the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_catalog import GIB, shipped
from helpers_gguf import byte_metadata, byte_vocab, write_gguf, write_tiny_llama
from helpers_machines import FakeDevice, cores, cuda, linux

from localspec.catalog import Catalog
from localspec.config import Config
from localspec.errors import MemoryPlanError
from localspec.files import ModelFile
from localspec.hardware import detect
from localspec.memory import Plan
from localspec.planning import Machine, Planner
from localspec.profiles import choose, customised, load_profiles
from localspec.select import Selection, select
from localspec.smaller import smaller_drafts
from localspec.store import Store, local_model
from localspec.terminal import size

BIG = "qwen2.5-coder-32b+3b"
TARGET = "qwen2.5-coder-32b-q4_k_m"
CATALOG = shipped()
FIRST, SECOND, THIRD = (f"qwen2.5-coder-{size}-q4_k_m" for size in ("3b", "1.5b", "0.5b"))


class Shelf(Store):
    """A store with these models of the catalog on the disk, as far as their names go."""

    def __init__(self, *names: str, offline: bool = False) -> None:
        super().__init__(source="mirror", offline=offline)
        self.names = names

    def find(self, file: ModelFile) -> Path | None:
        return Path("/nowhere") / file.id if file.id in self.names else file.path


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))


# -- which there are -----------------------------------------------------------------------------


def names(target: str, draft: str, store: Store, catalog: Catalog | None = None, **more: bool):
    catalog = catalog or CATALOG
    found = smaller_drafts(
        catalog.model(target), catalog.model(draft), catalog, store, download=True, **more
    )
    return [model.id for model in found]


def test_smaller_members_of_the_draft_s_family_the_largest_first() -> None:
    assert names(TARGET, FIRST, Shelf()) == [SECOND, THIRD]
    assert names(TARGET, THIRD, Shelf()) == []


def test_what_is_here_comes_before_what_would_be_downloaded() -> None:
    assert names(TARGET, FIRST, Shelf(THIRD)) == [THIRD, SECOND]
    assert names(TARGET, FIRST, Shelf(THIRD, offline=True)) == [THIRD]


def test_a_smaller_quantisation_and_what_the_catalog_pairs_with_the_target() -> None:
    catalog = CATALOG
    q2 = replace(catalog.model(FIRST), id="qwen2.5-coder-3b-q2_k", quant="Q2_K")
    q2 = replace(q2, shards=(replace(q2.shards[0], name="q2.gguf", n_bytes=1_270_000_000),))
    more = Catalog({**catalog.models, q2.id: q2}, catalog.pairs)
    assert names(TARGET, FIRST, Shelf(), more) == [q2.id, SECOND, THIRD]
    # Another family, but a pair of this target; a 1B of the same family is not smaller.
    assert names("llama-3.1-70b", "llama-3.1-8b", Shelf()) == ["llama-3.2-1b-q4_k_m"]


def test_what_is_never_offered() -> None:
    """Heads of other targets, files that ask for consent, pairs that may not match."""
    catalog = CATALOG
    assert not any("mtp" in name for name in names("gemma-4-31b", "gemma-4-e2b", Shelf()))
    gated = replace(catalog.model(SECOND), gated="yes")
    locked = Catalog({**catalog.models, SECOND: gated}, catalog.pairs)
    assert names(TARGET, FIRST, Shelf(), locked) == [THIRD]
    assert names("devstral-small-2-24b", "ministral-3-3b-unsloth", Shelf()) == []


def test_where_both_files_are_here_nothing_is_downloaded_to_take_their_place(
    tmp_path: Path,
) -> None:
    machine = machine_of(tmp_path, 64)
    for store, others in [(Shelf(), [SECOND, THIRD]), (Shelf(TARGET, FIRST), [])]:
        found = select(Config(model=BIG), CATALOG, store, machine.budget, None)
        assert [file.id for file in found.others] == others
        assert not found.draft_named


# -- what the plan makes of it -------------------------------------------------------------------


def machine_of(
    root: Path, gib: float, devices: Sequence[FakeDevice] = (), config: Config | None = None
) -> Machine:
    hardware = detect(devices, linux(root / "machine", 64, gib, cores(4)))
    found, why = choose(hardware, load_profiles(users=root / "none"))
    return Machine(hardware, customised(found, config or Config()), 4, why)


def planner(
    root: Path, gib: float, config: Config, devices: Sequence[FakeDevice] = ()
) -> tuple[Planner, Selection]:
    store, machine = Shelf(), machine_of(root, gib, devices, config)
    selection = select(config, CATALOG, store, machine.budget, None)
    return Planner(config, machine, selection, store), selection


def planned(
    root: Path, gib: float, config: Config, devices: Sequence[FakeDevice] = ()
) -> tuple[Plan, str]:
    """The plan, and the name of the file to draft with."""
    found, selection = planner(root, gib, config, devices)
    plan = found.plan(selection.draft)
    assert plan is not None
    return plan, found.drafting.file.id if found.drafting and found.drafting.file else ""


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(step.name, step.verdict) for step in plan.steps]


def test_smaller_drafts_are_named_but_not_looked_at_while_the_first_fits(tmp_path: Path) -> None:
    plan, file = planned(tmp_path, 30, Config(model=BIG))
    assert (plan.draft, file) == (FIRST, FIRST)
    assert steps(plan)[:4] == [
        (f"draft {FIRST} on the CPU", "chosen"),
        (f"draft {SECOND}", "not needed"),
        (f"draft {THIRD}", "not needed"),
        ("a Q8_0 cache", "not needed"),
    ]


def needs(root: Path, draft: str) -> int:
    """Bytes that the target needs with ``draft``."""
    plan, _ = planned(root, 60, Config(model=TARGET, draft=draft))
    return plan.needed_bytes("CPU")


def between(root: Path) -> tuple[float, str, str, str]:
    """GiB that are enough for the second draft and not for the first; that as words, and what the
    first and the second need."""
    first, second = needs(root, FIRST), needs(root, SECOND)
    gib = (first + second) / 2 / GIB
    return gib, size(int(gib * GIB)), size(first), size(second)


def test_the_first_does_not_fit_and_a_smaller_one_does(tmp_path: Path) -> None:
    gib, free, first, second = between(tmp_path)
    plan, file = planned(tmp_path, gib, Config(model=BIG))
    assert (plan.mode, plan.draft, file) == ("draft", SECOND, SECOND)
    assert re.fullmatch(
        rf"Draft {SECOND} on the CPU: draft {FIRST} on the CPU needs {first} on CPU, "
        rf"\d+ MiB more than the {free} available \(MemAvailable of /proc/meminfo\)\.",
        plan.reason,
    )
    assert steps(plan)[:3] == [
        (f"draft {FIRST} on the CPU", "too large"),
        (f"draft {SECOND} on the CPU", "chosen"),
        (f"draft {THIRD} on the CPU", "not needed"),
    ]
    assert plan.steps[1].reason == (
        f"needs {second} of {free} on CPU; its vocabulary is compared when it is here"
    )


def test_none_of_them_fits(tmp_path: Path) -> None:
    plan, file = planned(tmp_path, needs(tmp_path, THIRD) / GIB - 0.1, Config(model=BIG))
    assert (plan.mode, plan.draft, file) == ("lookup", "", "")
    assert plan.reason.startswith(f"Lookup: draft {FIRST} on the CPU needs ")
    assert plan.reason.endswith("; no smaller draft fits either.")
    assert [verdict for name, verdict in steps(plan) if name.startswith("draft")] == [
        "too large"
    ] * 3


def test_the_cpu_is_tried_before_a_smaller_draft(tmp_path: Path) -> None:
    """The cascade's order: on the card, on the CPU, then smaller ones on the card."""
    card = cuda(0, "NVIDIA A", 22.6, 24)
    plan, file = planned(tmp_path, 30, Config(model=BIG), [card])
    assert (plan.draft, file) == (FIRST, FIRST)
    assert steps(plan)[:2] == [
        (f"draft {FIRST} on CUDA0", "too large"),
        (f"draft {FIRST} on the CPU", "chosen"),
    ]
    plan, file = planned(tmp_path, 2.2, Config(model=BIG), [card])
    assert steps(plan)[:3] == [
        (f"draft {FIRST} on CUDA0", "too large"),
        (f"draft {FIRST} on the CPU", "too large"),
        (f"draft {SECOND} on CUDA0", "chosen"),
    ]
    assert file == SECOND


def test_a_draft_that_was_named_is_refused_with_what_would_fit(tmp_path: Path) -> None:
    gib, free, first, _ = between(tmp_path)
    with pytest.raises(MemoryPlanError) as refused:
        planned(tmp_path, gib, Config(model=TARGET, draft="qwen2.5-coder-3b"))
    assert re.fullmatch(
        rf"{TARGET} \(draft {FIRST} on the CPU\) does not fit into memory: it needs {first} "
        rf"on CPU, \d+ MiB more than the {free} available \(MemAvailable of "
        r"/proc/meminfo\)\.",
        refused.value.message,
    )
    assert refused.value.hint.splitlines()[:2] == [
        f"These drafts would fit: {SECOND}, {THIRD} (--draft NAME).",
        "It would fit in another mode: leave --draft out, and the mode on auto.",
    ]
    assert not any(SECOND in name for name, _, _ in refused.value.steps)


def test_the_mode_draft_wants_some_draft_and_takes_a_smaller_one(tmp_path: Path) -> None:
    plan, file = planned(tmp_path, between(tmp_path)[0], Config(model=BIG, mode="draft"))
    assert (plan.draft, file) == (SECOND, SECOND)
    with pytest.raises(MemoryPlanError, match="does not fit into memory"):
        planned(
            tmp_path,
            needs(tmp_path, THIRD) / GIB - 0.1,
            Config(model=BIG, mode="draft"),
        )


# -- files of this disk --------------------------------------------------------------------------


class Folder(Store):
    """A store that knows one directory only."""

    def __init__(self, folder: Path) -> None:
        super().__init__(source="mirror", offline=True, extra_dirs=[folder])


def test_models_of_this_disk_are_compared_by_their_headers(tmp_path: Path) -> None:
    """Only one with the target's vocabulary comes into question; the others are not mentioned."""
    here = tmp_path / "models"
    target = local_model(write_tiny_llama(here / "target.gguf", n_embd=256, n_layer=6))
    draft = local_model(write_tiny_llama(here / "draft.gguf", n_embd=192, n_layer=6))
    write_tiny_llama(here / "fits.gguf", n_embd=64, n_layer=1)
    tokens, types = byte_vocab()
    tokens[7] = "other"
    write_gguf(
        here / "alien.gguf", {**byte_metadata(), "llama.block_count": 1},
        tokens=tokens, token_types=types,
    )  # fmt: skip
    (here / "broken.gguf").write_bytes(b"GGUF but not really")
    machine, store = machine_of(tmp_path, 8), Folder(here)
    config = Config(n_ctx=256)
    selection = Selection(target, draft, "the pair")
    whole = Planner(config, machine, selection, store)
    roomy = whole.plan(draft)
    assert roomy is not None
    assert roomy.draft == "draft.gguf"
    assert roomy.steps[0].reason.endswith("; same vocabulary")
    limit = roomy.needed_bytes("CPU") - 1
    limited = replace(machine, profile=replace(machine.profile, memory_limit=limit))
    short = Planner(config, limited, selection, store)
    plan = short.plan(draft)
    assert plan is not None
    assert (plan.mode, plan.draft) == ("draft", "fits.gguf")
    assert short.drafting is not None
    assert short.drafting.match is not None
    assert short.drafting.file is not None
    assert short.drafting.file.path == here / "fits.gguf"
    assert [name for name, _ in steps(plan)][:2] == [
        "draft draft.gguf on the CPU",
        "draft fits.gguf on the CPU",
    ]
