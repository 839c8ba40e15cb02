"""The history of one vocabulary on disk: a directory with a ring and the database of its sources.

Privacy: each slot of the ring belongs to a source. Whatever is forgotten or makes room is
overwritten, and forgetting also empties every slot that no source owns, such as one that was being
written when a process was killed. Writing happens while the database is locked, tokens first, then
the row that owns them: a kill loses the text that was being added and nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.history.parts import new_parts
from localspec.history.ring import GRAM, MAX_MATCH, DamagedError, Ids, Ring, size_bytes
from localspec.history.sources import Doc, SourceInfo, Sources
from localspec.provenance import Kind, Source
from localspec.spec.copier import Match

CAPACITIES = (1 << 18, 1 << 20, 3 << 20)
"""Slots of a ring: it begins small and is made larger when it is full and there is room."""
MAX_DOC = 1 << 14
"""A longer text is stored in pieces, so that making room takes away no more than is needed."""
KEEP_TOKENS = 1 << 14
"""With each text that is added so much of what would go, but was useful, is kept."""

DATABASE = "sources.sqlite3"
_RING_NAME = re.compile(r"ring-(\d{1,9})\.bin")

FAILURES = (sqlite3.Error, OSError, ArithmeticError, TypeError, ValueError)
"""What reading files that may hold anything can raise: SQLite lets errors of decoding and of
conversion through."""

RoomFor = Callable[[int], bool]
"""Whether so many bytes may be used; may remove what others have to make it so."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a directory holds. ``n_bytes`` on disk; ``model``: a model with this vocabulary."""

    model: str
    n_bytes: int
    n_tokens: int
    capacity: int
    sources: tuple[SourceInfo, ...]


class DiskIndex:
    """See the module. ``vocabulary`` None opens whatever is there.

    All methods raise one of ``FAILURES``.
    """

    def __init__(
        self,
        directory: Path,
        vocabulary: bytes | None,
        *,
        capacities: Sequence[int] = CAPACITIES,
        room_for: RoomFor = lambda _n_bytes: True,
    ) -> None:
        self._directory = paths.make_private_dir(directory)
        self._vocabulary = vocabulary
        self._capacities = capacities
        self._room_for = room_for
        database = directory / DATABASE
        database.touch(mode=0o600)
        self._db = Sources(database)
        self._ring: Ring | None = None
        self._name = ""
        try:
            with self._db.writing():
                if self._db.get("ring") is None:
                    self._first_ring()
                self.refresh()
                self._remove_orphans()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the files. Safe to repeat."""
        if self._ring is not None:
            self._ring.close()
        self._db.close()

    # -- reading --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Use the file that is the current one; another process may have made a larger one."""
        name = self._db.get("ring") or ""
        if name == self._name:
            return
        if not _RING_NAME.fullmatch(name):
            raise DamagedError("its database names no index")
        try:
            ring = Ring.open(self._directory / name, self._vocabulary)
        except FileNotFoundError:
            if name == self._db.get("ring"):
                raise
            self.refresh()  # it was outgrown just now
            return
        if self._ring is not None:
            self._ring.close()
        self._ring, self._name = ring, name

    @property
    def ring(self) -> Ring:
        """The file in use."""
        assert self._ring is not None
        return self._ring

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """See ``Ring.find``."""
        return self.ring.find(tail, hint)

    def places(self, tail: Sequence[int]) -> list[int]:
        """See ``Ring.places``."""
        return self.ring.places(tail)

    def around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        """See ``Ring.around``."""
        return self.ring.around(place, n_before, n_after)

    def stamp(self, source: Source) -> str | None:
        """The stamp of a source of which something is held."""
        return self._db.stamp(source)

    def held(self) -> Held:
        """What is here, for people."""
        infos = tuple(self._db.infos())
        return Held(
            model=self._db.get("model") or "",
            n_bytes=directory_bytes(self._directory),
            n_tokens=sum(info.n_tokens for info in infos),
            capacity=self.ring.capacity,
            sources=infos,
        )

    def get(self, key: str) -> str | None:
        """A value that was ``put``."""
        return self._db.get(key)

    def put(self, key: str, value: str) -> None:
        """Keep ``value``."""
        self._db.put(key, value)

    def counts(self) -> list[list[float]]:
        """What was kept of calibration; empty when nothing was, or what is there is no such
        thing."""
        try:
            found = json.loads(self._db.get("calibration") or "[]")
            return [[float(n) for n in row] for row in found]
        except (TypeError, ValueError):
            return []

    # -- writing --------------------------------------------------------------------------------

    def add(self, source: Source, ids: Ids) -> int:
        """Add what is new in a text; returns how many tokens that is."""
        written: list[tuple[int, int]] = []
        may_grow = True
        try:
            while True:
                self.refresh()
                if may_grow and self._lacks_room(ids):
                    may_grow = self._grow()
                with self._db.writing():
                    self.refresh()
                    if may_grow and self._lacks_room(ids):
                        continue  # another process took the room meanwhile: old text must not go
                    return self._add_new(source, ids, written)
        except BaseException:
            for place, n in written:
                self.ring.blank(place, n)
            raise

    def _add_new(self, source: Source, ids: Ids, written: list[tuple[int, int]]) -> int:
        parts = new_parts(self.ring.known(ids))
        if not parts:
            return 0
        number = self._db.id_of(source)
        useful: list[tuple[Doc, Ids]] = []
        for start, end in parts:
            for piece in _pieces(ids[start:end], self._max_doc):
                useful += self._append(piece, number, 0, written)
        self._keep(useful, written)
        self._db.drop_empty()
        return sum(end - start for start, end in parts)

    def _lacks_room(self, ids: Ids) -> bool:
        n_pieces = len(ids) // self._max_doc + 1
        return self._head + len(ids) + n_pieces * (MAX_MATCH + 1) > self.ring.capacity

    def learn(self, helps: Sequence[tuple[int, int]], counts: Sequence[Sequence[float]]) -> None:
        """Keep what drafting taught: (place, accepted tokens), and new counts of calibration."""
        with self._db.writing():
            for place, n in helps:
                self._db.count_use(place, n)
            self._db.put("calibration", json.dumps(counts))

    def forget(self, kind: Kind, names: Sequence[str] | None) -> int:
        """Remove the text of these sources (None: all of this kind) from the disk; returns how many
        tokens that were."""
        with self._db.writing():
            self.refresh()
            gone = self._db.remove_sources(kind, names)
            self.ring.blank_all_but([(doc.place, doc.n) for doc in self._db.docs()])
            self.ring.sync()
            self._remove_orphans()
        self._db.checkpoint()
        return sum(doc.n for doc in gone)

    @property
    def _head(self) -> int:
        return max(self._db.number("head"), Ring.first)

    @property
    def _max_doc(self) -> int:
        return min(MAX_DOC, self.ring.capacity // 8)

    def _append(
        self, ids: Ids, source: int, used: int, written: list[tuple[int, int]]
    ) -> list[tuple[Doc, Ids]]:
        """Put a text at the head; returns what had to make room for it and was useful."""
        head, n = self._head, len(ids) + 1
        useful = []
        if head + n > self.ring.capacity:
            useful += self._evict(head, self.ring.capacity)
            head = Ring.first
        useful += self._evict(head, head + n)
        written.append((head, n))
        self.ring.write(head, ids)
        self._db.add_doc(Doc(head, len(ids), source, used))
        self._db.put("head", head + n)
        return useful

    def _evict(self, start: int, end: int) -> list[tuple[Doc, Ids]]:
        useful = []
        for doc in self._db.docs_in(start, end):
            if doc.used > 0:
                useful.append((doc, self.ring.read(doc.place, doc.n)))
            self.ring.blank(doc.place, doc.n)
            self._db.remove_doc(doc)
        return useful

    def _keep(self, useful: list[tuple[Doc, Ids]], written: list[tuple[int, int]]) -> None:
        """Second chance: what was useful goes to the head again, for half as long each time."""
        left = min(KEEP_TOKENS, self.ring.capacity // 4)
        while useful:
            doc, ids = useful.pop(0)
            left -= len(ids) + 1
            if left < 0:
                break
            if len(ids) > GRAM:
                useful += self._append(ids, doc.source, doc.used // 2, written)

    # -- files ----------------------------------------------------------------------------------

    def _first_ring(self) -> None:
        if self._vocabulary is None:
            raise DamagedError("its database names no index")
        self._room_for(size_bytes(self._capacities[0]))
        name = self._free_name()
        Ring.create(self._directory / name, self._capacities[0], self._vocabulary).close()
        self._db.put("ring", name)

    def _free_name(self) -> str:
        """Never one that was current: who still has that file would take the new one for it."""
        current = _RING_NAME.fullmatch(self._db.get("ring") or "")
        names = (f"ring-{n}.bin" for n in itertools.count(int(current[1]) + 1 if current else 0))
        return next(name for name in names if not (self._directory / name).exists())

    def _grow(self) -> bool:
        """Move to a larger file if one is allowed and the disk has room for it; says whether."""
        larger = [n for n in self._capacities if n > self.ring.capacity]
        if not larger or self._vocabulary is None or not self._room_for(size_bytes(larger[0])):
            return False
        path = None
        try:
            # The file, too, is made in here: to others it would be an orphan until it is current.
            with self._db.writing():
                self.refresh()
                if self.ring.capacity >= larger[0]:
                    return True  # another process was quicker
                path = self._directory / self._free_name()
                try:
                    ring = Ring.create(path, larger[0], self._vocabulary)
                except OSError:
                    return False  # a full disk: old text makes room, as it does at the largest size
                with contextlib.closing(ring):
                    self._move_to(ring)
                self._db.put("ring", path.name)
        except BaseException:
            if path is not None:
                path.unlink(missing_ok=True)
            raise
        self.refresh()
        with self._db.writing():
            self._remove_orphans()
        return True

    def _move_to(self, ring: Ring) -> None:
        head = self._head
        docs = self._db.docs()
        by_age = [d for d in docs if d.place >= head] + [d for d in docs if d.place < head]
        moved, place = [], Ring.first
        for doc in by_age:
            ids = self.ring.read(doc.place, doc.n)
            if len(ids) <= GRAM or place + len(ids) + 1 > ring.capacity:
                continue
            ring.write(place, ids)
            moved.append(Doc(place, len(ids), doc.source, doc.used))
            place += len(ids) + 1
        self._db.move_docs(moved)
        self._db.put("head", place)

    def _remove_orphans(self) -> None:
        """Files that a killed process left, and those that were outgrown. Inside a transaction."""
        current = self._db.get("ring")
        for path in self._directory.glob("ring-*.bin"):
            if path.name != current:
                with contextlib.suppress(OSError):  # Windows: another process still maps it
                    path.unlink()


def _pieces(ids: Ids, n: int) -> list[Ids]:
    """Pieces of at most ``n`` tokens that overlap, so that a match can lead across a cut."""
    step = n - MAX_MATCH
    ends = range(n, len(ids) + step, step)
    return [ids[max(0, end - n) : end] for end in ends] if len(ids) > n else [ids]


def directory_bytes(directory: Path) -> int:
    """Bytes of all files directly in ``directory``; 0 when it is not there."""
    total = 0
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError):
                total += path.stat().st_size
    return total


def is_damage(error: Exception) -> bool:
    """The files do not hold together, as against busy, full or forbidden."""
    if isinstance(error, OSError):
        return isinstance(error, FileNotFoundError)  # the database names a ring that is gone
    if not isinstance(error, sqlite3.DatabaseError):
        return not isinstance(error, sqlite3.Error)
    return not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)
