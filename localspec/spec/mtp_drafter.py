"""Drafts by the target's own heads for further tokens (multi-token prediction, MTP).

A head reads a committed token together with the target's hidden state before it, and says what
comes after; its own hidden state then stands in for the target's (DeepSeek-V3, arXiv 2412.19437).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from localspec.errors import DecodeError
from localspec.spec.drafter import Draft, More, Offer, Row, Sampler
from localspec.spec.guess import begun, guess

MERGED = 16
"""Rows that the heads read before a draft as part of it. More are a prompt pass to pay for."""
MAX_FAILURES = 3
"""After so many failed drafts in a row the drafter stays away until the next answer."""


class Heads(Protocol):
    """The heads of one target, which follow what the target decodes.

    They know the hidden state of every token in the target's cache. ``n_ctx``: tokens that they can
    hold; ``max_draft``: the longest draft.
    """

    n_ctx: int
    max_draft: int

    @property
    def n_known(self) -> int:
        """Tokens in the target's cache, as far as the heads saw them."""

    @property
    def n_waiting(self) -> int:
        """How many of them the heads have not read yet."""

    def read(self, n_left: int) -> int:
        """Read waiting tokens until at most ``n_left`` wait; returns how many were read. Raises
        DecodeError."""

    def start(self, token: int) -> Row:
        """Logits for what follows ``token``, the committed one that the target has not decoded.
        Reads what waits. Raises DecodeError."""

    def extend(self, token: int) -> Row:
        """Logits for what follows the drafted ``token``. Raises DecodeError."""

    def stop(self) -> None:
        """Forget the draft."""

    def reset(self) -> None:
        """After a failure: forget all but what is needed to go on from here."""


class MtpDrafter:
    """Drafts with ``heads``. Greedy target: the best token, a point mass; else drawn from the
    heads' distribution after the target's sampler chain, which is handed over for verification."""

    def __init__(
        self,
        heads: Heads,
        *,
        rng: np.random.Generator,
        name: str = "mtp",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self.rng = rng
        self._heads = heads
        self._clock = clock
        self._n_tokens = 0
        self._last = 0
        self._n_failures = 0
        self._sampler: Sampler | None = None
        self._costs = (0.0, 0, 0.0, 0)

    def begin(self, tokens: Sequence[int], sampler: Sampler) -> None:
        self._n_tokens, self._last = len(tokens), tokens[-1]
        self._sampler = sampler
        self._n_failures = 0

    def commit(self, tokens: Sequence[int]) -> None:
        sampler = self._sampler
        assert sampler is not None, "begin() comes first"
        for token in tokens:
            sampler.accept(token)
        if tokens:
            self._n_tokens += len(tokens)
            self._last = tokens[-1]

    def offer(self) -> Offer | None:
        heads = self._heads
        # The target has decoded all but the last token; heads that saw anything else are of no use.
        if self._n_failures >= MAX_FAILURES or heads.n_known != self._n_tokens - 1:
            return None
        room = min(heads.max_draft, heads.n_ctx - heads.n_known)
        if room < 1:
            return None
        lag = heads.n_waiting + 1 if heads.n_waiting > MERGED else 1
        return Offer(self.name, evidence=1, lag=lag, available=room)

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        sampler = self._sampler
        assert sampler is not None, "begin() comes first"
        self._costs = (0.0, 0, 0.0, 0)
        draft = begun(sampler)
        try:
            self._extend(draft, min(limit, self._heads.max_draft), more, cancelled, sampler.fork())
        except DecodeError:
            self._failed()
            return begun(sampler)
        self._n_failures = 0
        return draft

    def read(self, limit: int, cancelled: Callable[[], bool]) -> None:  # noqa: ARG002
        started = self._clock()
        try:
            n_read = self._heads.read(max(MERGED, self._heads.n_waiting - limit))
        except DecodeError:
            self._failed()
            n_read = 0
        self._costs = (0.0, 0, self._clock() - started, n_read)

    def costs(self) -> tuple[float, int, float, int]:
        return self._costs

    def _failed(self) -> None:
        """It must not end the answer: the target goes on alone, and the heads from here."""
        self._n_failures += 1
        self._heads.reset()

    def _extend(
        self,
        draft: Draft,
        limit: int,
        more: More,
        cancelled: Callable[[], bool],
        sampler: Sampler,
    ) -> None:
        started = self._clock()
        n_read = self._heads.read(MERGED) if self._heads.n_waiting > MERGED else 0
        caught_up = self._clock() if n_read else started
        n_decodes = 0
        try:
            while len(draft.tokens) < limit and not cancelled():
                if draft.tokens:
                    row = self._heads.extend(draft.tokens[-1])
                else:
                    row = self._heads.start(self._last)
                n_decodes += 1
                token, confidence = guess(row, draft, sampler, self.rng)
                draft.tokens.append(token)
                draft.confidence.append(confidence)
                if len(draft.tokens) >= limit or not more(len(draft.tokens), confidence):
                    break
                sampler.accept(token)
            self._heads.stop()
        finally:
            self._costs = (self._clock() - caught_up, n_decodes, caught_up - started, n_read)
