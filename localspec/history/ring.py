"""The mapped file of the history index: tokens, and where each short sequence of them occurred.

The shape is that of an LZ77 window on disk. A fixed number of token slots is written round and
round, so the oldest text goes first; for each slot there is a link to the previous place with the
same four tokens (hash chains), and two tables lead to the newest place with the same four, and with
the same twelve tokens. Everything has a fixed size from the start: bounded by construction, opened
by mapping, O(1) to add to and to ask. A merged set of sorted segments would find the longest match
for certain, but needs merging in the background and a manifest; the chains find the newest few,
which is what one wants from a history anyway, and a hash is never trusted: each candidate is
compared with the text itself.

Several processes may have the file mapped. Those who write must keep each other out (``index`` does
it with a lock); those who read need no lock: a half-written place can at worst suggest tokens that
the target rejects.

Layout, all integers of four bytes in the machine's (little-endian) order, 0 meaning "nothing":
a header of 4096 bytes; ``tokens`` [capacity] (id + 1); ``older`` [capacity] (place + 1);
``by_four`` [capacity / 2] and ``by_twelve`` [capacity] (place + 1 of the last token).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.spec.copier import Match

Ids = npt.NDArray[np.uint32]

GRAM, LONG_GRAM = 4, 12
MAX_MATCH = 32
"""Matches are not counted further."""
MAX_LINKS = 20
"""How many links of a chain are followed in a search,"""
MAX_PLACES = 16
"""and how many places that really match may vote."""

_MAGIC = b"lshistry"
_VERSION = 1
_HEAD = struct.Struct("<8sII32s")  # magic, version, capacity, vocabulary; then 8 bytes of SHA-256
_HEAD_BYTES = 4096
_FIRST = MAX_MATCH
"""Slots before this one stay empty, so that looking back never leaves the tokens."""
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15
_MIX = 0xD6E8FEB86659FD93


class DamagedError(ValueError):
    """The file is not a whole index of this version and vocabulary."""


def size_bytes(capacity: int) -> int:
    """Length of the file of a ring with ``capacity`` slots."""
    return _HEAD_BYTES + 4 * (capacity + capacity + capacity // 2 + capacity)


class Ring:
    """Token slots and chains in a mapped file (``create``, ``open``) or in memory (``anonymous``).

    A place is the number of a slot, ``first <= place < capacity``.
    """

    first = _FIRST

    def __init__(self, mapped: mmap.mmap, capacity: int) -> None:
        self.capacity = capacity
        self._map = mapped
        n_four = capacity // 2
        words = np.frombuffer(mapped, np.uint32, offset=_HEAD_BYTES)
        self._tokens, self._older, self._by_four, self._by_twelve = np.split(
            words, [capacity, 2 * capacity, 2 * capacity + n_four]
        )
        # Single numbers are read several times faster from a memoryview than from an array.
        view = memoryview(mapped)[_HEAD_BYTES:].cast("I")
        self._token_at = view[:capacity]
        self._older_at = view[capacity : 2 * capacity]
        self._four_at = view[2 * capacity : 2 * capacity + n_four]
        self._twelve_at = view[2 * capacity + n_four :]
        self._views = [view, self._token_at, self._older_at, self._four_at, self._twelve_at]

    @classmethod
    def create(cls, path: Path, capacity: int, vocabulary: bytes) -> Ring:
        """A new, empty file, readable by its owner only. Raises OSError, also when the disk has no
        room for all of it: writing to a mapping that cannot be stored would end the process."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_header(capacity, vocabulary))
                left = size_bytes(capacity) - _HEAD_BYTES
                zeros = bytes(1 << 20)
                while left:
                    left -= stream.write(zeros[: min(left, len(zeros))])
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return cls.open(path, vocabulary)

    @classmethod
    def open(cls, path: Path, vocabulary: bytes | None) -> Ring:
        """Map an existing file of this vocabulary (None: of any). Raises DamagedError, OSError."""
        with path.open("r+b") as stream:
            head = stream.read(_HEAD.size + 8)
            if len(head) < _HEAD.size + 8 or head[:8] != _MAGIC:
                raise DamagedError("it is not a history index")
            _, version, capacity, stored = _HEAD.unpack(head[: _HEAD.size])
            if version != _VERSION:
                raise DamagedError("another version of localspec wrote it")
            if head != _header(capacity, stored)[: len(head)]:
                raise DamagedError("its beginning is damaged")
            if vocabulary not in (None, stored):
                raise DamagedError("it belongs to another vocabulary")
            if os.fstat(stream.fileno()).st_size != size_bytes(capacity):
                raise DamagedError("it is not whole")
            return cls(mmap.mmap(stream.fileno(), 0), capacity)

    @classmethod
    def anonymous(cls, capacity: int) -> Ring:
        """One that lives in this process only and is never on a disk (but for swapping)."""
        return cls(mmap.mmap(-1, size_bytes(capacity)), capacity)

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        if self._map.closed:
            return
        none = np.zeros(0, np.uint32)
        self._tokens = self._older = self._by_four = self._by_twelve = none
        for view in reversed(self._views):
            view.release()
        self._map.close()

    # -- writing --------------------------------------------------------------------------------

    def write(self, place: int, ids: Ids) -> None:
        """Put a text at ``place`` and end it with an empty slot, for which there must be room."""
        n = len(ids)
        stored = ids.astype(np.uint32) + np.uint32(1)
        self._older[place : place + n + 1] = 0
        self._tokens[place : place + n] = stored
        self._tokens[place + n] = 0
        if n < GRAM:
            return
        buckets = _buckets(stored, GRAM, len(self._by_four))
        order = np.argsort(buckets, kind="stable")
        sorted_buckets = buckets[order]
        places = (order + (place + GRAM - 1)).astype(np.uint32)
        starts = np.ones(len(order), bool)
        starts[1:] = sorted_buckets[1:] != sorted_buckets[:-1]
        before = np.empty(len(order), np.uint32)
        before[1:] = places[:-1] + np.uint32(1)
        before[starts] = self._by_four[sorted_buckets[starts]]
        self._older[places] = before
        ends = np.append(starts[1:], True)
        self._by_four[sorted_buckets[ends]] = places[ends] + np.uint32(1)
        if n >= LONG_GRAM:
            last = np.arange(place + LONG_GRAM, place + n + 1, dtype=np.uint32)
            self._by_twelve[_buckets(stored, LONG_GRAM, self.capacity)] = last

    def blank(self, place: int, n: int) -> None:
        """Overwrite ``n`` slots with nothing. Links to them find no text and so mean nothing."""
        self._tokens[place : place + n] = 0

    def blank_all_but(self, kept: Sequence[tuple[int, int]]) -> None:
        """Empty every slot that is in none of the ranges ``kept`` (place, length)."""
        at = 0
        for place, n in sorted(kept):
            if place > at:
                self._tokens[at:place] = 0
            at = max(at, place + n)
        self._tokens[at:] = 0

    def sync(self) -> None:
        """Have what was overwritten reach the disk."""
        self._map.flush()

    # -- reading --------------------------------------------------------------------------------

    def read(self, place: int, n: int) -> Ids:
        """The text of ``n`` slots, as ids; it ends early at an empty slot."""
        stored = self._tokens[max(0, place) : max(0, place) + n]
        empty = np.flatnonzero(stored == 0)
        return (stored[: int(empty[0])] if len(empty) else stored) - np.uint32(1)

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """Where the text ended like ``tail`` (its last ``MAX_MATCH`` tokens count), and how it went
        on most often after the longest match. None without a match of ``GRAM`` tokens.

        ``hint``: a place whose token may be the next one; it is tried first, for an old place may
        be hidden behind many newer ones that end with the same few tokens.
        """
        n = min(len(tail), MAX_MATCH)
        if n < GRAM:
            return None
        wanted = [token + 1 for token in tail[-n:]]
        packed = int.from_bytes(struct.pack(f"<{n}I", *wanted), "little")
        n_bits = 32 * n
        best, voters = GRAM, []
        for place in self._candidates(wanted, hint):
            following = self._token_at[place + 1] if place + 1 < self.capacity else 0
            if not following:
                continue
            start = _HEAD_BYTES + 4 * (place + 1 - n)
            text = int.from_bytes(self._map[start : start + 4 * n], "little")
            # The last token is in the highest bits: what is equal from there down has matched.
            length = (n_bits - (text ^ packed).bit_length()) >> 5
            if length > best:
                best, voters = length, [(place, following)]
            elif length == best:
                voters.append((place, following))
                if len(voters) >= MAX_PLACES:
                    break
        if not voters:
            return None
        token, places = _most([(place + 1, following) for place, following in voters])
        return Match(best, token - 1, len(voters), len(places), tuple(places))

    def places(self, tail: Sequence[int]) -> list[int]:
        """Where a token followed the last ``GRAM`` tokens of ``tail``, the newest first."""
        if len(tail) < GRAM:
            return []
        wanted = [token + 1 for token in tail[-GRAM:]]
        gram = struct.pack(f"<{GRAM}I", *wanted)
        found = []
        for last in self._candidates(wanted, 0):
            start = _HEAD_BYTES + 4 * (last + 1 - GRAM)
            if self._map[start : start + 4 * GRAM] == gram and last + 1 < self.capacity:
                found.append(last + 1)
        return found

    def around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        """The text around ``place``, at most so many tokens before it and from it on, and how many
        of them are before it."""
        place = min(max(place, _FIRST), self.capacity)
        after = self.read(place, n_after)
        stored = self._tokens[max(_FIRST, place - n_before) : place]
        empty = np.flatnonzero(stored == 0)
        before = stored[int(empty[-1]) + 1 :] if len(empty) else stored
        return (before - np.uint32(1)).tolist() + after.tolist(), len(before)

    def known(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """known[i]: the ``LONG_GRAM`` tokens that end with ``ids[i]`` are in the index."""
        n = len(ids) - LONG_GRAM + 1
        found = np.zeros(len(ids), bool)
        if n < 1:
            return found
        stored = ids.astype(np.uint32) + np.uint32(1)
        four = _buckets(stored, GRAM, len(self._by_four))[LONG_GRAM - GRAM :]
        candidates = self._by_twelve[_buckets(stored, LONG_GRAM, self.capacity)]
        pending = np.arange(n)
        chain = self._by_four[four]
        for _ in range(MAX_PLACES):
            place = candidates.astype(np.int64) - 1
            possible = (place >= LONG_GRAM) & (place < self.capacity)
            equal = possible.copy()
            for back in range(LONG_GRAM):
                at = np.where(possible, place - back, 0)
                equal &= self._tokens[at] == stored[pending + (LONG_GRAM - 1 - back)]
            found[pending[equal] + LONG_GRAM - 1] = True
            go_on = ~equal & (chain > 0) & (chain <= self.capacity)
            pending, candidates = pending[go_on], chain[go_on]
            if not len(pending):
                break
            chain = self._older[candidates - 1]
        return found

    def _candidates(self, wanted: Sequence[int], hint: int) -> list[int]:
        """Places whose last tokens may be ``wanted``, each once: the hinted one, then the newest
        first."""
        n_slots = self.capacity
        found = [hint - 1] if _FIRST < hint <= n_slots else []
        if len(wanted) >= LONG_GRAM:
            place = self._twelve_at[_bucket(wanted[-LONG_GRAM:], n_slots)]
            if _FIRST < place <= n_slots and place != hint:
                found.append(place - 1)
        place = self._four_at[_bucket(wanted[-GRAM:], n_slots // 2)]
        for _ in range(MAX_LINKS):
            # A link may lead anywhere when another process is writing, or the file is damaged.
            if not _FIRST < place <= n_slots:
                break
            if place - 1 not in found:
                found.append(place - 1)
            place = self._older_at[place - 1]
        return found


def _most(voters: list[tuple[int, int]]) -> tuple[int, list[int]]:
    """The token most of them say, and the places that say it; the first one's among equals."""
    first = voters[0][1]
    if all(token == first for _, token in voters):
        return first, [place for place, _ in voters]
    places: dict[int, list[int]] = {}
    for place, token in voters:
        places.setdefault(token, []).append(place)
    return max(places.items(), key=lambda item: len(item[1]))


def _header(capacity: int, vocabulary: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, _VERSION, capacity, vocabulary)
    return (head + hashlib.sha256(head).digest()[:8]).ljust(_HEAD_BYTES, b"\0")


def _bucket(gram: Sequence[int], n_buckets: int) -> int:
    """Polynomial hash of a gram, mixed and scaled to ``n_buckets``."""
    value = 0
    for token in gram:
        value = (value * _FACTOR + token) & _MASK
    value = ((value ^ (value >> 29)) * _MIX) & _MASK
    return ((value >> 32) * n_buckets) >> 32


def _buckets(stored: Ids, n_gram: int, n_buckets: int) -> npt.NDArray[np.int64]:
    """``_bucket`` of every gram of ``n_gram`` in ``stored``, in order of their last token."""
    n = len(stored) - n_gram + 1
    value = np.zeros(n, np.uint64)
    for offset in range(n_gram):
        value = value * np.uint64(_FACTOR) + stored[offset : offset + n].astype(np.uint64)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(_MIX)
    scaled = ((value >> np.uint64(32)) * np.uint64(n_buckets)) >> np.uint64(32)
    return scaled.astype(np.int64)
