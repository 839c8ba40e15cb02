"""When drafting has lost time: off for a while, and less is spent on preparing it."""

from __future__ import annotations

LOSS = 8.0
"""Plain decodes that drafting may have lost before the breaker opens. What catching up cost is not
lost: it was weighed, and bounded, before."""
PAUSE_TOKENS = 32
"""The breaker's first pause."""
RECORD_WEIGHT = 8.0
"""Plain decodes that are taken to have been spent and saved before anything was."""
BEST_RETURN = 2.0
"""More than so many times what was read for an answer does not make up for other answers."""
FADING = 0.95
"""What was seen counts for this much less with each answer: a model is tried again in the end."""


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


class TrackRecord:
    """What a model read to draft, and what its drafts then saved, answer after answer: less is
    staked on one that seldom paid. All in plain decodes.

    ``returned`` and ``invested``: from earlier runs.
    """

    def __init__(self, returned: float = 0.0, invested: float = 0.0) -> None:
        self._returned, self._invested = returned, invested
        self._spent = self._saved = 0.0

    def begin(self) -> None:
        """A new answer."""
        returned, invested = self.kept()
        self._returned, self._invested = returned * FADING, invested * FADING
        self._spent = self._saved = 0.0

    def read(self, cost: float) -> None:
        """So much was spent on reading."""
        self._spent += cost

    def drafted(self, saved: float) -> None:
        """A draft saved so much (negative: lost)."""
        self._saved += saved

    @property
    def balance(self) -> float:
        """Of this answer."""
        return self._saved - self._spent

    @property
    def share(self) -> float:
        """Of the usual stake, how much this model is worth."""
        return min(1.0, (RECORD_WEIGHT + self._returned) / (RECORD_WEIGHT + self._invested))

    def kept(self) -> tuple[float, float]:
        """(returned, invested), this answer included."""
        if not self._spent:
            return self._returned, self._invested
        saved = min(max(0.0, self._saved), BEST_RETURN * self._spent)
        lost = max(0.0, -self._saved)
        return self._returned + saved, self._invested + self._spent + lost
