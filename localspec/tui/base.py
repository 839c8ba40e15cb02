"""What the chat view is made of: its state, its layout, and how it says things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from localspec.errors import LocalspecError
from localspec.sessions import Chats
from localspec.terminal import clean, label
from localspec.tui.drawing import PanelData
from localspec.tui.inference import Inference, Outbox
from localspec.tui.keeper import Keeper
from localspec.tui.settings import Settings
from localspec.tui.terminalio import Terminal
from localspec.tui.themes import DARK, LIGHT, THEMES
from localspec.tui.told import Opener, StatusLike
from localspec.tui.turns import Conversation, Turn
from localspec.tui.widgets.conversation import ConversationView
from localspec.tui.widgets.footer import KeyLine
from localspec.tui.widgets.loading import LoadingView
from localspec.tui.widgets.panel import SpeculationPanel, StatusLine
from localspec.tui.widgets.prompt import Completions, Prompt, Queue
from localspec.tui.widgets.sidebar import Sidebar

NARROW = 100
"""Columns below which the panel is one line and the sidebar covers the chat."""


class ChatBase(App[int]):
    """State and layout. ``opener`` makes sessions; ``chats`` None saves nothing. ``model_names``
    gives what can be completed after /model, and may take a while."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    TITLE = "localspec"

    class Arrived(Message):
        """The inference thread has something to tell."""

    def __init__(
        self,
        opener: Opener,
        settings: Settings,
        chats: Chats | None = None,
        *,
        resume: str | None = None,
        open_chats: Callable[[], Chats] | None = None,
        n_bytes_used: Callable[[], int] | None = None,
        model_names: Callable[[], list[str]] = list,
        terminal: Terminal | None = None,
        pace_s: float = 0.04,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.outbox = Outbox(lambda: self.post_message(self.Arrived()))
        self.inference = Inference(opener, self.outbox, n_bytes_used=n_bytes_used)
        self.keeper = Keeper(chats, lambda text: self.say(text, "warning"))
        self.open_chats = open_chats
        self.find_model_names = model_names
        self.resume = resume
        self.terminal = terminal or Terminal()
        self.pace_s = pace_s
        self.worked_s = 0.0
        self.panel_at = 0.0
        self.took_at = self.key_at = 0.0
        self.conversation = Conversation(settings.config.system or "")
        self.status: StatusLike | None = None
        self.is_loading = True
        self.running: Turn | None = None
        self.is_asking = False
        """A question is on its way to the screen and the model."""
        self.editing: Turn | None = None
        self.queued: list[str] = []
        self.attached: list[tuple[str, str]] = []
        """(name, text) of files for the next question."""
        self.when_idle: list[Callable[[], Awaitable[object]]] = []
        """What waits until the running answer has stopped."""
        self.panel_data = PanelData()
        self.history: list[str] = []
        self.history_place: int | None = None
        self.draft_text = ""
        self.model_names: list[str] = []
        self.is_folded = False
        self.n_columns = 0
        self.prompt_rate: float | None = None
        """Prompt tokens per second, as last measured."""
        self._begin_with_theme()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own colours, for themes that do not know them."""
        return dict(DARK.variables)

    def compose(self) -> ComposeResult:
        yield Static(Content("localspec"), id="title")
        with Horizontal(id="middle"):
            yield Sidebar(id="sidebar")
            with Vertical(id="main"):
                yield LoadingView(id="loading")
                yield ConversationView(id="conversation")
                yield Queue(id="queue")
                completions = Completions(id="completions")
                yield completions
                yield Prompt(completions, id="prompt")
            yield SpeculationPanel(id="panel")
        yield StatusLine(id="status")
        yield KeyLine()

    # -- parts ------------------------------------------------------------------------------------

    @property
    def view(self) -> ConversationView:
        """The turns on the screen."""
        return self.screen_stack[0].query_one("#conversation", ConversationView)

    @property
    def prompt(self) -> Prompt:
        """Where questions are written."""
        return self.screen_stack[0].query_one("#prompt", Prompt)

    @property
    def loading_view(self) -> LoadingView:
        """What is shown until there is a model."""
        return self.screen_stack[0].query_one("#loading", LoadingView)

    @property
    def sidebar(self) -> Sidebar:
        """Saved chats."""
        return self.screen_stack[0].query_one("#sidebar", Sidebar)

    @property
    def spec_panel(self) -> SpeculationPanel:
        """All about drafting."""
        return self.screen_stack[0].query_one("#panel", SpeculationPanel)

    @property
    def status_line(self) -> StatusLine:
        """The same on one line."""
        return self.screen_stack[0].query_one("#status", StatusLine)

    # -- saying things ----------------------------------------------------------------------------

    def say(self, text: str, severity: Any = "information") -> None:
        """A passing message; its text is never read as markup."""
        self.notify(clean(text)[:2000], severity=severity, markup=False)

    def say_error(self, error: LocalspecError) -> None:
        """An error in words."""
        self.say(f"{error.message}\n{error.hint}".strip(), "error")

    def copy_to_clipboard(self, text: str) -> None:
        """Through the terminal (OSC 52), and say so."""
        super().copy_to_clipboard(text)
        self.say(f"Copied {len(text):,} characters.")

    # -- drawing ----------------------------------------------------------------------------------

    def _wanted_theme(self) -> str:
        """The theme of the settings, ours where there is no such theme."""
        name = self.settings.config.theme or DARK.name
        name = THEMES[name].name if name in THEMES else name
        return name if name in self.available_themes else DARK.name

    def _begin_with_theme(self) -> None:
        """Before the first picture, and without the watcher: it would work out all styles twice."""
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.set_reactive(App.theme, self._wanted_theme())
        self.set_class(self.current_theme.dark, "-dark-mode", update=False)
        self.set_class(not self.current_theme.dark, "-light-mode", update=False)
        self.stylesheet.set_variables(self.get_css_variables())

    def choose_theme(self) -> None:
        """The theme of the settings; an unknown one is said and left."""
        name = self.settings.config.theme
        self.theme = self._wanted_theme()
        if name and name not in THEMES and name not in self.available_themes:
            self.say(f'There is no theme "{name}". Try /set theme dark or light.', "warning")

    def lay_out(self) -> None:
        """Panel or line, whichever has room and is wanted."""
        narrow = self.n_columns < NARROW
        screen = self.screen_stack[0]
        screen.set_class(narrow, "narrow")
        shows_panel = not narrow and not self.is_folded
        self.spec_panel.set_class(shows_panel, "shown")
        self.status_line.display = not shows_panel

    def refresh_panel(self) -> None:
        """Show the numbers of now."""
        data, status = self.panel_data, self.status
        if status is not None:
            data.mode, data.reason, data.n_ctx = status.mode, status.reason, status.n_ctx
        data.draft_max = self.settings.config.draft_max
        answer = self.conversation.last_answer
        data.answer = answer.stats if answer is not None else None
        totals = self.conversation.totals
        if answer is not None and answer.is_running and answer.stats is not None:
            totals = totals.plus(answer.stats)
        data.totals = totals
        window = self.conversation.window
        data.window_rate, data.n_window = window.acceptance_rate, window.n_steps
        data.window_series = window.series(32)
        data.colours = self.settings.config.colour_tokens
        self.spec_panel.show(data)
        if self.status_line.display:
            self.status_line.show(data)

    def refresh_title(self) -> None:
        """Model, draft and title of the chat."""
        parts = ["localspec"]
        if self.status is not None:
            names = [n for n in (self.status.model, self.status.draft) if n]
            parts.append(" + ".join(label(name).removesuffix(".gguf") for name in names))
        if self.keeper.title:
            parts.append(label(self.keeper.title))
        if not self.keeper.is_on:
            parts.append("not saved")
        title = self.screen_stack[0].query_one("#title", Static)
        title.update(Content(" · ".join(parts)), layout=False)

    def refresh_queue(self) -> None:
        """Questions and files that wait."""
        queue = self.screen_stack[0].query_one("#queue", Queue)
        queue.show(self.queued, [name for name, _ in self.attached])

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``, which may take a while, done elsewhere."""
        return await asyncio.to_thread(work)
