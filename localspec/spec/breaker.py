"""When drafting has lost time: off for a while."""

from __future__ import annotations

LOSS = 8.0
"""Plain decodes that drafting may have lost before the breaker opens. What catching up cost is not
lost: it was weighed, and bounded, before."""
PAUSE_TOKENS = 32
"""The breaker's first pause."""


class Breaker:
    """Switches drafting off for a while when it lost time; longer each time within an answer."""

    def __init__(self) -> None:
        self.saved = 0.0
        self._balance = 0.0
        self._pause = PAUSE_TOKENS
        self._until = 0

    def add(self, saved: float, n_tokens: int) -> None:
        """A step saved so many plain decodes (negative: lost); ``n_tokens`` since the start."""
        self.saved += saved
        self._balance += saved
        if self._balance < -LOSS:
            self._balance = 0.0
            self._until = n_tokens + self._pause
            self._pause *= 2

    def invested(self, cost: float) -> None:
        """So many plain decodes were spent on catching up: no loss, but they are spent."""
        self.saved -= cost

    def is_open(self, n_tokens: int) -> bool:
        """Is drafting off now?"""
        return n_tokens < self._until
