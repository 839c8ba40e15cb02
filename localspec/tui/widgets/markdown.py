"""A segment of an answer on the screen."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static


_SIDES = 3  # cells left and right of the text


def render(text: str, width: int) -> Content:
    """``localspec.tui.markdown.render``. The parser and the highlighter are imported when something
    is drawn, or ``prepare`` was called: the first picture of the chat needs neither."""
    from localspec.tui import markdown  # noqa: PLC0415

    return markdown.render(text, width)


def prepare() -> None:
    """Have everything imported that ``render`` needs, code in colours included."""
    render("```python\nx\n```", 80)


class MarkdownPart(Static):
    """Markdown that grows; each addition draws this segment again, and nothing else."""

    DEFAULT_CSS = """
    MarkdownPart { height: auto; padding: 0 1 0 2; margin-bottom: 1; }
    MarkdownPart.goes-on { margin-top: -1; }
    """

    def __init__(self, text: str = "", *, goes_on: bool = False) -> None:
        super().__init__(Content(""), classes="goes-on" if goes_on else None)
        self.text = text
        """Its Markdown."""
        self._width = self._n_lines = 0

    def on_mount(self) -> None:
        # A first guess, so that most parts are laid out only once.
        parent = self.parent
        width = parent.outer_size.width if isinstance(parent, Widget) else 0
        self._draw((width or self.app.size.width) - _SIDES)

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._draw(event.size.width)

    def add(self, text: str) -> None:
        """Append ``text``."""
        self.text += text
        if self._width:
            self._draw(self._width)

    def _draw(self, width: int) -> None:
        new = render(self.text, width)
        # Only another number of lines moves anything else on the screen.
        n_lines = new.plain.count("\n")
        is_same = self._width == width and self._n_lines == n_lines
        self._width, self._n_lines = width, n_lines
        self.update(new, layout=not is_same)
