"""What steps cost, learned while they run. Everything is relative to one plain target decode."""

from __future__ import annotations

from collections import deque
from statistics import median

RECENT = 7
"""Times whose median is the scale: enough to ignore a stall, few enough to follow the context."""


class Baseline:
    """Seconds of one plain decode, measured in this run: the median of the last few."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        """One plain decode took ``seconds``."""
        if seconds > 0:
            self._recent.append(seconds)

    @property
    def step_s(self) -> float | None:
        """The median in seconds; None before the first plain decode."""
        return median(self._recent) if self._recent else None
