"""How often a guess from earlier texts was right, by what could be known of it before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

RUN_STARTS = (0, 1, 2, 4, 8, 16, 32)
"""Guesses are told apart by how many tokens before them were equal: 0, 1, 2-3, ..., 32 and more."""
EDITED = len(RUN_STARTS)
"""One more class: the earlier text said something else, which has been replaced."""
ALONE, AGREEING, MOSTLY, CONTRADICTED = range(4)
"""Other places with an equally long match: none; all say the same; half of them or more; fewer."""
N_VOTES = 4
RATE_STARTS = (0.0, 0.4, 0.7, 0.9)
"""And by the share of guesses in this answer that were right lately."""
N_CELLS = (len(RUN_STARTS) + 1) * N_VOTES * len(RATE_STARTS)


class Prior(NamedTuple):
    """The first guess at a cell: the chance of being wrong with such a run (``by_run`` is that of
    being right), times what the votes and the rate make of it; and no more than what the votes
    leave."""

    by_run: tuple[float, ...]
    by_vote: tuple[float, ...]
    most_by_vote: tuple[float, ...]
    by_rate: tuple[float, ...]


EARLIER_TEXTS = Prior(
    by_run=(0.20, 0.45, 0.70, 0.80, 0.90, 0.94, 0.96, 0.85),
    by_vote=(1.0, 0.7, 1.5, 2.0),
    most_by_vote=(1.0, 1.0, 0.8, 0.45),
    by_rate=(2.5, 1.4, 1.0, 0.6),
)
IN_TEXT = Prior(
    by_run=(0.36, 0.60, 0.75, 0.83, 0.89, 0.95, 0.95, 0.41),
    by_vote=(0.95, 0.62, 0.92, 1.52),
    most_by_vote=(0.97, 0.90, 1.0, 0.44),
    by_rate=(1.97, 1.34, 0.98, 0.94),
)
"""Where the text itself is copied from; fitted to the recorded answers of ``bench/data``."""

WEIGHT = 16.0
_FULL = 2000.0


def cell_of(run: int, edited: bool, votes: int, rate: float) -> int:
    """The number of the cell, 0 .. ``N_CELLS`` - 1."""
    by_run = EDITED if edited else bisect_right(RUN_STARTS, run) - 1
    by_rate = bisect_right(RATE_STARTS, rate) - 1
    return (by_run * N_VOTES + votes) * len(RATE_STARTS) + by_rate


def prior(cell: int, known: Prior = EARLIER_TEXTS) -> float:
    """The chance before anything was seen."""
    rest, rate = divmod(cell, len(RATE_STARTS))
    run, votes = divmod(rest, N_VOTES)
    wrong = (1 - known.by_run[run]) * known.by_vote[votes] * known.by_rate[rate]
    return min(1 - min(0.95, wrong), known.most_by_vote[votes])


def votes_of(n_agreeing: int, n_others: int) -> int:
    """The class of what ``n_others`` other places say."""
    if n_others == 0:
        return ALONE
    if n_agreeing == n_others:
        return AGREEING
    return MOSTLY if 2 * n_agreeing >= n_others else CONTRADICTED


class Calibration:
    """Smoothed counts by cell.

    It is kept from run to run (``counts``), because unlike a text's own rhythm it is a property of
    how one works. Counts are halved when they get large, so that it follows a change.
    """

    def __init__(self, known: Prior = EARLIER_TEXTS) -> None:
        self._prior = [prior(cell, known) for cell in range(N_CELLS)]
        self._right = [0.0] * N_CELLS
        self._seen = [0.0] * N_CELLS
        self._new_right = [0.0] * N_CELLS
        self._new_seen = [0.0] * N_CELLS
        self._chances = [0.0] * N_CELLS
        self._refresh()

    def chance(self, cell: int) -> float:
        """The chance that such a guess is right."""
        return self._chances[cell]

    def observe(self, cell: int, hit: bool) -> None:
        """Such a guess was right or wrong."""
        self._new_right[cell] += hit
        self._new_seen[cell] += 1
        self._count(cell, float(hit), 1.0)
        self._refresh_cell(cell)

    def add(self, counts: Sequence[Sequence[float]]) -> None:
        """Count what was seen elsewhere: ``counts[0]`` right and ``counts[1]`` seen, by cell.
        Numbers that cannot be are left out."""
        if len(counts) == 2 and len(counts[0]) == len(counts[1]) == N_CELLS:
            for cell, (right, seen) in enumerate(zip(*counts, strict=True)):
                if 0 <= right <= seen < 1e9:
                    self._count(cell, right, seen)
        self._refresh()

    def take_new(self) -> list[list[float]]:
        """What was observed since the last call, as ``add`` takes it."""
        new = [self._new_right, self._new_seen]
        self._new_right = [0.0] * N_CELLS
        self._new_seen = [0.0] * N_CELLS
        return new

    def counts(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """All that is known, as ``add`` takes it."""
        return tuple(self._right), tuple(self._seen)

    def _count(self, cell: int, right: float, seen: float) -> None:
        self._right[cell] += right
        self._seen[cell] += seen
        while self._seen[cell] > _FULL:
            self._right[cell] /= 2
            self._seen[cell] /= 2

    def _refresh(self) -> None:
        for cell in range(N_CELLS):
            self._refresh_cell(cell)

    def _refresh_cell(self, cell: int) -> None:
        right, seen = self._right[cell], self._seen[cell]
        self._chances[cell] = (self._prior[cell] * WEIGHT + right) / (WEIGHT + seen)
