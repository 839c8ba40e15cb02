"""``localspec chat`` from the command line to the view, over a scripted session."""

from __future__ import annotations

import io
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from helpers_tui import PATIENCE_S, ask, shown, until
from textual.pilot import Pilot

from localspec import paths
from localspec.__main__ import main
from localspec.cli import chat as command
from localspec.sessions import Chats, SavedChat
from localspec.tui import app as view
from localspec.tui.fakes import Script, ScriptedOpener

Visit = Callable[[Pilot[int]], Awaitable[None]]
Capture = pytest.CaptureFixture[str]


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Screen:
    """What ``localspec chat`` runs in; ``script`` is what its model does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = Script()
        self.visit: Visit | None = None
        self.out, self.error = _Terminal(), _Terminal()
        run = view.ChatApp.run

        def headless(app: view.ChatApp) -> int | None:
            return run(app, headless=True, size=(110, 30), auto_pilot=self.visit)

        monkeypatch.setattr(view.ChatApp, "run", headless)
        monkeypatch.setattr(view, "QUIT_S", PATIENCE_S)
        monkeypatch.setattr(command, "_Opener", lambda *_: ScriptedOpener(self.script))
        self._monkeypatch = monkeypatch
        self.stdin: io.StringIO = _Terminal()

    def __call__(self, *args: str, visit: Visit | None = None) -> int:
        # Not in the fixture: pytest puts its own streams in place when the test itself begins.
        for name, stream in (("stdin", self.stdin), ("stdout", self.out), ("stderr", self.error)):
            self._monkeypatch.setattr(sys, name, stream)

        async def go(pilot: Pilot[Any]) -> None:
            await until(pilot, lambda: pilot.app.status is not None)
            if visit is not None:
                await visit(pilot)
            await pilot.press("ctrl+q")

        self.visit = go
        return main(["chat", *args])


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(monkeypatch)


def a_chat(question: str, answer: str) -> str:
    with Chats.open(paths.chats_file()) as chats:
        chat_id = chats.new(model="m")
        chats.add_turn(chat_id, "user", question)
        chats.add_turn(chat_id, "assistant", answer)
    return chat_id


def saved(chat_id: str = "latest") -> SavedChat:
    with Chats.open(paths.chats_file()) as chats:
        return chats.get(chat_id)


async def more(pilot: Pilot[Any]) -> None:
    await ask(pilot, "and more")


def test_continue_goes_on_with_the_last_chat(screen: Screen) -> None:
    older, last = a_chat("old", "o"), a_chat("last question", "last answer")

    async def visit(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: "last answer" in shown(pilot.app))
        await more(pilot)

    assert screen("--continue", visit=visit) == 0
    assert [m.content for m in screen.script.asked[0]] == [
        "last question", "last answer", "and more",
    ]  # fmt: skip
    assert [t.content for t in saved(last).turns[2:]] == ["and more", "You said: and more"]
    assert len(saved(older).turns) == 2


def test_resume_takes_the_beginning_of_an_id(screen: Screen) -> None:
    wanted, newer = a_chat("wanted question", "w"), a_chat("new", "n")

    async def visit(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: "wanted question" in shown(pilot.app))
        await more(pilot)

    assert screen("--resume", wanted[:5], visit=visit) == 0
    assert len(saved(wanted).turns) == 4
    assert len(saved(newer).turns) == 2


def test_a_chat_is_saved_unless_that_is_not_wanted(screen: Screen) -> None:
    assert screen("--no-save", visit=more) == 0
    assert screen.script.sources == [None]
    assert not paths.chats_file().exists()
    assert screen(visit=more) == 0
    assert [t.role for t in saved().turns] == ["user", "assistant"]
    assert screen.script.sources[1].name == saved().info.id


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--continue"], "there is no saved chat yet"),
        (["--resume", "zzz"], 'there is no saved chat "zzz"'),
        (["--continue", "--resume", "zzz"], "name two chats"),
        (["--continue", "--no-save"], "chats are not saved"),
        (["one", "--model", "two"], "two models are named"),
    ],
)
def test_nonsense_is_a_sentence_and_no_view(screen: Screen, args: list[str], said: str) -> None:
    assert screen(*args) == 2
    assert said in screen.error.getvalue()
    assert not screen.script.opened


def test_without_a_terminal_there_is_no_view(screen: Screen) -> None:
    screen.stdin = io.StringIO()
    assert screen() == 2
    assert "chat needs a terminal" in screen.error.getvalue()


def test_flags_arrive(screen: Screen) -> None:
    assert screen("a-pair", "--temp", "0.3", "-s", "be brief", "--mode", "off", visit=more) == 0
    (config,) = screen.script.opened
    assert (config.model, config.mode) == ("a-pair", "off")
    assert screen.script.samplings[0].temperature == 0.3
    assert screen.script.asked[0][0].content == "be brief"
