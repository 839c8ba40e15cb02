"""One turn on the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from localspec.terminal import clean, duration
from localspec.tui.drawing import answer_line
from localspec.tui.turns import Run, Turn
from localspec.tui.widgets.answer import AnswerBody
from localspec.tui.widgets.growing import Growing

_SHOWN = 4_000
"""Characters of a question that are shown; files that were attached may be long."""
_CODE = re.compile(r"^ *(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ *\1[`~]* *$|\Z)", re.MULTILINE | re.DOTALL)


def code_blocks(text: str) -> list[str]:
    """What stands in the fenced code blocks of ``text``."""
    return [found[2].removesuffix("\n") for found in _CODE.finditer(text)]


class MessageView(Vertical, Growing, can_focus=True):
    """A question or an answer; keys act on it while it has the focus."""

    class Wanted(Message):
        """The user wants ``what`` to be done with a turn."""

        def __init__(self, what: str, turn: Turn) -> None:
            super().__init__()
            self.what, self.turn = what, turn

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "want('copy')", "Copy"),
        Binding("k", "want('code')", "Copy code"),
        Binding("r", "want('regenerate')", "Regenerate"),
        Binding("e", "want('edit')", "Edit"),
        Binding("d", "want('delete')", "Delete"),
        Binding("f", "want('fork')", "Fork here"),
        Binding("t", "thinking", "Thinking"),
        Binding("up", "want('previous')", "Previous", show=False),
        Binding("down", "want('next')", "Next", show=False),
    ]
    DEFAULT_CSS = """
    MessageView { height: auto; border-left: blank; padding: 0; margin: 0; }
    MessageView:focus { border-left: outer $primary; background: $surface; }
    MessageView > .who { height: 1; padding: 0 1; text-style: bold; }
    MessageView.user > .who { color: $text-primary; }
    MessageView.assistant > .who { color: $text-success; }
    MessageView > .asked { padding: 0 2; margin-bottom: 1; height: auto; }
    MessageView > .foot { padding: 0 2; margin-bottom: 1; height: auto; color: $muted; }
    MessageView > .error { padding: 0 2; margin-bottom: 1; height: auto; color: $text-error; }
    """

    def __init__(self, turn: Turn, *, coloured: bool = False) -> None:
        super().__init__(classes=turn.role)
        self.turn = turn
        self._is_coloured = coloured
        self._foot = Static(classes="foot")
        self._foot.display = False
        self._foot_text = ""
        self.body: AnswerBody | None = None

    def compose(self) -> ComposeResult:
        yield Static(Content("You" if self.turn.role == "user" else "Answer"), classes="who")
        if self.turn.role == "user":
            yield Static(_question(self.turn.text), classes="asked")
            return
        self.body = AnswerBody(self.turn, coloured=self._is_coloured)
        yield self.body
        yield self._foot

    def on_mount(self) -> None:
        self.refresh_foot()

    async def write(self, runs: Sequence[Run]) -> None:
        """More text of the answer."""
        if self.body is not None:
            await self.body.write(runs)

    async def finish(self) -> None:
        """The answer is over."""
        if self.body is not None:
            await self.body.finish()
        self.refresh_foot()

    async def recolour(self, coloured: bool) -> None:
        """Show the text in the other way."""
        if self.body is None or coloured == self._is_coloured:
            return
        self._is_coloured = coloured
        old, self.body = self.body, AnswerBody(self.turn, coloured=coloured)
        await self.mount(self.body, before=self._foot)
        await old.remove()

    def refresh_foot(self) -> None:
        """The line below the answer: what is going on, or its numbers."""
        text = foot(self.turn)
        if text == self._foot_text:
            return
        self._foot_text = text
        self._foot.display = bool(text)
        self._foot.set_class(self.turn.state == "failed", "error")
        self._foot.update(Content(text))

    def action_want(self, what: str) -> None:
        """Ask the app."""
        self.post_message(self.Wanted(what, self.turn))

    async def action_thinking(self) -> None:
        """Fold or unfold the thinking blocks."""
        if self.body is not None:
            await self.body.unfold_all()


def _question(text: str) -> Content:
    shown = clean(text).strip("\n")
    if len(shown) > _SHOWN:
        n_more = len(shown) - _SHOWN
        shown = f"{shown[:_SHOWN]}\n… {n_more:,} more characters"
    return Content(shown)


def foot(turn: Turn) -> str:
    """What the line below an answer says; empty for nothing."""
    if turn.is_stopping and turn.is_running:
        return "stopping …"
    match turn.state:
        case "waiting":
            return "waiting …"
        case "writing":
            return ""  # the panel has its numbers, live
        case "reading" if turn.prefill is not None:
            return reading(turn)
        case "failed":
            return clean(turn.error)
    parts = [answer_line(turn.stats)] if turn.stats is not None and turn.stats.n_tokens else []
    if turn.state == "stopped":
        parts.append("stopped")
    elif turn.detail in ("max tokens", "context full"):
        parts.append(
            {"max tokens": "cut at the longest answer allowed"}.get(
                turn.detail, "cut: the context is full"
            )
        )
    return " · ".join(parts)


def reading(turn: Turn) -> str:
    """How far the prompt pass is, and how long it will take where that can be said."""
    assert turn.prefill is not None
    done, total, reused = turn.prefill.n_done, turn.prefill.n_total, turn.prefill.n_reused
    text = f"reading the prompt: {done:,} of {total:,} tokens"
    if turn.reading_s > 1.0 and done > reused:
        left = turn.reading_s * (total - done) / (done - reused)
        text += f", about {duration(left)} left"
    return text
