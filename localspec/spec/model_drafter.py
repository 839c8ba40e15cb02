"""A smaller model of the same vocabulary as drafter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from localspec.errors import DecodeError
from localspec.spec.drafter import (
    Decoder,
    Draft,
    Interrupted,
    More,
    Offer,
    Row,
    Sampler,
)
from localspec.spec.guess import begun, guess
from localspec.spec.lookup import common_prefix

MAX_FAILURES = 3
"""After so many failed draft decodes in a row the drafter stays away until the next answer."""


MERGED = 2
"""A cache at most so far behind catches up as part of the draft."""


class DraftDecoder(Decoder, Protocol):
    """A decoder that knows what going back costs it."""

    def n_to_read_again(self, n_keep: int) -> int:
        """How many tokens ``rollback(n_keep)`` would have to read again, or the caller after it if
        it cannot be done: 0 where memory is simply cut, more where a state is put back."""


class Translation(Protocol):
    """Between the target's token ids and the draft model's (``vocab.Match`` is one)."""

    def draft_id(self, token: int) -> int:
        """The draft model's id for a token of the target."""

    def project(self, row: Row) -> Row:
        """The draft model's logits as logits over the target's vocabulary, a copy; -inf for what
        must not be proposed."""


class ModelDrafter:
    """Drafts with ``decoder``, one token per decode.

    Greedy target: drafts its best token, a point mass; with a seed, what that picks. Sampling
    target: draws from its own distribution q after the same sampler chain, and hands q over, so
    that verification accepts with sum(min(p, q)). ``translation``: for a vocabulary that is the
    target's but for a few tokens; with it nothing that the target does not have is proposed.
    """

    def __init__(
        self,
        decoder: DraftDecoder,
        *,
        rng: np.random.Generator,
        n_chunk: int = 512,
        translation: Translation | None = None,
        name: str = "draft",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._decoder = decoder
        self.rng = rng
        self._n_chunk = n_chunk
        self._translation = translation
        self._clock = clock
        self._tokens: list[int] = []
        self._n_valid = 0
        self._n_failures = 0
        self._sampler: Sampler | None = None
        self._costs = (0.0, 0, 0.0, 0)

    def begin(self, tokens: Sequence[int], sampler: Sampler) -> None:
        self._tokens = self._own(tokens)
        self._sampler = sampler
        self._n_failures = 0
        self._n_valid = common_prefix(self._decoder.tokens, self._tokens)

    def commit(self, tokens: Sequence[int]) -> None:
        sampler = self._sampler
        assert sampler is not None, "begin() comes first"
        for token in tokens:
            sampler.accept(token)
        self._tokens += self._own(tokens)
        cached = self._decoder.tokens
        end = min(len(cached), len(self._tokens))
        while self._n_valid < end and cached[self._n_valid] == self._tokens[self._n_valid]:
            self._n_valid += 1

    def offer(self) -> Offer | None:
        if self._n_failures >= MAX_FAILURES:
            return None
        # The cache must take the last token and all drafted ones but the last.
        room = self._decoder.n_ctx - len(self._tokens) + 1
        if room < 1:
            return None
        keep = self._n_to_keep()
        lag = len(self._tokens) - keep + self._decoder.n_to_read_again(keep)
        return Offer(self.name, evidence=1, lag=lag, available=room)

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        sampler = self._sampler
        assert sampler is not None, "begin() comes first"
        draft = begun(sampler)
        fork = sampler.fork()
        if self._survives(lambda: self._extend(draft, limit, more, cancelled, fork)):
            return draft
        return begun(sampler)

    def read(self, limit: int, cancelled: Callable[[], bool]) -> None:
        self._survives(lambda: self._read(limit, cancelled))

    def costs(self) -> tuple[float, int, float, int]:
        return self._costs

    def _survives(self, work: Callable[[], object]) -> bool:
        """Whether ``work`` did without a failed decode."""
        self._costs = (0.0, 0, 0.0, 0)
        try:
            work()
        except DecodeError:
            # One failure must not end the answer: start this drafter's cache afresh.
            self._n_failures += 1
            self._decoder.clear()
            self._n_valid = 0
            return False
        except Interrupted:
            pass  # the engine sees the same flag
        self._n_failures = 0
        return True

    def _read(self, limit: int, cancelled: Callable[[], bool]) -> None:
        started = self._clock()
        try:
            n_read = self._catch_up(cancelled, limit)
        finally:
            self._n_valid = len(self._decoder.tokens)
        self._costs = (0.0, 0, self._clock() - started, n_read)

    def _extend(
        self,
        draft: Draft,
        limit: int,
        more: More,
        cancelled: Callable[[], bool],
        sampler: Sampler,
    ) -> None:
        started = self._clock()
        n_caught = self._catch_up(cancelled)
        caught_up = self._clock()
        n_decodes = 0
        waiting = self._tokens[len(self._decoder.tokens) :]
        try:
            while len(draft.tokens) < limit and not cancelled():
                self._decoder.decode(waiting, 1)
                n_decodes += 1
                token, confidence = guess(self._row(), draft, sampler, self.rng)
                draft.tokens.append(token)
                draft.confidence.append(confidence)
                if len(draft.tokens) >= limit or not more(len(draft.tokens), confidence):
                    break
                sampler.accept(token)
                waiting = self._own([token])
        finally:
            self._n_valid = min(len(self._decoder.tokens), len(self._tokens))
            catching_up = caught_up - started if n_caught else 0.0
            drafting = self._clock() - started - catching_up
            self._costs = (drafting, n_decodes, catching_up, n_caught)

    def _n_to_keep(self) -> int:
        """How much of the cache is right, all but the last committed token at most."""
        return min(self._n_valid, len(self._tokens) - 1)

    def _catch_up(self, cancelled: Callable[[], bool], limit: int | None = None) -> int:
        """Make the cache a prefix of the committed tokens, at most two of them behind unless
        ``limit`` tokens were read before; returns how many were read. Two go along with the first
        draft decode at no extra cost worth measuring; so do those that a memory reads again to go
        back, if that is all."""
        keep, last = self._n_to_keep(), len(self._tokens) - 1
        n_again = self._decoder.n_to_read_again(keep)
        n_read = n_again if last + 1 - keep + n_again > MERGED else 0
        if not self._decoder.rollback(keep):
            self._decoder.clear()
            n_read = 0  # they are read below
        end = last - 1
        if limit is not None:
            end = min(end, len(self._decoder.tokens) + limit)
        while len(self._decoder.tokens) < end:
            if cancelled():
                raise Interrupted
            start = len(self._decoder.tokens)
            chunk = self._tokens[start : min(end, start + self._n_chunk)]
            self._decoder.decode(chunk, 0)
            n_read += len(chunk)
        return n_read

    def _own(self, tokens: Sequence[int]) -> list[int]:
        """The target's ids as ids of this model."""
        if self._translation is None:
            return list(tokens)
        return [self._translation.draft_id(token) for token in tokens]

    def _row(self) -> Row:
        """The last decode's logits over the target's ids."""
        row = self._decoder.row(0)
        return row if self._translation is None else self._translation.project(row)
