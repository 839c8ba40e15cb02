"""Longer texts of the chat view: help, and all numbers. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual.content import Content

from localspec.sessions_types import ChatInfo, SavedChat, SavedTurn
from localspec.spec.stats import Stats
from localspec.terminal import duration, label
from localspec.tui.commands import COMMANDS
from localspec.tui.drawing import DASH, ORIGINS, PanelData, percent, seconds
from localspec.tui.told import StatusLike
from localspec.tui.turns import Conversation

KEYS = (
    ("Enter", "send the question"),
    ("Shift+Enter, Ctrl+J", "new line (a paste keeps its lines)"),
    ("Esc", "stop the answer; leave a dialog"),
    ("Up, Down", "earlier questions; Up also takes back one that waits"),
    ("Ctrl+R", "search earlier questions"),
    ("Ctrl+X Ctrl+E", "write the question in $EDITOR"),
    ("Tab", "complete a command; otherwise the next part of the screen"),
    (
        "Ctrl+Up",
        "to the messages: c copy, k copy code, r regenerate, e edit, d delete, f fork, "
        "t thinking; Up and Down to the next; Enter unfolds; Esc returns",
    ),
    ("PageUp, PageDown", "scroll; Ctrl+End follows the answer again"),
    ("Ctrl+C", "copy the selection"),
    ("F1", "this help"),
    ("F2, F3, F4", "speculation panel, saved chats, colours of words"),
    ("In saved chats", "Enter open, r rename, f fork, d delete; Esc returns"),
    ("When asked to confirm", "y yes, n no"),
    ("Ctrl+N", "new chat"),
    ("Ctrl+P", "all commands"),
    ("Ctrl+Q", "quit"),
)

LOOKS = tuple(
    (style.split(" ", 1)[-1] or "unmarked", meaning) for style, meaning in ORIGINS.values()
)


def help_text() -> Table:
    """Keys, commands, and what the colours of words mean, in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(max_width=26, overflow="fold")
    table.add_column(ratio=1)

    def head(text: str) -> None:
        table.add_row(Text(text, style="bold underline"), Text())

    head("Keys")
    for key, text in KEYS:
        table.add_row(Text(key, style="bold"), Text(text))
    head("Commands")
    for command in COMMANDS.values():
        name = f"/{command.name} {command.arguments}".rstrip()
        table.add_row(Text(name, style="bold"), Text(command.about))
    head("Colours of words (F4)")
    for look, meaning in LOOKS:
        table.add_row(Text(look, style="bold"), Text(meaning))
    return table


def numbers(data: PanelData) -> Content:
    """All numbers of the last answer and of the chat."""
    stats, totals = data.answer or Stats(), data.totals
    plain, speed = stats.baseline_tokens_per_s, stats.tokens_per_s
    length = stats.mean_accepted_length
    first = stats.first_token_s
    rows: list[tuple[str, str]] = [
        ("Mode", f"{data.mode}: {label(data.reason)}"),
        ("", ""),
        ("Prompt", f"{stats.n_prompt:,} tokens, {stats.n_reused:,} of them still in the cache"),
        ("Prompt pass", duration(stats.prompt_s)),
        ("First token", DASH if first is None else f"after {duration(first)}"),
        ("Answer", f"{stats.n_tokens:,} tokens in {stats.n_steps:,} steps"),
        ("Speed", DASH if speed is None else f"{speed:.1f} tokens/s"),
        ("Plain decoding", "not measured" if plain is None else f"{plain:.1f} tokens/s"),
        ("Gain", DASH if stats.gain is None else f"{stats.gain:.2f}×"),
        ("Saved", seconds(stats.saved_s)),
        ("Per step", DASH if length is None else f"{length:.2f} tokens"),
        ("Drafted", f"{stats.n_drafted:,}, checked {stats.n_verified:,}"),
        ("Accepted", f"{stats.n_accepted:,} ({percent(stats.acceptance_rate)} of those checked)"),
    ]
    for name, drafter in stats.drafters.items():
        rate = percent(drafter.acceptance_rate)
        text = f"{drafter.n_accepted:,} of {drafter.n_verified:,} ({rate})"
        rows.append((f"  {label(name)}", f"{text}, {duration(drafter.seconds)} spent"))
    rows += [
        ("", ""),
        ("This chat", f"{totals.n_answers:,} answers, {totals.n_tokens:,} tokens"),
        ("Accepted", f"{totals.n_accepted:,} of {totals.n_verified:,}"),
        ("Saved", seconds(totals.saved_s)),
    ]
    return Content("\n").join(
        [Content.assemble((f"{name:<16}", "$muted"), value) for name, value in rows]
    )


def saved_chat(
    chat_id: str,
    title: str,
    status: StatusLike | None,
    chat: Conversation,
    turns: Sequence[SavedTurn],
) -> SavedChat:
    """The open chat for export."""
    now = time.time()
    info = ChatInfo(
        id=chat_id,
        title=title or (label(turns[0].content)[:60] if turns else "Chat"),
        created=now,
        updated=now,
        model=status.model if status else "",
        draft=(status.draft or "") if status else "",
        n_turns=len(turns),
        parent="",
    )
    return SavedChat(info, chat.system, {}, list(turns))
