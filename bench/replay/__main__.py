"""Print the table of policies x machines: ``python -m bench.replay [--modes gwsr] [--seeds 3]``.

Each cell is speed over plain decoding, the geometric mean over the answers, with the worst answer
in brackets. Deterministic: the same arguments print the same table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean

from bench.replay import curves, fixed, recorded
from bench.replay.curves import Curve
from bench.replay.optimum import optimum
from bench.replay.policies import PlusMinusOne, replay, taught
from bench.replay.simulate import run
from bench.replay.traces import Trace, load

HALVES = ("tune", "check")
"""Constants are chosen on every other answer, and judged on the ones between."""

Cell = Callable[[Curve], list[float]]

MODE_NAMES = {
    "g": "greedy",
    "w": "greedy, weak draft",
    "s": "temperature 0.8, draft kept if equal",
    "r": "temperature 0.8, rejection rule",
}


def rows(traces: list[Trace], everything: list[Trace], seeds: range) -> list[tuple[str, Cell]]:
    """The table's rows: a name, and the speeds of all answers on a machine."""

    def of_setting(setting: fixed.Setting) -> Cell:
        works = [(trace, fixed.walk(trace, setting)) for trace in traces]
        return lambda curve: [(len(t.out) - 1) / work.cost(curve) for t, work in works]

    def best_fixed(curve: Curve) -> list[float]:
        return [
            (len(trace.out) - 1) / min(work.cost(curve) for work in works)
            for trace, works in all_works
        ]

    all_works = [(t, [fixed.walk(t, setting) for setting in fixed.settings()]) for t in traces]
    return [
        ("draft model, K=3 (llama.cpp)", of_setting(fixed.LLAMA_DRAFT)),
        ("draft model, K=8, stop under 0.75", of_setting(fixed.EIGHT_STOPPING)),
        ("lookup, match >= 3, K=10", of_setting(fixed.COPY_TEN)),
        ("lookup, match >= 24, K=63", of_setting(fixed.NGRAM_MOD)),
        (
            "+-1 rule (0.65 / 0.85, 2..8)",
            lambda curve: [run(t, curve, PlusMinusOne(), 0).speedup for t in traces],
        ),
        ("best fixed setting per answer", best_fixed),
        ("pacer, cold", lambda c: [r.speedup for _, r in replay(traces, c, None, seeds)]),
        (
            "pacer, costs known",
            lambda c: [r.speedup for _, r in replay(traces, c, taught(c, everything), seeds)],
        ),
        ("hindsight optimum", lambda c: [(len(t.out) - 1) / optimum(t, c) for t in traces]),
    ]


def show(cells: Iterable[str], first: str) -> None:
    """One aligned line."""
    print(f"{first:36}", *(f"{cell:>13}" for cell in cells), flush=True)


def main() -> None:
    """Parse the arguments and print one table for each mode."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("--modes", default="gwsr", help="of g, w, s, r (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="noisy runs of each answer")
    parser.add_argument("--half", choices=HALVES, help="only this half of the prompts")
    parser.add_argument("--trace", type=Path, help="replay this file of localspec run --trace")
    arguments = parser.parse_args()
    if arguments.trace is not None:
        recorded.show(arguments.trace)
        return
    everything = load()
    for mode in arguments.modes:
        traces = [trace for trace in everything if trace.mode == mode]
        for half in HALVES if arguments.half is None else (arguments.half,):
            part = traces[HALVES.index(half) :: 2]
            print(
                f"\n{MODE_NAMES[mode]}, to {half} on: {len(part)} answers, {arguments.seeds} seeds"
            )
            show((curve.name for curve in curves.ALL), "")
            for name, cell in rows(part, everything, range(arguments.seeds)):
                speeds = [cell(curve) for curve in curves.ALL]
                show((f"{geometric_mean(s):.2f} ({min(s):.2f})" for s in speeds), name)


if __name__ == "__main__":
    main()
