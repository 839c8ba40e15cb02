"""What a saved chat is, and how it is written for others: plain data, no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from localspec.terminal import clean, label

State = Literal["complete", "stopped", "partial"]


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat without its turns. Times in seconds since 1970. ``parent``: what it was forked from,
    empty if from nothing (or if that is gone)."""

    id: str
    title: str
    created: float
    updated: float
    model: str
    draft: str
    n_turns: int
    parent: str


@dataclass(frozen=True, slots=True)
class SavedTurn:
    """One turn. ``state``: ``stopped`` by the user, ``partial`` if the program ended in the middle
    (or is still at it). ``numbers``: the statistics of an answer; ``settings``: what it was asked
    with."""

    id: int
    role: str
    content: str
    state: State = "complete"
    created: float = 0.0
    numbers: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedChat:
    """A whole chat."""

    info: ChatInfo
    system: str
    settings: dict[str, Any]
    turns: list[SavedTurn]


@dataclass(frozen=True, slots=True)
class Hit:
    """A turn that contains what was searched for, and the words around the place."""

    chat: ChatInfo
    turn_id: int
    role: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """``turn_id`` of ``chat_id`` is gone, and what was derived from it should go. ``number`` grows
    with each deletion."""

    number: int
    chat_id: str
    turn_id: int


_AROUND = 60  # characters on each side of what was found
_ESCAPED = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_WHO = {"user": "You", "assistant": "Answer", "system": "System"}


def excerpt(text: str, words: Sequence[str]) -> str:
    """The surroundings of the first of ``words`` in ``text``, on one line."""
    places = [text.lower().find(word.lower()) for word in words]
    start = max(min((place for place in places if place >= 0), default=0) - _AROUND, 0)
    end = start + 2 * _AROUND
    line = label(" ".join(text[start:end].split()))
    return ("… " if start else "") + line + (" …" if end < len(text) else "")


def to_markdown(chat: SavedChat) -> str:
    """A chat to be read: a heading, who said what, and what was stopped."""
    info = chat.info
    when = datetime.fromtimestamp(info.created).strftime("%Y-%m-%d %H:%M")
    with_draft = f" with {info.draft}" if info.draft else ""
    parts = [f"# {info.title or info.id}", f"{when}, {info.model or 'unknown model'}{with_draft}"]
    if chat.system:
        parts.append("\n".join(f"> {line}" for line in chat.system.splitlines()))
    for turn in chat.turns:
        parts.append(f"## {_WHO.get(turn.role, turn.role)}")
        parts.append(turn.content.strip("\n"))
        if turn.state != "complete":
            parts.append("*(stopped)*" if turn.state == "stopped" else "*(interrupted)*")
    return clean("\n\n".join(part for part in parts if part) + "\n")


def as_data(chat: SavedChat) -> dict[str, Any]:
    """A chat as JSON has it; times in seconds since 1970."""
    return {
        **asdict(chat.info),
        "system": chat.system,
        "settings": chat.settings,
        "turns": [asdict(turn) for turn in chat.turns],
    }


def dump(data: Any) -> str:
    """JSON that is safe to print: json.dumps leaves DEL, C1 and reordering characters as they
    are."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def to_json(chat: SavedChat) -> str:
    """A chat with everything that is known about it."""
    return dump(as_data(chat)) + "\n"
