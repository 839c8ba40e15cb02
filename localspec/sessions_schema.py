"""The database of saved chats: its tables, their history, and what to do with a damaged file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from localspec.errors import LocalspecError

# user_version n: the first n of these have run. Never change one that was released; add one.
MIGRATIONS = (
    """
    CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        model TEXT NOT NULL,
        draft TEXT NOT NULL,
        system TEXT NOT NULL,
        settings TEXT NOT NULL,
        parent TEXT REFERENCES chats (id) ON DELETE SET NULL
    );
    CREATE TABLE turns (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('complete', 'stopped', 'partial')),
        created REAL NOT NULL,
        numbers TEXT NOT NULL,
        settings TEXT NOT NULL
    );
    CREATE INDEX turns_of_chat ON turns (chat, id);
    """,
    """
    CREATE TABLE deleted (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        chat TEXT NOT NULL,
        turn INTEGER NOT NULL
    );
    CREATE INDEX chats_by_use ON chats (updated);
    """,
)

_BUSY_S = 5.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class MalformedError(sqlite3.DatabaseError):
    """SQLite reads the file, but its contents do not hold together."""


def connect(path: str) -> sqlite3.Connection:
    """A connection set up for our use, without a look at what is in the file."""
    # Autocommit: transactions are begun and ended by hand. The caller keeps threads apart.
    db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        db.create_function("contains", 2, contains, deterministic=True)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")  # not on every network drive
        db.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        db.close()
        raise
    return db


def contains(text: object, packed_words: str) -> bool:
    """Are all words (folded, one a line) in ``text``, whatever its case?"""
    folded = str(text).casefold()
    return all(word in folded for word in packed_words.split("\n"))


def migrate(db: sqlite3.Connection, where: str) -> None:
    """Bring the tables up to date, inside the caller's transaction. Raises LocalspecError when a
    newer version of the program has written them."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise LocalspecError(
            f"the saved chats in {where} were written by a newer version of localspec",
            hint="Update localspec, or set LOCALSPEC_HOME to another directory.",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        for statement in script.split(";"):  # executescript would end the transaction
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")


def is_damage(error: BaseException | None) -> bool:
    """The file is not a whole database, as against busy, full or forbidden."""
    if isinstance(error, MalformedError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _DAMAGE


def set_aside(path: Path) -> Path:
    """Rename a damaged database and its companions; return the new path. Raises OSError."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    n = 1
    while aside.exists():
        n += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{n}")
    path.rename(aside)
    for ending in ("-wal", "-shm"):
        companion = path.with_name(path.name + ending)
        if companion.exists():
            companion.rename(aside.with_name(aside.name + ending))
    return aside


class Database:
    """One connection, used by one thread at a time."""

    def __init__(self, path: Path | None) -> None:
        self._where = str(path) if path else "memory"
        self._lock = threading.RLock()
        self._db = connect(str(path) if path else ":memory:")

    def _prepare(self) -> None:
        """Make or update the tables. Raises sqlite3.Error."""
        with self._writing():
            migrate(self._db, self._where)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """One thread at a time; SQLite's errors as a sentence."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise LocalspecError(
                    f"the saved chats in {self._where} cannot be used: {error}"
                ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """All or nothing; inside another one a part of that."""
        with self._guard():
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.OperationalError):  # SQLite may have ended it by itself
                    self._db.execute("ROLLBACK")
                raise
