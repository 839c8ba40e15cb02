"""The speculation panel, and the line that takes its place where it has no room."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localspec.tui.drawing import PanelData, panel, status_line

WIDTH = 38


class SpeculationPanel(VerticalScroll, can_focus=False):
    """Everything about drafting, live."""

    DEFAULT_CSS = f"""
    SpeculationPanel {{ width: {WIDTH}; height: 1fr; padding: 0 1; display: none; }}
    SpeculationPanel {{ border-left: solid $border-blurred; scrollbar-size-vertical: 1; }}
    SpeculationPanel.shown {{ display: block; }}
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._n_lines = 0
        self._reason = ""

    def compose(self) -> ComposeResult:
        yield Static(Content(""), id="panel-text")

    def show(self, data: PanelData) -> None:
        """Draw ``data``."""
        if self.display:
            new = panel(data, WIDTH - 4, self.outer_size.height or self.app.size.height)
            static = self.query_one("#panel-text", Static)
            n_lines = new.plain.count("\n")
            # Within the same lines nothing moves. (The reason, which may wrap, is on one of them.)
            is_same = n_lines == self._n_lines and data.reason == self._reason
            self._n_lines, self._reason = n_lines, data.reason
            static.update(new, layout=not is_same)

    @property
    def text(self) -> str:
        """What it says now."""
        return str(self.query_one("#panel-text", Static).content)


class StatusLine(Static):
    """The same on one line."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; background: $panel; color: $foreground; }
    """

    def show(self, data: PanelData) -> None:
        """Draw ``data``."""
        width = max(20, self.app.size.width - 2)
        self.update(status_line(data, width), layout=False)
