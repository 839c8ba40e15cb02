"""The pacer against recorded answers on many machines: the floor that no change may break.

The floors are the figures of the research that the policy started from, which gave them with two
decimals, so half of the last one is allowed. They are not what this pacer happens to reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import geometric_mean

import pytest

from bench.replay import curves, fixed
from bench.replay.curves import Curve
from bench.replay.optimum import optimum
from bench.replay.policies import TEACHING_SEED, PlusMinusOne, auto, replay, taught
from bench.replay.simulate import MODEL, run
from bench.replay.traces import MODES, Trace, load
from localspec.spec.costs import Learned
from localspec.spec.fixed_pacers import PlainPacer

SEEDS = (0, 1, 2)
"""Of the noise, in what was learned before as well: one lucky or unlucky teacher tells little."""
MEAN_SEEDS = tuple(range(8))
"""The means are held to half a hundredth, and with three seeds they scatter by a whole one."""
ROUNDING = 0.005
TRACES = load()

# machine: speed over plain that the research reached (greedy cold, greedy with known costs, sampled
# with known costs). Its sampled figures cut drawn drafts after the fact, which biases the text and
# is not done here; None: it gave no figure.
RESEARCHED: dict[str, tuple[float, float, float | None]] = {
    "cpu-q4": (1.04, 1.05, 1.04),
    "cpu-q8": (1.43, 1.44, 1.22),
    "laptop": (2.65, 2.66, 2.20),
    "metal": (1.74, 1.73, 1.46),
    "gpu": (3.13, 3.14, 2.59),
    "moe": (1.69, 1.70, 1.45),
    "dear-draft": (1.66, 1.65, None),
    "proportional": (1.00, 1.00, None),
}


@cache
def known(curve: Curve, seed: int) -> Learned:
    return taught(curve, TRACES, TEACHING_SEED + seed)


@cache
def speeds_with(curve: Curve, mode: str, cold: bool, seed: int) -> list[tuple[Trace, float]]:
    traces = [trace for trace in TRACES if trace.mode == mode]
    learned = None if cold else known(curve, seed)
    return [(trace, r.speedup) for trace, r in replay(traces, curve, learned, [seed])]


def speeds(
    curve: Curve, mode: str, cold: bool, seeds: Sequence[int] = SEEDS
) -> list[tuple[Trace, float]]:
    return [pair for seed in seeds for pair in speeds_with(curve, mode, cold, seed)]


def mean(found: Sequence[tuple[Trace, float]]) -> float:
    return geometric_mean([speed for _, speed in found])


@pytest.mark.parametrize("curve", curves.RESEARCHED, ids=lambda curve: curve.name)
def test_the_floor_holds_where_costs_are_known(curve: Curve) -> None:
    floor = RESEARCHED[curve.name][1]
    assert mean(speeds(curve, "g", False, MEAN_SEEDS)) >= floor - ROUNDING


@pytest.mark.parametrize("curve", curves.RESEARCHED, ids=lambda curve: curve.name)
def test_what_holds_from_a_cold_start(curve: Curve) -> None:
    floor = RESEARCHED[curve.name][0]
    assert mean(speeds(curve, "g", True, MEAN_SEEDS)) >= floor - ROUNDING


@pytest.mark.parametrize("curve", curves.MACHINES, ids=lambda curve: curve.name)
def test_what_holds_for_sampled_text(curve: Curve) -> None:
    floor = RESEARCHED[curve.name][2]
    assert floor is not None
    assert mean(speeds(curve, "r", False, MEAN_SEEDS)) >= floor - ROUNDING


def test_long_greedy_answers_are_never_slower() -> None:
    """At the line: with these two seeds 98.1 in 100 reach 0.98."""
    long = [
        speed
        for curve in curves.MACHINES
        for cold in (True, False)
        for trace, speed in speeds(curve, "g", cold, SEEDS[:2])
        if len(trace.out) >= 80
    ]
    assert min(long) >= 0.95
    assert sum(speed >= 0.98 for speed in long) >= 0.98 * len(long)


def test_no_greedy_answer_loses_much() -> None:
    """Short ones too, where costs are known."""
    every = [s for curve in curves.MACHINES for _, s in speeds(curve, "g", False)]
    assert min(every) >= 0.95
    assert sum(speed >= 0.97 for speed in every) >= 0.98 * len(every)


@pytest.mark.parametrize("curve", [curves.LATER_Q4, curves.LATER_Q8], ids=lambda curve: curve.name)
def test_no_greedy_answer_loses_much_where_drafts_seldom_pay(curve: Curve) -> None:
    """Wide decodes cost nearly as much as their rows one by one there."""
    assert min(s for _, s in speeds(curve, "g", False)) >= 0.95
    assert mean(speeds(curve, "g", False)) > 1.0


def test_few_sampled_answers_lose_much() -> None:
    """The aim is 0.95 for each, this is where it stands. Those under it are short answers where a
    row is dear, drawn drafts must be verified whole, and a prompt is read that does not pay."""
    every = [s for curve in curves.MACHINES for _, s in speeds(curve, "r", False)]
    assert min(every) >= 0.83
    assert sum(speed >= 0.95 for speed in every) >= 0.94 * len(every)


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


def test_a_draft_that_was_unlucky_once_is_read_for_again() -> None:
    """A few wrong tokens make it look too bad to be read for; then nothing is learned of it, so
    only time can tell that it may be better than that."""
    code = next(trace for trace in TRACES if trace.mode == "g" and trace.name == "code-lru")
    unlucky = replace(known(curves.OLD_Q8, 0), trust={MODEL: (2.0, 6.0)})
    pacer = auto(curves.OLD_Q8, unlucky)
    speedups = [run(code, curves.OLD_Q8, pacer, seed).speedup for seed in range(24)]
    assert max(speedups[:2]) < 1.1
    assert min(speedups[-4:]) > 1.2


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
        def learn(self, measured: object) -> None:
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
