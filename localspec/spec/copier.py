"""Copy from earlier text: how did it go on when it last looked like this?

What lookup (the text itself) and history (the user's earlier texts) have in common. Prompt lookup
(Saxena 2023) and suffix decoding (Oliaro et al. 2024) guess what followed the longest match of the
text's end. Here the text from which it copies is then followed through what differs, so that the
guess goes on behind a word that was changed, and with that word changed wherever it stands.
"""

# ruff: noqa: ARG002 - copying needs no sampler, costs nothing to go on with or to stop

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from localspec.spec.calibration import Calibration, cell_of, votes_of
from localspec.spec.drafter import MAX_WIDTH, Draft, More, Offer
from localspec.spec.following import Edits, Said, Walk, moved

BEFORE, AFTER = 32, 1024
"""How much of an earlier text around a place is read."""
MAX_OTHERS = 4
"""How many other places are asked whether they agree."""
MIN_CHANCE = 0.2
"""Below this chance for the first token nothing is offered,"""
MIN_SURVIVAL = 0.02
"""and a draft ends where it is less likely than this to be right up to there."""
RATE_PRIOR = 0.35
"""The share of right guesses that an answer begins with."""
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


class Guess(NamedTuple):
    """The next token after ``walk``, and the cell of its chance."""

    walk: Walk
    start: int  # the place of the first token of the walk's text
    token: int
    cell: int
    others: tuple[int, ...]


class Copier:
    """Walks along the earlier text that looks most like this one.

    Its drafts are point masses; ``confidence`` is the calibrated chance of each token given the
    ones before, which ``Offer.chances`` tells the pacer beforehand. ``Offer.evidence`` is how many
    tokens before were equal. The methods at the end say where the earlier text is.
    """

    name = ""
    n_chances = MAX_WIDTH - 1
    """For so many tokens the chance is looked up; further ones are as likely as the last of these.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._spent_s = 0.0
        self._restart()

    def _restart(self) -> None:
        """A new text: nothing is known of what it is like."""
        self._edits = Edits()
        self._walk: Walk | None = None
        self._start = 0
        self._rate = RATE_PRIOR
        self._forget_guesses()

    def _forget_guesses(self) -> None:
        self._guesses: list[Guess] | None = None  # the best first
        self._ahead: tuple[list[int], tuple[float, ...]] | None = None

    def offer(self) -> Offer | None:
        """What it could say now; None when nothing matches well enough."""
        tokens, chances = self._look_ahead()
        if not tokens or chances[0] < MIN_CHANCE:
            return None
        available = len(tokens) if len(tokens) < self.n_chances else MAX_WIDTH - 1
        run = self._look()[0].walk.run
        return Offer(self.name, run, available=available, chances=chances)

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        """Up to ``limit`` tokens; fewer where the text ends or it gets too unlikely."""
        started = perf_counter()
        limit = max(0, min(limit, MAX_WIDTH - 1))
        tokens, chances = self._look_ahead()
        draft = Draft(tokens[:limit], list(chances[:limit]))
        if limit > self.n_chances == len(tokens):
            draft.tokens = [said.token for said in self._saying(self._look()[0], limit)]
            draft.confidence += chances[-1:] * (len(draft.tokens) - self.n_chances)
        self._spent_s = perf_counter() - started
        return draft

    def read(self, limit: int, cancelled: Callable[[], bool]) -> None:
        """It sees every token as it is committed."""

    def commit(self, tokens: Sequence[int]) -> None:
        """Append ``tokens``, and learn from each how good the guess was."""
        for token in tokens:
            self._follow(token)
            self._append(token)
            self._forget_guesses()

    def costs(self) -> tuple[float, int, float, int]:
        """(seconds, 0 decodes, 0.0, 0): there is no model to run or to catch up."""
        return self._spent_s, 0, 0.0, 0

    # -- following --------------------------------------------------------------------------------

    def _follow(self, token: int) -> None:
        """Learn from one token, and go on with the guess that was right."""
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

    def _look(self) -> list[Guess]:
        """The guesses at the next token, the likeliest first: along the walk, and after the longest
        match anywhere if that is another place."""
        if self._guesses is None:
            self._guesses = self._find_guesses()
            if len(self._guesses) > 1:
                chance = self.calibration.chance
                self._guesses.sort(key=lambda guess: -chance(guess.cell))
        return self._guesses

    def _find_guesses(self) -> list[Guess]:
        walk, hint = self._walk, 0
        said = walk.ahead(1) if walk is not None else []
        if walk is not None and said:
            hint = moved(self._start, walk.at)
        match = self._find(hint)
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
        text, at = self._around(place, BEFORE, AFTER)
        return Walk(text, at, run, self._edits), moved(place, -at)

    def _look_ahead(self) -> tuple[list[int], tuple[float, ...]]:
        """The next tokens, ``n_chances`` at most, and their chances."""
        if self._ahead is None:
            guesses = self._look()
            self._ahead = self._along_best(guesses[0]) if guesses else ([], ())
        return self._ahead

    def _along_best(self, best: Guess) -> tuple[list[int], tuple[float, ...]]:
        others = [
            text[at:]
            for text, at in (
                self._around(place, 0, self.n_chances) for place in best.others[:MAX_OTHERS]
            )
        ]
        tokens: list[int] = []
        chances: list[float] = []
        survival, rate, cell, run = 1.0, self._rate, best.cell, best.walk.run
        for i, (token, edited) in enumerate(self._saying(best, self.n_chances)):
            if i:
                if others:
                    agreeing = [text for text in others if i < len(text) and text[i] == token]
                    votes, others = votes_of(len(agreeing), len(others)), agreeing
                else:
                    votes = votes_of(0, 0)
                cell = cell_of(run + i, edited, votes, rate)
            chance = self.calibration.chance(cell)
            survival *= chance
            if survival < MIN_SURVIVAL:
                break
            tokens.append(token)
            chances.append(chance)
            rate += RATE_WEIGHT * (1 - rate)
        return tokens, tuple(chances)

    # -- where the earlier text is ----------------------------------------------------------------

    def _find(self, hint: int) -> Match | None:
        """The longest match of the text's end. ``hint``: a place that may well be it, or 0."""
        raise NotImplementedError

    def _around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        """The earlier text around ``place``, and where in it that is."""
        raise NotImplementedError

    def _append(self, token: int) -> None:
        """The text is one token longer."""
        raise NotImplementedError

    def _saying(self, best: Guess, limit: int) -> list[Said]:
        """The next tokens, ``limit`` at most."""
        return best.walk.ahead(limit)
