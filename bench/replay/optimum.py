"""The hindsight optimum: the cheapest way through an answer for one who knows what is right.

Dynamic programming over positions. Nobody can reach it; it tells how much is left. It drafts only
tokens that will be accepted, and lets the draft model read on only where it is going to be used.
"""

from __future__ import annotations

import numpy as np

from bench.replay.curves import Curve
from bench.replay.traces import Trace

MAX_COPY = 63
MAX_MODEL = 48


def optimum(trace: Trace, curve: Curve) -> float:
    """Cost of the cheapest way, in plain decodes."""
    end = len(trace.out)
    copying = _without_model(trace, curve)
    n_prompt = len(trace.prompt)
    first = [curve.drafting(lag) for lag in range(1, n_prompt + end + 2)]
    reading = np.array(first)
    following = curve.drafting(1)
    best = np.zeros(end + 1)  # best[i]: from i on, with a draft cache that is two tokens behind
    model = np.full(end + 1, np.inf)  # model[i]: the draft model is used at i, its reading not paid
    for at in range(end - 1, 0, -1):
        run = min(trace.runs[at], MAX_MODEL, end - at - 1)
        model[at] = min(
            (
                curve.draft_fixed + (n - 1) * following + curve.target(n + 1) + best[at + n + 1]
                for n in range(1, run + 1)
            ),
            default=np.inf,
        )
        ahead = copying[at, at:] + reading[1 : 1 + end - at + 1] + model[at:]
        best[at] = min(copying[at, end], ahead.min())
    start = copying[1, 1:] + reading[n_prompt : n_prompt + end] + model[1:]
    return float(min(copying[1, end], start.min()))


def _without_model(trace: Trace, curve: Curve) -> np.ndarray:
    """[i, j]: the least cost to get from position i to exactly j by plain decoding and copying."""
    end = len(trace.out)
    cost = np.full((end + 1, end + 1), np.inf)
    cost[end, end] = 0.0
    for at in range(end - 1, -1, -1):
        cost[at] = 1 + cost[at + 1]
        right = min(trace.copies[at][1], MAX_COPY, end - at - 1)
        for n in range(1, right + 1):
            np.minimum(cost[at], curve.target(n + 1) + cost[at + n + 1], out=cost[at])
        cost[at, at] = 0.0
    return cost
