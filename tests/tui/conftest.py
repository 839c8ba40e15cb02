"""What all tests of the chat view share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import textual.app
import textual.pilot
from textual._wait import wait_for_idle

from localspec.tui import arrivals

LONGEST_S = 0.15


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """All that was imported stays; collecting garbage need not look through it in each test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may want no colour; the pictures to compare with have some."""
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each key a pilot waits until the process has nothing to do, for up to a second. While
    an answer is written it always has something to do; what a test waits for it asks for. No real
    model needs the processor meanwhile, so the view need not leave it two thirds either."""

    async def wait(min_sleep: float = 0.0, max_sleep: float = LONGEST_S) -> None:
        await wait_for_idle(min_sleep, min(max_sleep, LONGEST_S))

    monkeypatch.setattr(arrivals, "SHARE", 0.2)
    monkeypatch.setattr(arrivals, "keep_what_there_is", lambda: None)  # one process, many views
    monkeypatch.setattr(textual.app, "wait_for_idle", wait)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", wait)
