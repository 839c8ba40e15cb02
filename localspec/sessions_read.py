"""Reading saved chats: lists, whole chats, searching."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from localspec.errors import UsageError
from localspec.sessions_schema import Database
from localspec.sessions_types import (
    ChatInfo,
    Deleted,
    Hit,
    SavedChat,
    SavedTurn,
    excerpt,
    to_json,
    to_markdown,
)

_ALIKE = str.maketrans("ilo", "110")  # what people type for the digits of an id
_INFO = (
    "id, title, created, updated, model, draft,"
    " (SELECT count(*) FROM turns WHERE chat = chats.id), coalesce(parent, '')"
)


class Reader(Database):
    """What can be asked of the saved chats."""

    def list(self, limit: int = 100, query: str = "") -> builtins.list[ChatInfo]:
        """Chats with turns, the last used first; with ``query`` those whose title or one of whose
        turns has all its words, whatever their case."""
        words = query.split()
        sql = f"SELECT {_INFO} FROM chats WHERE id IN (SELECT chat FROM turns)"
        if words:
            found = "SELECT chat FROM turns WHERE contains(content, :words)"
            sql += f" AND (contains(title, :words) OR id IN ({found}))"
        sql += " ORDER BY updated DESC, rowid DESC LIMIT :limit"
        with self._guard():
            values = {"words": _pack_words(words), "limit": limit}
            rows = self._db.execute(sql, values).fetchall()
        return [_info(row) for row in rows]

    def latest(self) -> ChatInfo | None:
        """The chat that was last written to."""
        found = self.list(1)
        return found[0] if found else None

    def resolve(self, prefix: str) -> str:
        """The id that begins with ``prefix``; ``latest`` is the last used chat. Raises UsageError
        when there is none or more than one."""
        if prefix == "latest":
            latest = self.latest()
            if latest is None:
                raise UsageError("there is no saved chat yet")
            return latest.id
        typed = prefix.strip().lower().translate(_ALIKE)
        with self._guard():
            rows = self._db.execute(
                "SELECT id, title FROM chats WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id"
                " LIMIT 6",
                (typed,),
            ).fetchall()
        if typed and len(rows) == 1:
            return str(rows[0][0])
        if typed and rows:
            hint = "\n".join(f"{chat_id}  {title}" for chat_id, title in rows[:5])
            raise UsageError(f'"{prefix}" is the beginning of more than one chat', hint=hint)
        raise UsageError(
            f'there is no saved chat "{prefix}"', hint="localspec history list shows them all."
        )

    def get(self, chat_id: str) -> SavedChat:
        """A whole chat by its id or the beginning of it. Raises UsageError like ``resolve``."""
        chat_id = self.resolve(chat_id)
        with self._guard():
            *info, system, settings = self._db.execute(
                f"SELECT {_INFO}, system, settings FROM chats WHERE id = ?", (chat_id,)
            ).fetchone()
            rows = self._db.execute(
                "SELECT id, role, content, state, created, numbers, settings FROM turns"
                " WHERE chat = ? ORDER BY id",
                (chat_id,),
            ).fetchall()
        turns = [
            SavedTurn(turn, role, body, state, created, _unpack(numbers), _unpack(given))
            for turn, role, body, state, created, numbers, given in rows
        ]
        return SavedChat(_info(info), system, _unpack(settings), turns)

    def search(self, text: str, limit: int = 50) -> builtins.list[Hit]:
        """Turns that have all words of ``text``, whatever their case, the newest first.

        Every turn is looked at. For a thousand chats that takes some hundredths of a second; an
        index would make the file five times as large, and keep what was deleted.
        """
        words = text.split()
        if not words:
            return []
        with self._guard():
            rows = self._db.execute(
                "SELECT id, chat, role, content FROM turns WHERE contains(content, ?)"
                " ORDER BY id DESC LIMIT ?",
                (_pack_words(words), limit),
            ).fetchall()
            infos = {row[1]: self._info(row[1]) for row in rows}
        return [
            Hit(infos[chat], turn, role, excerpt(body, words)) for turn, chat, role, body in rows
        ]

    def deleted(self, after: int = 0) -> builtins.list[Deleted]:
        """What was deleted since the deletion numbered ``after``, the oldest first."""
        with self._guard():
            rows = self._db.execute(
                "SELECT number, chat, turn FROM deleted WHERE number > ? ORDER BY number", (after,)
            ).fetchall()
        return [Deleted(*row) for row in rows]

    def export_markdown(self, chat_id: str) -> str:
        """The chat as Markdown, without control characters."""
        return to_markdown(self.get(chat_id))

    def export_json(self, chat_id: str) -> str:
        """The chat with all numbers and settings as one JSON object, control characters escaped."""
        return to_json(self.get(chat_id))

    def _info(self, chat_id: str) -> ChatInfo:
        row = self._db.execute(f"SELECT {_INFO} FROM chats WHERE id = ?", (chat_id,)).fetchone()
        return _info(row)


def _info(row: Sequence[Any]) -> ChatInfo:
    return ChatInfo(*row)


def _pack_words(words: Sequence[str]) -> str:
    return "\n".join(word.casefold() for word in words)


def _unpack(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    return {}
