"""What each sampler does to a distribution, written from its description and independent of
llama.cpp: dense arrays over the whole vocabulary, in double precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.spec.sampling import Sampling

Array = npt.NDArray[np.float64]


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def _only(logits: Array, keep: Sequence[int] | npt.NDArray[np.intp]) -> Array:
    left = np.full_like(logits, -np.inf)
    left[keep] = logits[keep]
    return left


def penalised(logits: Array, s: Sampling, text: Sequence[int]) -> Array:
    """Repetition, frequency and presence penalties over the last ``penalty_last_n`` tokens."""
    logits = logits.copy()
    span = len(text) if s.penalty_last_n < 0 else s.penalty_last_n
    window = list(text[len(text) - min(span, len(text)) :])
    for token in set(window):
        x = logits[token]
        logits[token] = x * s.repeat_penalty if x <= 0 else x / s.repeat_penalty
        logits[token] -= window.count(token) * s.frequency_penalty + s.presence_penalty
    return logits


def dry(logits: Array, s: Sampling, text: Sequence[int], breakers: set[int]) -> Array:
    """DRY: a token that would continue a repeat of length n >= allowed loses
    multiplier * base ** (n - allowed); repeats do not reach across breakers."""
    logits = logits.copy()
    span = len(text) if s.dry_penalty_last_n < 0 else s.dry_penalty_last_n
    window = list(text[len(text) - min(span, len(text)) :])
    longest: dict[int, int] = {}
    for end in range(1, len(window)):  # window[:end] ends in what the text ends in
        n = 0
        while (
            n < end
            and window[end - 1 - n] == window[len(window) - 1 - n]
            and window[len(window) - 1 - n] not in breakers
        ):
            n += 1
        if n >= s.dry_allowed_length:
            longest[window[end]] = max(longest.get(window[end], 0), n)
    for token, n in longest.items():
        if token not in breakers:
            logits[token] -= s.dry_multiplier * s.dry_base ** (n - s.dry_allowed_length)
    return logits


def truncated(logits: Array, s: Sampling) -> Array:
    """top-n-sigma, top-k, typical, top-p, min-p."""
    if s.top_n_sigma > 0:
        there = logits[np.isfinite(logits)]
        keep = np.flatnonzero(logits >= there.max() - s.top_n_sigma * there.std())
        logits = _only(logits, keep)
    if s.top_k > 0:
        logits = _only(logits, np.argsort(-logits)[: s.top_k])
    if s.typical_p < 1:
        p = softmax(logits)
        there = np.flatnonzero(p > 0)
        surprise = -np.log(p[there])
        order = there[np.argsort(np.abs(surprise - (p[there] * surprise).sum()))]
        n = int((np.cumsum(p[order]) <= s.typical_p).sum()) + 1
        logits = _only(logits, order[:n])
    if s.top_p < 1:
        p = softmax(logits)
        order = np.argsort(-p)
        n = int((np.cumsum(p[order]) < s.top_p).sum()) + 1
        logits = _only(logits, order[:n])
    if s.min_p > 0:
        p = softmax(logits)
        logits = _only(logits, np.flatnonzero(p >= s.min_p * p.max()))
    return logits


def xtc(logits: Array, s: Sampling) -> Array:
    """All tokens above the threshold are left out but the least of them (its coin fell so)."""
    p = softmax(logits)
    order = np.argsort(-p)
    n_above = int((p >= s.xtc_threshold).sum())
    return _only(logits, order[max(0, n_above - 1) :]) if n_above > 1 else logits


def heated(logits: Array, s: Sampling) -> Array:
    """Temperature; a dynamic one grows with the entropy of what is left."""
    temperature = s.temperature
    there = np.flatnonzero(np.isfinite(logits))
    if s.dynatemp_range > 0 and len(there) > 1:
        p = softmax(logits[there])
        share = -(p * np.log(p)).sum() / np.log(len(there))
        low = max(0.0, temperature - s.dynatemp_range)
        temperature = low + (temperature + s.dynatemp_range - low) * share**s.dynatemp_exponent
    return logits / temperature


def distribution(
    row: npt.NDArray[np.float32],
    s: Sampling,
    text: Sequence[int],
    *,
    allowed: npt.NDArray[np.bool_] | None = None,
    breakers: set[int] | None = None,
    xtc_coin: bool = False,
) -> Array:
    """The whole chain: [n_vocab] probabilities."""
    logits = row.astype(np.float64)
    for token, value in s.logit_bias.items():
        logits[token] += value
    logits = penalised(logits, s, text)
    if s.dry_multiplier > 0:
        logits = dry(logits, s, text, breakers or set())
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    logits = truncated(logits, s)
    if xtc_coin:
        logits = xtc(logits, s)
    return softmax(heated(logits, s))
