"""Without a mouse and without colour: every action has a key or command that the help names."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
import threading
from collections.abc import Iterator

import pytest
from helpers_tui import ask, chatting, make_app, shown, until
from rich.console import Console
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widget import Widget

import localspec.tui
from localspec.tui.app import ChatApp
from localspec.tui.commands import COMMANDS
from localspec.tui.fakes import Script, words
from localspec.tui.texts import help_text
from localspec.tui.widgets.dialogs import TextDialog
from localspec.tui.widgets.footer import KeyLine
from localspec.tui.widgets.message import MessageView
from localspec.tui.widgets.sidebar import Sidebar

NAMES = {"escape": "Esc", "pageup": "PageUp", "pagedown": "PageDown", "space": "Space"}


def help_words() -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(help_text())
    return captured.get()


def written(key: str) -> str:
    """``ctrl+q`` as the help writes it: ``Ctrl+Q``."""
    parts = key.split("+")
    return "+".join(NAMES.get(part, part if len(parts) == 1 and len(part) == 1 else part.title())
                    for part in parts)  # fmt: skip


def our_bindings() -> Iterator[tuple[str, Binding]]:
    for module in pkgutil.walk_packages(localspec.tui.__path__, "localspec.tui."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, DOMNode):
                if value.__module__ != module.name:
                    continue
                for binding in vars(value).get("BINDINGS", ()):
                    assert isinstance(binding, Binding)
                    yield name, binding


BINDINGS = list(our_bindings())


def test_the_bindings_are_found() -> None:
    actions = {binding.action for _, binding in BINDINGS}
    assert {"help", "quit", "want('fork')", "want('rename')", "answer(True)", "send"} <= actions


@pytest.mark.parametrize(
    ("where", "binding"), BINDINGS, ids=lambda value: getattr(value, "action", value)
)
def test_every_key_is_in_the_help(where: str, binding: Binding) -> None:
    text = help_words()
    for key in binding.key.split(","):
        if len(key) == 1:
            # A letter says nothing alone: what it does comes with it.
            word = binding.description.split()[0].lower()
            if re.search(rf"\b{key} {word}", text):
                return
        elif re.search(rf"(?<![\w+]){re.escape(written(key))}(?![\w+])", text):
            return
    pytest.fail(f"{where}: the help does not name {binding.key} ({binding.description})")


def test_every_command_is_in_the_help() -> None:
    text = help_words()
    for command in COMMANDS.values():
        assert f"/{command.name}" in text
        assert command.about in text


def test_every_action_on_a_message_and_a_chat_has_a_key() -> None:
    """What the mouse can do is what the keys can do: nothing is only clickable."""
    of_messages = {b.action for b in MessageView.BINDINGS if isinstance(b, Binding)}
    for action in ("copy", "code", "regenerate", "edit", "delete", "fork"):
        assert f"want('{action}')" in of_messages
    in_chats = {b.action for n, b in BINDINGS if b.action.startswith("want") and n != "MessageView"}
    assert {"want('rename')", "want('fork')", "want('delete')"} <= in_chats
    assert Sidebar.__module__ == "localspec.tui.widgets.sidebar"


async def test_every_command_has_something_that_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()
    async with chatting(app) as pilot:
        palette = {command.title for command in app.get_system_commands(app.screen)}
        assert {name.capitalize() for name in COMMANDS} <= palette
        monkeypatch.setattr(app, "say_error", lambda error: pytest.fail(error.message))
        for name in ("help", "stats", "panel", "colours", "chats"):
            await app.run_command(name, "")
            await pilot.pause()
            if len(app.screen_stack) > 1:
                await pilot.press("escape")


def colours(app: ChatApp) -> set[tuple[int, int, int]]:
    """All colours on the screen, of letters and behind them."""
    found = set()
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            for colour in (style.color, style.bgcolor) if style else ():
                if colour is not None:
                    found.add(tuple(colour.get_truecolor()))
    return found


@pytest.mark.parametrize("no_colour", [True, False])
async def test_no_color(monkeypatch: pytest.MonkeyPatch, no_colour: bool) -> None:
    """Grey only; where each word came from is still seen, by other means than colour."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    script = Script(accepted=(1, None), n_draft=2, answer=lambda _: words("a b c d e f g"))
    app = make_app(script, colour_tokens=True)
    async with chatting(app) as pilot:
        await ask(pilot, "Go")
        await until(pilot, lambda: "guessed by the draft model" in shown(app))
        greys = {colour for colour in colours(app) if len(set(colour)) == 1}
        assert (colours(app) == greys) is no_colour
        styles = [
            segment.style
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None and segment.text.strip() in ("b", "c")
        ]
        assert any(style.underline for style in styles)
        assert any(style.bold for style in styles)


async def test_the_footer_shows_what_keys_do_now_and_can_be_clicked() -> None:
    gate = threading.Event()
    app = make_app(Script(lambda _: words("Some words"), gate=gate))
    async with chatting(app, (110, 20)) as pilot:
        line = app.query_one(KeyLine)

        def keys() -> str:
            return str(line.content)

        assert "f1 Help" in keys()
        assert "Stop" not in keys()  # nothing to stop
        await ask(pilot, "Go on", wait=False)
        await until(pilot, lambda: "Stop" in keys())
        gate.set()
        await until(pilot, lambda: app.is_idle and "Stop" not in keys())
        await pilot.press("ctrl+up")
        await until(pilot, lambda: "c Copy" in keys())
        await pilot.press("escape")
        await until(pilot, lambda: "c Copy" not in keys())
        assert await pilot.click(KeyLine, offset=(keys().index("Help"), 0))
        await until(pilot, lambda: isinstance(app.screen, TextDialog))
        await pilot.press("escape")
        # As many whole keys as there is room for.
        await pilot.resize_terminal(45, 20)
        assert keys().rstrip().endswith(("Help", "Quit", "Panel", "line", "Send"))
        assert len(keys()) <= 45
        assert line.n_updates < 15


@pytest.mark.parametrize("key", ["f1", "ctrl+p"])
async def test_nothing_of_the_footer_piles_up(key: str) -> None:
    """Textual's own keeps each key that it ever drew."""
    app = make_app()
    async with chatting(app, (100, 20)) as pilot:
        counts = []
        for _ in range(6):
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("escape")
            await pilot.pause()
            gc.collect()
            counts.append(sum(isinstance(found, Widget) for found in gc.get_objects()))
        assert counts[-1] <= counts[1] + 3
