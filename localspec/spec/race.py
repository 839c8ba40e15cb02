"""Draws that a seed decides, place by place, whatever else was drawn before.

Every token has a random waiting time at every place of the text, exponential with its probability
as the rate; the first one wins. P(token wins) is its probability, as for any draw. A draft model
that runs the same race with its own probabilities often has the same winner, without knowing the
target's (Daliri, Musco & Suresh 2024, arXiv 2408.07978); and since the target's winner depends on
nothing but the text, it is the same one whether anything was drafted or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from localspec.spec.drafter import Dist

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class Race:
    """The waiting times of one seed."""

    def __init__(self, seed: int) -> None:
        self._key = _mixed(seed & _MASK)

    def winner(self, dist: Dist, place: int) -> int:
        """The token of ``dist`` that wins at ``place``, the number of tokens before it."""
        if len(dist.ids) == 1:
            return int(dist.ids[0])
        start = _mixed((self._key + place * _STEP) & _MASK)
        bits = _mixed(np.uint64(start) + dist.ids.astype(np.uint64) * np.uint64(_STEP))
        waiting = -np.log1p((bits >> np.uint64(11)) * -(2.0**-53))
        with np.errstate(divide="ignore", invalid="ignore"):
            arrival = np.where(dist.probs > 0.0, waiting / dist.probs, np.inf)
        return int(dist.ids[int(arrival.argmin())])


def _mixed(bits: Any) -> Any:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014) of a Python number below 2**64, or of
    each in an array of uint64: every bit depends on all."""
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)
