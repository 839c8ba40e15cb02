"""Walk along an earlier text while a new one is written like it, and put in what differs.

People ask for the same thing again with a few changes: another name, another date, one more field.
Where the new text leaves the earlier one, the walk waits until both say the same again, and keeps
what stood there before and what stands there now as an edit: the next time the earlier text says
the old, the new is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

MAX_OLD, MAX_NEW = 8, 12
"""Longest edit, in tokens."""
MAX_EDITS = 128
REACH_BACK, REACH_ON = 12, 24
"""How far from where it was lost the walk looks for its way."""
PATIENCE = 24
"""Tokens after which a walk that has not found its way again is given up."""
SURE_STEPS = 2
"""Tokens in a row that must be equal before an edit is believed."""


def moved(place: int, n: int) -> int:
    """The place ``n`` tokens after ``place``: an index may count places below 0, too, away from 0
    like the others."""
    return place + n if place > 0 else place - n


class Edits:
    """What is said now where an earlier text said something else; the newest wins."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
        self._n = 0

    def learn(self, old: Sequence[int], new: Sequence[int]) -> None:
        """``old`` has become ``new``. What is too long, or nothing on one side, is left out."""
        before, now = tuple(old), tuple(new)
        if not (0 < len(before) <= MAX_OLD and 0 < len(now) <= MAX_NEW):
            return
        self.drop(before)
        if before != now and self._n < MAX_EDITS:
            self._n += 1
            edits = self._by_first.setdefault(before[0], [])
            edits.append((before, now))
            edits.sort(key=lambda edit: -len(edit[0]))

    def drop(self, old: Sequence[int]) -> None:
        """``old`` is said again."""
        edits = self._by_first.get(old[0], [])
        left = [edit for edit in edits if edit[0] != tuple(old)]
        self._n -= len(edits) - len(left)
        if left:
            self._by_first[old[0]] = left
        else:
            self._by_first.pop(old[0], None)

    def at(self, text: Sequence[int], place: int) -> tuple[int, tuple[int, ...]] | None:
        """(tokens replaced, what stands there now) if ``text`` says at ``place`` what was edited;
        the longest."""
        for old, new in self._by_first.get(text[place], ()):
            if tuple(text[place : place + len(old)]) == old:
                return len(old), new
        return None


class Said(NamedTuple):
    """One guess: ``edited`` when the earlier text said something else there."""

    token: int
    edited: bool


class Walk:
    """A place in ``text``, the part of an earlier text around it.

    ``at``: where the next token stands. ``run``: how many tokens before it were equal.
    """

    def __init__(self, text: Sequence[int], at: int, run: int, edits: Edits) -> None:
        self.text = text
        self.at = at
        self.run = run
        self._edits = edits
        self._rest: tuple[int, ...] = ()  # of the edit that is being said
        self._said: list[int] = []  # of that edit, or since the walk was lost
        self._from = self._end = at  # where that edit, or the loss, began; where the edit ends
        self._lost = False

    @property
    def over(self) -> bool:
        """The earlier text has ended, or the way was not found again."""
        if self._lost:
            return len(self._said) > PATIENCE
        return self.at >= len(self.text) and not self._rest

    def ahead(self, limit: int) -> list[Said]:
        """The next tokens; fewer where the earlier text ends."""
        return list(islice(self.saying(), max(0, limit)))

    def saying(self) -> Iterator[Said]:
        """The next tokens one by one, to the end of the earlier text."""
        text, edit_at = self.text, self._edits.at
        for token in self._rest:
            yield Said(token, True)
        at = self.at
        while at < len(text):
            edit = edit_at(text, at)
            if edit is None:
                yield Said(text[at], False)
                at += 1
            else:
                for token in edit[1]:
                    yield Said(token, True)
                at += edit[0]

    def step(self, token: int) -> None:
        """``token`` was said."""
        if not self._rest and not self._lost:
            self._from, self._said = self.at, []
            edit = self._edits.at(self.text, self.at) if self.at < len(self.text) else None
            if edit is not None:
                self._rest = edit[1]
                self._end = self.at + edit[0]
        if self._rest:
            self._step_in_edit(token)
        elif self.at < len(self.text) and self.text[self.at] == token:
            self.at += 1
            self.run += 1
            if self._lost:
                self._said.append(token)
                self._believe()
        else:
            self._said.append(token)
            self._lose()

    def _step_in_edit(self, token: int) -> None:
        self._said.append(token)
        if token == self._rest[0]:
            self._rest = self._rest[1:]
            self.run += 1
            if not self._rest:
                self.at = self._end
            return
        self._rest = ()
        if len(self._said) == 1 and self.text[self._from] == token:
            self._edits.drop(self.text[self._from : self._end])
            self.at, self.run = self._from + 1, 1
            return
        self._lose()

    def _lose(self) -> None:
        """Not what was guessed: look for the nearest place that the text could have come to."""
        self._lost = True
        n_said, text = len(self._said), self.text
        expected = self._from + n_said
        best, found = (0, 0), min(expected, len(text)) if n_said == 1 else len(text)
        wanted = self._said[-1]
        for at in range(
            max(1, self._from - REACH_BACK), min(len(text), self._from + REACH_ON + n_said)
        ):
            if text[at - 1] != wanted:
                continue
            length = 1
            while length < min(n_said, at, 4) and text[at - 1 - length] == self._said[-1 - length]:
                length += 1
            rank = (length, -abs(at - expected))
            if best == (0, 0) or rank > best:
                best, found = rank, at
        self.at, self.run = found, best[0]
        if self.run >= SURE_STEPS:
            self._believe()

    def _believe(self) -> None:
        if self.run < SURE_STEPS:
            return
        old, new = self.text[self._from : self.at - self.run], self._said[: -self.run]
        self._edits.learn(old, new)
        self._lost = False
