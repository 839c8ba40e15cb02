"""Drafts from earlier texts: how did it go on when it last looked like this?

Suffix decoding (Oliaro et al. 2024) and REST (He et al. 2023) draft from what was written before;
here the index is the user's own history (``localspec.history``), reached through a small protocol.
"""

# ruff: noqa: ARG002 - copying needs no sampler, costs nothing to go on with or to stop

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

from localspec.spec.acceptance import CLASS_PRIORS, CLASS_STARTS
from localspec.spec.drafter import Draft, Hindsight, More, Offer, Sampler

TAIL = 32
"""How many tokens of the text's end are compared."""
PATIENCE = 16
"""Tokens without any match after which a text is no longer followed."""
MIN_CHANCE = 0.2
"""Below this chance for the first token nothing is offered,"""
MIN_SURVIVAL = 0.02
"""and a draft ends where it is less likely than this to be right up to there."""


class Match(NamedTuple):
    """The longest match of a text's end: ``length`` tokens. ``n_voters`` earlier places matched so
    far, and ``n_agreeing`` of them went on with ``token``, at ``places`` (the index's own numbers,
    newest first)."""

    length: int
    token: int
    n_voters: int
    n_agreeing: int
    places: tuple[int, ...]


class Followed(NamedTuple):
    """One token of a continuation, said by ``n_agreeing`` of ``n_voters`` places."""

    token: int
    n_voters: int
    n_agreeing: int


class HistoryIndex(Protocol):
    """Something that remembers texts."""

    def begin(self) -> None:
        """An answer starts: look whether others have added to the index. Cheap."""

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """The longest match of the end of ``tail``; None when there is none worth a look. ``hint``:
        a place whose token may well be the next one; 0 for none."""

    def near(self, place: int, tail: Sequence[int]) -> Match | None:
        """A match too short for ``find``, but close to ``place``, a place that ``find`` or ``near``
        gave (or some tokens after one): the same text, where a name or a number differs."""

    def follow(self, match: Match, limit: int) -> list[Followed]:
        """How it went on after ``match``, ``match.token`` first; at most ``limit`` tokens."""

    def helped(self, match: Match, n_tokens: int) -> None:
        """``n_tokens`` of a draft from ``match`` were accepted: what is useful is kept longer."""


_BARS = tuple(max(CLASS_PRIORS[: i + 1]) for i in range(len(CLASS_PRIORS)))
_PRIORS = (0.35, 0.50, 0.55, 0.55, 0.62, 0.72, 0.80, 0.90, 0.95)
"""Chance of a token by length of match (classes of ``acceptance``) with one place to go by. Up to
three tokens match only near a place that was followed before."""
N_AGREEMENTS = 5
WEIGHT = 16.0
_FULL = 2000.0


class Calibration:
    """How often a continuation was right, by length of match and agreement of the places.

    It is kept from run to run (``counts``), because unlike a text's own rhythm it is a property of
    how one works. Counts are halved when they get large, so that it follows a change.
    """

    def __init__(self) -> None:
        n = len(CLASS_STARTS) * N_AGREEMENTS
        self._right = [0.0] * n
        self._seen = [0.0] * n
        self._new_right = [0.0] * n
        self._new_seen = [0.0] * n
        self._chances = [0.0] * n
        self._refresh()

    def chance(self, length: int, n_voters: int, n_agreeing: int) -> float:
        """The chance that the token after such a match is right."""
        return self._chances[_cell(length, n_voters, n_agreeing)]

    def observe(self, length: int, n_voters: int, n_agreeing: int, hit: bool) -> None:
        """After such a match the token was right or wrong."""
        cell = _cell(length, n_voters, n_agreeing)
        self._new_right[cell] += hit
        self._new_seen[cell] += 1
        self._count(cell, float(hit), 1.0)
        self._refresh_cell(cell)

    def add(self, counts: Sequence[Sequence[float]]) -> None:
        """Count what was seen elsewhere: ``counts[0]`` right and ``counts[1]`` seen, by cell.
        Numbers that cannot be are left out."""
        if len(counts) == 2 and len(counts[0]) == len(counts[1]) == len(self._seen):
            for cell, (right, seen) in enumerate(zip(*counts, strict=True)):
                if 0 <= right <= seen < 1e9:
                    self._count(cell, right, seen)
        self._refresh()

    def take_new(self) -> list[list[float]]:
        """What was observed since the last call, as ``add`` takes it."""
        new = [self._new_right, self._new_seen]
        self._new_right = [0.0] * len(self._seen)
        self._new_seen = [0.0] * len(self._seen)
        return new

    def counts(self) -> list[list[float]]:
        """All that is known, as ``add`` takes it."""
        return [list(self._right), list(self._seen)]

    def _count(self, cell: int, right: float, seen: float) -> None:
        self._right[cell] += right
        self._seen[cell] += seen
        while self._seen[cell] > _FULL:
            self._right[cell] /= 2
            self._seen[cell] /= 2

    def _refresh(self) -> None:
        for cell in range(len(self._chances)):
            self._refresh_cell(cell)

    def _refresh_cell(self, cell: int) -> None:
        prior = _prior(cell)
        self._chances[cell] = (prior * WEIGHT + self._right[cell]) / (WEIGHT + self._seen[cell])


def _cell(length: int, n_voters: int, n_agreeing: int) -> int:
    return (bisect_right(CLASS_STARTS, length) - 1) * N_AGREEMENTS + _agreement(
        n_voters, n_agreeing
    )


def _agreement(n_voters: int, n_agreeing: int) -> int:
    """0: one place; 1: two or three that agree; 2: more that agree; 3: three quarters; 4: fewer."""
    if n_agreeing == n_voters:
        return 0 if n_voters == 1 else 1 if n_voters < 4 else 2
    return 3 if 4 * n_agreeing >= 3 * n_voters else 4


def _prior(cell: int) -> float:
    length, agreement = divmod(cell, N_AGREEMENTS)
    chance = _PRIORS[length]
    # Each further place that agrees takes away some of the doubt; each that does not adds some.
    return (chance, 1 - 0.7 * (1 - chance), 1 - 0.5 * (1 - chance), 0.75 * chance, 0.5 * chance)[
        agreement
    ]


class HistoryDrafter:
    """Copies what most often followed the longest match in earlier texts, as far as they agree.

    Its drafts are point masses; ``confidence`` is the calibrated chance of each token given the
    ones before. ``Offer.evidence`` is the length of the match in the text itself that is as good as
    the chance of the first token, so that a pacer can treat it like lookup's.
    """

    name = "history"

    def __init__(self, index: HistoryIndex, calibration: Calibration, n_vocab: int) -> None:
        self.calibration = calibration
        self._index = index
        self._n_vocab = n_vocab
        self._tail: list[int] = []
        self._searched = False
        self._found: Match | None = None
        self._followed: tuple[int, int] | None = None  # place of the next token, tokens unmatched
        self._drafted: tuple[Match, list[int]] | None = None
        self._spent_s = 0.0

    def begin(self, tokens: Sequence[int], sampler: Sampler | None = None) -> None:
        """An answer starts after ``tokens``; only their end matters."""
        self._index.begin()
        self._tail = list(tokens[-TAIL:])
        self._searched = False
        self._followed = None
        self._drafted = None

    def offer(self) -> Offer | None:
        """The match's worth as evidence; None when nothing matches well enough."""
        match = self._search()
        evidence = self._evidence(match) if match is not None else 0
        return Offer(self.name, evidence) if evidence else None

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        """Up to ``limit`` tokens; fewer where the texts end or no longer agree."""
        started = perf_counter()
        draft = Draft()
        match = self._search()
        if match is not None and limit > 0:
            survival = 1.0
            for position, step in enumerate(self._index.follow(match, limit)):
                chance = self.calibration.chance(
                    match.length + position, step.n_voters, step.n_agreeing
                )
                survival *= chance
                if survival < MIN_SURVIVAL or not self._is_token(step.token):
                    break
                draft.tokens.append(step.token)
                draft.confidence.append(chance)
            self._drafted = (match, list(draft.tokens))
        self._spent_s = perf_counter() - started
        return draft

    def commit(self, tokens: Sequence[int]) -> list[Hindsight]:
        """Append ``tokens``; returns at which of them a copy would have begun, and how well."""
        if self._drafted is not None:
            match, drafted = self._drafted
            pairs = zip(drafted, tokens, strict=False)
            n_right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(drafted))
            n_right = min(n_right, len(tokens))
            if n_right:
                self._index.helped(match, n_right)
            self._drafted = None
        seen: list[Hindsight] = []
        for token in tokens:
            match_here = self._search()
            if match_here is not None:
                hit = match_here.token == token
                evidence = self._evidence(match_here)
                if evidence:
                    seen.append(Hindsight(self.name, evidence, hit))
                self.calibration.observe(
                    match_here.length, match_here.n_voters, match_here.n_agreeing, hit
                )
            self._go_on(match_here)
            self._tail.append(token)
            self._searched = False
        del self._tail[:-TAIL]
        return seen

    def costs(self) -> tuple[float, int, float, int]:
        """(seconds, 0 decodes, 0.0, 0): there is no model to run or to catch up."""
        return self._spent_s, 0, 0.0, 0

    def _go_on(self, match: Match | None) -> None:
        """One token further in the text that is followed, whether or not it was the right one."""
        if match is not None:
            place, n_unmatched = match.places[0], 0
        elif self._followed is not None and self._followed[1] < PATIENCE:
            place, n_unmatched = self._followed[0], self._followed[1] + 1
        else:
            self._followed = None
            return
        self._followed = (place + 1 if place > 0 else place - 1, n_unmatched)

    def _search(self) -> Match | None:
        if not self._searched:
            hint = self._followed[0] if self._followed is not None else 0
            found = self._index.find(self._tail, hint)
            if found is None and hint:
                found = self._index.near(hint, self._tail)
            # A damaged file may hold anything; the target must only see tokens that it has.
            self._found = found if found is not None and self._is_token(found.token) else None
            self._searched = True
        return self._found

    def _is_token(self, token: int) -> bool:
        return 0 <= token < self._n_vocab

    def _evidence(self, match: Match) -> int:
        """0: not worth offering."""
        chance = self.calibration.chance(match.length, match.n_voters, match.n_agreeing)
        if chance < MIN_CHANCE:
            return 0
        return CLASS_STARTS[max(0, bisect_right(_BARS, chance) - 1)]
