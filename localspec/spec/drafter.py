"""The protocols between the engine and what it drives: drafter, pacer, target and sampler.

``llama`` satisfies ``Decoder`` and ``Sampler``; the scripted fakes of ``localspec.spec.fakes`` do
too, and the replay bench satisfies them with recorded traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]
"""Logits over the whole vocabulary, shape [n_vocab]."""


@dataclass(frozen=True, slots=True)
class Dist:
    """A sparse distribution: ``probs[i]`` is the probability of token ``ids[i]``; the rest is 0.

    ``ids`` int32 [k], ``probs`` float64 [k], summing to 1; no order is promised.
    """

    ids: npt.NDArray[np.int32]
    probs: npt.NDArray[np.float64]

    def of(self, token: int) -> float:
        """The probability of ``token``."""
        found = (self.ids == token).nonzero()[0]
        return float(self.probs[found[0]]) if found.size else 0.0


@dataclass(slots=True)
class Draft:
    """Guessed tokens. ``confidence[i]`` is the drafter's own probability that ``tokens[i]`` is
    right given the ones before. ``dists`` are the distributions they were drawn from, or None for a
    point mass (lookup, or a greedy draft)."""

    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    dists: list[Dist] | None = None

    def cut(self, n: int) -> None:
        """Keep the first ``n`` tokens."""
        del self.tokens[n:], self.confidence[n:]
        if self.dists is not None:
            del self.dists[n:]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter could do at this place, before it has done anything that costs.

    ``evidence``: of a copying drafter how many tokens before were equal; of a model drafter 1.
    ``lag``: committed tokens that are not in its cache. For a model that is up to date that is 1
    (the last token) or 2 (after a fully accepted draft), which its first draft decode reads anyway;
    more is a prompt pass to pay for.
    ``available``: how many tokens it could propose at most here (a copy may be shorter than asked).
    ``chances``: of a copying drafter, the calibrated chance of each token it would propose, given
    that those before are right. Tokens beyond these are as likely as the last of them.
    """

    drafter: str
    evidence: int
    lag: int = 0
    available: int = 1_000_000
    chances: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What the pacer wants: ``drafter`` (``events.PLAIN`` for none), at most ``n`` draft tokens.

    ``n_read`` above 0: no draft; the drafter reads at most so many of the tokens it missed."""

    drafter: str
    n: int
    reason: str
    n_read: int = 0


More = Callable[[int, float], bool]
"""``more(n_so_far, confidence_of_the_last)``: shall a model drafter draft another token?"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one step cost and brought. Times in seconds.

    ``width`` = verified + 1 rows in one target decode. ``catchup_s``/``n_catchup``: the drafter's
    prompt pass in this step. ``draft_s``: the draft decodes themselves, ``n_draft_decodes`` of
    them. ``promised``: the confidences of the verified tokens. ``n_emitted`` tokens were kept.
    """

    drafter: str
    evidence: int
    width: int
    verify_s: float
    n_drafted: int
    n_verified: int
    n_accepted: int
    n_emitted: int
    promised: tuple[float, ...] = ()
    draft_s: float = 0.0
    n_draft_decodes: int = 0
    catchup_s: float = 0.0
    n_catchup: int = 0
    n_context: int = 0
    """Committed tokens before the step: costs grow with the context."""
    confidence: float | None = None
    """The target's own probability of its best token where it said the last one; None unless the
    pacer wanted to know."""


class Drafter(Protocol):
    """Something that guesses the next tokens. It keeps no statistics; the engine does."""

    name: str

    def begin(self, tokens: Sequence[int], sampler: Sampler) -> None:
        """A new answer starts after ``tokens`` (the whole committed sequence).

        What the drafter holds that is not a prefix of ``tokens`` is forgotten. ``sampler`` is a
        fork of the target's chain for the drafter's own use. Must be cheap: no decode.
        """

    def offer(self) -> Offer | None:
        """What it could do now; None when it has nothing or is out of order."""

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:
        """Up to ``limit`` tokens. May be empty. ``cancelled`` is asked before each decode."""

    def read(self, limit: int, cancelled: Callable[[], bool]) -> None:
        """Read at most ``limit`` of the tokens it missed, and draft nothing."""

    def commit(self, tokens: Sequence[int]) -> None:
        """``tokens`` were emitted."""

    def costs(self) -> tuple[float, int, float, int]:
        """Of the last ``propose`` or ``read``: (draft_s, n_draft_decodes, catchup_s, n_catchup)."""


class Pacer(Protocol):
    """Decides before every step which drafter and how many tokens, and learns after it."""

    @property
    def wants_confidence(self) -> bool:
        """Whether it wants to know how sure the target was; to find out takes a little time."""

    def begin(
        self, n_prompt: int, n_prefilled: int, prefill_s: float, temperature: float = 0.0
    ) -> None:
        """A new answer. ``n_prefilled`` prompt tokens were decoded in ``prefill_s`` seconds.

        ``temperature`` is the target's: above 0 a model drafter's tokens are drawn, not the best.
        """

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        """``room``: the most draft tokens that the context and max_tokens leave (may be 0)."""

    def more(self, n_so_far: int, confidence: float) -> bool:
        """Asked by a model drafter after each drafted token of the current choice."""

    def n_to_verify(self, draft: Draft) -> int:
        """How many of the drafted tokens are worth verifying (0 .. len)."""

    def learn(self, measured: Measured) -> None:
        """After each step."""

    def baseline_step_s(self) -> float | None:
        """Seconds that one plain decode takes now, as measured in this run; None if unknown."""


class Decoder(Protocol):
    """One sequence in one model context (the target, or the draft model)."""

    n_ctx: int
    n_vocab: int

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens whose keys and values are in the cache."""

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        """Append ``tokens`` to the cache; keep logits for the last ``n_rows`` of them.

        Raises DecodeError (the cache is then as before the call) or Interrupted.
        """

    def row(self, index: int) -> Row:
        """Logits of row ``index`` (0 .. n_rows-1) of the last decode; valid until the next."""

    def rollback(self, n_keep: int) -> bool:
        """Forget all but the first ``n_keep`` tokens. False: not possible, nothing changed."""

    def clear(self) -> None:
        """Forget everything."""


class Sampler(Protocol):
    """The whole sampler chain with its history (penalties, grammar)."""

    greedy: bool
    """True: the best token is taken and ``distribution`` is not used."""
    seeded: bool
    """True: ``draw`` says which token is taken, and the seed alone decides."""

    def best(self, row: Row) -> int:
        """The most probable token after the chain."""

    def distribution(self, row: Row) -> Dist:
        """The distribution after the chain, given the tokens accepted so far."""

    def draw(self, dist: Dist) -> int:
        """The token of ``dist`` that the seed picks at this place of the text. Forks at the same
        place pick the same one from the same distribution, and often from a similar one."""

    def accept(self, token: int) -> None:
        """``token`` is now part of the text."""

    def fork(self) -> Sampler:
        """An independent copy with the same history."""


MAX_WIDTH = 64
"""Most rows of logits in one decode: a draft is at most MAX_WIDTH - 1 tokens."""


class Interrupted(Exception):  # noqa: N818 - not an error: the user asked for it
    """A decode was stopped by the user. The cache holds a prefix of what was asked for."""
