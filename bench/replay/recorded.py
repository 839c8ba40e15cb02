"""Replay what ``localspec run --trace FILE`` recorded: was lookup used as well as it could be?

A trace holds the prompt, the answer and what each step cost, so lookup can be replayed on the costs
that were measured. What a draft model would have said at other places nobody knows: what it brought
is part of what happened, and nothing else here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.replay.curves import Curve, points
from bench.replay.optimum import optimum
from bench.replay.simulate import run
from bench.replay.traces import MAX_TOKENS, UNKNOWN, Trace
from localspec.spec.costs import Learned
from localspec.spec.pacer import AutoPacer

MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Recorded:
    """One answer: ``trace`` of it, the ``curve`` that its decodes cost, and ``speedup`` over plain
    as it really was (None when no plain decode was measured)."""

    trace: Trace
    curve: Curve
    speedup: float | None


def load(path: Path) -> list[Recorded]:
    """The answers in a trace file. Raises SystemExit with a sentence for what is none."""
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path} is too large for a trace")
    answers: list[list[dict[str, Any]]] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            value = json.loads(line)
            if value["type"] == "answer":
                answers.append([value])
            else:
                answers[-1].append(value)
        return [_recorded(f"answer {n}", lines) for n, lines in enumerate(answers, start=1)]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise SystemExit(f"{path} is not a trace of localspec: {error!r}") from error


def _recorded(name: str, lines: list[dict[str, Any]]) -> Recorded:
    steps = [line for line in lines if line["type"] == "step"]
    out = [token for step in steps for token in step["tokens"]]
    later = [step for step in steps if not step["first"]]
    curve = _curve(later)
    plain_s = median(s["verify_s"] for s in later if s["width"] == 1) if _has_plain(later) else None
    spent = sum(step["verify_s"] + step["draft_s"] for step in later)
    n_later = sum(step["emitted"] for step in later)
    mode = "g" if not lines[0]["temperature"] else "s"
    out = out[: MAX_TOKENS[mode]]
    trace = Trace(
        name, mode, list(lines[0]["prompt"]), out, [UNKNOWN] * len(out), [0.0] * len(out), {}
    )
    return Recorded(trace, curve, n_later * plain_s / spent if plain_s and spent else None)


def _has_plain(steps: list[dict[str, Any]]) -> bool:
    return any(step["width"] == 1 for step in steps)


def _curve(steps: list[dict[str, Any]]) -> Curve:
    """Median time by width over that of width 1, made never to fall. With nothing wider measured a
    decode is taken to cost as much as its tokens would one by one."""
    times: dict[int, list[float]] = {}
    for step in steps:
        times.setdefault(step["width"], []).append(step["verify_s"])
    one = median(times[1]) if 1 in times else median(min(times.values(), default=[1.0]))
    table, least = {1: 1.0}, 1.0
    for width in sorted(times):
        least = max(least, median(times[width]) / one)
        table[width] = max(1.0, least)
    if len(table) == 1:
        table[2] = 2.0
    return Curve("as recorded", "measured in the run", points(table), 1e9, lambda _: 1.0)


def show(path: Path) -> None:
    """One line for each answer."""
    print(f"{'':12}{'tokens':>8}{'as it was':>12}{'lookup, pacer':>16}{'lookup, hindsight':>20}")
    for one in load(path):
        n = len(one.trace.out)
        if n < 2:
            continue
        known = Learned(widths={w: (one.curve.target(w), 8) for w in range(2, 33)})
        pacer = AutoPacer({}, known, allowed={"lookup"})
        replayed = run(one.trace, one.curve, pacer, 0).speedup
        best = (n - 1) / optimum(one.trace, one.curve)
        was = "–" if one.speedup is None else f"{one.speedup:.2f}"
        print(f"{one.trace.name:12}{n:>8}{was:>12}{replayed:>16.2f}{best:>20.2f}")
