"""Opening, asking, stopping, quitting."""

from __future__ import annotations

import threading

import pytest
from helpers_scenes import a_plan
from helpers_tui import ask, chatting, make_app, said, shown, until

from localspec.errors import DecodeError, ModelNotFoundError
from localspec.tui import asking
from localspec.tui.fakes import Script


async def test_the_first_picture_needs_no_model() -> None:
    script = Script(load_gate=threading.Event())
    app = make_app(script)
    async with chatting(app, ready=False) as pilot:
        await until(pilot, lambda: "Downloading tiny-target.gguf" in shown(app))
        assert "50% of 1000 MiB" in shown(app)
        script.load_gate.set()
        await until(pilot, lambda: app.status is not None)
        assert not app.loading_view.display


async def test_the_plan_is_shown_while_loading() -> None:
    script = Script(load_gate=threading.Event(), plan=a_plan("both [models] \x1b[31mfit"))
    app = make_app(script)
    async with chatting(app, (140, 30), ready=False) as pilot:
        await until(pilot, lambda: "Needs 1.50 GiB of 6.00 GiB on CPU" in shown(app))
        assert "context of 4,096 tokens" in shown(app)
        assert "Mode draft: both [models]" in shown(app)
        assert "Pair big-target + small-draft" in shown(app)
        assert "\x1b" not in shown(app)
        app.loading_view.plan("another plan")
        await until(pilot, lambda: "another plan" in shown(app))
        assert "Needs" not in shown(app)
        script.load_gate.set()


async def test_a_question_and_its_answer() -> None:
    app = make_app()
    async with chatting(app) as pilot:
        await ask(pilot, "Hello there, how are you?")
        screen = shown(app)
        assert "You said: Hello there, how are you?" in screen
        assert app.conversation.last_answer.text == "You said: Hello there, how are you?"
        assert app.prompt.text == ""


async def test_escape_stops_at_once_and_keeps_what_there_is() -> None:
    """F34."""
    script = Script(step_s=0.01, answer=lambda _: [f" {i}" for i in range(10_000)])
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "Count", wait=False)
        await until(pilot, lambda: app.running is not None and app.running.text)
        await pilot.press("escape")
        assert app.running is None or app.running.is_stopping
        await until(pilot, lambda: app.running is None)
        answer = app.conversation.last_answer
        assert answer.state == "stopped"
        assert answer.text.startswith(" 0")
        assert "stopped" in shown(app)
        script.answer = lambda _: ["fine"]
        await ask(pilot, "And now?")
        assert app.conversation.last_answer.text == "fine"
        assert len(app.inference._opener.sessions) == 1


async def test_stop_before_the_first_token_leaves_a_usable_chat() -> None:
    script = Script(prefill_s=600.0)
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "Long prompt", wait=False)
        await pilot.press("escape")
        await until(pilot, lambda: app.running is None)
        script.prefill_s = 0.0
        await ask(pilot, "Again")
        roles = [message.role for message in script.asked[-1]]
        assert roles == ["user", "user"]
        assert app.conversation.last_answer.text == "You said: Again"


async def test_a_second_question_waits_visibly_and_two_calls_never_meet() -> None:
    script = Script(gate=threading.Event())
    app = make_app(script)
    async with chatting(app) as pilot:
        for i in range(5):
            await ask(pilot, f"Question {i}", wait=False)
        assert "Queued: Question 3" in shown(app)
        script.gate.set()
        await until(pilot, lambda: app.is_idle)
        answers = [t.text for t in app.conversation.turns if t.role == "assistant"]
        assert answers == [f"You said: Question {i}" for i in range(5)]
        assert "Queued" not in shown(app)


async def test_fifty_questions_at_once_wait_or_are_refused_and_no_two_calls_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F35."""
    monkeypatch.setattr(asking, "MAX_QUEUED", 6)
    script = Script(gate=threading.Event())
    app = make_app(script)
    async with chatting(app) as pilot:
        for i in range(50):
            await app.send(f"Question {i}")
        assert len(app.queued) == 6
        await until(pilot, lambda: any("are waiting already" in text for text in said(app)))
        assert app.prompt.text == "Question 49"
        script.gate.set()
        await until(pilot, lambda: app.is_idle)
        answers = [turn for turn in app.conversation.turns if turn.role == "assistant"]
        assert [turn.text for turn in answers] == [f"You said: Question {i}" for i in range(7)]
        assert {turn.state for turn in answers} == {"complete"}


async def test_a_waiting_question_can_be_taken_back() -> None:
    script = Script(gate=threading.Event())
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "First", wait=False)
        await ask(pilot, "Second", wait=False)
        await pilot.press("up")
        assert app.prompt.text == "Second"
        assert not app.queued
        script.gate.set()


async def test_a_question_before_the_model_is_there_waits_for_it() -> None:
    script = Script(load_gate=threading.Event())
    app = make_app(script)
    async with chatting(app, ready=False) as pilot:
        await ask(pilot, "Early", wait=False)
        assert "Queued: Early" in shown(app)
        script.load_gate.set()
        await until(pilot, lambda: app.conversation.last_answer is not None)
        await until(pilot, lambda: app.running is None)
        assert app.conversation.last_answer.text == "You said: Early"


async def test_an_error_while_loading_is_said_and_reload_works() -> None:
    script = Script(fail_open=ModelNotFoundError("there is no [model] of that name", hint="Try x."))
    app = make_app(script)
    async with chatting(app, ready=False) as pilot:
        await until(pilot, lambda: "there is no [model] of that name" in shown(app))
        assert "Try x." in shown(app)
        await ask(pilot, "Anyone?", wait=False)
        assert app.prompt.text == "Anyone?"
        app.prompt.take("/reload")
        await pilot.press("enter")
        await until(pilot, lambda: app.status is not None)
        await ask(pilot, "Anyone?")
        assert app.conversation.last_answer.text == "You said: Anyone?"


async def test_an_error_in_an_answer_is_said_in_it() -> None:
    script = Script(fail=DecodeError("llama.cpp failed", hint="Ask again."))
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "One two three four five six seven eight nine")
        assert app.conversation.last_answer.state == "failed"
        assert "llama.cpp failed" in shown(app)
        await ask(pilot, "Again")
        assert app.conversation.last_answer.text == "You said: Again"


async def test_a_fault_in_the_thread_leaves_a_usable_chat(caplog) -> None:
    script = Script(fail=ZeroDivisionError("[/oops] items[0"))
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "One two three four five six seven eight nine")
        assert "ZeroDivisionError: [/oops]" in shown(app)
        assert app.conversation.last_answer.text == "You said: One two three"
        assert "inference thread failed" in caplog.text
        assert app.status is None
        app.prompt.take("/reload")
        await pilot.press("enter")
        await until(pilot, lambda: app.status is not None)
        await ask(pilot, "Again")
        assert app.conversation.last_answer.text == "You said: Again"


async def test_quit_while_loading() -> None:
    """F34."""
    app = make_app(Script(load_s=600.0))
    async with chatting(app, ready=False) as pilot:
        await pilot.press("ctrl+q")
    assert app.return_code == 0


async def test_quit_while_answering() -> None:
    """F34."""
    script = Script(step_s=0.01, answer=lambda _: [f" {i}" for i in range(10_000)])
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "Count", wait=False)
        await until(pilot, lambda: app.running is not None and app.running.text)
        await pilot.press("ctrl+q")
    assert app.return_code == 0
    assert script.n_closed == 1


async def test_ctrl_c_copies_a_selection_and_never_quits() -> None:
    app = make_app()
    async with chatting(app) as pilot:
        app.prompt.take("some words")
        await pilot.press("ctrl+c")
        assert any("Ctrl+Q quits" in text for text in said(app))
        app.prompt.select_all()
        await pilot.press("ctrl+c")
        assert app.clipboard == "some words"
        assert app.is_running


async def test_the_same_session_takes_all_answers_and_no_seed_is_made_up() -> None:
    """Without a seed more of a draft model's tokens are kept."""
    script = Script()
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "One")
        await ask(pilot, "Two")
        assert [sampling.seed for sampling in script.samplings] == [None, None]
        assert [m.content for m in script.asked[1]] == ["One", "You said: One", "Two"]
