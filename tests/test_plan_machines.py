"""Whole machines: how each runs the pair that its profile chooses, and larger ones, word for word.

Planned from the catalog's numbers, without any model file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers_catalog import shipped
from helpers_fleet import MACHINES

from localspec.config import Config
from localspec.errors import MemoryPlanError
from localspec.hardware import detect, threads_for
from localspec.memory import Plan
from localspec.planning import Fits, Machine, Planner, shapes_on
from localspec.profiles import choose, customised, load_profiles
from localspec.select import Selection, select
from localspec.smaller import smaller_than
from localspec.store import Store

SMALL = "qwen2.5-coder-0.5b-q4_k_m"
UMA = "free and inactive memory, as the system reports it"


@pytest.fixture(autouse=True)
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))


def machine_of(tmp_path: Path, name: str, config: Config) -> Machine:
    fixture = next(machine for machine in MACHINES if machine.name == name)
    hardware = detect(fixture.devices, fixture.probe(tmp_path / "machine"))
    found, why = choose(hardware, load_profiles(users=tmp_path / "none"))
    profile = customised(found, config)
    return Machine(hardware, profile, threads_for(profile.threads, hardware.cpu)[0], why)


def planned(tmp_path: Path, name: str, model: str = "", config: Config | None = None) -> Plan:
    """The plan of one machine for ``model``, by default what its profile chooses."""
    config = config or Config()
    machine = machine_of(tmp_path, name, config)
    chosen = machine.profile.pair_for(machine.hardware)
    assert chosen is not None
    catalog = shipped()
    pair = catalog.find(model or chosen[0].pair)
    target, draft = (pair.target, pair.draft) if hasattr(pair, "target") else (pair, None)
    store = Store(source="hub", offline=True)
    selection = Selection(target, draft, "", smaller=smaller_than(target, catalog, Store()))
    plan = Planner(config, machine, selection, store).plan(draft)
    assert plan is not None
    return plan


@dataclass(frozen=True)
class Expected:
    """``layers``: of the target and of the draft that are on an accelerator."""

    target: str
    mode: str
    reason: str
    layers: tuple[int, int | None]


def on(place: str) -> str:
    return f"Draft {SMALL} on {place}: everything fits."


CHOSEN = {
    "the test machine: 2 cores, 24 GiB, no GPU": Expected(
        "qwen2.5-coder-1.5b-q4_k_m", "draft", on("the CPU"), (0, 0)
    ),
    "hybrid laptop, 32 GB, no GPU": Expected(
        "qwen2.5-coder-7b-q4_k_m", "draft", on("the CPU"), (0, 0)
    ),
    "container of 2 CPUs and 2 GB on a host of 64 cores": Expected(
        SMALL, "lookup", "Lookup: no draft is known for this target.", (0, None)
    ),
    "WSL with half of 16 GB": Expected("qwen2.5-coder-1.5b-q4_k_m", "draft", on("the CPU"), (0, 0)),
    "Apple, 8 GB": Expected("qwen2.5-coder-1.5b-q4_k_m", "draft", on("MTL0"), (29, 25)),
    "Apple, 16 GB, whose backend reports all of the memory": Expected(
        "qwen2.5-coder-7b-q4_k_m", "draft", on("MTL0"), (29, 25)
    ),
    "Apple, 64 GB": Expected("qwen2.5-coder-32b-q4_k_m", "draft", on("MTL0"), (65, 25)),
    "CUDA 6 GB, 16 GB of RAM": Expected(
        "qwen2.5-coder-1.5b-q4_k_m", "draft", on("CUDA0"), (29, 25)
    ),
    "CUDA 8 GB, 16 GB of RAM": Expected("qwen2.5-coder-7b-q4_k_m", "draft", on("CUDA0"), (29, 25)),
    "CUDA 24 GB, 32 GB of RAM": Expected(
        "qwen2.5-coder-14b-q4_k_m", "draft", on("CUDA0"), (49, 25)
    ),
    "two GPUs": Expected("qwen2.5-coder-32b-q4_k_m", "draft", on("the GPUs"), (65, 25)),
    "Vulkan on a laptop's own graphics": Expected(
        "qwen2.5-coder-7b-q4_k_m", "draft", on("Vulkan0"), (29, 25)
    ),
    "Windows laptop with 16 GB": Expected(
        "qwen2.5-coder-1.5b-q4_k_m", "draft", on("the CPU"), (0, 0)
    ),
}


def outcome(plan: Plan) -> Expected:
    layers = plan.settings.n_gpu_layers
    drafts = plan.draft_settings.n_gpu_layers if plan.draft_settings else None
    return Expected(plan.target, plan.mode, plan.reason, (layers, drafts))


def test_every_machine_is_here() -> None:
    assert list(CHOSEN) == [machine.name for machine in MACHINES]


@pytest.mark.parametrize("name", CHOSEN)
def test_how_the_chosen_pair_runs(tmp_path: Path, name: str) -> None:
    assert outcome(planned(tmp_path, name)) == CHOSEN[name]


@pytest.mark.parametrize("name", CHOSEN)
def test_nobody_s_pair_is_turned_down(tmp_path: Path, name: str) -> None:
    """The whole way of a run in which nothing is named: the choice judges by the plan's own
    arithmetic, so that it takes what the profile names wherever the plan can run it."""
    config, store = Config(), Store(source="mirror")
    machine = machine_of(tmp_path, name, config)
    wish = machine.profile.pair_for(machine.hardware)
    assert wish is not None
    judge = Fits(config, machine, shapes_on(machine.hardware, store))
    found = select(config, shipped(), store, machine.budget, wish[0].pair, judge)
    plan = Planner(config, machine, found, store).plan(found.draft)
    assert plan is not None
    assert (found.choice, plan.target, plan.mode) == ("", CHOSEN[name].target, CHOSEN[name].mode)


LARGER = [
    # The target fits, the draft beside it does not: the draft moves to the CPU.
    (
        "CUDA 6 GB, 16 GB of RAM",
        "qwen2.5-coder-7b",
        {"n_ctx": 12288},
        f"Draft {SMALL} on the CPU: draft {SMALL} on CUDA0 needs 5.79 GiB on CUDA0, 192 MiB more "
        "than the 5.60 GiB available (free memory of CUDA0, from llama.cpp).",
        (29, 0),
    ),
    # The target does not fit: the draft keeps its place on the card.
    (
        "CUDA 6 GB, 16 GB of RAM",
        "qwen2.5-coder-14b",
        {},
        f"{on('CUDA0')} 23 of the target's 49 layers are on CUDA0, the rest on the CPU.",
        (23, 25),
    ),
    (
        "CUDA 8 GB, 16 GB of RAM",
        "qwen2.5-coder-14b",
        {},
        f"{on('CUDA0')} 31 of the target's 49 layers are on CUDA0, the rest on the CPU.",
        (31, 25),
    ),
    ("CUDA 24 GB, 32 GB of RAM", "qwen2.5-coder-32b", {}, on("CUDA0"), (65, 25)),
    (
        "Apple, 16 GB, whose backend reports all of the memory",
        "qwen2.5-coder-14b",
        {},
        on("MTL0"),
        (49, 25),
    ),
    (
        "container of 2 CPUs and 2 GB on a host of 64 cores",
        "qwen2.5-coder-1.5b",
        {},
        f"Lookup: draft {SMALL} on the CPU needs 2.19 GiB on CPU, 455 MiB more than the 1.75 GiB "
        "available (memory.max of this container, minus what is in use).",
        (0, None),
    ),
]


@pytest.mark.parametrize(("name", "model", "settings", "reason", "layers"), LARGER)
def test_how_a_larger_pair_runs(
    tmp_path: Path,
    name: str,
    model: str,
    settings: dict[str, int],
    reason: str,
    layers: tuple[int, int | None],
) -> None:
    plan = planned(tmp_path, name, model, Config(**settings))  # type: ignore[arg-type]
    found = outcome(plan)
    assert (found.reason, found.layers) == (reason, layers)


@pytest.mark.parametrize(
    ("name", "model", "message", "fits"),
    [
        (
            "Apple, 8 GB",
            "qwen2.5-coder-7b",
            f"it needs 5.53 GiB on CPU, 2.03 GiB more than the 3.50 GiB available ({UMA}).",
            "qwen2.5-coder-3b-q4_k_m, qwen2.5-coder-1.5b-q4_k_m, qwen2.5-coder-0.5b-q4_k_m",
        ),
        (
            "container of 2 CPUs and 2 GB on a host of 64 cores",
            "qwen2.5-coder-7b",
            "it needs 5.23 GiB on CPU, 3.48 GiB more than the 1.75 GiB available (memory.max of "
            "this container, minus what is in use).",
            "qwen2.5-coder-1.5b-q4_k_m, qwen2.5-coder-0.5b-q4_k_m",
        ),
        (
            "WSL with half of 16 GB",
            "qwen2.5-coder-14b",
            "it needs 10.5 GiB on CPU, 4.52 GiB more than the 6.00 GiB available (MemAvailable of "
            "/proc/meminfo (the part of the PC's memory that Windows gives to WSL)).",
            "qwen2.5-coder-7b-q4_k_m, qwen2.5-coder-3b-q4_k_m, qwen2.5-coder-1.5b-q4_k_m",
        ),
    ],
)
def test_what_is_too_large_is_refused_with_what_would_fit(
    tmp_path: Path, name: str, model: str, message: str, fits: str
) -> None:
    with pytest.raises(MemoryPlanError) as refused:
        planned(tmp_path, name, model)
    assert refused.value.message == f"{model}-q4_k_m does not fit into memory: {message}"
    assert re.fullmatch(rf"(.*\n)*These models would fit: {fits}\.", refused.value.hint)
