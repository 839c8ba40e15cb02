"""Saved chats in the view: saving, resuming, the sidebar, trimming, and going on without."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers_tui import ask, chatting, make_app, said, shown, until
from textual.widgets import OptionList

from localspec.errors import LocalspecError
from localspec.sessions import Chats
from localspec.tui.arrivals import SLOWEST_S
from localspec.tui.fakes import Script, ScriptedStatus
from localspec.tui.keeper import SAVE_EVERY_S, Keeper
from localspec.tui.turns import Conversation, Turn, question


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


async def test_a_chat_is_saved_with_its_numbers_and_resumed(path: Path) -> None:
    app = make_app(Script(), Chats.open(path), system="Be [brief].")
    async with chatting(app) as pilot:
        await ask(pilot, "First [question]")
        assert "First [question]" in shown(app).splitlines()[0]
        accepted = app.conversation.totals.n_accepted
    with Chats.open(path) as chats:
        saved = chats.get("latest")
        assert [(t.role, t.state) for t in saved.turns] == [
            ("user", "complete"), ("assistant", "complete"),
        ]  # fmt: skip
        assert saved.turns[1].numbers["n_accepted"] == accepted
        assert saved.turns[1].settings["temperature"] == 0.8
        assert saved.system == "Be [brief]."
    script = Script(prefill_s=0.1)
    app = make_app(script, Chats.open(path), resume=saved.info.id)
    async with chatting(app) as pilot:
        await until(pilot, lambda: "tokens, which the model reads before its next" in shown(app))
        assert app.conversation.totals.n_accepted == accepted
        await ask(pilot, "And now?")
        contents = [m.content for m in script.asked[0]]
        assert contents == [
            "Be [brief].",
            "First [question]",
            "You said: First [question]",
            "And now?",
        ]
        await ask(pilot, "/regenerate")
    with Chats.open(path) as chats:
        assert [t.role for t in chats.get(saved.info.id).turns] == ["user", "assistant"] * 2


async def test_a_stopped_answer_and_a_quit_keep_their_words(path: Path) -> None:
    script = Script(step_s=0.005, answer=lambda _: [f" {i}" for i in range(10_000)])
    app = make_app(script, Chats.open(path))
    async with chatting(app) as pilot:
        await ask(pilot, "Count", wait=False)
        await until(pilot, lambda: app.running is not None and "5" in app.running.text)
        await pilot.press("ctrl+q")
    with Chats.open(path) as chats:
        turn = chats.get("latest").turns[1]
        assert turn.state == "stopped"
        assert turn.content.startswith(" 0 1 2 3")


async def test_the_sidebar(path: Path) -> None:
    chats = Chats.open(path)
    for name in ("alpha", "beta [red]"):
        chat = chats.new(model="m")
        chats.add_turn(chat, "user", f"about {name}")
        chats.add_turn(chat, "assistant", f"{name} it is")
    app = make_app(Script(), chats)
    async with chatting(app) as pilot:
        await pilot.press("f3")
        await until(pilot, lambda: "about beta [red]" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: len(app.conversation.turns) == 2)
        assert "beta [red] it is" in shown(app)
        app.sidebar.query_one("Input").focus()
        await pilot.press(*"alpha")
        await until(pilot, lambda: app.sidebar.query_one(OptionList).option_count == 1)
        await pilot.press("enter", "r")
        await pilot.press(*"gamma", "enter")
        await until(pilot, lambda: any(info.title == "gamma" for info in app.keeper.find()))
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("f")
        await until(pilot, lambda: app.keeper.title == "gamma (fork)")
        await pilot.press("d", "y")
        await until(pilot, lambda: len(app.keeper.find()) == 2)
        titles = sorted(info.title for info in app.keeper.find())
        assert titles == ["about beta [red]", "gamma (fork)"]


async def test_fork_from_a_message(path: Path) -> None:
    app = make_app(Script(), Chats.open(path))
    async with chatting(app) as pilot:
        await ask(pilot, "One")
        await ask(pilot, "Two")
        first = app.keeper.chat_id
        app.view.views[1].focus()
        await pilot.press("f")
        await until(pilot, lambda: app.keeper.chat_id != first)
        assert [turn.text for turn in app.conversation.turns] == ["One", "You said: One"]
        await ask(pilot, "Three")
        assert len(app.keeper.open(first).turns) == 4


async def test_a_long_chat_is_trimmed_at_the_front_with_a_note() -> None:
    script = Script(status=ScriptedStatus(n_ctx=40))
    app = make_app(script, system="System words")
    async with chatting(app, (80, 40)) as pilot:
        for i in range(4):
            await ask(pilot, f"Question {i} with five words")
        first = script.asked[-1]
        assert first[0].content == "System words"
        assert "Question 3" in first[-1].content
        assert "Question 0" not in str(first)
        assert "no longer fit" in shown(app)
        assert len(app.conversation.turns) == 8
        await ask(pilot, "One more")
        assert app.conversation.last_answer.text == "You said: One more"


async def test_without_saving_and_then_with(path: Path) -> None:
    app = make_app(Script(), None, open_chats=lambda: Chats.open(path))
    async with chatting(app) as pilot:
        await ask(pilot, "One")
        assert "not saved" in shown(app).splitlines()[0]
        assert not path.exists()
        await ask(pilot, "/fork")
        assert any("not saved" in text for text in said(app))
        await ask(pilot, "/save My title")
        await ask(pilot, "Two")
    with Chats.open(path) as chats:
        saved = chats.get("latest")
        assert saved.info.title == "My title"
        assert [t.content for t in saved.turns][::2] == ["One", "Two"]


async def test_a_chat_that_cannot_be_saved_goes_on(path: Path) -> None:
    chats = Chats.open(path)
    app = make_app(Script(), chats)
    async with chatting(app) as pilot:
        await ask(pilot, "One")

        def fail(*_: object, **__: object) -> int:
            raise LocalspecError("the disk is full.")

        chats.add_turn = fail  # type: ignore[method-assign]
        await ask(pilot, "Two")
        assert app.conversation.last_answer.text == "You said: Two"
        assert sum("not saved any more" in text for text in said(app)) == 1
        assert "not saved" in shown(app).splitlines()[0]
    chats.close()


def test_questions_for_the_history_are_the_newest_and_only_once(path: Path) -> None:
    chats = Chats.open(path)
    for text in ("a", "b", "a", "c"):
        chat = chats.new()
        chats.add_turn(chat, "user", text)
    keeper = Keeper(chats, print)
    assert keeper.questions() == ["b", "a", "c"]
    keeper.close()


def test_a_stopped_answer_without_words_is_not_in_the_prompt() -> None:
    chat = Conversation("s")
    chat.turns = [question("one"), Turn("assistant", "stopped"), question("two")]
    assert [m.content for m in chat.messages()] == ["s", "one", "two"]


KILLED = """
import sys, pathlib
sys.path[:0] = {paths!r}
from localspec.sessions import Chats
from localspec.tui.keeper import Keeper
from localspec.tui.turns import Turn, question
import time
keeper = Keeper(Chats.open(pathlib.Path({path!r})), print)
keeper.add(question("count"))
turn = Turn("assistant", "writing")
keeper.add(turn)
start = time.monotonic()
while True:
    begun = time.monotonic() - start
    turn.add_text(f"{{begun}} ")
    keeper.progress(turn)
    print(begun, time.monotonic() - start, flush=True)
    time.sleep(0.01)
"""


def times(line: bytes) -> tuple[float, float]:
    """When the handing over of a word began and when it was over, on the writer's clock."""
    begun, ended = line.split()
    return float(begun), float(ended)


def safe(words: list[tuple[float, float]]) -> list[float]:
    """The words that may not be lost: handed over a second before the last one began. While a busy
    machine lets the writer wait, nothing is handed over, and so nothing more may be lost."""
    return [begun for begun, ended in words if ended <= words[-1][0] - 1.0]


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is for systems that have it")
def test_a_kill_loses_at_most_the_last_second(path: Path) -> None:
    root = str(Path(__file__).parents[2])
    code = KILLED.format(paths=[root], path=str(path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as written:
        words = [times(written.readline())]
        # Just before the third writing, so that much would be lost if writings came too seldom.
        while words[-1][0] < 2.9 or not safe(words):
            words.append(times(written.readline()))
        process.kill()
        words += [times(line) for line in written if line.endswith(b"\n")]
    process.wait()
    with Chats.open(path) as chats:
        turn = chats.get("latest").turns[1]
    assert turn.state == "partial"
    kept = float(turn.content.split()[-1])
    assert kept >= safe(words)[-1]


def test_threads_do_not_outlive_a_test() -> None:
    assert not [t for t in threading.enumerate() if t.name == "inference" and t.is_alive()]


def test_every_word_that_was_seen_is_handed_over_at_once(path: Path) -> None:
    """Nobody knows when more comes: a slow model must not hold words back from the database."""
    with Chats.open(path, interval_s=0.0) as chats:
        keeper = Keeper(chats, pytest.fail)
        keeper.add(question("go"))
        turn = Turn("assistant", "writing")
        keeper.add(turn)
        for word in ("one ", "two ", "three "):
            turn.add_text(word)
            keeper.progress(turn)
        saved = chats.get("latest").turns[-1]
        assert (saved.content, saved.state) == ("one two three ", "partial")


def test_a_kill_loses_the_words_of_less_than_a_second() -> None:
    # New words wait for the view's longest rest, then for the database's next writing.
    assert SLOWEST_S + SAVE_EVERY_S < 1.0
