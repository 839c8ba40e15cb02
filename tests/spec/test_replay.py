"""The pacer against recorded answers on eight machines: the floor that no change may break.

Deterministic, so the floors lie close (1.5 %) under what the pacer reaches. They are the
figures of the research that the policy started from, within 3 % (7 % on cpu-q8 from a cold start),
where the engine's way of counting explains 1 %: the first token comes from
the prompt pass.

Each of these changes to a constant was tried and fails here: PRICE_FLOOR 0, HORIZON 8,
COPY_PREMIUM 1.5, MARGIN 0.3, LOSS 1, SURE 0.98, MODEL_PREMIUM 0.3, CHEAP 1, MAX_MODEL_DRAFT 4,
PRIOR_WEIGHT 1, STAKE 2, GUESS_N 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import geometric_mean

import pytest

from bench.replay import curves, fixed
from bench.replay.curves import Curve
from bench.replay.optimum import optimum
from bench.replay.policies import PlusMinusOne, auto, replay, taught
from bench.replay.simulate import run
from bench.replay.traces import MODES, Trace, load
from localspec.spec.costs import Learned
from localspec.spec.pacer import PlainPacer

SEEDS = (0,)
SLACK = 0.985
TRACES = load()

# machine: speed over plain (greedy cold, greedy with known costs, sampled with known costs)
REACHED = {
    "cpu-q4": (1.019, 1.038, 1.027),
    "cpu-q8": (1.332, 1.402, 1.216),
    "laptop": (2.577, 2.573, 2.162),
    "metal": (1.690, 1.714, 1.466),
    "gpu": (3.112, 3.085, 2.542),
    "moe": (1.637, 1.656, 1.448),
    "dear-draft": (1.620, 1.671, 1.412),
    "proportional": (0.994, 1.000, 1.000),
}


@cache
def known(curve: Curve) -> Learned:
    return taught(curve, TRACES)


@cache
def speeds(curve: Curve, mode: str, cold: bool) -> tuple[tuple[Trace, float], ...]:
    traces = [trace for trace in TRACES if trace.mode == mode]
    learned = None if cold else known(curve)
    return tuple((t, r.speedup) for t, r in replay(traces, curve, learned, SEEDS))


def mean(found: Sequence[tuple[Trace, float]]) -> float:
    return geometric_mean([speed for _, speed in found])


@pytest.mark.parametrize("curve", curves.ALL, ids=lambda curve: curve.name)
def test_the_floor_holds(curve: Curve) -> None:
    cold, greedy, sampled = REACHED[curve.name]
    assert mean(speeds(curve, "g", True)) >= SLACK * cold
    assert mean(speeds(curve, "g", False)) >= SLACK * greedy
    assert mean(speeds(curve, "r", False)) >= SLACK * sampled


def test_long_greedy_answers_are_never_slower() -> None:
    long = [
        speed
        for curve in curves.MACHINES
        for cold in (True, False)
        for trace, speed in speeds(curve, "g", cold)
        if len(trace.out) >= 80
    ]
    assert min(long) >= 0.94
    assert sum(speed >= 0.98 for speed in long) >= 0.98 * len(long)


def test_no_answer_loses_much() -> None:
    """Short and sampled answers too; the aim is 0.95, this is where it stands."""
    every = [
        speed
        for curve in curves.MACHINES
        for mode in "gr"
        for _, speed in speeds(curve, mode, False)
    ]
    assert min(every) >= 0.85
    assert sum(speed >= 0.95 for speed in every) >= 0.96 * len(every)


@pytest.mark.parametrize("curve", curves.MACHINES, ids=lambda curve: curve.name)
def test_it_beats_every_default(curve: Curve) -> None:
    """llama.cpp's own settings and the classic rule, which know nothing of costs."""
    reached = mean(speeds(curve, "g", False))
    greedy = [trace for trace in TRACES if trace.mode == "g"]
    for setting in (fixed.LLAMA_DRAFT, fixed.EIGHT_STOPPING, fixed.COPY_TEN, fixed.NGRAM_MOD):
        works = [(trace, fixed.walk(trace, setting)) for trace in greedy]
        assert reached > mean([(t, (len(t.out) - 1) / work.cost(curve)) for t, work in works])
    classic = [(t, run(t, curve, PlusMinusOne(), 0).speedup) for t in greedy]
    assert reached > mean(classic)


# -- the bench itself: what its figures rest on


def test_replay_is_deterministic() -> None:
    def once() -> list[float]:
        return [run(t, curves.METAL, auto(curves.METAL), 5).cost for t in TRACES[:8]]

    assert once() == once()


def test_plain_decoding_costs_one_per_token() -> None:
    assert run(TRACES[0], curves.GPU, PlainPacer(), 0).speedup == pytest.approx(1.0)


def test_a_fixed_setting_costs_the_same_by_both_ways_of_counting() -> None:
    """The quick walk through a trace against the simulated engine with a fixed draft length."""

    class Three(PlusMinusOne):
        def learn(self, measured: object, hindsight: object) -> None:
            self._n = 3

    for trace in TRACES[:16]:
        pacer = Three()
        pacer._n = 3
        simulated = run(trace, curves.CPU_Q8, pacer, 0)
        walked = fixed.walk(trace, fixed.LLAMA_DRAFT).cost(curves.CPU_Q8)
        assert simulated.cost == pytest.approx(walked, rel=0.02)


@pytest.mark.parametrize("curve", curves.MACHINES[:4], ids=lambda curve: curve.name)
def test_nothing_beats_the_hindsight_optimum(curve: Curve) -> None:
    for trace in TRACES[:24:3]:
        best = optimum(trace, curve)
        assert best <= len(trace.out) - 1
        assert best <= run(trace, curve, auto(curve), 0).cost + 1e-6
        for setting in fixed.settings()[::40]:
            assert best <= fixed.walk(trace, setting).cost(curve) + 1e-6


def test_curves_pass_through_their_points() -> None:
    assert curves.CPU_Q4.target(8) == pytest.approx(6.56)
    assert curves.CPU_Q4.target(9) == pytest.approx((6.56 + 7.52) / 2)
    assert curves.METAL.target(256) == pytest.approx(19.0)
    assert curves.MOE.target(10) == pytest.approx(2.95)
    assert all(curve.target(1) == pytest.approx(1.0) for curve in curves.ALL)


def test_traces_are_whole() -> None:
    assert len(TRACES) == 16 * len(MODES)
    for trace in TRACES:
        assert len(trace.out) == len(trace.y) == len(trace.q)
        for at in trace.off:
            assert trace.y[at] != trace.out[at]
