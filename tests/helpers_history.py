"""A brute-force model of the history index, and what must hold of its files at any time."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from localspec.history.disk import DATABASE
from localspec.history.ring import GRAM, MAX_MATCH, Ring

VOCABULARY = b"v" * 32
N_VOCAB = 50_000


def slow_find(docs: Sequence[Sequence[int]], tail: Sequence[int]) -> tuple[int, Counter[int]]:
    """Length of the longest match of the end of ``tail`` that something follows, and what follows
    such matches how often."""
    tail = list(tail[-MAX_MATCH:])
    best, following = 0, Counter[int]()
    for doc in docs:
        for at in range(1, len(doc)):
            length = 0
            while length < min(at, len(tail)) and doc[at - 1 - length] == tail[-1 - length]:
                length += 1
            if length < GRAM or length < best:
                continue
            if length > best:
                best, following = length, Counter()
            following[doc[at]] += 1
    return best, following


def stored(directory: Path) -> dict[str, list[list[int]]]:
    """Source name -> its texts, as the files hold them; checks on the way that every text is whole
    and that they do not overlap."""
    with closing(sqlite3.connect(directory / DATABASE)) as db:
        rows = db.execute(
            "SELECT place, n, name FROM docs JOIN sources ON sources.id = source ORDER BY place"
        ).fetchall()
        ring_name = db.execute("SELECT value FROM state WHERE key = 'ring'").fetchone()[0]
    found: dict[str, list[list[int]]] = {}
    ring = Ring.open(directory / ring_name, None)
    try:
        end = Ring.first
        for place, n, name in rows:
            assert place >= end, "texts overlap"
            end = place + n + 1
            assert end <= ring.capacity
            text = ring.read(place, n).tolist()
            assert len(text) == n, f"{len(text)} of {n} tokens of {name}"
            found.setdefault(name, []).append(text)
    finally:
        ring.close()
    return found


def owned_by_nobody(directory: Path) -> int:
    """How many slots hold a token that belongs to no text."""
    with closing(sqlite3.connect(directory / DATABASE)) as db:
        rows = db.execute("SELECT place, n FROM docs").fetchall()
        name = db.execute("SELECT value FROM state WHERE key = 'ring'").fetchone()[0]
    ring = Ring.open(directory / name, None)
    try:
        tokens = ring._tokens.copy()
    finally:
        ring.close()
    for place, n in rows:
        tokens[place : place + n] = 0
    return int(np.count_nonzero(tokens))


def is_part(part: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether ``part`` is in ``whole``, without a gap."""
    n = len(part)
    return any(list(whole[i : i + n]) == list(part) for i in range(len(whole) - n + 1))


def text_of(seed: int, n: int = 200, n_words: int = 400) -> list[int]:
    """A text in which some words are frequent."""
    rng = np.random.default_rng(seed)
    return [int(word) for word in np.minimum(rng.zipf(1.4, n), n_words) + 10]
