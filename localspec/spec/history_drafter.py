"""Drafts from earlier texts: how did it go on when it last looked like this?

Suffix decoding (Oliaro et al. 2024) and REST (He et al. 2023) draft from what was written before;
here the index is the user's own history (``localspec.history``), reached through a small protocol.
"""

# ruff: noqa: ARG002 - copying needs no sampler, costs nothing to go on with or to stop

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter
from typing import NamedTuple, Protocol

from localspec.spec.calibration import Calibration, cell_of, votes_of
from localspec.spec.drafter import MAX_WIDTH, Draft, Hindsight, More, Offer, Sampler
from localspec.spec.following import Edits, Said, Walk
from localspec.spec.similar import N_COMPARED, Texts, most_similar, moved

TAIL = 32
"""How many tokens of the text's end are compared."""
BEFORE, AFTER = 32, 1024
"""How much of an earlier text around a place is read."""
MAX_OTHERS = 4
"""How many other places are asked whether they agree."""
MIN_CHANCE = 0.2
"""Below this chance for the first token nothing is offered,"""
MIN_SURVIVAL = 0.02
"""and a draft ends where it is less likely than this to be right up to there."""
RATE_PRIOR, RATE_SIMILAR = 0.35, 0.5
"""The share of right guesses that an answer begins with, and how much more it is for a question
that is the same as an earlier one."""
RATE_WEIGHT = 0.12
"""Of each new guess in that share."""


class Match(NamedTuple):
    """The longest match of a text's end: ``length`` tokens. ``n_voters`` earlier places matched so
    far, and ``n_agreeing`` of them went on with ``token``, at ``places`` (the index's own numbers,
    newest first)."""

    length: int
    token: int
    n_voters: int
    n_agreeing: int
    places: tuple[int, ...]


class HistoryIndex(Texts, Protocol):
    """Something that remembers texts."""

    def begin(self) -> None:
        """An answer starts: look whether others have added to the index. Cheap."""

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """The longest match of the end of ``tail``; None when there is none worth a look. ``hint``:
        a place whose token may well be the next one; 0 for none."""

    def helped(self, place: int, n_tokens: int) -> None:
        """``n_tokens`` of a draft from ``place`` were accepted: what is useful is kept longer."""


class Guess(NamedTuple):
    """The next token after ``walk``, and the cell of its chance."""

    walk: Walk
    start: int  # the place of the first token of the walk's text
    token: int
    cell: int
    others: tuple[int, ...]


class HistoryDrafter:
    """Walks along the earlier text that looks most like this one.

    Its drafts are point masses; ``confidence`` is the calibrated chance of each token given the
    ones before, which ``Offer.chances`` tells the pacer beforehand. ``Offer.evidence`` is how many
    tokens before were equal.
    """

    name = "history"

    def __init__(self, index: HistoryIndex, calibration: Calibration, n_vocab: int) -> None:
        self.calibration = calibration
        self._index = index
        self._n_vocab = n_vocab
        self._prompt: Sequence[int] = ()  # until it has been compared with earlier ones
        self._waiting: list[int] = []
        self._tail: list[int] = []
        self._edits = Edits()
        self._walk: Walk | None = None
        self._start = 0
        self._rate = RATE_PRIOR
        self._guesses: list[Guess] | None = None  # the best first
        self._ahead: tuple[list[int], list[float]] | None = None
        self._drafted: tuple[int, list[int]] | None = None
        self._spent_s = 0.0

    def begin(self, tokens: Sequence[int], sampler: Sampler | None = None) -> None:
        """An answer starts after ``tokens``."""
        self._index.begin()
        self._prompt, self._waiting = list(tokens[-N_COMPARED:]), []
        self._tail = list(tokens[-TAIL:])
        self._edits = Edits()
        self._walk = None
        self._rate = RATE_PRIOR
        self._guesses = self._ahead = self._drafted = None

    def offer(self) -> Offer | None:
        """What it could say now; None when nothing matches well enough."""
        tokens, chances = self._look_ahead()
        if not tokens or chances[0] < MIN_CHANCE:
            return None
        run = self._look()[0].walk.run
        return Offer(self.name, run, available=len(tokens), chances=tuple(chances))

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        """Up to ``limit`` tokens; fewer where the text ends or it gets too unlikely."""
        started = perf_counter()
        tokens, chances = self._look_ahead()
        draft = Draft(tokens[: max(0, limit)], chances[: max(0, limit)])
        if draft.tokens:
            best = self._look()[0]
            self._drafted = (moved(best.start, best.walk.at), list(draft.tokens))
        self._spent_s = perf_counter() - started
        return draft

    def commit(self, tokens: Sequence[int]) -> list[Hindsight]:
        """Append ``tokens``. Returns nothing: it judges itself."""
        if self._drafted is not None:
            place, drafted = self._drafted
            pairs = zip(drafted, tokens, strict=False)
            n_right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(drafted))
            if min(n_right, len(tokens)):
                self._index.helped(place, min(n_right, len(tokens)))
            self._drafted = None
        for token in tokens:
            self._follow(token)
            self._tail.append(token)
            self._guesses = self._ahead = None
        del self._tail[:-TAIL]
        return []

    def costs(self) -> tuple[float, int, float, int]:
        """(seconds, 0 decodes, 0.0, 0): there is no model to run or to catch up."""
        return self._spent_s, 0, 0.0, 0

    # -- following --------------------------------------------------------------------------------

    def _follow(self, token: int) -> None:
        """Learn from one token, and go on with the guess that was right."""
        if self._prompt:  # this is the answer's first token, which must not wait for a search
            self._waiting.append(token)
            return
        guesses = self._look()
        for guess in guesses:
            self.calibration.observe(guess.cell, guess.token == token)
        if guesses:
            self._rate += RATE_WEIGHT * ((guesses[0].token == token) - self._rate)
        right = next((guess for guess in guesses if guess.token == token), None)
        if right is not None or (self._walk is None and guesses):
            chosen = right or guesses[0]
            self._walk, self._start = chosen.walk, chosen.start
        if self._walk is not None:
            self._walk.step(token)
            if self._walk.over:
                self._walk = None

    def _read_question(self) -> None:
        """Look for a similar question; the answer to that is where the walk begins."""
        place, similar = most_similar(self._index, self._prompt, self._edits)
        if place:
            walk, self._start = self._walk_from(place, 0)
            before = reversed(walk.text[: walk.at])
            pairs = zip(before, reversed(self._prompt), strict=False)
            walk.run = next((i for i, (a, b) in enumerate(pairs) if a != b), TAIL)
            for token in self._waiting:
                walk.step(token)
            self._walk, self._rate = walk, RATE_PRIOR + RATE_SIMILAR * similar
        self._prompt, self._waiting = (), []

    def _look(self) -> list[Guess]:
        """The guesses at the next token, the likeliest first: along the walk, and after the longest
        match anywhere if that is another place."""
        if self._prompt:
            self._read_question()
        if self._guesses is None:
            self._guesses = sorted(
                self._find_guesses(), key=lambda guess: -self.calibration.chance(guess.cell)
            )
        return self._guesses

    def _find_guesses(self) -> list[Guess]:
        walk, hint = self._walk, 0
        said = walk.ahead(1) if walk is not None else []
        if walk is not None and said:
            hint = moved(self._start, walk.at)
        match = self._index.find(self._tail, hint)
        if match is not None and not self._is_token(match.token):
            match = None
        found = []
        if walk is not None and said:
            found.append(self._along(walk, said[0], match, hint))
        if (
            match is not None
            and hint not in match.places
            and (not found or match.token != found[0].token)
        ):
            other, start = self._walk_from(match.places[0], match.length)
            ahead = other.ahead(1)
            if ahead:
                # The walk is one more that says something else.
                votes = votes_of(match.n_agreeing - 1, match.n_voters - 1 + len(found))
                cell = cell_of(match.length, ahead[0].edited, votes, self._rate)
                found.append(Guess(other, start, ahead[0].token, cell, match.places[1:]))
        return found

    def _along(self, walk: Walk, said: Said, match: Match | None, hint: int) -> Guess:
        votes, others = votes_of(0, 0), tuple[int, ...]()
        if match is not None:
            is_one = hint in match.places
            others = tuple(place for place in match.places if place != hint)
            n_agreeing = match.n_agreeing - is_one if match.token == said.token else 0
            votes = votes_of(n_agreeing, match.n_voters - is_one)
        cell = cell_of(walk.run, said.edited, votes, self._rate)
        return Guess(walk, self._start, said.token, cell, others)

    def _walk_from(self, place: int, run: int) -> tuple[Walk, int]:
        text, at = self._index.around(place, BEFORE, AFTER)
        # A damaged file may hold anything; the target must only see tokens that it has.
        bad = [i for i, token in enumerate(text) if token >= self._n_vocab]
        first = max((i + 1 for i in bad if i < at), default=0)
        last = min((i for i in bad if i >= at), default=len(text))
        text, at = text[first:last], at - first
        return Walk(text, at, run, self._edits), moved(place, -at)

    def _look_ahead(self) -> tuple[list[int], list[float]]:
        """The tokens that could be drafted, and their chances."""
        if self._ahead is None:
            guesses = self._look()
            self._ahead = self._along_best(guesses[0]) if guesses else ([], [])
        return self._ahead

    def _along_best(self, best: Guess) -> tuple[list[int], list[float]]:
        others = [
            text[at:]
            for text, at in (
                self._index.around(place, 0, MAX_WIDTH) for place in best.others[:MAX_OTHERS]
            )
        ]
        tokens: list[int] = []
        chances: list[float] = []
        survival, rate, cell = 1.0, self._rate, best.cell
        for i, (token, edited) in enumerate(islice(best.walk.saying(), MAX_WIDTH - 1)):
            if i:
                agreeing = [text for text in others if i < len(text) and text[i] == token]
                votes, others = votes_of(len(agreeing), len(others)), agreeing
                cell = cell_of(best.walk.run + i, edited, votes, rate)
            chance = self.calibration.chance(cell)
            survival *= chance
            if survival < MIN_SURVIVAL:
                break
            tokens.append(token)
            chances.append(chance)
            rate += RATE_WEIGHT * (1 - rate)
        return tokens, chances

    def _is_token(self, token: int) -> bool:
        return 0 <= token < self._n_vocab
