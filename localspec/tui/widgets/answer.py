"""The text of an answer while it grows: Markdown, thinking folded, or every word in its colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.tui.segments import Add, Begin, Op, Segmenter
from localspec.tui.turns import Run, Turn
from localspec.tui.widgets.growing import Growing
from localspec.tui.widgets.markdown import MarkdownPart
from localspec.tui.widgets.text import Chunks


class Thinking(Vertical, Growing, can_focus=True):
    """A thinking block: one line, until it is unfolded."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "unfold", "Unfold/fold")]
    DEFAULT_CSS = """
    Thinking { height: auto; margin: 0 2 1 2; color: $muted; }
    Thinking > .title { height: 1; }
    Thinking:focus > .title { text-style: reverse; }
    Thinking > Chunks { border-left: tall $border-blurred; padding-left: 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []
        self._n_words = 0
        self._is_over = False
        self._title = Static(classes="title")
        self._body: Chunks | None = None

    def compose(self) -> ComposeResult:
        yield self._title

    def on_mount(self) -> None:
        self._show()

    def add(self, text: str) -> None:
        """More of it; drawn only when it is unfolded."""
        self._pieces.append(text)
        self._n_words += len(text.split())
        if self._body is not None:
            self._body.add([Run("plain", text)])
        self._show()

    def end(self) -> None:
        """The thinking is over."""
        self._is_over = True
        self._show()

    @property
    def is_folded(self) -> bool:
        """Whether only the title is shown."""
        return self._body is None

    async def action_unfold(self) -> None:
        """Fold or unfold."""
        if self._body is not None:
            body, self._body = self._body, None
            await body.remove()
        else:
            self._body = Chunks([Run("plain", "".join(self._pieces))])
            await self.mount(self._body)
        self._show()

    async def on_click(self) -> None:
        await self.action_unfold()

    def _show(self) -> None:
        mark = "▸" if self.is_folded else "▾"
        doing = "Thought" if self._is_over else "Thinking"
        self._title.update(Content(f"{mark} {doing}, about {self._n_words:,} words"))


class AnswerBody(Vertical, Growing):
    """Shows a turn's text. ``coloured``: as plain text in the looks of its origins."""

    DEFAULT_CSS = """
    AnswerBody { height: auto; }
    AnswerBody > Chunks { padding: 0 2; margin-bottom: 1; }
    """

    def __init__(self, turn: Turn, *, coloured: bool = False) -> None:
        super().__init__()
        self._turn = turn
        self._is_coloured = coloured
        self._segmenter: Segmenter | None = None
        self._part: MarkdownPart | Thinking | Chunks | None = None
        self._start = [Run(run.origin, run.text) for run in turn.runs]
        self._is_over = not turn.is_running
        self.n_updates = 0
        """How often something was drawn, for those who watch over the cost."""

    async def on_mount(self) -> None:
        start, self._start = self._start, []
        if start:
            await self._write(start)
        if self._is_over:
            await self.finish()

    async def write(self, runs: Sequence[Run]) -> None:
        """Append ``runs``."""
        if self.is_mounted and not self._start:
            await self._write(runs)
        else:
            self._start += runs

    async def _write(self, runs: Sequence[Run]) -> None:
        self.n_updates += 1
        if not self._is_coloured:
            await self._apply(self._segments().push("".join(run.text for run in runs)))
            return
        if not isinstance(self._part, Chunks):
            self._part = Chunks()
            await self.mount(self._part)
        self._part.add(runs)

    async def finish(self) -> None:
        """Nothing more will come."""
        if self._segmenter is not None:
            await self._apply(self._segmenter.finish())
        self._end_part()

    async def unfold_all(self) -> None:
        """Unfold the thinking blocks, or fold them if all are unfolded."""
        blocks = list(self.query(Thinking))
        wanted = not any(block.is_folded for block in blocks)
        for block in blocks:
            if block.is_folded != wanted:
                await block.action_unfold()

    def _segments(self) -> Segmenter:
        # Not before there is text: only then is it known whether it begins with thinking.
        if self._segmenter is None:
            self._segmenter = Segmenter(is_thinking=self._turn.is_thinking)
        return self._segmenter

    async def _apply(self, ops: Sequence[Op]) -> None:
        new: list[MarkdownPart | Thinking] = []
        for op in _joined(ops):
            if isinstance(op, Begin):
                self._end_part()
                is_text = op.kind == "text"
                self._part = MarkdownPart(goes_on=op.goes_on) if is_text else Thinking()
                new.append(self._part)
            elif isinstance(self._part, (Thinking, MarkdownPart)):
                self._part.add(op.text)
        if new:
            await self.mount_all(new)

    def _end_part(self) -> None:
        if isinstance(self._part, Thinking):
            self._part.end()


def _joined(ops: Sequence[Op]) -> list[Op]:
    """Neighbouring additions as one."""
    found: list[Op] = []
    for op in ops:
        if isinstance(op, Add) and found and isinstance(found[-1], Add):
            found[-1] = Add(found[-1].text + op.text)
        else:
            found.append(op)
    return found
