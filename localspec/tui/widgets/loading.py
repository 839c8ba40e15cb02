"""What is shown until there is a model: what is being done, how far it is, what was decided."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.terminal import clean, duration, label, size
from localspec.tui.drawing import gauge
from localspec.tui.terminalio import FIRST_WORDS

_MAX_NOTES = 6


class LoadingView(Vertical):
    """Progress of opening a session, then gone; an error stays until the next attempt."""

    DEFAULT_CSS = """
    LoadingView { height: auto; max-height: 60%; padding: 1 2; }
    LoadingView { border: round $border-blurred; margin: 1 2; }
    LoadingView > .head { text-style: bold; height: auto; }
    LoadingView > .done { color: $muted; height: auto; }
    LoadingView > .error { color: $text-error; height: auto; }
    """

    def __init__(self, *, id: str, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: A002
        super().__init__(id=id)
        self._clock = clock
        self._head = Static(Content(FIRST_WORDS), classes="head")
        self._bar = Static(Content(""))
        self._plan = Static(Content(""), classes="done")
        self._plan.display = False
        self._notes = Static(Content(""), classes="done")
        self._error = Static(Content(""), classes="error")
        self._lines: list[str] = []
        self._label = ""
        self._total: int | None = None
        self._n_done = 0
        self._since = 0.0

    def compose(self) -> ComposeResult:
        yield from (self._head, self._bar, self._plan, self._notes, self._error)

    def restart(self, what: str) -> None:
        """A new attempt begins."""
        self.display = True
        self._lines.clear()
        self._head.update(Content(what))
        self._plan.display = False
        for part in (self._bar, self._notes, self._error):
            part.update(Content(""))

    def start(self, what: str, total: int | None) -> None:
        """A piece of work of ``total`` bytes begins."""
        self._label, self._total, self._n_done, self._since = what, total, 0, self._clock()
        self._head.update(Content(label(what)))
        self._draw()

    def advance(self, n: int) -> None:
        """``n`` more bytes of it."""
        self._n_done += n
        self._draw()

    def finish(self) -> None:
        """It is over."""
        if self._label and self._total:
            self.note(f"✓ {self._label}, {size(self._total)}")
        self._label, self._total = "", None
        self._bar.update(Content(""))

    def note(self, text: str) -> None:
        """A line that stays."""
        self._lines = [*self._lines, label(text)][-_MAX_NOTES:]
        self._notes.update(Content("\n".join(self._lines)))

    def plan(self, text: str) -> None:
        """What will be loaded, in place of an earlier plan."""
        self._plan.update(Content(clean(text)))
        self._plan.display = True

    def fail(self, message: str, hint: str) -> None:
        """No model: say why and what can be done."""
        self.display = True
        self._lines.clear()
        self._plan.display = False
        self._notes.update(Content(""))
        self._head.update(Content("No model is loaded"))
        self._bar.update(Content(""))
        text = clean(message) + (f"\n{clean(hint)}" if hint else "")
        self._error.update(Content(text))

    def _draw(self) -> None:
        if not self._total:
            text = size(self._n_done) if self._n_done else ""
        else:
            share = min(1.0, self._n_done / self._total)
            text = f"{gauge(share, 24)} {share:4.0%} of {size(self._total)}"
            passed = self._clock() - self._since
            if passed > 2 and 0 < share < 1:
                text += f", about {duration(passed * (1 - share) / share)} left"
        self._bar.update(Content(text))
