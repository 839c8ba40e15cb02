"""What each slash command, palette entry and key of a message does."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

from textual.app import SuspendNotSupported

from localspec import paths
from localspec.config import Mode
from localspec.errors import LocalspecError, UsageError
from localspec.sessions_types import SavedChat, SavedTurn, to_json, to_markdown
from localspec.terminal import label, size
from localspec.tui import texts
from localspec.tui.asking import Asking
from localspec.tui.turns import Turn
from localspec.tui.widgets.dialogs import Confirm, Item, Line, Pick, TextDialog
from localspec.tui.widgets.message import MessageView, code_blocks

MAX_FILE_BYTES = 1 << 20
"""Longest file that is put before a question: more than most contexts hold."""


class Acting(Asking):
    """Every action there is."""

    async def run_command(self, name: str, argument: str = "") -> None:
        """A slash command; errors become a message."""
        try:
            await self._command(name, argument)
        except LocalspecError as error:
            self.say_error(error)

    async def _command(self, name: str, argument: str) -> None:
        with_argument: dict[str, Callable[[str], Awaitable[object]]] = {
            "mode": self._mode, "model": self._model, "system": self._system, "set": self._set,
            "save": self._save, "export": self._export, "copy": self._copy,
            "attach": self._attach_file, "rename": self._rename,
        }  # fmt: skip
        if name in with_argument:
            await with_argument[name](argument)
            return
        last = self.conversation.turns[-1] if self.conversation.turns else None
        without: dict[str, Callable[[], Awaitable[object]]] = {
            "help": self.action_help, "clear": self.new_chat, "stats": self._stats,
            "regenerate": lambda: self.regenerate(None), "edit": lambda: self.edit(None),
            "delete": lambda: self._delete(last), "fork": lambda: self._fork(None),
            "chats": self.action_chats, "history": self.action_history,
            "panel": self.action_panel, "colours": self.action_colours,
            "editor": self.action_editor, "reload": self._reload, "quit": self.action_quit,
        }  # fmt: skip
        await without[name]()

    # -- settings ---------------------------------------------------------------------------------

    async def _mode(self, argument: str) -> None:
        words = argument.split()
        if not words:
            self.say(f"Mode {self.panel_data.mode}: {self.panel_data.reason}")
            return
        modes = get_args(Mode)
        if words[0] not in modes or len(words) > 2:
            raise UsageError(f'"{argument}" is no mode', hint=f"/mode takes {', '.join(modes)}.")
        mode: Mode = words[0]  # type: ignore[assignment]
        settings = self.settings
        if len(words) == 2:
            settings = settings.change("draft_max", words[1])
        self.settings = settings.with_mode(mode, settings.config.draft_max)
        self.set_mode()
        self.say(f"Mode {mode} from the next answer on.")
        self.refresh_panel()

    async def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if not value.strip():
            raise UsageError("/set needs a name and a value", hint="For example /set top_k 20.")
        self.settings = self.settings.change(name, value)
        key = name.strip().lower().replace("-", "_")
        if key == "draft_max":
            self.set_mode()
        elif key == "theme":
            self.choose_theme()
        elif key == "colour_tokens":
            await self.view.recolour(self.settings.config.colour_tokens)
        self.say(f"{key} is {self.settings.value(key)} now.")
        self.refresh_panel()

    async def _system(self, argument: str) -> None:
        if not argument:
            text = self.conversation.system
            self.say(f"System message: {text}" if text else "There is no system message.")
            return
        text = "" if argument.lower() in ("none", "off", "-") else argument
        self.settings = self.settings.with_system(text)
        self.conversation.system = text
        self.keeper.set_system(text)
        self.say("The next answer uses it." if text else "No system message from now on.")

    async def _model(self, argument: str) -> None:
        words = shlex.split(argument) if argument else []
        if not words:
            items = [Item(name, "", name) for name in self.model_names]
            self.push_screen(Pick("Load another model", items), self._model_picked)
            return
        if len(words) > 2:
            raise UsageError("/model takes one model, or a target and a draft")
        self.settings = self.settings.with_model(words[0], words[1] if len(words) > 1 else None)
        await self._reload()

    async def _model_picked(self, name: str | None) -> None:
        if name:
            await self.run_command("model", shlex.quote(name))

    async def _reload(self) -> None:
        async def act() -> None:
            self.load_model("Loading …")

        if self.is_loading:
            self.inference.stop()
        await self.idle(act)

    # -- this chat --------------------------------------------------------------------------------

    async def _save(self, title: str) -> None:
        if not self.keeper.is_on:
            if self.open_chats is None:
                raise UsageError("chats cannot be saved here")
            self.keeper.turn_on(self.open_chats())
            for turn in self.conversation.turns:
                if not turn.is_running:
                    self.keeper.add(turn, system=self.conversation.system)
        if title:
            self.keeper.rename(title)
        self.refresh_title()
        self.say("This chat is saved.")

    async def _rename(self, title: str) -> None:
        if title:
            self.keeper.rename(title)
            self.refresh_title()
        else:
            self.push_screen(Line("Title of this chat", self.keeper.title), self._renamed)

    async def _renamed(self, title: str | None) -> None:
        if title:
            await self._rename(title)

    async def _export(self, argument: str) -> None:
        path = Path(argument or "chat.md").expanduser()
        if path.exists():
            raise UsageError(f"{path} exists already", hint="/export takes another name.")
        chat = self._as_saved()
        text = to_json(chat) if path.suffix.lower() == ".json" else to_markdown(chat)
        try:
            await self.in_thread(lambda: paths.write_private(path, text.encode()))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
        self.say(f"Written to {label(str(path.absolute()))}")

    def _as_saved(self) -> SavedChat:
        """The open chat, saved or not, as the database has chats."""
        turns = [
            SavedTurn(
                turn.saved_id or turn.id,
                turn.role,
                turn.text,
                "complete" if turn.state == "complete" else "stopped",
                numbers=turn.numbers,
            )
            for turn in self.conversation.turns
        ]
        return texts.saved_chat(
            self.keeper.chat_id or "", self.keeper.title, self.status, self.conversation, turns
        )

    async def _copy(self, argument: str) -> None:
        if argument == "all":
            self.copy_to_clipboard(to_markdown(self._as_saved()))
            return
        answer = self.conversation.last_answer
        if answer is None or not answer.text:
            raise UsageError("there is no answer to copy yet")
        await self.want("code" if argument == "code" else "copy", answer)

    async def _stats(self) -> None:
        self.push_screen(TextDialog("Numbers", texts.numbers(self.panel_data)))

    async def _fork(self, turn: Turn | None) -> None:
        await self.fork_chat(self.keeper.chat_id, turn)

    async def _delete(self, turn: Turn | None) -> None:
        if turn is None:
            raise UsageError("there is nothing to delete")
        if turn.role == "assistant":
            turn = self.conversation.question_of(turn) or turn
        wanted = turn
        n = len(self.conversation.turns) - self.conversation.turns.index(wanted)

        async def answered(yes: bool | None) -> None:
            if yes:
                await self.delete(wanted)

        self.push_screen(
            Confirm(f"Delete the last {n} messages of this chat, from this question on?"), answered
        )

    async def want(self, what: str, turn: Turn) -> None:
        """What a key on a message asks for."""
        match what:
            case "copy":
                self.copy_to_clipboard(turn.text)
            case "code":
                await self._copy_code(turn)
            case "regenerate":
                await self.regenerate(turn)
            case "edit":
                await self.edit(turn)
            case "delete":
                await self._delete(turn)
            case "fork":
                await self._fork(turn)
            case "previous" | "next":
                self.move_focus(turn, -1 if what == "previous" else 1)

    async def _copy_code(self, turn: Turn) -> None:
        blocks = code_blocks(turn.text)
        if not blocks:
            self.say("There is no code block in this message.", "warning")
        elif len(blocks) == 1:
            self.copy_to_clipboard(blocks[0])
        else:
            items = [
                Item(" ".join(block.split())[:60], f"{block.count(chr(10)) + 1} lines", str(place))
                for place, block in enumerate(blocks)
            ]

            def picked(value: str | None) -> None:
                if value is not None:
                    self.copy_to_clipboard(blocks[int(value)])

            self.push_screen(Pick("Copy a code block", items), picked)

    def move_focus(self, turn: Turn, by: int) -> None:
        """To the message above or below; below the last one is the prompt."""
        views: list[MessageView] = self.view.views
        place = next((i for i, view in enumerate(views) if view.turn is turn), len(views)) + by
        if place >= len(views):
            self.prompt.focus()
            self.view.follow()
        elif place >= 0:
            views[place].focus()

    # -- files ------------------------------------------------------------------------------------

    async def _attach_file(self, argument: str) -> None:
        if not argument:
            raise UsageError("/attach needs the path of a text file")
        path = Path(argument).expanduser()
        text = await self.in_thread(lambda: read_text(path))
        self.attached.append((path.name, text))
        self.refresh_queue()
        self.say(f"{path.name} ({size(len(text.encode()))}) goes before the next question.")

    async def action_editor(self) -> None:
        """Write the question in $VISUAL or $EDITOR."""
        command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not command:
            self.say("Set the variable EDITOR to the program that you write with.", "warning")
            return
        folder = tempfile.mkdtemp(prefix="localspec-")
        path = Path(folder) / "question.md"
        try:
            paths.write_private(path, self.prompt.text.encode())
            with self.suspend():
                code = self.terminal.call([*shlex.split(command), str(path)])
            if code == 0:
                self.prompt.take(read_text(path).rstrip("\n"))
            else:
                self.say(f"The editor ended with exit code {code}; nothing was changed.", "warning")
        except SuspendNotSupported:
            self.say("An editor cannot be opened from this terminal.", "warning")
        except (OSError, ValueError) as error:
            self.say(f"The editor did not start: {error}", "error")
        except LocalspecError as error:
            self.say_error(error)
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                Path(folder).rmdir()
        self.prompt.focus()

    # -- keys that commands share -----------------------------------------------------------------

    async def action_help(self) -> None:
        """Keys and commands."""
        self.push_screen(TextDialog("localspec chat", texts.help_text()))

    async def action_panel(self) -> None:
        """Fold the panel, or show it."""
        self.is_folded = not self.is_folded
        self.lay_out()
        self.refresh_panel()

    async def action_colours(self) -> None:
        """Show where each word came from, or Markdown again."""
        is_on = self.settings.config.colour_tokens
        await self.run_command("set", f"colour_tokens {'off' if is_on else 'on'}")

    async def action_chats(self) -> None:
        """Saved chats at the side, or not."""
        sidebar = self.sidebar
        sidebar.toggle_class("shown")
        if sidebar.has_class("shown"):
            self.list_chats()
            sidebar.focus_list()
        else:
            self.prompt.focus()

    def list_chats(self) -> None:
        """Fill the sidebar."""
        self.sidebar.show(self.keeper.find(self.sidebar.searched), self.keeper.chat_id or "")

    async def action_history(self) -> None:
        """Search earlier questions."""
        items = [Item(" ".join(t.split())[:200], "", t) for t in reversed(self.history)]

        def picked(text: str | None) -> None:
            if text:
                self.prompt.take(text)

        self.push_screen(Pick("Earlier questions", items), picked)


def read_text(path: Path) -> str:
    """A text file. Raises UsageError in words when it is none, or too long."""
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file")
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} has more than {size(MAX_FILE_BYTES)} of text")
    if b"\0" in data:
        raise UsageError(f"{path} does not hold text")
    return data.decode("utf-8-sig", "replace")
