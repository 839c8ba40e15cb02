"""Text from models and people: shown as it is, in full, at a bounded cost."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from helpers_tui import ask, chatting, make_app, shown, until
from textual.widgets import Static

from localspec.errors import DecodeError, PromptError
from localspec.tui.fakes import Script, ScriptedSession, ScriptedStatus, words
from localspec.tui.turns import Turn
from localspec.tui.widgets.answer import Thinking
from localspec.tui.widgets.markdown import MarkdownPart
from localspec.tui.widgets.message import code_blocks
from localspec.tui.widgets.text import CHUNK, Chunks

BRACKETS = (
    "[/oops",
    "items[0",
    "[red]red[/red]",
    '{"f": [on, off]}',
    r"\[",
    "[@click=app.quit]x[/]",
)


async def test_brackets_are_text_everywhere() -> None:
    """F32."""
    hostile = " ".join(BRACKETS)
    status = ScriptedStatus(model="[/oops].gguf", draft="[red]d.gguf", reason=f"why: {BRACKETS[0]}")
    script = Script(
        answer=lambda _: words(f"`{hostile}`"), status=status, notes=[f"note {hostile}"],
        template_note="[/oops] has no template",
    )  # fmt: skip
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "[/oops items[0")
        screen = shown(app)
        for text in (
            "[/oops] + [red]d",
            "why: [/oops",
            "[/oops] has no template",
            "[/oops items[0",
        ):
            assert text in screen
        assert '{"f": [on, off]}' in screen
        app.say(f"toast {BRACKETS[5]}", "error")
        await until(pilot, lambda: "toast [@click=app.quit]x[/]" in shown(app))
        script.fail = DecodeError("it [broke] at items[0", hint="[/oops")
        script.fail_after = 0
        await ask(pilot, "[red]")
        assert "it [broke] at items[0" in shown(app)
        await ask(pilot, "/nosuch [/oops")
        await ask(pilot, "/attach /no/such/[/oops")
        assert app.is_running


async def test_control_characters_and_html_reach_neither_screen_nor_style() -> None:
    script = Script(
        answer=lambda _: ["a\x1b[31mred\x07 \u202eevil\u202c ", "<b>bold</b> &amp; <i>"]
    )
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "\x1b]0;title\x07 hi")
        screen = shown(app)
        assert "\x1b" not in screen
        assert "\u202e" not in screen
        assert "a[31mred evil <b>bold</b> & <i>" in screen
        assert "]0;title hi" in screen


async def test_many_scripts_stream_whole() -> None:
    """F20."""
    pieces = ["한국", "어 ", "👩‍🚀", " ❤️ é ", "שלום", " \N{REPLACEMENT CHARACTER}"]
    app = make_app(Script(answer=lambda _: pieces))
    async with chatting(app, (60, 15)) as pilot:
        await ask(pilot, "Go")
        assert app.conversation.last_answer.text == "".join(pieces)
        assert "👩‍🚀" in shown(app)


async def test_thinking_is_folded_until_asked_for() -> None:
    app = make_app(Script(answer=lambda _: words("<think>\nsecret plan\n</think>\n\nThe answer")))
    async with chatting(app) as pilot:
        await ask(pilot, "Go")
        assert "▸ Thought, about 2 words" in shown(app)
        assert "secret plan" not in shown(app)
        await pilot.press("ctrl+up", "t")
        await until(pilot, lambda: "secret plan" in shown(app))
        await pilot.press("t")
        await until(pilot, lambda: "secret plan" not in shown(app))


async def test_thinking_that_the_prompt_began_is_folded_too() -> None:
    script = Script(answer=lambda _: words("hm\n</think>\nYes"), prompt_end="<think>\n")
    app = make_app(script)
    async with chatting(app) as pilot:
        await ask(pilot, "Go")
        assert len(app.query(Thinking)) == 1
        assert "hm" not in shown(app)


LONG = (
    "- an item\n  - nested\n" * 300
    + "```\n" + "code | line\n" * 900 + "```\n"
    + "| a | b |\n" * 300 + "\n" + "some words\n\n" * 300
)  # fmt: skip


async def test_a_long_answer_costs_no_more_per_word_at_its_end() -> None:
    """F36."""
    app = make_app(Script(answer=lambda _: words(LONG), accepted=(9,), n_draft=9))
    async with chatting(app) as pilot:
        await ask(pilot, "Go")
        answer = app.conversation.last_answer
        assert answer.text == LONG
        view = app.view.view_of(answer)
        parts = list(view.query(MarkdownPart))
        assert "".join(part.text for part in parts).count("code | line") == 900
        # An update draws one part, which is short; there are far fewer updates than steps.
        assert max(len(part.text) for part in parts) < 3_500
        assert view.body.n_updates < len(words(LONG)) / 10
        assert len(view.query("*")) < len(LONG) / 400
        await pilot.press("pageup")
        await until(pilot, lambda: not app.view.is_following)


async def test_the_view_stays_where_the_user_put_it() -> None:
    script = Script(answer=lambda _: [f"line {i}\n\n" for i in range(300)], step_s=0.005)
    app = make_app(script)
    async with chatting(app, (100, 20)) as pilot:
        await ask(pilot, "Go", wait=False)
        await until(pilot, lambda: app.view.max_scroll_y > 40)
        app.view.scroll_to(y=5, animate=False)
        await until(pilot, lambda: app.view.scroll_y == 5)
        await until(pilot, lambda: app.running is None)
        assert app.view.scroll_y == 5
        await pilot.press("ctrl+end")
        await until(pilot, lambda: "line 299" in shown(app))


async def test_colours_show_where_words_came_from() -> None:
    app = make_app(Script(accepted=(1, None), n_draft=2, answer=lambda _: words("a b c d e f g")))
    async with chatting(app, (120, 40)) as pilot:
        await ask(pilot, "Go")
        await pilot.press("f4")
        await until(pilot, lambda: app.query(Chunks))
        assert "guessed by the draft model" in shown(app)
        part = app.query_one("AnswerBody Chunks Static", Static)
        content = part.content
        styles = {content.plain[s.start : s.end].strip(): str(s.style) for s in content.spans}
        assert "underline" in styles["b"]
        assert "reverse" in styles["c"]
        await ask(pilot, "Once more")
        assert app.view.views[-1].query(Chunks)
        await pilot.press("f4")
        await until(pilot, lambda: not app.query(Chunks))
        assert len(app.query(MarkdownPart)) == 2


def test_where_each_word_came_from() -> None:
    turn = Turn("assistant")
    script = Script(accepted=(2, 0, None, 4), n_draft=4)
    for step in ScriptedSession(script)._steps(words("a b c d e f g h i j k l")):
        turn.add(step)
    assert [(run.origin, run.text.split()) for run in turn.runs] == [
        ("plain", ["a"]),
        ("draft", ["b", "c"]),
        ("corrected", ["d", "e"]),
        ("plain", ["f"]),
        ("draft", ["g", "h", "i", "j"]),
        ("plain", ["k"]),
        ("corrected", ["l"]),
    ]
    assert turn.text == "a b c d e f g h i j k l"


async def test_long_plain_text_is_drawn_in_parts() -> None:
    text = "some words\n" * 1000
    app = make_app(Script(answer=lambda _: [text]), colour_tokens=True)
    async with chatting(app) as pilot:
        await ask(pilot, "Go")
        parts = [len(str(part.content)) for part in app.query("Chunks > Static").results(Static)]
        assert max(parts) <= CHUNK + 20
        assert sum(parts) == len(text) - len(parts)


def test_code_blocks() -> None:
    text = "x\n```py\na\n```\n\n~~~\nb\n```\n~~~\nend\n```\nopen"
    assert code_blocks(text) == ["a", "b\n```", "open"]


@pytest.mark.parametrize("size", [(60, 15), (79, 24), (100, 30), (250, 80)])
async def test_every_size_has_room(size: tuple[int, int]) -> None:
    app = make_app(
        Script(answer=lambda _: words("words " * 200 + "\n\n| a | b | c |\n|-|-|-|\n| 1 | 2 | 3 |"))
    )
    async with chatting(app, size) as pilot:
        await ask(pilot, "Go")
        assert len(shown(app).splitlines()) == size[1]
        assert app.spec_panel.display == (size[0] >= 100)
        assert app.status_line.display == (size[0] < 100)
        await pilot.resize_terminal(60, 15)
        await until(pilot, lambda: app.status_line.display)


async def test_a_prompt_that_is_too_long_is_refused_in_words() -> None:
    status = replace(ScriptedStatus(), n_ctx=64)
    app = make_app(Script(status=status))
    async with chatting(app) as pilot:
        await ask(pilot, "word " * 200)
        assert "but the context has room for" in shown(app)
        await ask(pilot, "short")
        assert app.conversation.last_answer.state in ("complete", "failed")
    assert PromptError.exit_code == 1


async def test_every_width_has_its_own_lines() -> None:
    sentence = "Some words of a sentence that is longer than most screens are wide. "
    text = sentence * 6
    app = make_app(Script(lambda _: words(text)))
    async with chatting(app, (60, 15)) as pilot:
        await ask(pilot, "Go on")
        # The last but one is too small for anything; nothing may fail there, or be lost after it.
        for size in ((200, 30), (40, 20), (5, 3), (110, 30)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: app.return_code is None and app.is_running)
            part = app.query_one(MarkdownPart)
            if size[0] < 40:
                continue
            lines = part.render().plain.splitlines()
            assert part.size.height == len(lines)
            assert " ".join(lines) == text.strip()
            width = part.size.width
            assert all(
                len(line) <= width < len(line) + 1 + len(rest.split()[0])
                for line, rest in itertools.pairwise(lines)
            )
            on_screen = [
                line[: app.view.size.width - 1].strip() for line in shown(app).splitlines()
            ]
            assert any(line in on_screen for line in lines)
