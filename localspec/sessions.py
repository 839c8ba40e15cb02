"""Saved chats: an SQLite database in the data directory, readable by its owner only.

A chat is a row of ``chats`` and its turns in the order of their ids. An answer that is being
written is a turn in state ``partial``; it is saved at least once a second, so that a crash loses
no more than that. What was deleted is remembered by number only, for those who keep something
derived from it.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import LocalspecError, UsageError
from localspec.sessions_read import Reader
from localspec.sessions_schema import MalformedError, is_damage, set_aside
from localspec.sessions_types import ChatInfo, Deleted, Hit, SavedChat, SavedTurn, State
from localspec.terminal import label

__all__ = ["ChatInfo", "Chats", "Deleted", "Hit", "SavedChat", "SavedTurn", "State"]

# No i, l, o, u: nothing to misread, and no words.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 6
_TITLE_LENGTH = 60
_CHECKED_BYTES = 32 << 20  # a larger file is not read through at each start


class Chats(Reader):
    """The saved chats. All methods may be called from any thread; all raise LocalspecError with one
    sentence when the database cannot be read or written, so that a chat can go on without it."""

    def __init__(self, path: Path | None, interval_s: float = 1.0) -> None:
        super().__init__(path)
        self._interval_s = interval_s
        self._saved_at: dict[int, float] = {}  # of partial turns, on the monotonic clock
        self._unsaved: dict[int, str] = {}
        self._timer: threading.Timer | None = None
        self.note = ""
        """One line for the user, when a damaged file was set aside."""
        self.on_delete: list[Callable[[list[Deleted]], None]] = []
        """Called after a deletion, by those who hold something derived from the turns."""

    @classmethod
    def open(cls, path: Path | None, *, interval_s: float = 1.0) -> Chats:
        """The chats in ``path``, which is made if need be; None: in memory, nothing is saved.

        ``interval_s``: how often a running answer is written. A damaged file is renamed and a new
        one begun; ``note`` says so. Raises LocalspecError when there can be no such file, or a
        newer version of the program wrote it.
        """
        if path is None:
            chats = cls(None, interval_s)
            chats._prepare()
            return chats
        try:
            return cls._open_file(path, interval_s)
        except LocalspecError as error:
            if not is_damage(error.__cause__):
                raise
        except sqlite3.Error as error:
            if not is_damage(error):
                raise LocalspecError(
                    f"the saved chats in {path} cannot be opened: {error}"
                ) from error
        try:
            aside = set_aside(path)
            chats = cls._open_file(path, interval_s)
        except (OSError, sqlite3.Error) as error:
            raise LocalspecError(
                f"the saved chats in {path} are damaged and cannot be renamed: {error}"
            ) from error
        chats.note = f"The saved chats were damaged; the file is kept as {label(aside.name)}."
        return chats

    @classmethod
    def _open_file(cls, path: Path, interval_s: float) -> Chats:
        try:
            paths.make_private_dir(path.parent)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            path.chmod(0o600)
            n_bytes = path.stat().st_size
        except OSError as error:
            raise LocalspecError(
                f"the saved chats in {path} cannot be opened: {error.strerror}"
            ) from error
        chats = cls(path, interval_s)
        try:
            if n_bytes <= _CHECKED_BYTES:
                found = chats._db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise MalformedError(found)
            chats._prepare()
        except UnicodeDecodeError as error:
            # sqlite3 raises this when the names in a damaged schema are no text.
            chats._db.close()
            raise MalformedError("the schema is not text") from error
        except BaseException:
            chats._db.close()
            raise
        return chats

    def close(self) -> None:
        """Write what is unsaved and let go of the file."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            with suppress(LocalspecError):
                self._flush()
            self._db.close()

    def __enter__(self) -> Chats:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def new(
        self,
        *,
        model: str = "",
        draft: str = "",
        system: str = "",
        settings: Mapping[str, Any] | None = None,
        title: str = "",
        parent: str = "",
    ) -> str:
        """Begin a chat; return its id. Without turns it is in no list."""
        now = time.time()
        title, system = _text(title), _text(system)
        with self._guard():
            for _ in range(100):
                chat_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
                with suppress(sqlite3.IntegrityError):
                    self._db.execute(
                        "INSERT INTO chats (id, title, created, updated, model, draft, system,"
                        " settings, parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, ''))",
                        (chat_id, title, now, now, model, draft, system, _pack(settings), parent),
                    )
                    return chat_id
        raise LocalspecError("no free id for a new chat was found")

    def change(self, chat_id: str, **values: Any) -> None:
        """Set any of ``title, model, draft, system, settings`` of a chat."""
        unknown = values.keys() - {"title", "model", "draft", "system", "settings"}
        if unknown:
            raise TypeError(f"a chat has no {unknown}")
        if "settings" in values:
            values["settings"] = _pack(values["settings"])
        with self._guard():
            for name, value in values.items():
                self._db.execute(
                    f"UPDATE chats SET {name} = ? WHERE id = ?", (_text(value), chat_id)
                )

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat another title, on one line."""
        self.change(chat_id, title=_title(title))

    def add_turn(
        self,
        chat_id: str,
        role: str,
        content: str,
        *,
        state: State = "complete",
        numbers: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> int:
        """Append a turn; return its id. The first question becomes the title of a chat without."""
        now, content = time.time(), _text(content)
        with self._writing():
            row = self._db.execute(
                "INSERT INTO turns (chat, role, content, state, created, numbers, settings)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (chat_id, role, content, state, now, _pack(numbers), _pack(settings)),
            )
            turn_id = row.lastrowid or 0
            self._db.execute("UPDATE chats SET updated = ? WHERE id = ?", (now, chat_id))
            if role == "user":
                self._db.execute(
                    "UPDATE chats SET title = ? WHERE id = ? AND title = ''",
                    (_title(content), chat_id),
                )
            self._saved_at[turn_id] = time.monotonic()
        return turn_id

    def update_partial(self, turn_id: int, content: str) -> None:
        """The running answer is now ``content`` (all of it). Written at once if the last writing is
        a second ago, else when that second is over, whether or not this is called again."""
        with self._lock:
            self._unsaved[turn_id] = content
            wait = self._saved_at.get(turn_id, 0.0) + self._interval_s - time.monotonic()
            if wait <= 0:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self._on_timer)
                self._timer.daemon = True
                self._timer.start()

    def finish_turn(
        self,
        turn_id: int,
        content: str,
        *,
        state: State = "complete",
        numbers: Mapping[str, Any] | None = None,
    ) -> None:
        """The answer is over: save it whole, with its numbers."""
        with self._writing():
            content = _text(content)
            self._unsaved.pop(turn_id, None)
            self._saved_at.pop(turn_id, None)
            self._db.execute(
                "UPDATE turns SET content = ?, state = ?, numbers = ? WHERE id = ?",
                (content, state, _pack(numbers), turn_id),
            )
            self._db.execute(
                "UPDATE chats SET updated = ? WHERE id = (SELECT chat FROM turns WHERE id = ?)",
                (time.time(), turn_id),
            )

    def fork(self, chat_id: str, turn_id: int | None = None) -> str:
        """A new chat with the turns of ``chat_id`` up to and with ``turn_id`` (None: all)."""
        chat = self.get(chat_id)
        if turn_id is not None and all(turn.id != turn_id for turn in chat.turns):
            raise UsageError(f"chat {chat_id} has no turn {turn_id}")
        with self._writing():
            forked = self.new(
                model=chat.info.model,
                draft=chat.info.draft,
                system=chat.system,
                settings=chat.settings,
                title=_title(f"{chat.info.title} (fork)"),
                parent=chat.info.id,
            )
            for turn in chat.turns:
                if turn_id is not None and turn.id > turn_id:
                    break
                self.add_turn(
                    forked,
                    turn.role,
                    turn.content,
                    state="stopped" if turn.state == "partial" else turn.state,
                    numbers=turn.numbers,
                    settings=turn.settings,
                )
        return forked

    def delete(self, chat_id: str) -> None:
        """Remove a chat, its turns, and all that is derived from them."""
        with self._writing():
            gone = self._remove_turns("chat = ?", (chat_id,))
            self._db.execute("DELETE FROM chats WHERE id = ?", (chat_id,))
        self._after_delete(gone)

    def delete_turns_from(self, chat_id: str, turn_id: int) -> None:
        """Remove ``turn_id`` and all turns of the chat after it."""
        with self._writing():
            gone = self._remove_turns("chat = ? AND id >= ?", (chat_id, turn_id))
        self._after_delete(gone)

    def _remove_turns(self, where: str, values: tuple[object, ...]) -> list[Deleted]:
        rows = self._db.execute(f"SELECT chat, id FROM turns WHERE {where}", values).fetchall()
        gone = []
        for chat_id, turn_id in rows:
            number = self._db.execute(
                "INSERT INTO deleted (chat, turn) VALUES (?, ?)", (chat_id, turn_id)
            ).lastrowid
            gone.append(Deleted(number or 0, chat_id, turn_id))
            self._unsaved.pop(turn_id, None)
        self._db.execute(f"DELETE FROM turns WHERE {where}", values)
        return gone

    def _after_delete(self, gone: list[Deleted]) -> None:
        with self._guard():
            # The text must not stay in the log of changes.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for forget in self.on_delete:
            forget(gone)

    def _flush(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._unsaved:
                return
            with self._writing():
                for turn_id, content in self._unsaved.items():
                    self._db.execute(
                        "UPDATE turns SET content = ? WHERE id = ?", (_text(content), turn_id)
                    )
                    self._saved_at[turn_id] = time.monotonic()
            self._unsaved.clear()

    def _on_timer(self) -> None:
        # Nobody waits for this thread; finish_turn meets the same error and tells the user.
        with suppress(LocalspecError):
            self._flush()


def _text(text: str) -> str:
    """Half a surrogate pair, as a file name on the command line can have, is no text."""
    return text.encode("utf-8", "replace").decode()


def _title(text: str) -> str:
    """The first line that says something, not too long."""
    lines = (" ".join(line.split()) for line in text[:1000].splitlines())
    line = label(next((line for line in lines if line), ""))
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1].rstrip() + "…"


def _pack(values: Mapping[str, Any] | None) -> str:
    return json.dumps(dict(values or {}), ensure_ascii=True, default=str)
