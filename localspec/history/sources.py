"""Who owns what in the index: an SQLite database beside the mapped file.

It is also the lock that keeps writing processes apart, and the place of what must change in one
step: which file is the current one, where it goes on, and which slots belong to which source.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.provenance import Kind, Source

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    stamp TEXT NOT NULL,
    added REAL NOT NULL,
    UNIQUE (kind, name)
);
CREATE TABLE IF NOT EXISTS docs (
    place INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    source INTEGER NOT NULL,
    used INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS docs_of_source ON docs (source);
"""
_VERSION = 1
_BUSY_S = 5.0
_CHECKED_BYTES = 8 << 20  # a larger database is not read through at each start


@dataclass(frozen=True, slots=True)
class Doc:
    """One text in the ring: ``n`` tokens from ``place`` on, and an empty slot. ``used``: how many
    drafted tokens it brought lately."""

    place: int
    n: int
    source: int
    used: int


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """One source and how many tokens of it are held."""

    kind: str
    name: str
    n_tokens: int
    added: float
    stamp: str = ""


class Sources:
    """One connection. All methods raise sqlite3.Error and, of damaged files, errors of decoding."""

    def __init__(self, path: Path) -> None:
        # Autocommit: transactions are begun and ended by hand. The caller keeps threads apart.
        self._db = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(path)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.execute("PRAGMA trusted_schema = OFF")
        with suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA journal_mode = WAL")  # not on every network drive
        self._db.execute("PRAGMA synchronous = NORMAL")
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError("another version of localspec wrote it")
        if version == 0:
            with self.writing():
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
        elif path.stat().st_size <= _CHECKED_BYTES:
            found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(str(found))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All or nothing, and no other process writes meanwhile."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.OperationalError):  # SQLite may have ended it by itself
                self._db.execute("ROLLBACK")
            raise

    # -- state ----------------------------------------------------------------------------------

    def get(self, key: str) -> str | None:
        """The value of ``key``."""
        row = self._db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def number(self, key: str) -> int:
        """The value of ``key`` as a number, 0 when there is none."""
        value = self.get(key)
        return int(value) if value and value.isdecimal() else 0

    def put(self, key: str, value: str | int) -> None:
        """Set ``key``."""
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, str(value)))

    # -- sources and docs -----------------------------------------------------------------------

    def id_of(self, source: Source) -> int:
        """The number of a source, which is made known if it is not."""
        self._db.execute(
            "INSERT INTO sources (kind, name, stamp, added) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, name)"
            " DO UPDATE SET stamp = excluded.stamp, added = excluded.added",
            (source.kind, source.name, source.stamp, time.time()),
        )
        row = self._db.execute(
            "SELECT id FROM sources WHERE kind = ? AND name = ?", (source.kind, source.name)
        ).fetchone()
        return int(row[0])

    def stamp(self, source: Source) -> str | None:
        """The stamp that a source was last added with; None for one that is not known."""
        row = self._db.execute(
            "SELECT stamp FROM sources WHERE kind = ? AND name = ?", (source.kind, source.name)
        ).fetchone()
        return None if row is None else str(row[0])

    def add_doc(self, doc: Doc) -> None:
        """A text is in the ring now."""
        self._db.execute(
            "INSERT INTO docs VALUES (?, ?, ?, ?)", (doc.place, doc.n, doc.source, doc.used)
        )

    def move_docs(self, docs: Sequence[Doc]) -> None:
        """These are all the docs there are."""
        self._db.execute("DELETE FROM docs")
        for doc in docs:
            self.add_doc(doc)

    def remove_doc(self, doc: Doc) -> None:
        """A text is no longer in the ring."""
        self._db.execute("DELETE FROM docs WHERE place = ?", (doc.place,))

    def docs(self) -> list[Doc]:
        """All texts, by place."""
        rows = self._db.execute("SELECT place, n, source, used FROM docs ORDER BY place")
        return [Doc(*map(int, row)) for row in rows]

    def docs_in(self, start: int, end: int) -> list[Doc]:
        """Texts that have a slot in ``start`` .. ``end`` (exclusive), by place."""
        before = self._db.execute("SELECT max(place) FROM docs WHERE place <= ?", (start,))
        first = before.fetchone()[0]
        rows = self._db.execute(
            "SELECT place, n, source, used FROM docs WHERE place >= ? AND place < ?"
            " AND place + n >= ? ORDER BY place",
            (start if first is None else first, end, start),
        )
        return [Doc(*map(int, row)) for row in rows]

    def count_use(self, place: int, n: int) -> None:
        """``n`` tokens of the text at ``place`` were right."""
        self._db.execute(
            "UPDATE docs SET used = min(used + ?, 1000000)"
            " WHERE place = (SELECT max(place) FROM docs WHERE place <= ?)",
            (n, place),
        )

    def remove_sources(self, kind: Kind, names: Sequence[str] | None) -> list[Doc]:
        """Forget these sources (None: all of the kind); returns their texts, which are to be
        emptied."""
        found: list[Doc] = []
        where, values = "kind = ?", [(kind,)]
        if names is not None:
            where, values = "kind = ? AND name = ?", [(kind, name) for name in names]  # type: ignore[misc]
        for value in values:
            ids = self._db.execute(f"SELECT id FROM sources WHERE {where}", value).fetchall()
            for (number,) in ids:
                rows = self._db.execute(
                    "SELECT place, n, source, used FROM docs WHERE source = ?", (number,)
                )
                found += [Doc(*map(int, row)) for row in rows]
                self._db.execute("DELETE FROM docs WHERE source = ?", (number,))
            self._db.execute(f"DELETE FROM sources WHERE {where}", value)
        return found

    def infos(self) -> list[SourceInfo]:
        """All sources, the newest first."""
        rows = self._db.execute(
            "SELECT kind, sources.name, coalesce(sum(n), 0), added, stamp FROM sources"
            " LEFT JOIN docs ON docs.source = sources.id"
            " GROUP BY sources.id ORDER BY added DESC, sources.id DESC"
        )
        return [
            SourceInfo(str(kind), str(name), int(n), float(added), str(stamp))
            for kind, name, n, added, stamp in rows
        ]

    def drop_empty(self) -> None:
        """Forget the names of sources of whose text nothing is left."""
        self._db.execute("DELETE FROM sources WHERE id NOT IN (SELECT source FROM docs)")

    def checkpoint(self) -> None:
        """What was deleted must not stay in the log of changes either."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
