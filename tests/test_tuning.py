"""Costs, thread counts and pairs of files, on decoders and disks whose answers are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_bench import Clock, CostlyDecoder

from localspec.drafts import OnDisk
from localspec.files import ModelFile
from localspec.header import Header
from localspec.spec.costs import Learned, TargetCosts
from localspec.spec.pacer import AutoPacer
from localspec.spec.stats import Stats
from localspec.tuned import Threads
from localspec.tuning import (
    Files,
    ModelCosts,
    ThreadCosts,
    acceptance,
    as_learned,
    best_threads,
    compare,
    cost_by_threads,
    draft_costs,
    drift,
    siblings,
    target_costs,
    thread_counts,
)

PREFIX = [3, 4, 5]


def target_curve(n: int) -> float:
    return 0.04 * (1 + 0.1 * (n - 1))


def draft_curve(n: int) -> float:
    return 0.01 * (1 + 0.05 * (n - 1))


def test_what_is_measured_is_what_the_pacer_then_knows() -> None:
    clock = Clock()
    target = target_costs(CostlyDecoder(clock, target_curve), PREFIX, clock=clock)
    draft = draft_costs(CostlyDecoder(clock, draft_curve), PREFIX, clock=clock)
    assert target is not None
    assert draft is not None
    assert target.plain_s == pytest.approx(0.04)
    assert draft.first_s == pytest.approx(0.01 * 1.025)
    assert draft.next_s == pytest.approx(0.01)
    before = Learned(trust={"draft": (30.0, 40.0)})
    found = as_learned(target, {"draft": draft}, before)
    assert found.trust == before.trust
    assert found.drafts["draft"][1][0] == pytest.approx(0.25)
    costs = TargetCosts(found)
    assert costs(8) == pytest.approx(1.7)
    assert costs(11) == pytest.approx(2.0)  # between two that were measured
    again = AutoPacer({"draft": 0.9}, found).learned()
    assert again.widths[8][0] == pytest.approx(1.7)
    assert again.drafts["draft"][1][0] == pytest.approx(0.25)


def test_drift_is_the_difference_either_way() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, target_curve)
    assert drift(decoder, PREFIX, 0.04, clock=clock) == pytest.approx(0.0)
    assert drift(decoder, PREFIX, 0.05, clock=clock) == pytest.approx(0.25)
    assert drift(decoder, PREFIX, 0.02, clock=clock) == pytest.approx(1.0)


def test_stopping_leaves_nothing_half_measured() -> None:
    clock = Clock()
    decoder = CostlyDecoder(clock, target_curve)
    assert target_costs(decoder, PREFIX, clock=clock, cancelled=lambda: True) is None
    assert draft_costs(decoder, PREFIX, clock=clock, cancelled=lambda: True) is None


@pytest.mark.parametrize(
    ("n_logical", "current", "expected"),
    [
        (1, 1, [1]),
        (4, 2, [1, 2, 3, 4]),
        (32, 16, [4, 8, 12, 16, 20, 24, 28, 32]),
        (2, 3, [1, 2, 3]),
    ],
)
def test_counts_worth_trying(n_logical: int, current: int, expected: list[int]) -> None:
    assert thread_counts(n_logical, current) == expected


class Machine:
    """Decodes take work / threads, but threads above ``n_cores`` get in each other's way."""

    def __init__(self, n_cores: int) -> None:
        self.clock = Clock()
        self.n_cores, self.threads = n_cores, 1
        self.decoder = CostlyDecoder(self.clock, self.cost)

    def cost(self, n: int) -> float:
        useful = min(self.threads, self.n_cores)
        return (1 + 0.5 * (n - 1)) / useful * (1 + max(0, self.threads - self.n_cores))

    def set_threads(self, decode: int, batch: int) -> None:
        self.threads = decode


def test_the_fastest_thread_count_is_found() -> None:
    machine = Machine(3)
    found = cost_by_threads(
        machine.decoder, machine.set_threads, [1, 2, 3, 4], PREFIX, clock=machine.clock
    )
    assert found.noise == pytest.approx(0.0)
    assert found.by_count[1][0] == pytest.approx(1.0)
    assert best_threads(found, 4) == Threads(3, 3)


def test_threads_change_only_for_more_than_noise() -> None:
    costs = {1: (1.00, 0.5), 2: (1.04, 0.25)}
    assert best_threads(ThreadCosts(costs, 0.0), 2) == Threads(2, 2)
    assert best_threads(ThreadCosts(costs, 0.0), 1) == Threads(1, 2)
    assert best_threads(ThreadCosts({1: (1.0, 1.0), 2: (1.3, 1.3)}, 0.4), 2) == Threads(2, 2)
    assert best_threads(ThreadCosts({}, 0.0), 2) == Threads(2, 2)


def header(name: str = "Model 1B", n_layer: int = 4, n_vocab: int = 0) -> Header:
    return Header(
        3,
        {
            "general.architecture": "llama",
            "general.name": name,
            "llama.block_count": n_layer,
            "llama.embedding_length": 64,
        },
    )


def on_disk(name: str, of: Header | None) -> OnDisk:
    return OnDisk(ModelFile(name, ()), Path(name), of)


def test_siblings_are_the_same_model() -> None:
    disk = [
        on_disk("a.gguf", header()),
        on_disk("b.gguf", header("MODEL 1b")),
        on_disk("c.gguf", header("Another")),
        on_disk("d.gguf", header(n_layer=5)),
        on_disk("e.gguf", None),
    ]
    assert [one.path.name for one in siblings(header(), disk)] == ["a.gguf", "b.gguf"]


def test_acceptance_is_the_chance_of_the_next_token() -> None:
    stats = Stats(n_verified=8, n_accepted=5, verified_at=[4, 4], accepted_at=[3, 2])
    # Four first tokens, one wrong; of the three that were right, two more and one wrong.
    assert acceptance([stats]) == pytest.approx(5 / 7)
    assert acceptance([Stats()]) is None


def test_the_fastest_files_together() -> None:
    flat = ModelCosts({1: 0.10, 5: 0.11, 17: 0.14}, None)
    steep = ModelCosts({1: 0.08, 5: 0.40, 17: 1.40}, None)
    files = Files({"flat": flat, "steep": steep}, {"light": 0.01, "heavy": 0.09})
    found = compare(files, 0.9)
    assert (found[0].target, found[0].draft) == ("flat", "light")
    assert found[0].n > 3
    n = found[0].n
    verify = 0.11 + (n + 1 - 5) / 12 * 0.03 if n + 1 > 5 else 0.10 + n / 4 * 0.01
    expected = sum(0.9**i for i in range(n + 1)) / (n * 0.01 + verify)
    assert found[0].tokens_per_s == pytest.approx(expected)
    hopeless = compare(files, 0.0)
    assert (hopeless[0].target, hopeless[0].draft) == ("steep", None)
