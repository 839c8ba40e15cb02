"""Several processes at once, and processes that are killed in the middle of writing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers_history import VOCABULARY, is_part, owned_by_nobody, stored, text_of

from localspec.history import History, Source, forget_everywhere, sources
from localspec.history.disk import DiskIndex
from localspec.history.index import directories
from localspec.history.ring import Ids, Ring

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested is that nothing gets lost, not how long a slow disk keeps the others waiting
    (the writers are as patient)."""
    monkeypatch.setattr(sources, "_BUSY_S", 60.0)


def start(root: Path, name: str, first: int, n: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    return subprocess.Popen(
        [sys.executable, TESTS / "helpers_history_writer.py", root, name, str(first), str(n)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_two_processes_add_and_a_third_reads(tmp_path: Path) -> None:
    History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536)).close()
    reader = History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536))
    writers = [start(tmp_path, "a", 0, 80), start(tmp_path, "b", 1000, 80)]
    while any(writer.poll() is None for writer in writers):
        reader.begin()
        for number in (0, 1000, 40, 1040):
            match = reader.find(text_of(number, 120, 5000)[:60])
            if match is not None:
                reader.around(match.places[0], 32, 63)
        time.sleep(0.01)
    said = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    assert said.count("failed") == 0
    assert len(said) == 160
    assert reader.note == ""
    reader.begin()
    n_found = 0
    for number in [*range(80), *range(1000, 1080)]:
        text = text_of(number, 120, 5000)
        match = reader.find(text[:60])
        n_found += match is not None and match.length == 32 and match.token == text[60]
    # Very frequent last tokens may hide an old place from the search; most must be found.
    assert n_found > 130, "both writers' texts are there, through all growing"
    reader.close()
    texts = stored(directories(tmp_path)[0])
    assert len(texts) == 160
    for name, parts in texts.items():
        whole = text_of(int(name.split("-")[1]), 120, 5000)
        assert all(is_part(part, whole) for part in parts)
    assert owned_by_nobody(directories(tmp_path)[0]) == 0


@pytest.mark.skipif(os.name == "nt", reason="kills are tested where there is SIGKILL")
def test_a_kill_loses_at_most_the_text_that_was_being_added(tmp_path: Path) -> None:
    rng = random.Random(7)
    first = 0
    for _ in range(6):
        writer = start(tmp_path, "k", first, 100_000)
        assert writer.stdout is not None
        assert writer.stdout.readline().startswith("added")
        time.sleep(rng.uniform(0.0, 0.25))
        writer.kill()
        rest = writer.communicate()[0].splitlines()
        last = int(rest[-1].split()[1]) if rest and len(rest[-1].split()) == 2 else first
        history = History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536))
        assert history.note == ""
        for number in range(max(first, last - 10), last + 1):
            match = history.find(text_of(number, 120, 5000)[:60])
            assert match is not None
            assert match.token == text_of(number, 120, 5000)[60]
        history.close()
        (directory,) = directories(tmp_path)
        assert len(list(directory.glob("ring-*"))) == 1
        stored(directory)
        first = last + 2
    forget_everywhere(tmp_path, "chat", ["k-0"])
    assert owned_by_nobody(directory) == 0, (
        "what a killed process left goes with the next forgetting"
    )


def test_room_that_another_process_took_meanwhile_costs_no_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is not full when a text is about to be added, and full when it is its turn."""
    one = History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536))
    other = History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536))
    for number in range(60):
        one.remember(text_of(number, 120, 5000), Source("chat", f"one-{number}"))
    lacks_room = DiskIndex._lacks_room
    late = iter(range(100, 107))

    def then_the_other(self: DiskIndex, ids: Ids) -> bool:
        lacks = lacks_room(self, ids)
        monkeypatch.setattr(DiskIndex, "_lacks_room", lacks_room)
        for number in late:
            other.remember(text_of(number, 120, 5000), Source("chat", f"other-{number}"))
        return lacks

    monkeypatch.setattr(DiskIndex, "_lacks_room", then_the_other)
    one.remember(text_of(200, 120, 5000), Source("chat", "one-200"))
    assert len(stored(directories(tmp_path)[0])) == 68
    one.close()
    other.close()


def test_an_index_may_be_opened_while_another_process_makes_it_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens it removes files that are not in use; the new one is none of them."""
    one = History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536))
    create = Ring.create
    openers: list[threading.Thread] = []

    def open_it() -> None:
        History.open(tmp_path, VOCABULARY, capacities=(8192, 65_536)).close()

    def meanwhile(path: Path, capacity: int, vocabulary: bytes) -> Ring:
        ring = create(path, capacity, vocabulary)
        openers.append(threading.Thread(target=open_it))
        openers[-1].start()
        openers[-1].join(1.0)  # it may have to wait until the larger file is in use
        return ring

    monkeypatch.setattr(Ring, "create", meanwhile)
    for number in range(80):
        one.remember(text_of(number, 120, 5000), Source("chat", f"one-{number}"))
    assert one.note == ""
    one.close()
    (opener,) = openers
    opener.join()
    assert len(stored(directories(tmp_path)[0])) == 80


def test_who_slept_while_the_index_grew_twice_sees_the_new_one(tmp_path: Path) -> None:
    sizes = (8192, 16_384, 32_768)
    asleep = History.open(tmp_path, VOCABULARY, capacities=sizes)
    awake = History.open(tmp_path, VOCABULARY, capacities=sizes)
    for number in range(200):
        awake.remember(text_of(number, 120, 5000), Source("chat", str(number)))
    awake.close()
    asleep.begin()
    match = asleep.find(text_of(199, 120, 5000)[:60])
    assert match is not None
    assert match.length == 32
    asleep.close()
