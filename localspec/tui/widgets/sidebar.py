"""Saved chats at the side: search, open, rename, fork, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.sessions_types import ChatInfo
from localspec.terminal import label


class _List(OptionList):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Open"),
        Binding("r", "want('rename')", "Rename"),
        Binding("f", "want('fork')", "Fork"),
        Binding("d,delete", "want('delete')", "Delete", key_display="d"),
    ]

    def action_want(self, what: str) -> None:
        """Ask the app to do ``what`` with the marked chat."""
        if self.highlighted is not None:
            chat_id = self.get_option_at_index(self.highlighted).id
            if chat_id:
                self.post_message(Sidebar.Wanted(what, chat_id))


class Sidebar(Vertical):
    """Typing in its search line asks for another list."""

    class Wanted(Message):
        """``what`` (open, rename, fork, delete) is to be done with a saved chat."""

        def __init__(self, what: str, chat_id: str) -> None:
            super().__init__()
            self.what, self.chat_id = what, chat_id

    class Searched(Message):
        """Another list is wanted."""

    DEFAULT_CSS = """
    Sidebar { width: 34; height: 1fr; display: none; padding: 0 1; }
    Sidebar { border-right: solid $border-blurred; }
    Sidebar.shown { display: block; }
    Sidebar > .title { text-style: bold; color: $text-primary; }
    Sidebar > Input { border: round $border-blurred; background: $background; }
    Sidebar > Input:focus { border: round $primary; }
    Sidebar > OptionList { height: 1fr; border: none; padding: 0; background: $background; }
    Sidebar > OptionList:focus { border: none; }
    """

    def compose(self) -> ComposeResult:
        yield Static(Content("Saved chats"), classes="title")
        yield Input(placeholder="Search", id="chat-search")
        yield _List(markup=False)

    def show(self, chats: Sequence[ChatInfo], current: str) -> None:
        """List ``chats``; ``current`` is the open one."""
        listed = self.query_one(_List)
        place = listed.highlighted or 0
        marked = listed.get_option_at_index(place).id if listed.option_count else None
        listed.clear_options()
        for chat in chats:
            when = datetime.fromtimestamp(chat.updated).strftime("%d %b %H:%M")
            mark = "• " if chat.id == current else "  "
            text = Content.assemble(
                f"{mark}{label(chat.title) or chat.id}\n",
                (f"  {when}, {chat.n_turns} turns", "$muted"),
            )
            listed.add_option(Option(text, id=chat.id))
        if chats:
            ids = [chat.id for chat in chats]
            listed.highlighted = ids.index(marked) if marked in ids else min(place, len(ids) - 1)

    @property
    def searched(self) -> str:
        """What is in the search line."""
        return self.query_one(Input).value

    def focus_list(self) -> None:
        """Keys go to the list."""
        self.query_one(_List).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_list()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id:
            self.post_message(self.Wanted("open", event.option.id))
