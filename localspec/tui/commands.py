"""Slash commands: what there is, reading one, completing one. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from localspec.errors import UsageError
from localspec.schema import nearest
from localspec.tui.settings import SETTABLE

_SHAPE = re.compile(r"^/([a-z]+)(?:\s+(.*))?$", re.DOTALL | re.IGNORECASE)
_MOST = 50


@dataclass(frozen=True, slots=True)
class Command:
    """``arguments`` as shown in help; ``words``: what the first argument may be."""

    name: str
    arguments: str
    about: str
    words: tuple[str, ...] = ()


COMMANDS = {
    command.name: command
    for command in (
        Command("help", "", "Keys and commands"),
        Command("mode", "auto|off|lookup|draft [N]", "What guesses ahead, at most N tokens",
                ("auto", "off", "lookup", "draft")),
        Command("model", "NAME [DRAFT]", "Load another model or pair"),
        Command("system", "[TEXT|none]", "Show or set the system message"),
        Command("set", "NAME VALUE", "Change a setting, such as temperature"),
        Command("save", "[TITLE]", "Keep this chat, under a title"),
        Command("export", "[FILE.md|FILE.json]", "Write this chat to a file"),
        Command("clear", "", "Begin a new chat"),
        Command("copy", "[answer|code|all]", "Copy the last answer, its code, or the chat",
                ("answer", "code", "all")),
        Command("stats", "", "All numbers of the last answer and of the chat"),
        Command("attach", "FILE", "Put a text file before the next question"),
        Command("regenerate", "", "Answer the last question again"),
        Command("edit", "", "Change the last question and send it again"),
        Command("delete", "", "Delete the last question and its answer"),
        Command("fork", "", "Go on in a copy of this chat"),
        Command("rename", "TITLE", "Give this chat another title"),
        Command("chats", "", "Show saved chats"),
        Command("history", "", "Search your earlier questions"),
        Command("panel", "", "Show or fold the speculation panel"),
        Command("colours", "", "Show where each word came from"),
        Command("editor", "", "Write the question in your editor"),
        Command("reload", "", "Load the model again"),
        Command("quit", "", "Leave"),
    )
}  # fmt: skip


def read(text: str) -> tuple[str, str] | None:
    """(command, argument) of a text that is one, None for a question.

    Raises UsageError for something that looks like a command and is none.
    """
    found = _SHAPE.match(text.strip())
    if found is None or text[:1].isspace():
        return None
    name, argument = found[1].lower(), (found[2] or "").strip()
    if name in COMMANDS:
        return name, argument
    near = [known for known in COMMANDS if known.startswith(name)]
    if len(near) == 1:
        return near[0], argument
    if "\n" in text.strip():
        return None  # a pasted text whose first line happens to begin with a slash
    raise UsageError(
        f"there is no command /{name}",
        hint=nearest(name, COMMANDS) or "A question may begin with a space and then a slash.",
    )


def complete(
    text: str, models: Sequence[str], value: Callable[[str], str]
) -> list[tuple[str, str]]:
    """(whole text, what it does) for a half-typed command. ``models``: names for /model;
    ``value``: of a setting now."""
    if not text.startswith("/") or "\n" in text:
        return []
    name, space, argument = text[1:].partition(" ")
    if not space:
        found = [c for c in COMMANDS.values() if c.name.startswith(name.lower())]
        return [
            (f"/{c.name} " if c.arguments else f"/{c.name}", f"{c.arguments}  {c.about}".strip())
            for c in found
        ]
    return [
        (f"/{name} {word}", note)
        for word, note in islice(_words(name, argument, models, value), _MOST)
        if word.startswith(argument) and word != argument
    ]


def _words(
    name: str, argument: str, models: Sequence[str], value: Callable[[str], str]
) -> list[tuple[str, str]]:
    if name == "set":
        return [(f"{key} ", f"now {value(key)}; {about}") for key, about in SETTABLE.items()]
    if name == "model":
        return [(model, "") for model in models if model.startswith(argument)]
    if name in ("attach", "export"):
        return _files(argument)
    command = COMMANDS.get(name)
    return [(word, "") for word in command.words] if command else []


def _files(start: str) -> list[tuple[str, str]]:
    """Files and directories whose path begins with ``start``."""
    folder, name = os.path.split(start)
    try:
        with os.scandir(Path(folder or ".").expanduser()) as entries:
            found = [
                (entry.name, entry.is_dir())
                for entry in islice(entries, 2000)
                if entry.name.startswith(name) and (name or not entry.name.startswith("."))
            ]
    except (OSError, ValueError):
        return []
    return [
        (os.path.join(folder, name) + ("/" if is_dir else ""), "")  # noqa: PTH118 - as it was typed
        for name, is_dir in sorted(found)
        if name.isprintable()
    ]
