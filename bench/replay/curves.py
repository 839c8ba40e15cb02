"""Cost curves of machines: what a decode costs by width, in plain target decodes.

The first two and the last four were measured; the others are shapes (see each ``about``). Linear
between points, and beyond the last one as between the last two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

Shape = Callable[[float], float]


def points(table: dict[int, float]) -> Shape:
    """Linear interpolation in a table of width -> cost."""
    widths = sorted(table)

    def at(width: float) -> float:
        high = min(max(1, bisect_right(widths, width)), len(widths) - 1)
        w0, w1 = widths[high - 1], widths[high]
        return table[w0] + (table[w1] - table[w0]) * (width - w0) / (w1 - w0)

    return at


@dataclass(frozen=True)
class Curve:
    """One machine with one pair. ``draft`` is one draft decode of width 1, ``draft_shape`` its cost
    by width relative to that, ``draft_fixed`` what each draft phase costs besides."""

    name: str
    about: str
    shape: Shape
    draft: float
    draft_shape: Shape
    draft_fixed: float = 0.0

    def target(self, width: int) -> float:
        """One target decode of ``width`` tokens."""
        return self.shape(width)

    def drafting(self, width: int) -> float:
        """One draft decode of ``width`` tokens."""
        return self.draft * self.draft_shape(width)


def _linear(slope: float) -> Shape:
    return lambda width: 1 + slope * (width - 1)


# fmt: off
_CPU_Q4 = points({1: 1, 2: 1.93, 3: 2.33, 4: 2.58, 5: 3.24, 6: 4.09, 7: 4.59, 8: 6.56, 10: 7.52,
                  12: 7.96, 14: 8.0, 16: 8.07, 20: 10.0, 24: 11.2, 28: 12.1, 32: 12.2, 64: 20,
                  128: 39})
_CPU_Q8 = points({1: 1, 2: 1.67, 3: 1.70, 4: 1.76, 5: 2.0, 6: 2.2, 8: 2.6, 12: 3.4, 16: 4.2,
                  24: 6.0, 32: 7.7, 64: 14.5, 128: 29})
_CPU_DRAFT = points({1: 1, 2: 1.87, 3: 2.3, 4: 2.55, 5: 3.55, 6: 3.85, 8: 4.4, 10: 5.9, 12: 5.9,
                     16: 7.1, 20: 8.3, 24: 10, 32: 12.1, 64: 15.1, 128: 28.8})
_OLD_Q4 = points({1: 1, 2: 1.57, 3: 2.15, 4: 2.28, 5: 3.07, 6: 3.55, 7: 4.08, 8: 6.07, 9: 7.11,
                  10: 7.29, 12: 8.17, 14: 8.04, 16: 7.28, 20: 11.5, 24: 13.0, 32: 16.3, 64: 31,
                  128: 60})
_OLD_Q8 = points({1: 1, 2: 1.36, 3: 2.21, 4: 2.0, 5: 2.71, 6: 2.61, 7: 3.64, 8: 3.12, 9: 3.84,
                  10: 3.67, 12: 4.51, 13: 5.16, 14: 4.94, 16: 5.77, 20: 7.22, 24: 8.38, 32: 10.8,
                  64: 20.5, 128: 40})
_OLD_DRAFT = points({1: 1, 2: 1.68, 4: 2.0, 8: 2.5, 16: 3.7, 24: 7.0, 40: 11.3, 64: 17.0, 128: 31.4,
                     256: 59.0})
_LATER_Q4 = points({1: 1, 2: 1.73, 3: 2.45, 4: 3.0, 5: 3.77, 6: 4.62, 7: 5.06, 8: 7.4, 10: 8.89,
                   12: 10.2, 16: 9.8, 20: 13.0, 24: 15.0, 32: 17.0})
_LATER_Q8 = points({1: 1, 2: 1.46, 3: 2.4, 4: 2.27, 5: 2.91, 6: 3.04, 7: 3.88, 8: 4.03, 10: 4.77,
                   12: 5.68, 16: 7.29, 19: 9.3, 32: 14.6})
_METAL = points({1: 1, 2: 1.3, 3: 1.5, 4: 1.7, 8: 2.6, 9: 3.0, 16: 3.1, 32: 3.4, 64: 5.5,
                 128: 10})
_LAPTOP = _linear(0.04)
_GPU = _linear(0.015)
# fmt: on


def _moe(width: float) -> float:
    return 1 + 0.25 * (min(width, 8) - 1) + 0.10 * max(0.0, width - 8)


CPU_Q4 = Curve("cpu-q4", "2-core CPU, Q4_K_M pair, measured", _CPU_Q4, 0.55, _CPU_DRAFT)
CPU_Q8 = Curve("cpu-q8", "2-core CPU, Q8_0 target, Q4_0 draft, measured", _CPU_Q8, 0.19, _CPU_DRAFT)
LAPTOP = Curve("laptop", "memory-bound laptop, a guess at the shape", _LAPTOP, 0.15, _LAPTOP)
METAL = Curve("metal", "Metal, small batches, from public reports", _METAL, 0.20, _METAL)
GPU = Curve("gpu", "discrete GPU, a guess at the shape", _GPU, 0.12, _GPU, draft_fixed=0.05)
MOE = Curve("moe", "mixture-of-experts target, a guess at the shape", _moe, 0.20, _LAPTOP)
DEAR = Curve(
    "dear-draft", "laptop with a draft nearly as costly as the target", _LAPTOP, 0.90, _LAPTOP
)
PROPORTIONAL = Curve("proportional", "cost proportional to width", _linear(1), 0.15, _linear(1))
OLD_Q4 = Curve("old-q4", "2-core CPU without AVX-512, Q4_K_M pair", _OLD_Q4, 0.49, _OLD_DRAFT)
OLD_Q8 = Curve("old-q8", "the same, Q8_0 target, Q4_0 draft", _OLD_Q8, 0.28, _OLD_DRAFT)
LATER_Q4 = Curve("later-q4", "the same processor on another day", _LATER_Q4, 0.48, _OLD_DRAFT)
LATER_Q8 = Curve("later-q8", "the same, Q8_0 target, Q4_0 draft", _LATER_Q8, 0.28, _OLD_DRAFT)

MACHINES = (CPU_Q4, CPU_Q8, LAPTOP, METAL, GPU, MOE)
ADVERSARIAL = (DEAR, PROPORTIONAL)
RESEARCHED = MACHINES + ADVERSARIAL
ALL = (*RESEARCHED, OLD_Q4, OLD_Q8, LATER_Q4, LATER_Q8)
