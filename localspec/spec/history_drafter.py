"""Drafts from the user's earlier texts.

Suffix decoding (Oliaro et al. 2024) and REST (He et al. 2023) draft from what was written before;
here the index is the user's own history (``localspec.history``), reached through a small protocol.
"""

# ruff: noqa: ARG002 - copying needs no sampler

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from localspec.spec.calibration import Calibration
from localspec.spec.copier import RATE_PRIOR, Copier, Guess, Match
from localspec.spec.drafter import Draft, More, Sampler
from localspec.spec.following import moved
from localspec.spec.similar import N_COMPARED, Texts, most_similar

TAIL = 32
"""How many tokens of the text's end are compared."""
RATE_SIMILAR = 0.5
"""How much higher the share of right guesses begins after a question that is the same as an earlier
one."""


class HistoryIndex(Texts, Protocol):
    """Something that remembers texts."""

    def begin(self) -> None:
        """An answer starts: look whether others have added to the index. Cheap."""

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """The longest match of the end of ``tail``; None when there is none worth a look. ``hint``:
        a place whose token may well be the next one; 0 for none."""

    def helped(self, place: int, n_tokens: int) -> None:
        """``n_tokens`` of a draft from ``place`` were accepted: what is useful is kept longer."""


class HistoryDrafter(Copier):
    """Copies from earlier texts, from the answer to the most similar question first."""

    name = "history"

    def __init__(self, index: HistoryIndex, calibration: Calibration, n_vocab: int) -> None:
        self._index = index
        self._n_vocab = n_vocab
        self._prompt: Sequence[int] = ()  # until it has been compared with earlier ones
        self._waiting: list[int] = []
        self._tail: list[int] = []
        self._drafted: tuple[int, list[int]] | None = None
        super().__init__(calibration)

    def begin(self, tokens: Sequence[int], sampler: Sampler | None = None) -> None:
        """An answer starts after ``tokens``."""
        self._index.begin()
        self._prompt, self._waiting = list(tokens[-N_COMPARED:]), []
        self._tail = list(tokens[-TAIL:])
        self._drafted = None
        self._restart()

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        """Up to ``limit`` tokens; fewer where the text ends or it gets too unlikely."""
        draft = super().propose(limit, more, cancelled)
        if draft.tokens:
            best = self._look()[0]
            self._drafted = (moved(best.start, best.walk.at), list(draft.tokens))
        return draft

    def commit(self, tokens: Sequence[int]) -> None:
        """Append ``tokens``."""
        if self._drafted is not None:
            place, drafted = self._drafted
            pairs = zip(drafted, tokens, strict=False)
            n_right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(drafted))
            if min(n_right, len(tokens)):
                self._index.helped(place, min(n_right, len(tokens)))
            self._drafted = None
        super().commit(tokens)

    def _follow(self, token: int) -> None:
        if self._prompt:  # this is the answer's first token, which must not wait for a search
            self._waiting.append(token)
        else:
            super()._follow(token)

    def _look(self) -> list[Guess]:
        if self._prompt:
            self._read_question()
        return super()._look()

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

    def _find(self, hint: int) -> Match | None:
        match = self._index.find(self._tail, hint)
        return match if match is not None and 0 <= match.token < self._n_vocab else None

    def _around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        text, at = self._index.around(place, n_before, n_after)
        # A damaged file may hold anything; the target must only see tokens that it has.
        bad = [i for i, token in enumerate(text) if token >= self._n_vocab]
        first = max((i + 1 for i in bad if i < at), default=0)
        last = min((i for i in bad if i >= at), default=len(text))
        return text[first:last], at - first

    def _append(self, token: int) -> None:
        self._tail.append(token)
        del self._tail[:-TAIL]
