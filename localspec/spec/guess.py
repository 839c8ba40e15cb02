"""One drafted token from a row of a drafter's logits: the same for every drafter that has any."""

from __future__ import annotations

import numpy as np

from localspec.spec.drafter import Draft, Row, Sampler
from localspec.spec.verify import draw


def guess(row: Row, draft: Draft, sampler: Sampler, rng: np.random.Generator) -> tuple[int, float]:
    """(token, its probability to the drafter). ``row``: logits [n_vocab] of the target's ids.

    Greedy: the sampler's best. Seeded: what the seed picks from the distribution after the chain.
    Sampling: drawn from that distribution, which is added to ``draft.dists`` for the rejection
    rule.
    """
    if sampler.greedy:
        token = sampler.best(row)
        # Not from the token's own logit: a grammar or a penalty may choose one far below.
        weights = np.exp(row - row.max())
        return token, float(weights[token] / weights.sum())
    dist = sampler.distribution(row)
    if draft.dists is None:
        token = sampler.draw(dist)
    else:
        draft.dists.append(dist)
        token = draw(dist, rng)
    return token, dist.of(token)


def begun(sampler: Sampler) -> Draft:
    """A draft without tokens yet: with distributions if its tokens will be drawn at random."""
    return Draft(dists=None if sampler.greedy or sampler.seeded else [])
