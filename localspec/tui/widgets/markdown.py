"""A segment of an answer on the screen."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from localspec.tui.widgets.growing import Growing


def render(text: str, width: int) -> Content:
    """``localspec.tui.markdown.render``. The parser and the highlighter are imported when something
    is drawn, or ``prepare`` was called: the first picture of the chat needs neither."""
    from localspec.tui import markdown  # noqa: PLC0415

    return markdown.render(text, width)


def prepare() -> None:
    """Have everything imported that ``render`` needs, code in colours included."""
    render("```python\nx\n```", 80)


class MarkdownPart(Growing):
    """Markdown that grows; each addition draws this segment again, and nothing else. Its lines are
    made for the width that the layout asks for, so it knows its height before it is drawn."""

    DEFAULT_CSS = """
    MarkdownPart { height: auto; padding: 0 1 0 2; margin-bottom: 1; }
    MarkdownPart.goes-on { margin-top: -1; }
    """

    def __init__(self, text: str = "", *, goes_on: bool = False) -> None:
        super().__init__(classes="goes-on" if goes_on else None)
        self.text = text
        """Its Markdown."""
        self._made: tuple[int, Content] | None = None
        """Width, and the lines for it."""

    def render(self) -> Content:
        """The lines for the width of now."""
        return self._lines(self.size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """How many lines there are at ``width``."""
        return _n_lines(self._lines(width))

    def add(self, text: str) -> None:
        """Append ``text``."""
        self.text += text
        old, self._made = self._made, None
        # Only another number of lines moves anything else on the screen.
        is_same = old is not None and _n_lines(self._lines(old[0])) == _n_lines(old[1])
        self.refresh(layout=not is_same)

    def _lines(self, width: int) -> Content:
        if self._made is None or self._made[0] != width:
            self._made = width, render(self.text, width)
        return self._made[1]


def _n_lines(content: Content) -> int:
    return content.plain.count("\n") + 1
