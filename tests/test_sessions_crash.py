"""kill -9 while an answer is being written: the database opens, and only the last moment is
lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import helpers_writer

from localspec.sessions import Chats

N_KILLS = 50
INTERVAL_S = 0.03  # a second in real use; shorter here, so that many writings meet a kill


def start_writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, helpers_writer.__file__, str(path), str(INTERVAL_S)],
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(writer: subprocess.Popen[str], after_s: float) -> list[str]:
    """Kill the writer at some moment of its work, and return what it logged."""
    with writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(after_s)
        writer.kill()
        lines = [first, *writer.stdout]
    return [line for line in lines if line.endswith("\n")]  # the last may be cut


def test_a_kill_loses_no_more_than_the_last_interval(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    moments = random.Random(7)
    longest, chat_ids = 0, []
    for _ in range(N_KILLS // 2):
        # Two at a time in one database: one goes on writing while the other dies.
        writers = [start_writer(path), start_writer(path)]
        logs = [killed(writer, moments.uniform(0.0, 0.1)) for writer in writers]
        with Chats.open(path) as chats:
            assert chats.note == ""
            for log in logs:
                chat_ids.append(log[0].split()[0])
                longest = max(longest, check(chats, log))
            assert {info.id for info in chats.list(limit=100)} == set(chat_ids)
    assert longest > 5  # or nothing was tested


def check(chats: Chats, log: list[str]) -> int:
    """Compare what is saved with a writer's log; return how many words had to be there."""
    first, *rest = log
    chat_id, turn_id = first.split()
    words = [(int(n), float(before), float(after)) for n, before, after in map(str.split, rest)]
    question, answer = chats.get(chat_id).turns
    assert question.content == "go"
    assert (answer.id, answer.state) == (int(turn_id), "partial")
    saved = answer.content.split()
    assert saved == [f"word{n}" for n in range(len(saved))]
    # A call that comes back has written, or was preceded by a writing within the interval.
    safe = [n for n, _, after in words if after <= words[-1][1] - INTERVAL_S]
    assert len(saved) >= len(safe)
    return len(safe)
