"""Text that is shown as it is, in pieces, so that a long one costs no more per word than a short
one."""

from __future__ import annotations

from collections.abc import Sequence

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.terminal import clean
from localspec.tui.drawing import origin_style
from localspec.tui.turns import Run
from localspec.tui.widgets.growing import Growing

CHUNK = 1_200
"""Characters after which a new widget begins at the next line."""
LONGEST = 4_000
"""Characters after which it begins at the next space."""


class Chunks(Vertical, Growing):
    """Grows at its end; only the last of its parts is drawn again."""

    DEFAULT_CSS = """
    Chunks { height: auto; }
    Chunks > Static { height: auto; }
    """

    def __init__(self, runs: Sequence[Run] = (), *, classes: str | None = None) -> None:
        self._part = Content("")
        self._last: Static | None = None
        super().__init__(*self._parts(runs), classes=classes)

    def add(self, runs: Sequence[Run]) -> None:
        """Append ``runs``, each in the look of its origin."""
        new = self._parts(runs)
        if new:
            self.mount_all(new)

    def _parts(self, runs: Sequence[Run]) -> list[Static]:
        """Put ``runs`` into the last part and as many new ones as it takes, which are returned."""
        new: list[Static] = []
        for run in runs:
            for piece in _pieces(clean(run.text)):
                if self._last is None or self._is_full(piece):
                    self._draw()
                    self._part = Content("")
                    self._last = Static(Content(""))
                    new.append(self._last)
                self._part = self._part.append_text(piece, origin_style(run.origin))
        self._draw()
        return new

    def _draw(self) -> None:
        if self._last is not None:
            ends_line = self._part.plain.endswith("\n")
            self._last.update(self._part.right_crop(1) if ends_line else self._part)

    def _is_full(self, piece: str) -> bool:
        text = self._part.plain
        if len(text) >= CHUNK and text.endswith("\n"):
            return True
        return len(text) >= LONGEST and (text[-1:].isspace() or piece[:1].isspace())


def _pieces(text: str) -> list[str]:
    """Lines with their ends, none longer than a part may be."""
    lines = text.splitlines(keepends=True) if "\n" in text else [text]
    return [
        line[start : start + LONGEST] for line in lines for start in range(0, len(line), LONGEST)
    ]
