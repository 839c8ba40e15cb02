"""Who goes first: the letter of a key, or the next words of an answer."""

from __future__ import annotations

import asyncio
import gc

import pytest
from helpers_tui import PATIENCE_S, until

from bench.soak_chat import soak_app
from localspec.tui import arrivals, garbage
from localspec.tui.arrivals import KEY_FIRST_S, SLOWEST_S, Arrivals
from localspec.tui.garbage import keep_what_there_is as keep

NOW = 1000.0


class View:
    """As much of the app as ``_rest`` needs."""

    def __init__(self, key_at: float, took_at: float) -> None:
        self.key_at, self.took_at = key_at, took_at
        self.waits: list[float] = []
        self.n_taken = 0
        self.outbox = self

    def set_timer(self, delay: float, _callback: object) -> None:
        self.waits.append(delay)

    def rest(self) -> bool:
        return False  # something has come meanwhile

    async def _take(self) -> None:
        self.n_taken += 1

    async def _rest(self) -> None: ...


@pytest.mark.parametrize(
    ("key_age", "batch_age", "wait"),
    [
        (9.0, 0.1, None),  # nobody types
        (0.02, 0.1, KEY_FIRST_S - 0.02),  # the letter of that key comes first
        (0.02, SLOWEST_S - 0.01, 0.01),  # but the answer has waited long enough
        (0.02, SLOWEST_S + 0.1, None),
    ],
)
def test_the_letter_of_a_key_comes_first(
    monkeypatch: pytest.MonkeyPatch, key_age: float, batch_age: float, wait: float | None
) -> None:
    monkeypatch.setattr(arrivals.time, "monotonic", lambda: NOW)
    view = View(NOW - key_age, NOW - batch_age)
    asyncio.run(Arrivals._rest(view))  # type: ignore[arg-type]
    assert view.waits == ([] if wait is None else [pytest.approx(wait)])
    assert view.n_taken == (1 if wait is None else 0)


def test_what_stays_is_not_looked_through_for_garbage_again() -> None:
    before, n_frozen = gc.get_threshold(), gc.get_freeze_count()
    more = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    try:
        keep()
        assert gc.get_freeze_count() >= n_frozen + len(more)
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.set_threshold(*before)


async def test_that_is_done_once_the_model_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    app = soak_app(1, 0.0)
    monkeypatch.setattr(arrivals, "keep_what_there_is", lambda: calls.append(app.status is None))
    async with app.run_test(size=(80, 20)) as pilot:
        await until(pilot, lambda: app.status is not None)
        await until(pilot, lambda: bool(calls))
    assert calls == [True]
    assert app.inference.quit(PATIENCE_S)


@pytest.mark.parametrize(
    ("n_rounds", "at_rest", "collects"),
    [
        (garbage.WORTH - 1, True, False),
        (garbage.WORTH, True, True),
        (garbage.WORTH, False, False),
        (garbage.DUE, False, True),
    ],
)
def test_all_objects_are_looked_through_at_rest_or_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch, n_rounds: int, at_rest: bool, collects: bool
) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(garbage.gc, "get_count", lambda: (0, 0, n_rounds))
    monkeypatch.setattr(garbage.gc, "collect", lambda: calls.append(True))
    garbage.look_through_all(at_rest=at_rest)
    assert bool(calls) == collects


@pytest.mark.parametrize(
    ("n_objects", "collected"), [(garbage.YOUNG - 1, []), (garbage.YOUNG, [1])]
)
def test_the_young_are_looked_through_between_two_pictures(
    monkeypatch: pytest.MonkeyPatch, n_objects: int, collected: list[int]
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(arrivals.time, "monotonic", lambda: NOW)
    monkeypatch.setattr(garbage.gc, "get_count", lambda: (n_objects, 0, 0))
    monkeypatch.setattr(garbage.gc, "collect", calls.append)
    asyncio.run(Arrivals._rest(View(NOW - 9, NOW - 9)))  # type: ignore[arg-type]
    assert calls == collected
    calls.clear()
    asyncio.run(Arrivals._rest(View(NOW - 0.01, NOW)))  # type: ignore[arg-type]
    assert calls == []  # somebody types


async def test_that_happens_while_nobody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(arrivals, "look_through_all", lambda at_rest: calls.append(at_rest))
    monkeypatch.setattr(arrivals, "REST_S", 0.05)
    app = soak_app(3, 0.0)
    async with app.run_test(size=(80, 20)) as pilot:
        await until(pilot, lambda: app.status is not None)
        await app.send("Hello")
        await until(pilot, lambda: app.is_idle and True in calls)
        assert False in calls
        calls.clear()
        app.key_at = arrivals.time.monotonic() + 100  # a key, from now on
        await app._take()
        app._at_rest()
        assert calls == []
    assert app.inference.quit(PATIENCE_S)
