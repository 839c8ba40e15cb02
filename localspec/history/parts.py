"""Which parts of a text are worth adding to an index that knows some of it already."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from localspec.history.ring import GRAM, LONG_GRAM

MIN_KNOWN = 48
"""A stretch of at least so many tokens that the index has already is not stored again: a chat's
earlier turns come with each new question, and files are read over and over."""
SEAM = 16
"""So much of a known stretch is stored with its unknown neighbours, so that a match can lead from
one into the other."""


def new_parts(known: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The parts (start, end) of a text that should be stored, in order.

    ``known[i]``: the ``LONG_GRAM`` tokens that end at i are in the index.
    """
    n = len(known)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(np.int8)))
    parts: list[tuple[int, int]] = []
    at = 0
    for first, end in edges.reshape(-1, 2).tolist():
        start = first - (LONG_GRAM - 1)
        if end - start < MIN_KNOWN:
            continue
        left = start + SEAM if start > 0 else 0
        if left > at:
            parts.append((at, left))
        at = end - SEAM if end < n else n
    if at < n:
        parts.append((at, n))
    return [(start, end) for start, end in parts if end - start > GRAM]
