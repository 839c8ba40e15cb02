"""Driving the chat view with a scripted session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from localspec.config import Config
from localspec.sessions import Chats
from localspec.spec.sampling import Sampling
from localspec.tui.app import ChatApp
from localspec.tui.fakes import Script, ScriptedOpener
from localspec.tui.settings import Settings

PATIENCE_S = 60.0
"""How long a test waits for something that happens at once: only a fault uses it up."""


def make_app(script: Script | None = None, chats: Chats | None = None, **given: Any) -> ChatApp:
    """A chat view over ``script``. ``given``: more of the app's arguments, or settings."""
    settings = {
        name: given.pop(name)
        for name in ("system", "mode", "theme", "max_tokens", "colour_tokens", "draft_max")
        if name in given
    }
    config = replace(Config(), **settings)
    opener = ScriptedOpener(script or Script())
    return ChatApp(opener, Settings(config, Sampling()), chats, pace_s=0.005, **given)


@asynccontextmanager
async def chatting(
    app: ChatApp, size: tuple[int, int] = (120, 30), *, ready: bool = True
) -> AsyncIterator[Pilot[int]]:
    """The running app; when left, its thread has ended and its database is closed."""
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            if ready:
                await until(pilot, lambda: app.status is not None)
            yield pilot
    finally:
        assert app.inference.quit(PATIENCE_S)
        app.keeper.close()


async def until(pilot: Pilot[int], condition: Callable[[], Any]) -> None:
    """Let the app work until ``condition``."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.01)
    await pilot.pause()


async def ask(pilot: Pilot[int], text: str, *, wait: bool = True) -> None:
    """Type ``text`` (as a paste, which is quicker) and send it."""
    app: Any = pilot.app
    app.prompt.take(text)
    await pilot.press("enter")
    if wait:
        await until(pilot, lambda: app.is_idle)


def said(app: ChatApp) -> list[str]:
    """The messages that popped up."""
    return [notification.message for notification in app._notifications]


def shown(app: ChatApp) -> str:
    """All text on the screen now."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    del width, height
    return "\n".join("".join(segment.text for segment in line) for line in lines)
