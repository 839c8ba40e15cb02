"""Small windows above the chat: help, a list to choose from, a line to type, a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.table import Table
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.terminal import clean, label
from localspec.tui.widgets.footer import KeyLine

_CSS = """
    align: center middle;
    & > Vertical { width: 80%; max-width: 90; min-width: 40; height: auto; max-height: 90%; }
    & > Vertical { border: round $primary; background: $surface; padding: 0 1; }
    & .title { text-style: bold; height: auto; }
    & .hint { color: $muted; height: auto; }
    & OptionList { height: auto; max-height: 16; border: none; background: $surface; }
    & OptionList:focus { border: none; }
    & Input { border: round $border-blurred; background: $surface; }
    & Input:focus { border: round $primary; }
    & VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
"""


class TextDialog(ModalScreen[None]):
    """A text to read."""

    DEFAULT_CSS = f"TextDialog {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,enter", "dismiss", "Close", key_display="Esc")
    ]

    def __init__(self, title: str, text: Content | Table) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(label(self._title)), classes="title")
            with VerticalScroll():
                yield Static(self._text)
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a list: what it is called, what is said about it, what choosing it gives."""

    text: str
    note: str
    value: str


class Pick(ModalScreen[str | None]):
    """Choose one of ``items``, narrowed by typing; gives its value, None when left."""

    DEFAULT_CSS = f"Pick {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Close"),
        Binding("down", "move(1)", "Next", show=False, priority=True),
        Binding("up", "move(-1)", "Previous", show=False, priority=True),
    ]
    MOST = 200

    def __init__(self, title: str, items: Sequence[Item]) -> None:
        super().__init__()
        self._title, self._items = title, list(items)
        self._shown: list[Item] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(label(self._title)), classes="title")
            yield Input(placeholder="Type to search", select_on_focus=False)
            yield OptionList(markup=False)
        yield KeyLine()

    def on_mount(self) -> None:
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def _fill(self, query: str) -> None:
        words = query.casefold().split()
        self._shown = [
            item
            for item in self._items
            if all(word in f"{item.text} {item.note}".casefold() for word in words)
        ][: self.MOST]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(
            [
                Option(Content.assemble(label(item.text), (f"  {label(item.note)}", "$muted")))
                for item in self._shown
            ]
        )
        listed.highlighted = 0 if self._shown else None

    def action_move(self, n: int) -> None:
        """Up or down the list, from the input."""
        listed = self.query_one(OptionList)
        if n > 0:
            listed.action_cursor_down()
        else:
            listed.action_cursor_up()

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)

    def on_input_submitted(self) -> None:
        place = self.query_one(OptionList).highlighted
        self.dismiss(self._shown[place].value if place is not None and self._shown else None)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index].value)


class Line(ModalScreen[str | None]):
    """Type one line; None when left."""

    DEFAULT_CSS = f"Line {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close")]

    def __init__(self, title: str, value: str = "") -> None:
        super().__init__()
        self._title, self._value = title, value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(label(self._title)), classes="title")
            yield Input(value=label(self._value))
        yield KeyLine()

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Confirm(ModalScreen[bool]):
    """A yes-or-no question; Enter and y say yes."""

    DEFAULT_CSS = f"Confirm {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(clean(self._text)))
            yield Static(Content("Enter or y: yes    Esc or n: no"), classes="hint")
        yield KeyLine()

    def action_answer(self, answer: bool) -> None:
        """Take the answer."""
        self.dismiss(answer)
