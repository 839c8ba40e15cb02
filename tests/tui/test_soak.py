"""A short soak: what is drawn and kept does not grow with the chat; bench/soak_chat.py times it."""

from __future__ import annotations

import pytest
from helpers_tui import until

from bench.soak_chat import report, soak_app
from localspec.tui.widgets import conversation

MOUNTED = 10


async def test_a_long_chat_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOUNTED", MOUNTED)
    app = soak_app(60, 0.0)
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
    assert app.inference.quit(20.0)


def test_the_report_fails_beyond_its_limits() -> None:
    flat, memory = [0.001] * 100, [10 << 20] * 100
    assert report([0.01] * 50, flat, memory) == 0
    assert report([0.2] * 50, flat, memory) == 1
    assert report([0.01], flat[:50] + [0.002] * 50, memory) == 1
    assert report([0.01], flat, memory[:50] + [200 << 20] * 50) == 1
