"""Slash commands, settings, the panel, turns, input: what each does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from helpers_tui import ask, chatting, make_app, said, shown, until
from textual.events import Paste

from localspec.config import Config
from localspec.errors import UsageError
from localspec.spec.sampling import Sampling
from localspec.tui.commands import COMMANDS, complete, read
from localspec.tui.fakes import Script, ScriptedStatus, words
from localspec.tui.settings import SETTABLE, Settings
from localspec.tui.widgets.dialogs import Pick, TextDialog

REQUIRED = "help mode model system set save export clear copy stats quit".split()


def test_reading_commands() -> None:
    assert read("/mode off 3") == ("mode", "off 3")
    assert read("  /mode off") is None
    assert read("/etc/passwd says") is None
    assert read("a question") is None
    assert read("/qu") == ("quit", "")
    assert read("/system line\nline") == ("system", "line\nline")
    assert read("/hosts\nfile pasted") is None
    with pytest.raises(UsageError, match="no command /nosuch"):
        read("/nosuch")
    assert set(REQUIRED) <= set(COMMANDS)


def test_completing_commands(tmp_path: Path) -> None:
    now = Settings(Config(), Sampling()).value
    assert (
        "/mode ",
        "auto|off|lookup|draft [N]  What guesses ahead, at most N tokens",
    ) in complete("/mo", [], now)
    assert [text for text, _ in complete("/mode d", [], now)] == ["/mode draft"]
    assert [text for text, _ in complete("/model qw", ["qwen-a", "other"], now)] == [
        "/model qwen-a"
    ]
    assert complete("/set temp", [], now)[0][1].startswith("now 0.8;")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    found = complete(f"/attach {tmp_path}{os.sep}", [], now)
    assert [text for text, _ in found] == [f"/attach {tmp_path / 'notes.txt'}"]
    assert complete("words", [], now) == []


def test_settings_say_what_is_wrong() -> None:
    settings = Settings(Config(), Sampling())
    assert settings.change("temperature", "0.2").sampling.temperature == 0.2
    assert settings.change("top-k", "7").config.top_k == 7
    assert settings.change("seed", "none").sampling.seed is None
    for name, value in (("temperature", "hot"), ("top_p", "2"), ("nosuch", "1")):
        with pytest.raises(UsageError):
            settings.change(name, value)
    assert all(settings.value(name) for name in SETTABLE)


async def test_settings_change_the_next_answer() -> None:
    script = Script()
    app = make_app(script, system="Be brief.")
    async with chatting(app) as pilot:
        await ask(pilot, "One")
        assert script.asked[-1][0].content == "Be brief."
        await ask(pilot, "/set temperature 0.25")
        await ask(pilot, "/set max_tokens 2")
        await ask(pilot, "/system Answer in French.")
        await ask(pilot, "Two three four")
        assert script.samplings[-1].temperature == 0.25
        assert script.asked[-1][0].content == "Answer in French."
        assert app.conversation.last_answer.text == "You said:"
        app.clear_notifications()
        await until(pilot, lambda: "cut at the longest" in shown(app))
        await ask(pilot, "/set temperature warm")
        assert any("warm" in text for text in said(app))
        await ask(pilot, "/mode lookup 6")
        await until(pilot, lambda: app.status.mode == "lookup")
        assert script.n_draft == 6
        await until(pilot, lambda: "asked for: lookup" in shown(app))
        await ask(pilot, "/set theme light")
        assert app.theme == "localspec-light"


async def test_the_panel_says_what_the_numbers_say() -> None:
    reason = "automatic, without a draft model: it has another vocabulary"
    script = Script(status=ScriptedStatus(mode="lookup", draft=None, reason=reason))
    app = make_app(script, n_bytes_used=lambda: 3 << 30)
    async with chatting(app, (120, 40)) as pilot:
        assert "without a draft model" in app.spec_panel.text
        assert "–" in app.spec_panel.text
        await ask(pilot, "One two three four five six seven eight nine ten eleven")
        stats, text = app.conversation.last_answer.stats, app.spec_panel.text
        accepted = f"{stats.n_accepted} of {stats.n_verified}"
        assert f"This answer  {stats.acceptance_rate:.0%}  {accepted}" in text
        assert f"This chat    {stats.acceptance_rate:.0%}  {accepted}" in text
        assert f"Per step     {stats.mean_accepted_length:.2f} tokens" in text
        assert "Plain        20.0 tokens/s" in text
        assert "3.00 GiB" in text
        assert f"{app.panel_data.n_used:,} of 4,096" in text
        assert len(stats.per_position) == 4
        await ask(pilot, "One two three four")
        assert app.conversation.totals.n_answers == 2
        assert "This chat    " in app.spec_panel.text
        await pilot.press("f2")
        assert not app.spec_panel.display
        assert "lookup · accepted" in shown(app)
        await ask(pilot, "/stats")
        assert isinstance(app.screen, TextDialog)
        assert "Plain decoding" in shown(app)


async def test_help_palette_and_completion() -> None:
    app = make_app()
    async with chatting(app) as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: "Ctrl+X Ctrl+E" in shown(app))
        await pilot.press("escape", "slash", "m", "o")
        await until(pilot, lambda: "What guesses ahead" in shown(app))
        await pilot.press("tab")
        assert app.prompt.text == "/mode "
        await pilot.press("down", "enter")
        assert app.prompt.text == "/mode off"
        await pilot.press("enter")
        await until(pilot, lambda: app.status.mode == "off")
        await pilot.press("ctrl+p")
        await pilot.press(*"stats")
        await until(pilot, lambda: "All numbers" in shown(app))
        await pilot.press("escape")
        assert "Help" in shown(app).splitlines()[-1]


async def test_copy_export_clear(tmp_path: Path) -> None:
    code = "Look:\n\n```py\nx = 1\n```\n\n```\ntwo\nlines\n```\n"
    app = make_app(Script(answer=lambda _: words(code)))
    async with chatting(app) as pilot:
        await ask(pilot, "Code please")
        await ask(pilot, "/copy")
        assert app.clipboard == code
        await ask(pilot, "/copy code")
        assert isinstance(app.screen, Pick)
        await pilot.press("down", "enter")
        assert app.clipboard == "two\nlines"
        for name in ("chat.md", "chat.json"):
            await ask(pilot, f"/export {tmp_path / name}")
            await until(pilot, lambda name=name: (tmp_path / name).exists())
        assert "Code please" in (tmp_path / "chat.md").read_text()
        turns = json.loads((tmp_path / "chat.json").read_text())["turns"]
        assert turns[1]["numbers"]["n_accepted"] > 0
        await ask(pilot, f"/export {tmp_path / 'chat.md'}")
        assert any("exists already" in text for text in said(app))
        await ask(pilot, "/clear")
        assert not app.conversation.turns
        assert "Code please" not in shown(app)


async def test_regenerate_edit_delete() -> None:
    script = Script()
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "One")
        await ask(pilot, "Two")
        script.answer = lambda _: ["another"]
        await pilot.press("ctrl+up", "r")
        await until(pilot, lambda: app.running is None and len(script.asked) == 3)
        assert [m.content for m in script.asked[-1]] == ["One", "You said: One", "Two"]
        assert app.conversation.last_answer.text == "another"
        await ask(pilot, "/edit")
        assert app.prompt.text == "Two"
        await ask(pilot, "Two and a half")
        assert [turn.text for turn in app.conversation.turns[2:]] == ["Two and a half", "another"]
        await ask(pilot, "/edit")
        await pilot.press("escape")
        assert len(app.conversation.turns) == 4
        await pilot.press("ctrl+up", "d", "y")
        await until(pilot, lambda: len(app.conversation.turns) == 2)
        assert "Two and a half" not in shown(app)
        assert len(app.view.views) == 2


async def test_changing_turns_waits_until_the_answer_has_stopped() -> None:
    script = Script(gate=threading.Event())
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "One", wait=False)
        await until(pilot, lambda: script.asked)
        await app.regenerate(None)
        await until(pilot, lambda: len(script.asked) == 2)
        script.gate.set()
        await until(pilot, lambda: app.running is None)
        assert [t.text for t in app.conversation.turns] == ["One", "You said: One"]
        script.gate.clear()
        await ask(pilot, "Two", wait=False)
        await ask(pilot, "/model other-model", wait=False)
        await until(pilot, lambda: len(script.opened) == 2 and app.status is not None)
        assert script.opened[1].model == "other-model"
        assert app.conversation.last_answer.state == "stopped"


async def test_lines_pastes_and_earlier_questions() -> None:
    script = Script()
    app = make_app(script)
    async with chatting(app, (80, 24)) as pilot:
        await pilot.press("a", "ctrl+j", "b")
        assert app.prompt.text == "a\nb"
        app.post_message(Paste("x\r\ny\rz"))
        await until(pilot, lambda: "z" in app.prompt.text)
        assert app.prompt.text == "a\nbx\ny\nz"
        await pilot.press("enter")
        await until(pilot, lambda: script.asked)
        assert script.asked[0][0].content == "a\nbx\ny\nz"
        await ask(pilot, "second question")
        app.prompt.take("half")
        await pilot.press("up")
        assert app.prompt.text == "second question"
        await pilot.press("down")
        assert app.prompt.text == "half"
        await pilot.press("ctrl+r", *"bx")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press("enter")
        assert app.prompt.text == "a\nbx\ny\nz"


async def test_enter_comes_after_the_letters_before_it() -> None:
    script = Script()
    app = make_app(script)
    async with chatting(app) as pilot:
        for key in [*"quick", "enter", *"more"]:
            app.simulate_key(key)  # all at once, as from a terminal while the app was busy
        await until(pilot, lambda: script.asked and app.prompt.text == "more")
        assert script.asked[0][-1].content == "quick"


async def test_attached_files_go_before_the_question(tmp_path: Path) -> None:
    script = Script()
    app = make_app(script)
    (tmp_path / "notes.txt").write_text("the notes\n```\ninner\n```")
    (tmp_path / "picture").write_bytes(b"\x89PNG\0\0")
    async with chatting(app) as pilot:
        await ask(pilot, f"/attach {tmp_path / 'notes.txt'}")
        await until(pilot, lambda: "Attached: notes.txt" in shown(app))
        await ask(pilot, "What is in it?")
        sent = script.asked[0][0].content
        assert sent.startswith("File notes.txt:\n\n````\nthe notes")
        assert sent.endswith("````\n\nWhat is in it?")
        assert "Attached" not in shown(app)
        for name in ("picture", "missing"):
            await ask(pilot, f"/attach {tmp_path / name}")
        await until(pilot, lambda: any("does not hold text" in text for text in said(app)))
        assert any("is not a file" in text for text in said(app))


async def test_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()
    async with chatting(app) as pilot:
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.delenv("EDITOR", raising=False)
        await pilot.press("ctrl+x", "ctrl+e")
        await until(pilot, lambda: any("EDITOR" in text for text in said(app)))
        monkeypatch.setenv("EDITOR", f"{sys.executable} -c pass")
        await pilot.press("ctrl+x", "ctrl+e")
        await until(pilot, lambda: any("cannot be opened" in text for text in said(app)))

        class Suspended:
            def __enter__(self) -> None: ...
            def __exit__(self, *_: object) -> None: ...

        monkeypatch.setattr(app, "suspend", Suspended)
        code = "import sys,pathlib; pathlib.Path(sys.argv[1]).write_text('from the editor\\n')"
        editor = tmp_path / "edit.py"
        editor.write_text(code)
        monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
        await pilot.press("ctrl+x", "ctrl+e")
        await until(pilot, lambda: app.prompt.text == "from the editor")


async def test_fast_questions_never_overlap() -> None:
    script = Script()
    app = make_app(script)
    async with chatting(app) as pilot:
        for i in range(10):
            while len(app.queued) > 5:
                await asyncio.sleep(0.01)
            await app.send(f"q{i}")
            if i % 5 == 3:
                app.stop()
            await asyncio.sleep(0)
        await until(pilot, lambda: app.is_idle)
        answers = [turn for turn in app.conversation.turns if turn.role == "assistant"]
        assert len(answers) == 10
        assert all(turn.state in ("complete", "stopped") for turn in answers)
        for turn in answers:
            if turn.state == "complete":
                assert turn.text == f"You said: {app.conversation.question_of(turn).text}"
