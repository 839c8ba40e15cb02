"""A short soak: what is drawn and kept does not grow with the chat; bench/soak_chat.py times it."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tracemalloc
from typing import Any

import pytest
from helpers_tui import PATIENCE_S, until
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from bench.soak_chat import report, soak_app
from localspec.tui.turns import Run, Turn, question
from localspec.tui.widgets import conversation

MOUNTED = 6
N_WORDS = 30
N_TURNS = 24
"""So many that what Textual's bounded caches take in some of them does not count."""


async def test_a_long_chat_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOUNTED", MOUNTED)
    app = soak_app(N_WORDS, 0.0)
    app.pace_s = 0.005
    counts: list[int] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.status is not None)
        n_turns = MOUNTED + 2
        for turn in range(n_turns):
            await app.send(f"Question {turn}")
            await until(pilot, lambda: app.is_idle)
            counts.append(len(app.query("*")))
            body = app.view.views[-1].body
            assert body is not None
            # Words come in groups: far fewer drawings than words, and never one for each.
            assert body.n_updates <= 30
        assert len(app.conversation.turns) == 2 * n_turns
        assert len(app.view.views) <= MOUNTED
        assert max(counts) <= counts[MOUNTED // 2] + 12
        # The earlier ones are there when they are asked for.
        await app.view.more()
        assert len(app.view.views) == 2 * n_turns
    assert app.inference.quit(PATIENCE_S)


async def test_nothing_stays_of_a_turn_that_left_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MOUNTED", 2)
    app = soak_app(N_WORDS, 0.0)
    app.pace_s = 0.005

    async def turns(pilot: Pilot[int], n: int) -> None:
        for _ in range(n):
            await app.send("Go on")
            await until(pilot, lambda: app.is_idle)
        gc.collect()

    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.status is not None)
        await turns(pilot, 3)
        tracemalloc.start()
        try:
            await turns(pilot, 3)  # all that is on the screen was made since
            n_widgets, n_strips = n_objects(Widget), n_objects(Strip)
            n_bytes = tracemalloc.get_traced_memory()[0]
            await turns(pilot, N_TURNS)
            n_grown = tracemalloc.get_traced_memory()[0] - n_bytes
        finally:
            tracemalloc.stop()
        # All widgets that exist: those that were removed but are still held by something too.
        assert n_objects(Widget) <= n_widgets + 8
        assert n_objects(Strip) <= n_strips + 300
        # Words with their origins and numbers; what Textual remembers of a thousand widgets.
        assert n_grown / N_TURNS < 48 << 10
    assert app.inference.quit(PATIENCE_S)


async def test_turns_far_above_hold_no_lines_and_are_drawn_again() -> None:
    app = soak_app(N_WORDS, 0.0)
    app.pace_s = 0.005
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.status is not None)
        for turn in range(6):
            await app.send(f"Question {turn}")
            await until(pilot, lambda: app.is_idle)
        far, near = app.view.views[0], app.view.views[-2]
        assert far.virtual_region.bottom < app.view.scroll_y - app.view.size.height
        assert n_lines(far) == 0
        assert n_lines(near) > 0
        app.view.scroll_home(animate=False)
        await until(pilot, lambda: n_lines(far) > 0)
        assert "Question 0" in app.export_screenshot().replace("&#160;", " ")
    assert app.inference.quit(PATIENCE_S)


async def test_new_words_cost_one_layout_and_not_two(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts: list[None] = []
    counts: list[int] = []
    lay_out = Screen._refresh_layout

    def counted(self: Screen, *args: Any, **kwargs: Any) -> None:
        layouts.append(None)
        lay_out(self, *args, **kwargs)

    monkeypatch.setattr(Screen, "_refresh_layout", counted)
    app = soak_app(1, 0.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.status is not None)
        await app.view.add(Turn("assistant", "writing"))
        view = app.view.views[-1]
        await view.write([Run("plain", "- First.\n")])
        await until(pilot, lambda: view.size.height > 2)
        await asyncio.sleep(0.1)
        for _ in range(20):
            n_before, height = len(layouts), view.size.height
            await view.write([Run("plain", "- More.\n")])
            await until(pilot, lambda: view.size.height > height)  # noqa: B023
            await asyncio.sleep(0.05)  # a second layout would come with the next picture
            await pilot.pause()
            counts.append(len(layouts) - n_before)
        # The scrollbar that appears has more, and so has what the panel tells meanwhile; where each
        # word has a second one they are two, however late the machine comes to it.
        assert statistics.median(counts) == 1
        await until(pilot, lambda: app.view.scroll_y == app.view.max_scroll_y)
    assert app.inference.quit(PATIENCE_S)


def n_lines(view: Widget) -> int:
    """How many drawn lines a widget and those in it hold."""
    widgets = view.walk_children(Widget, with_self=True)
    return sum(len(w._render_cache.lines) + len(w._styles_cache._cache) for w in widgets)


def n_objects(kind: type) -> int:
    """How many objects of ``kind`` are alive."""
    return sum(isinstance(found, kind) for found in gc.get_objects())


def test_the_report_fails_beyond_its_limits() -> None:
    flat, memory = [0.001] * 100, [10 << 20] * 100
    assert report([0.01] * 50, flat, memory) == 0
    assert report([0.2] * 50, flat, memory) == 1
    assert report([0.01], flat[:50] + [0.002] * 50, memory) == 1
    assert report([0.01], flat, memory[:50] + [200 << 20] * 50) == 1


async def test_scrolling_to_the_top_brings_earlier_turns_and_keeps_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MOUNTED", 8)
    monkeypatch.setattr(conversation, "MORE", 6)
    app = soak_app(1, 0.0)
    async with app.run_test(size=(80, 20)) as pilot:
        await until(pilot, lambda: app.status is not None)
        turns = [question(f"Question {n}") for n in range(300)]
        await app.view.show(turns, coloured=False)
        await pilot.pause()
        view = app.view
        assert len(view.views) == 8
        first = view.views[0]
        while len(view.views) == 8:
            before = view.scroll_y
            await pilot.press("pageup")
            # At the top the next thing is more turns, and no key may come between.
            await until(pilot, lambda: len(view.views) > 8 or 0 < view.scroll_y < before)  # noqa: B023
        await until(pilot, lambda: first.region.y == view.region.y)
        assert len(view.views) == 14
        assert view.views[0].turn is turns[300 - 14]
        assert not view.is_following
        await pilot.press("ctrl+end")
        await until(pilot, lambda: view.is_following and view.scroll_y == view.max_scroll_y)
    assert app.inference.quit(PATIENCE_S)
