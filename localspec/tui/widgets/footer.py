"""The keys that mean something now, on one line.

Textual's own footer makes a widget for each key anew whenever one of them changes and keeps them
all, which in a chat of hundreds of answers is most of what the view would need of memory.
"""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static


class KeyLine(Static):
    """Shows the active bindings of its screen, as many as there is room for; a click presses one.
    ``n_updates`` counts how often it was drawn, for those who watch over the cost."""

    DEFAULT_CSS = """
    KeyLine { dock: bottom; height: 1; background: $panel; color: $foreground; }
    KeyLine { text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__(Content(""))
        self._places: list[tuple[int, int, str]] = []
        """(first cell, cell after the last, key) of what is shown."""
        self.n_updates = 0

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)
        self.call_after_refresh(self._draw)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Press the key that was clicked."""
        for start, end, key in self._places:
            if start <= event.x < end:
                self.app.simulate_key(key)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen and screen.app.app_focus:
            self._draw()

    def _draw(self) -> None:
        width = self.size.width
        line, n_cells, places = Content(""), 0, []
        seen: set[str] = set()
        for _, binding, is_enabled, _ in self.screen.active_bindings.values():
            if not binding.show or not is_enabled or binding.action in seen:
                continue
            seen.add(binding.action)
            key = f" {self.app.get_key_display(binding)} "
            part = Content.assemble((key, "bold $footer-key-foreground"), f"{binding.description} ")
            if n_cells + part.cell_length > width:
                break
            places.append((n_cells, n_cells + part.cell_length, binding.key))
            line, n_cells = line + part, n_cells + part.cell_length
        self._places = places
        if line != self.content:
            self.n_updates += 1
            self.update(line, layout=False)
