"""Prompt lookup: guess that the text goes on as it did where it last looked like this.

The index is that of LZ77 compressors: hash chains over every committed token, so that adding a
token is O(1) at any context length, and a search looks at a bounded number of places. Chains are
kept for grams of ``GRAM`` tokens and, where those find nothing, of one token.
"""

# ruff: noqa: ARG002 - copying needs no sampler, costs nothing to go on with or to stop

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from localspec.spec.drafter import Draft, Hindsight, More, Offer, Sampler

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

    def find(self) -> tuple[int, int]:
        """The best earlier place that looks like the end of the text.

        Returns (length of the match, position of the token that followed it); (0, -1) for none.
        The longest of the newest ``MAX_CANDIDATES`` wins, the newest among equals.
        """
        best, place = self._longest(self._older_gram, GRAM)
        if not best:
            best, place = self._longest(self._older_one, 1)
        return (best, place + 1) if best else (0, _NONE)

    def _longest(self, older: list[int], known: int) -> tuple[int, int]:
        """The longest match along one chain, whose members agree in ``known`` tokens at least."""
        tokens = self.tokens
        last = len(tokens) - 1
        best, place = 0, _NONE
        position = older[last] if tokens else _NONE
        for _ in range(MAX_CANDIDATES):
            if position == _NONE:
                break
            length = known
            limit = min(MAX_MATCH, position + 1)
            while length < limit and tokens[position - length] == tokens[last - length]:
                length += 1
            if length > best:
                best, place = length, position
                if best == MAX_MATCH:
                    break
            position = older[position]
        return best, place

    def copy(self, place: int, n: int) -> list[int]:
        """``n`` tokens from ``place`` on; past the end of the text it runs into its own copy."""
        tokens = self.tokens
        copied = tokens[place : place + n]
        period = len(tokens) - place
        while len(copied) < n:
            copied.append(copied[len(copied) - period])
        return copied


class Lookup:
    """The lookup drafter: copies what followed the longest recent match of the text's end.

    Its drafts are point masses. It needs no model and no memory besides the index, and learns
    nothing: which lengths of match can be trusted is the pacer's business.
    """

    name = "lookup"

    def __init__(self) -> None:
        self._index = Index()
        self._found: tuple[int, int] | None = None
        self._spent_s = 0.0

    def begin(self, tokens: Sequence[int], sampler: Sampler | None = None) -> None:
        """An answer starts after ``tokens``. Only what is not a common prefix is indexed anew."""
        index = self._index
        kept = _common_prefix(index.tokens, tokens)
        while len(index.tokens) > kept:
            index.pop()
        for token in tokens[kept:]:
            index.push(token)
        self._found = None

    def offer(self) -> Offer | None:
        """The length of the match as evidence; None when nothing matches."""
        length, _ = self._search()
        return Offer(self.name, length) if length else None

    def propose(
        self,
        limit: int,
        more: More,
        cancelled: Callable[[], bool],
    ) -> Draft:
        """``limit`` copied tokens; none when nothing matches."""
        started = perf_counter()
        length, place = self._search()
        copied = self._index.copy(place, limit) if length and limit > 0 else []
        self._spent_s = perf_counter() - started
        return Draft(copied, [1.0] * len(copied))

    def commit(self, tokens: Sequence[int]) -> list[Hindsight]:
        """Append ``tokens``; returns at which of them a copy would have begun, and how well."""
        index = self._index
        seen: list[Hindsight] = []
        for token in tokens:
            length, place = self._search()
            if length:
                seen.append(Hindsight(self.name, length, index.tokens[place] == token))
            index.push(token)
            self._found = None
        return seen

    def costs(self) -> tuple[float, int, float, int]:
        """(seconds, 0 decodes, 0.0, 0): there is no model to run or to catch up."""
        return self._spent_s, 0, 0.0, 0

    def _search(self) -> tuple[int, int]:
        if self._found is None:
            self._found = self._index.find()
        return self._found


def _common_prefix(held: Sequence[int], wanted: Sequence[int]) -> int:
    for position, (ours, theirs) in enumerate(zip(held, wanted, strict=False)):
        if ours != theirs:
            return position
    return min(len(held), len(wanted))
