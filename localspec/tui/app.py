"""The chat view: keys, and what the parts of the screen ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events, on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import TextArea

from localspec.errors import LocalspecError
from localspec.terminal import label
from localspec.tui import commands
from localspec.tui.acting import Acting
from localspec.tui.told import Open
from localspec.tui.widgets.conversation import ConversationView
from localspec.tui.widgets.dialogs import Confirm, Line
from localspec.tui.widgets.markdown import prepare
from localspec.tui.widgets.message import MessageView
from localspec.tui.widgets.prompt import Completions, Prompt
from localspec.tui.widgets.sidebar import Sidebar

QUIT_S = 0.4
"""How long the model's thread may take to end before it is left behind."""


class ChatApp(Acting):
    """``localspec chat``. Its return code is 0 unless the view itself failed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop"),
        Binding("f1", "help", "Help"),
        Binding("ctrl+q", "quit", "Quit", priority=True),
        Binding("f2", "panel", "Panel"),
        Binding("f3", "chats", "Chats"),
        Binding("f4", "colours", "Colours"),
        Binding("ctrl+p", "command_palette", "Commands", priority=True),
        Binding("ctrl+up", "messages", "Messages"),
        Binding("ctrl+r", "history", "History"),
        Binding("ctrl+n", "new_chat", "New"),
        Binding("ctrl+end", "follow", "Follow"),
        Binding("pageup", "scroll(-1)", "Scroll up", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "Scroll down", show=False, priority=True),
    ]

    def on_mount(self) -> None:
        self.choose_theme()
        self.view.is_coloured = self.settings.config.colour_tokens
        self.n_columns = self.size.width
        self.lay_out()
        self.refresh_title()
        self.refresh_panel()
        self.prompt.focus()
        # Importing what runs models keeps the interpreter busy: the first picture comes before.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.inference.start()
        self.inference.put(Open(self.settings.config))
        self.run_worker(self._prepare(), exit_on_error=False)

    async def _prepare(self) -> None:
        """What can wait until the first picture is on the screen."""
        await self.in_thread(prepare)
        if self.resume is not None:
            await self.open_chat(self.resume)
        self.history = [*await self.in_thread(self.keeper.questions), *self.history]
        try:
            self.model_names = await self.in_thread(self.find_model_names)
        except LocalspecError as error:
            self.say_error(error)

    def on_resize(self, event: events.Resize) -> None:
        self.n_columns = event.size.width  # self.size is still the old one
        self.lay_out()
        self.refresh_panel()

    # -- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that mean nothing at the moment are not in the footer."""
        is_main = len(self.screen_stack) == 1
        if action == "follow":
            return is_main and not self.view.is_following
        if action == "escape":
            busy = self.running is not None or self.is_loading or self.editing is not None
            return is_main and (busy or self.focused is not self.prompt)
        if action in ("messages", "scroll", "history", "new_chat", "help", "panel", "chats"):
            return is_main
        return super().check_action(action, parameters)

    async def action_escape(self) -> None:
        """Stop the answer; else leave what has the focus."""
        if self.editing is not None:
            self.editing = None
            self.prompt.border_title = None
            self.prompt.take("")
        elif self.sidebar.has_class("shown") and self.sidebar.has_focus_within:
            await self.action_chats()
        elif self.focused is not self.prompt:
            self.prompt.focus()
        elif not self.stop() and self.is_loading:
            self.push_screen(Confirm("Stop loading the model?"), self._stop_loading)

    def _stop_loading(self, yes: bool | None) -> None:
        if yes and self.is_loading:
            self.inference.stop()

    async def action_messages(self) -> None:
        """The focus goes to the last message."""
        views: list[MessageView] = self.view.views
        if views:
            views[-1].focus()

    async def action_new_chat(self) -> None:
        """Begin another chat."""
        await self.new_chat()

    def action_follow(self) -> None:
        """To the end, and stay there."""
        self.view.follow()

    def action_scroll(self, pages: int) -> None:
        """Scroll the chat, whatever has the focus."""
        move = self.view.scroll_page_down if pages > 0 else self.view.scroll_page_up
        move(animate=False)

    def action_help_quit(self) -> None:
        """Ctrl+C with nothing selected."""
        what = "Esc stops the answer" if self.running is not None else "Nothing is selected"
        self.say(f"{what}; Ctrl+Q quits.")

    async def action_quit(self) -> None:
        """Leave; what there is of a running answer is kept."""
        turn = self.running
        self.inference.stop()
        if turn is not None:
            turn.state = "stopped"
            self.keeper.finish(turn)
        self.exit(0)

    # -- the prompt -------------------------------------------------------------------------------

    async def on_prompt_sent(self, event: Prompt.Sent) -> None:
        text = event.text
        self.history_place = None
        if self.editing is None:
            try:
                command = commands.read(text)
            except LocalspecError as error:
                self.prompt.take(text)
                self.say_error(error)
                return
            if command is not None:
                await self.run_command(*command)
                return
        if not self.history or self.history[-1] != text:
            self.history.append(text)
        await self.send(text)

    @on(TextArea.Changed, "#prompt")
    def _offer(self) -> None:
        offered = commands.complete(self.prompt.text, self.model_names, self.settings.value)
        self.screen_stack[0].query_one(Completions).offer(offered)

    def on_completions_taken(self, event: Completions.Taken) -> None:
        self.prompt.take(event.text)
        self.prompt.focus()

    async def on_prompt_wanted(self, event: Prompt.Wanted) -> None:
        if event.what == "editor":
            await self.action_editor()
        elif event.what == "older":
            self._older()
        elif self.history_place is not None:
            self.history_place += 1
            if self.history_place >= len(self.history):
                self.history_place = None
                self.prompt.take(self.draft_text)
            else:
                self.prompt.take(self.history[self.history_place])

    def _older(self) -> None:
        """An earlier question; first of all those that wait, which are taken back."""
        if self.queued and not self.prompt.text:
            self.prompt.take(self.queued.pop())
            self.refresh_queue()
            return
        if self.history_place is None:
            if not self.history:
                return
            self.draft_text, self.history_place = self.prompt.text, len(self.history)
        if self.history_place > 0:
            self.history_place -= 1
            self.prompt.take(self.history[self.history_place])

    # -- other parts ------------------------------------------------------------------------------

    async def on_message_view_wanted(self, event: MessageView.Wanted) -> None:
        await self.want(event.what, event.turn)

    def on_conversation_view_following(self, _: ConversationView.Following) -> None:
        self.refresh_bindings()

    def on_sidebar_searched(self, _: Sidebar.Searched) -> None:
        self.list_chats()

    async def on_sidebar_wanted(self, event: Sidebar.Wanted) -> None:
        chat_id = event.chat_id
        match event.what:
            case "open":
                await self.open_chat(chat_id)
                if self.screen_stack[0].has_class("narrow"):
                    await self.action_chats()
                self.prompt.focus()
            case "fork":
                await self.fork_chat(chat_id)
            case "rename":
                self.push_screen(Line("Title"), lambda title: self._rename_saved(chat_id, title))
            case "delete":
                self.push_screen(
                    Confirm("Delete this chat for good?"),
                    lambda yes: self._delete_saved(chat_id, yes),
                )
        self.list_chats()

    def _rename_saved(self, chat_id: str, title: str | None) -> None:
        if title:
            self.keeper.rename(label(title), chat_id)
            self.refresh_title()
        self.list_chats()

    async def _delete_saved(self, chat_id: str, yes: bool | None) -> None:
        if not yes:
            return
        if chat_id == self.keeper.chat_id:
            await self.new_chat()
        self.keeper.delete(chat_id)
        self.list_chats()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """All slash commands that need no argument, and Textual's own theme list."""
        for command in commands.COMMANDS.values():
            yield SystemCommand(
                command.name.capitalize(),
                command.about,
                lambda name=command.name: self.call_later(self._from_palette, name),
            )
        for theirs in super().get_system_commands(screen):
            if theirs.title in ("Theme",):
                yield theirs

    async def _from_palette(self, name: str) -> None:
        if name in ("set", "attach", "system", "export", "mode"):
            self.prompt.take(f"/{name} ")
            self.prompt.focus()
        else:
            await self.run_command(name)
