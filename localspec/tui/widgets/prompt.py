"""Where the question is written."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from localspec.terminal import label


class Completions(OptionList, can_focus=False):
    """What a half-typed command may become; it stays above the prompt and takes no focus."""

    DEFAULT_CSS = """
    Completions { height: auto; max-height: 8; border: none; padding: 0 1; display: none; }
    Completions { background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def offer(self, items: list[tuple[str, str]]) -> None:
        """Show (text, what it does); nothing when there are none."""
        if not items and not self.display:
            return  # as for nearly every key
        self.clear_options()
        self.display = bool(items)
        self._texts = [text for text, _ in items]
        self.add_options(
            [
                Option(Content.assemble((f"{label(text):<16}", "bold"), f" {label(note)}"))
                for text, note in items
            ]
        )
        if items:
            self.highlighted = 0

    @property
    def chosen(self) -> str | None:
        """The text that is marked, None when nothing is offered."""
        if not self.display or self.highlighted is None:
            return None
        return self._texts[self.highlighted]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click takes it."""
        event.stop()
        self.post_message(self.Taken(self._texts[event.option_index]))

    class Taken(Message):
        """A completion was clicked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text


class Queue(Static):
    """Questions and files that wait for their turn."""

    DEFAULT_CSS = """
    Queue { height: auto; max-height: 4; padding: 0 2; color: $text-warning; display: none; }
    """

    def show(self, questions: list[str], files: list[str]) -> None:
        """One line for each."""
        lines = [f"Queued: {label(' '.join(text.split()))[:200]}" for text in questions]
        if files:
            lines.append("Attached: " + ", ".join(label(name) for name in files))
        self.display = bool(lines)
        self.update(Content("\n".join(lines)))


class Prompt(TextArea):
    """Enter sends; Shift+Enter and Ctrl+J begin a new line; a paste stays whole."""

    class Sent(Message):
        """The user sends ``text``."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Wanted(Message):
        """The user wants ``what``: the editor, an older or newer question, to stop."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send"),
        Binding("shift+enter,ctrl+j,alt+enter", "new_line", "New line", key_display="^j"),
    ]
    DEFAULT_CSS = """
    Prompt { height: auto; min-height: 3; max-height: 9; padding: 0 1; }
    Prompt { border: round $border-blurred; background: $background; }
    Prompt:focus { border: round $primary; }
    """

    def __init__(self, completions: Completions, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, soft_wrap=True, tab_behavior="focus", placeholder="Ask anything")
        self.cursor_blink = False
        self._completions = completions
        self._is_chord = False

    # -- keys -------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if self._is_chord:
            self._is_chord = False
            if event.key in ("ctrl+e", "e"):
                event.stop()
                event.prevent_default()
                self.post_message(self.Wanted("editor"))
                return
        # Here and not as priority bindings, which the app would run before the letters that were
        # typed ahead of them have arrived.
        action = {
            "enter": self.action_send,
            "ctrl+x": self.action_chord,
            "up": self.action_older,
            "down": self.action_newer,
        }.get(event.key)
        if self._completions.display:
            if event.key == "tab":
                action = self.action_complete
            elif event.key == "escape":
                action = self.action_close
        if action is not None:
            event.stop()
            event.prevent_default()
            action()

    def action_send(self) -> None:
        """Send the text, or take a completion that adds something to it."""
        self._is_chord = False
        chosen = self._completions.chosen
        if chosen is not None and chosen.strip() != self.text.strip():
            self.take(chosen)
            return
        text = self.text
        if text.strip():
            self.take("")  # now: what is typed after it belongs to the next question
            self.post_message(self.Sent(text))

    def action_new_line(self) -> None:
        """Begin a new line."""
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_chord(self) -> None:
        """Ctrl+X cuts a selection; without one it waits for Ctrl+E."""
        if self.selected_text:
            self.action_cut()
            return
        self._is_chord = True

    def action_close(self) -> None:
        """Take no completion."""
        self._completions.offer([])

    def action_complete(self) -> None:
        """Take the completion."""
        chosen = self._completions.chosen
        if chosen is not None:
            self.take(chosen)

    def action_older(self) -> None:
        """Up: through completions, through the text, then to older questions."""
        if self._completions.display:
            self._completions.action_cursor_up()
        elif self.cursor_at_first_line:
            self.post_message(self.Wanted("older"))
        else:
            self.action_cursor_up()

    def action_newer(self) -> None:
        """Down, likewise."""
        if self._completions.display:
            self._completions.action_cursor_down()
        elif self.cursor_at_last_line:
            self.post_message(self.Wanted("newer"))
        else:
            self.action_cursor_down()

    # -- text -------------------------------------------------------------------------------------

    def take(self, text: str) -> None:
        """Put ``text`` in place of what is there, the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        # Terminals send line ends as they like; control characters have no place in a question.
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)
        self.focus()
