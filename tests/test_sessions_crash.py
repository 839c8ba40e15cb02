"""kill -9 at random moments while chats are written: the database opens, and only the last moment
is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import helpers_writer

from localspec.sessions import Chats
from localspec.sessions_types import SavedTurn

N_KILLS = 50
N_MIDDLE = 26  # so many of them at least in the middle of an answer
INTERVAL_S = 0.03  # most of a second in real use; shorter here, so that many writings meet a kill
SEED = 7


def start_writer(path: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, helpers_writer.__file__, str(path), str(INTERVAL_S), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(writer: subprocess.Popen[str], after_s: float) -> list[list[str]]:
    """Kill the writer at some moment of its work, and return the words of its log's lines."""
    with writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(after_s)
        writer.kill()
        lines = [first, *writer.stdout]
    return [line.split() for line in lines if line.endswith("\n")]  # the last may be cut


def test_a_kill_loses_no_more_than_the_last_interval(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    moments = random.Random(SEED)
    places: Counter[str] = Counter()
    chat_ids = []
    # Where a kill meets a writer depends on the disk and on what else runs here: more of them,
    # until many were in the middle of an answer, and not all of them.
    while places.total() < N_KILLS or places["word"] < N_MIDDLE or places.total() == places["word"]:
        assert places.total() < 10 * N_KILLS, places
        # Two at a time in one database: one goes on writing while the other dies.
        kill = places.total()
        writers = [start_writer(path, kill), start_writer(path, kill + 1)]
        logs = [killed(writer, moments.uniform(0.0, 0.2)) for writer in writers]
        with Chats.open(path) as chats:
            assert chats.note == ""
            for log in logs:
                chat_ids.append(log[0][1])
                check(chats.get(log[0][1]).turns, log)
                places[log[-1][0]] += 1
            assert {info.id for info in chats.list(limit=20 * N_KILLS)} == set(chat_ids)


@dataclass
class Known:
    """A turn as the log knows it. ``times``: when the calls with its words began and came back."""

    id: int
    role: str
    times: list[tuple[float, float]]
    n_whole: int | None = None
    """How many words it has, once its end is in the log."""


def known(log: list[list[str]]) -> list[Known]:
    """The turns that have to be there after ``log``."""
    turns: list[Known] = []
    for kind, *words in log:
        if kind == "turn":
            turns.append(Known(int(words[1]), words[0], []))
        elif kind == "word":
            turns[-1].times.append((float(words[1]), float(words[2])))
        elif kind == "end":
            turns[-1].n_whole = int(words[1])
        elif kind == "cut":
            assert turns.pop().id == int(words[0])
    return turns


def check(saved: tuple[SavedTurn, ...] | list[SavedTurn], log: list[list[str]]) -> None:
    """Compare what is saved with a writer's log. The call that the kill interrupted may have been
    carried out or not, and nothing else may differ but words of the last interval."""
    turns = known(log)
    was_cut = len(saved) == len(turns) - 1
    if was_cut:
        # Only an answer that was about to be thrown away may be gone.
        assert log[-1][0] == "end"
        turns.pop()
    assert len(saved) - len(turns) in (0, 1)
    for turn, found in zip(turns, saved, strict=False):
        assert (found.id, found.role) == (turn.id, turn.role)
        if turn.role == "user":
            assert (found.state, found.content.split()[0]) == ("complete", "question")
        elif turn.n_whole is not None:
            assert (found.state, found.content) == ("complete", helpers_writer.text(turn.n_whole))
            assert found.numbers == {"n_tokens": turn.n_whole}
        else:
            check_partial(found, turn.times)
    for begun in saved[len(turns) :]:
        # Begun, and the kill came before the log said so.
        assert log[-1][0] in ("chat", "turn", "end", "cut")
        assert begun.content == "" or begun.content.startswith("question ")


def check_partial(found: SavedTurn, times: list[tuple[float, float]]) -> None:
    """An answer that was not over: a beginning of its text, at most an interval short."""
    n_saved = len(found.content.split())
    assert found.content == helpers_writer.text(n_saved)
    # A call that comes back has written, or was preceded by a writing within the interval before
    # it looked at the clock, which was not before it began; it may have come back much later.
    n_safe = sum(ended <= times[-1][0] - INTERVAL_S for _, ended in times)
    assert n_safe <= n_saved <= len(times) + 1
    if found.state == "complete":  # its end was saved, and the kill came before the log said so
        assert n_saved == len(times)
    else:
        assert found.state == "partial"
