"""The scrolling list of turns: the newest ones, and earlier ones when somebody scrolls to them, so
that a long chat costs no more to draw than a short one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localspec.terminal import clean
from localspec.tui.turns import Run, Turn
from localspec.tui.widgets.growing import Growing
from localspec.tui.widgets.message import MessageView

MOUNTED = 24
"""How many turns are on the screen at most, unless the user asks for earlier ones."""
MORE = 20
"""How many earlier turns each request brings."""
MAX_NOTES = 10
"""How many notes between the turns stay."""


class Earlier(Static, can_focus=True):
    """The line above the first turn that is shown."""

    class Pressed(Message):
        """Earlier turns are wanted."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "press", "Show earlier")]

    def action_press(self) -> None:
        """Ask for earlier turns."""
        self.post_message(self.Pressed())

    def on_click(self) -> None:
        self.action_press()


class ConversationView(VerticalScroll, Growing, can_focus=False):
    """Follows the end until the user scrolls away, and again when they come back to it."""

    class Following(Message):
        """Whether the view follows the end has changed."""

    DEFAULT_CSS = """
    ConversationView { height: 1fr; scrollbar-size-vertical: 1; padding: 0; }
    ConversationView > Earlier { height: 1; margin-bottom: 1; text-align: center; }
    ConversationView > Earlier { color: $muted; }
    ConversationView > Earlier:focus { text-style: reverse; }
    ConversationView > .note { height: auto; color: $text-warning; padding: 0 2; margin-bottom: 1; }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._turns: list[Turn] = []
        self._first = 0
        self._views: dict[int, MessageView] = {}
        self.is_coloured = False
        self._was_following = True

    def on_mount(self) -> None:
        self.anchor()

    @property
    def is_following(self) -> bool:
        """Whether new text keeps the end in view."""
        return not self._anchor_released

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._anchor_released = False
        self.scroll_end(animate=False, immediate=True)
        self._tell_following()

    def view_of(self, turn: Turn) -> MessageView | None:
        """The widget of ``turn``, None while it is not on the screen."""
        return self._views.get(turn.id)

    @property
    def views(self) -> list[MessageView]:
        """The turns that are on the screen, from the top."""
        return [self._views[t.id] for t in self._turns[self._first :] if t.id in self._views]

    async def show(self, turns: Sequence[Turn], *, coloured: bool) -> None:
        """Show another chat."""
        self._turns, self.is_coloured = list(turns), coloured
        self._first = max(0, len(self._turns) - MOUNTED)
        self._views.clear()
        await self.remove_children()
        await self._mount(self._turns[self._first :])
        self.follow()

    async def add(self, turn: Turn) -> None:
        """A new turn at the end; the oldest leave the screen if nobody is reading there."""
        self._turns.append(turn)
        await self._mount([turn])
        self._forget_far_lines()
        n_over = len(self._turns) - self._first - MOUNTED
        if n_over > 0 and self.is_following:
            await self._unmount(self._turns[self._first : self._first + n_over])
            self._first += n_over
            await self._show_earlier()

    async def cut(self, turns: Sequence[Turn]) -> None:
        """``turns``, the last ones, are gone."""
        gone = {turn.id for turn in turns}
        self._turns = [turn for turn in self._turns if turn.id not in gone]
        await self._unmount(turns)
        if self._first and len(self._turns) - self._first < MOUNTED // 2:
            await self.more()

    async def more(self) -> None:
        """Bring earlier turns."""
        first = max(0, self._first - MORE)
        turns, self._first = self._turns[first : self._first], first
        before = next(iter(self.query(MessageView)), None)
        for turn in turns:
            self._views[turn.id] = MessageView(turn, coloured=self.is_coloured)
        if turns:
            await self.mount_all([self._views[turn.id] for turn in turns], before=before)
        await self._show_earlier()

    async def on_earlier_pressed(self, event: Earlier.Pressed) -> None:
        event.stop()
        await self.more()

    async def write(self, turn: Turn, runs: Sequence[Run]) -> None:
        """More text of ``turn``."""
        view = self._views.get(turn.id)
        if view is not None:
            await view.write(runs)

    async def finish(self, turn: Turn) -> None:
        """``turn`` is over."""
        view = self._views.get(turn.id)
        if view is not None:
            await view.finish()

    async def note(self, text: str) -> None:
        """A line in the chat that is not part of it."""
        old = list(self.query(".note"))[: -MAX_NOTES + 1]
        await self.remove_children(old)
        await self.mount(Static(Content(clean(text)), classes="note"))

    async def recolour(self, coloured: bool) -> None:
        """Show all answers the other way."""
        self.is_coloured = coloured
        for view in self.views:
            await view.recolour(coloured)

    async def _mount(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self._views[turn.id] = MessageView(turn, coloured=self.is_coloured)
        if turns:
            await self.mount_all([self._views[turn.id] for turn in turns])
        await self._show_earlier()

    async def _unmount(self, turns: Sequence[Turn]) -> None:
        views = [view for t in turns if (view := self._views.pop(t.id, None)) is not None]
        if views:
            parts = [part for view in views for part in view.walk_children(Widget, with_self=True)]
            await self.remove_children(views)
            _forget_lines(parts)

    def _forget_far_lines(self) -> None:
        """Drop the drawn lines of turns more than a screen above what is seen: they are most of the
        objects of a long chat. They are drawn again when somebody scrolls there."""
        top = self.scroll_y - self.size.height
        for view in self.views:
            if view.virtual_region.bottom < top:
                _forget_lines(view.walk_children(Widget, with_self=True))

    async def _show_earlier(self) -> None:
        line = next(iter(self.query(Earlier)), None)
        if not self._first:
            if line is not None:
                await line.remove()
            return
        if line is None:
            line = Earlier()
            await self.mount(line, before=0)
        line.update(Content(f"↑ {self._first:,} earlier messages (Enter)"))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tell the app when following ends or begins."""
        super().watch_scroll_y(old_value, new_value)
        self._tell_following()
        if self._first and not self.is_following and new_value <= 0 < old_value:
            self.call_next(self._earlier)

    async def _earlier(self) -> None:
        """Whoever scrolls to the top finds more there, and stays where they were."""
        views = self.views
        if not self._first or not views:
            return
        await self.more()
        self.call_after_refresh(self.scroll_to_widget, views[0], animate=False, top=True)

    def _tell_following(self) -> None:
        if self.is_following != self._was_following:
            self._was_following = self.is_following
            self.post_message(self.Following())


def _forget_lines(widgets: Sequence[Widget]) -> None:
    """Drop the drawn lines of ``widgets``. Those of widgets that are gone too: Textual remembers
    colours by the object that has these lines, of a thousand widgets, and so would keep them for
    hundreds of turns."""
    for widget in widgets:
        widget._set_dirty()
        widget._render_cache.lines.clear()
