"""One drafted token from a row of a drafter's logits: the same for every drafter that has any."""

from __future__ import annotations

import numpy as np

from localspec.spec.drafter import Draft, Row, Sampler
from localspec.spec.verify import draw


def guess(row: Row, draft: Draft, sampler: Sampler, rng: np.random.Generator) -> tuple[int, float]:
    """(token, its probability to the drafter). ``row``: logits [n_vocab] of the target's ids.

    Greedy: the sampler's best. Sampling: drawn from the distribution after the chain, which is
    added to ``draft.dists`` for the rejection rule.
    """
    if draft.dists is None:
        token = sampler.best(row)
        # Not from the token's own logit: a grammar or a penalty may choose one far below.
        weights = np.exp(row - row.max())
        return token, float(weights[token] / weights.sum())
    dist = sampler.distribution(row)
    draft.dists.append(dist)
    token = draw(dist, rng)
    return token, dist.of(token)
