"""Verification: which draft tokens stand, and what the target says after them.

Greedy decoding compares. Sampling uses the rejection rule of Leviathan et al. 2023 (arXiv
2211.17192) and Chen et al. 2023 (arXiv 2302.01318): a token x drawn from q is kept with probability
min(1, p(x)/q(x)); at the first rejection the replacement is drawn from max(0, p - q), normalised;
after full acceptance one more token is drawn from p. The emitted tokens are then distributed as p
alone would give them, for any q. A drafter without probabilities is the point mass q(x) = 1.

With a seed the text must not depend on what was drafted, which is a matter of time measurements.
Then the seed alone picks the target's token at each place (``race``), and a drafted token is kept
if it is that one: the same text as without drafting, for a few more rejections.

The target's sampler is told each token as it is committed and never a rejected one, so penalties
and grammars see exactly the text that stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.spec.drafter import Dist, Draft, Row, Sampler


@dataclass(frozen=True, slots=True)
class Verdict:
    """``tokens``: what stands now (accepted draft tokens, then the target's own token, unless an
    accepted token ended the answer). ``n_accepted``: how many of them were drafted."""

    tokens: list[int]
    n_accepted: int


class Verifier:
    """Applies the rule. ``rng`` draws what no seed decides."""

    def __init__(self, n_vocab: int, rng: np.random.Generator) -> None:
        self._rng = rng
        # q as a dense array, zero between calls, so that p - q costs only the sparse entries.
        self._dense: npt.NDArray[np.float64] = np.zeros(n_vocab)

    def verify(
        self,
        row: Callable[[int], Row],
        draft: Draft,
        sampler: Sampler,
        is_end: Callable[[int], bool],
    ) -> Verdict:
        """``row(i)`` are the target's logits after the last committed token and ``i`` draft tokens.

        Stops after an accepted token that ends the answer: a grammar must not be asked past its
        end, and nothing after it would be shown.
        """
        tokens: list[int] = []
        for index, token in enumerate(draft.tokens):
            kept, own = self._check(row(index), draft, index, sampler)
            tokens.append(token if kept else own)
            sampler.accept(tokens[-1])
            if not kept:
                return Verdict(tokens, index)
            if is_end(token):
                return Verdict(tokens, index + 1)
        tokens.append(self.pick(row(len(draft.tokens)), sampler))
        sampler.accept(tokens[-1])
        return Verdict(tokens, len(draft.tokens))

    def pick(self, row: Row, sampler: Sampler) -> int:
        """One token of the target's own. The caller tells the sampler."""
        if sampler.greedy:
            return sampler.best(row)
        dist = sampler.distribution(row)
        return sampler.draw(dist) if sampler.seeded else self._draw(dist)

    def _check(self, row: Row, draft: Draft, index: int, sampler: Sampler) -> tuple[bool, int]:
        """(kept, replacement if not kept) for draft token ``index``."""
        token = draft.tokens[index]
        if sampler.greedy or sampler.seeded:
            own = self.pick(row, sampler)
            return own == token, own
        p = sampler.distribution(row)
        q = draft.dists[index] if draft.dists is not None else None
        p_x = p.of(token)
        q_x = q.of(token) if q is not None else 1.0
        if q_x <= 0.0:
            raise ValueError(f"draft token {token} has probability 0 in its own distribution")
        if self._rng.random() * q_x < p_x:
            return True, token
        return False, self._draw(self._residual(p, q, token))

    def _residual(self, p: Dist, q: Dist | None, token: int) -> Dist:
        """max(0, p - q), normalised; with a point mass that is p without ``token``."""
        if q is None:
            left = p.probs * (p.ids != token)
        else:
            ids, probs = q.ids, q.probs
            if int(ids.max()) >= len(self._dense):
                inside = ids < len(self._dense)
                ids, probs = ids[inside], probs[inside]
            self._dense[ids] = probs
            left = p.probs - self._dense[p.ids]
            left[left < 0.0] = 0.0
            self._dense[ids] = 0.0
        total = left.sum()
        if total <= 0.0:
            # p == q up to rounding: a rejection had probability 0, so any draw from p is right.
            return p
        return Dist(p.ids, left / total)

    def _draw(self, dist: Dist) -> int:
        return draw(dist, self._rng)


NEGLIGIBLE = 10
"""Tokens less probable than e**-10 of the best one are left out of ``peak``: all of a vocabulary
would take six times as long."""


def peak(row: Row) -> float:
    """The probability of the best token of ``row`` at temperature 1, before any sampler. Too high
    by what is left out, which is next to nothing where that probability is high."""
    best = row.max()
    return 1 / float(np.exp(row[row > best - NEGLIGIBLE] - best).sum())


def draw(dist: Dist, rng: np.random.Generator) -> int:
    """One token id from ``dist``."""
    edges = dist.probs.cumsum()
    index = int(edges.searchsorted(rng.random() * edges[-1], side="right"))
    return int(dist.ids[min(index, len(dist.ids) - 1)])
