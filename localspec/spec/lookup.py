"""Prompt lookup: guess that the text goes on as it did where it last looked like this.

The index is that of LZ77 compressors: hash chains over every committed token, so that adding a
token is O(1) at any context length, and a search looks at a bounded number of places. Chains are
kept for grams of ``GRAM`` tokens and, where those find nothing, of one token.
"""

# ruff: noqa: ARG002 - copying needs no sampler

from __future__ import annotations

from collections.abc import Sequence

from localspec.spec.calibration import IN_TEXT, Calibration
from localspec.spec.copier import Copier, Guess, Match
from localspec.spec.drafter import Sampler
from localspec.spec.following import Said

GRAM = 3
MAX_CANDIDATES = 8
"""How many places are compared in a search, newest first."""
MAX_MATCH = 32
"""Matches are not counted further: beyond it nothing more is learned from the length."""

_NONE = -1


class Index:
    """Where each gram of a growing token sequence occurred, newest first.

    Grams are dictionary keys, so two different grams never share a chain and every candidate is
    verified against the text by construction; longer matches are compared token by token.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._newest: dict[int | tuple[int, ...], int] = {}  # gram -> position of its last token
        self._older_one: list[int] = []  # position -> previous position with the same token
        self._older_gram: list[int] = []  # position -> previous position with the same gram

    def push(self, token: int) -> None:
        """Append one token. O(1)."""
        tokens, newest = self.tokens, self._newest
        position = len(tokens)
        tokens.append(token)
        self._older_one.append(newest.get(token, _NONE))
        newest[token] = position
        if position + 1 < GRAM:
            self._older_gram.append(_NONE)
            return
        gram = (tokens[-3], tokens[-2], token)
        self._older_gram.append(newest.get(gram, _NONE))
        newest[gram] = position

    def pop(self) -> None:
        """Take back the last ``push``. O(1)."""
        tokens = self.tokens
        older_gram, older_one = self._older_gram.pop(), self._older_one.pop()
        if len(tokens) >= GRAM:
            self._point((tokens[-3], tokens[-2], tokens[-1]), older_gram)
        self._point(tokens.pop(), older_one)

    def _point(self, gram: int | tuple[int, ...], position: int) -> None:
        if position == _NONE:
            del self._newest[gram]
        else:
            self._newest[gram] = position

    def find(self) -> Match | None:
        """The earlier places that look like the end of the text: the longest matches among the
        newest ``MAX_CANDIDATES``. ``Match.places`` are 1 + the position of the token that followed.
        """
        return self._longest(self._older_gram, GRAM) or self._longest(self._older_one, 1)

    def _longest(self, older: list[int], known: int) -> Match | None:
        """The longest matches along one chain, whose members agree in ``known`` tokens at least."""
        tokens = self.tokens
        last = len(tokens) - 1
        best, places = 0, list[int]()
        position = older[last] if tokens else _NONE
        for _ in range(MAX_CANDIDATES):
            if position == _NONE:
                break
            length = known
            limit = min(MAX_MATCH, position + 1)
            while length < limit and tokens[position - length] == tokens[last - length]:
                length += 1
            if length > best:
                best, places = length, [position + 2]
            elif length == best:
                places.append(position + 2)
            position = older[position]
        if not best:
            return None
        token = tokens[places[0] - 1]
        n_agreeing = sum(tokens[place - 1] == token for place in places)
        return Match(best, token, len(places), n_agreeing, tuple(places))


class Lookup(Copier):
    """The lookup drafter: copies from earlier in the same text."""

    name = "lookup"
    n_chances = 16  # it is asked in every step, and what it copies from is near

    def __init__(self, calibration: Calibration | None = None) -> None:
        self._index = Index()
        super().__init__(calibration or Calibration(IN_TEXT))

    def begin(self, tokens: Sequence[int], sampler: Sampler | None = None) -> None:
        """An answer starts after ``tokens``. Only what is not a common prefix is indexed anew."""
        index = self._index
        kept = common_prefix(index.tokens, tokens)
        while len(index.tokens) > kept:
            index.pop()
        for token in tokens[kept:]:
            index.push(token)
        self._restart()

    def _find(self, hint: int) -> Match | None:
        return self._index.find()

    def _around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        at = place - 1
        start = max(0, at - n_before)
        return self._index.tokens[start : at + n_after], at - start

    def _append(self, token: int) -> None:
        self._index.push(token)

    def _saying(self, best: Guess, limit: int) -> list[Said]:
        """Past the end of the text a copy runs into itself."""
        said = super()._saying(best, limit)
        tokens = self._index.tokens
        at = best.start - 1 + len(best.walk.text)
        while len(said) < limit:
            token = tokens[at] if at < len(tokens) else said[at - len(tokens)].token
            said.append(Said(token, False))
            at += 1
        return said


def common_prefix(held: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens both begin with."""
    n = min(len(held), len(wanted))
    if held[:n] == wanted[:n]:  # the usual case, at C's speed
        return n
    return next((i for i in range(n) if held[i] != wanted[i]), n)
