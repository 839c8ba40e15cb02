"""What a session and the commands see: privacy, damage, several vocabularies, failing files."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest
from helpers_history import VOCABULARY, text_of

from localspec.header import Header, Tokens, TokenType
from localspec.history import (
    RUNS,
    History,
    Source,
    follow_deletions,
    forget_all,
    forget_everywhere,
    held_everywhere,
    vocabulary_key,
)
from localspec.history.disk import DATABASE, directory_bytes
from localspec.history.index import directories
from localspec.history.ring import size_bytes
from localspec.sessions import Chats
from localspec.spec.calibration import ALONE, cell_of

CAPACITIES = (4096,)
TEXT = text_of(1, 200, 5000)


def opened(root: Path, vocabulary: bytes = VOCABULARY, limit_bytes: int = 10**7) -> History:
    return History.open(root, vocabulary, limit_bytes=limit_bytes, capacities=CAPACITIES)


def finds(history: History, text: list[int] = TEXT) -> bool:
    match = history.find(text[:100])
    return match is not None and match.token == text[100] and match.length == 32


def on_disk(root: Path, text: list[int] = TEXT) -> bool:
    mark = np.array([token + 1 for token in text[50:60]], np.uint32).tobytes()
    return any(mark in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_what_was_said_is_found_in_the_next_run(tmp_path: Path) -> None:
    history = opened(tmp_path)
    assert not finds(history)
    assert history.remember(TEXT, RUNS) == 200
    history.close()
    history.close()
    again = opened(tmp_path)
    assert again.note == ""
    assert finds(again)
    match = again.find(TEXT[:100])
    assert match is not None
    assert again.around(match.places[0], 10, 50) == (TEXT[90:150], 10)
    assert match.places[0] in again.places(TEXT[:100])
    again.close()


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    history = opened(tmp_path / "data" / "history")
    history.remember(TEXT, RUNS)
    if os.name == "posix":
        for path in (tmp_path / "data").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    history.close()


def test_what_has_no_source_never_reaches_the_disk(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.remember(TEXT, None)
    assert finds(history)
    match = history.find(TEXT[:100])
    assert match is not None
    assert history.around(match.places[0], 10, 20) == (TEXT[90:120], 10)
    assert match.places[0] in history.places(TEXT[:100])
    assert not on_disk(tmp_path)
    history.close()
    assert not on_disk(tmp_path)
    again = opened(tmp_path)
    assert not finds(again)
    again.close()


def test_memory_goes_round_and_keeps_the_newest() -> None:
    history = History.in_memory()
    for seed in range(60):
        text = text_of(seed, 3000, 40_000)
        history.remember(text, None)
        assert finds(history, text[-500:])
    assert not finds(history, text_of(0, 3000, 40_000))
    history.close()


def test_the_longer_of_disk_and_memory_wins(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.remember([1, 2, 3, 4, 5, 6, 70], RUNS)
    history.remember([9, 3, 4, 5, 6, 80], None)
    near = history.find([9, 3, 4, 5, 6])
    far = history.find([2, 3, 4, 5, 6])
    assert near is not None
    assert near.token == 80
    assert far is not None
    assert far.token == 70
    history.helped(near.places[0], 3)
    history.helped(far.places[0], 3)
    history.close()


def test_calibration_is_kept_and_added_up(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    cell = cell_of(8, False, ALONE, 0.8)
    before = one.calibration.chance(cell)
    for history in (one, two):
        for _ in range(20):
            history.calibration.observe(cell, hit=False)
        history.close()
    again = opened(tmp_path)
    assert again.calibration.chance(cell) == pytest.approx(before * 16 / 56)
    again.close()


# -- deleting -------------------------------------------------------------------------------------


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats.open(tmp_path / "chats.sqlite3")


def test_deleting_a_chat_deletes_what_was_learned_from_it(tmp_path: Path, chats: Chats) -> None:
    root = tmp_path / "history"
    told: list[str] = []
    other = text_of(2, 200, 5000)
    gone, stays = chats.new(), chats.new()
    chats.add_turn(gone, "user", "a secret")
    chats.add_turn(stays, "user", "none")
    history = opened(root)
    history.remember(TEXT, Source("chat", gone))
    history.remember(other, Source("chat", stays))
    follow_deletions(chats, root, told.append)
    assert on_disk(root)
    chats.delete(gone)
    assert not on_disk(root)
    assert not finds(history)
    assert finds(history, other)
    assert told == []
    history.close()
    chats.close()


def test_deleting_the_last_answer_deletes_it_here_too(tmp_path: Path, chats: Chats) -> None:
    root = tmp_path / "history"
    chat = chats.new()
    turn = chats.add_turn(chat, "user", "a secret")
    history = opened(root)
    history.remember(TEXT, Source("chat", chat))
    follow_deletions(chats, root, lambda text: pytest.fail(text))
    chats.delete_turns_from(chat, turn)
    assert not on_disk(root)
    assert history.remember(TEXT, Source("chat", chat)) == 200, "it can be learned again"
    history.close()
    chats.close()


def test_what_was_deleted_while_nobody_looked_goes_later(tmp_path: Path, chats: Chats) -> None:
    root = tmp_path / "history"
    chat = chats.new()
    chats.add_turn(chat, "user", "a secret")
    with_disk = opened(root)
    with_disk.remember(TEXT, Source("chat", chat))
    with_disk.close()
    chats.delete(chat)
    assert on_disk(root)
    follow_deletions(chats, root, lambda text: pytest.fail(text))
    assert not on_disk(root)
    chats.close()


def test_what_came_after_its_chat_was_deleted_goes_later(tmp_path: Path, chats: Chats) -> None:
    root = tmp_path / "history"
    chat = chats.new()
    chats.add_turn(chat, "user", "a secret")
    history = opened(root)
    history.remember(text_of(3), Source("chat", chat))
    follow_deletions(chats, root, lambda text: pytest.fail(text))
    chats.delete(chat)
    history.remember(TEXT, Source("chat", chat))  # the answer was still being written
    history.close()
    assert on_disk(root)
    follow_deletions(chats, root, lambda text: pytest.fail(text))
    assert not on_disk(root)
    chats.close()


def test_a_deletion_that_cannot_follow_says_so(
    tmp_path: Path, chats: Chats, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "history"
    told: list[str] = []
    chat = chats.new()
    chats.add_turn(chat, "user", "a secret")
    opened(root).close()
    follow_deletions(chats, root, told.append)
    busy = sqlite3.connect(directories(root)[0] / DATABASE, isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("localspec.history.sources._BUSY_S", 0.05)
    chats.delete(chat)
    busy.close()
    assert len(told) == 1
    assert "history forget" in told[0]
    chats.close()


def test_forgetting_reaches_every_vocabulary_and_damaged_files(tmp_path: Path) -> None:
    for vocabulary in (b"a" * 32, b"b" * 32):
        history = opened(tmp_path, vocabulary)
        history.remember(TEXT, Source("file", "/x/y.py"))
        history.close()
    history = opened(tmp_path, b"c" * 32)
    history.remember(TEXT, RUNS)
    history.close()
    (directories(tmp_path)[0] / "ring-0.bin").write_bytes(b"damage")
    assert forget_everywhere(tmp_path, "file", ["/x/y.py", "/x/z.py"]) == 400
    assert not on_disk(tmp_path)
    assert len(directories(tmp_path)) == 2, "what cannot be cleaned is deleted"


def test_everything_can_be_forgotten(tmp_path: Path) -> None:
    forget_all(tmp_path / "history")
    history = opened(tmp_path / "history")
    history.remember(TEXT, RUNS)
    history.close()
    forget_all(tmp_path / "history")
    assert not (tmp_path / "history").exists()


# -- bounds ---------------------------------------------------------------------------------------


def test_all_vocabularies_together_stay_within_the_limit(tmp_path: Path) -> None:
    limit = 3 * (size_bytes(4096) + 150_000)
    for number in range(8):
        history = opened(tmp_path, bytes([number]) * 32, limit)
        history.remember(text_of(number), RUNS)
        history.close()
        os.utime(directories(tmp_path)[0] / DATABASE, (1000 + number, 1000 + number))
    left = [directory.name[:2] for directory in directories(tmp_path)]
    assert left[:2] == ["07", "06"], "the last used ones stay"
    assert "00" not in left
    assert sum(map(directory_bytes, directories(tmp_path))) <= limit


def test_what_is_held_is_told(tmp_path: Path) -> None:
    history = History.open(tmp_path, VOCABULARY, model="some-model", capacities=CAPACITIES)
    history.remember(TEXT, Source("file", "/a/b.py", "1:2"))
    assert history.is_known(Source("file", "/a/b.py", "1:2"))
    assert not history.is_known(Source("file", "/a/b.py", "3:2"))
    history.close()
    (held,) = held_everywhere(tmp_path)
    assert (held.model, held.n_tokens, held.capacity) == ("some-model", 200, 4096)
    assert [(info.kind, info.name) for info in held.sources] == [("file", "/a/b.py")]
    assert held.n_bytes >= size_bytes(4096)


# -- damage ---------------------------------------------------------------------------------------


def test_damaged_files_are_set_aside_with_one_line(tmp_path: Path) -> None:
    for damage in ("ring", "ring gone", "database", "database of another program", "version"):
        history = opened(tmp_path)
        history.remember(TEXT, RUNS)
        history.close()
        directory = directories(tmp_path)[0]
        if damage == "ring":
            (directory / "ring-0.bin").write_bytes(b"x" * 100)
        elif damage == "ring gone":
            (directory / "ring-0.bin").unlink()
        elif damage == "database":
            (directory / DATABASE).write_bytes(b"no database at all" * 100)
        else:
            with sqlite3.connect(directory / DATABASE) as db:
                db.execute("PRAGMA user_version = 99" if damage == "version" else "DROP TABLE docs")
            db.close()
        again = opened(tmp_path)
        if damage != "database of another program":  # a lost table is made again
            assert "damaged" in again.note, damage
            assert "\n" not in again.note
        assert not finds(again) or damage == "database of another program"
        again.remember(TEXT, RUNS)
        assert finds(again)
        again.close()
        shutil.rmtree(directory)


def test_flipped_bytes_are_never_fatal(tmp_path: Path) -> None:
    rng = random.Random(5)
    history = opened(tmp_path)
    for seed in range(10):
        history.remember(text_of(seed, 200, 5000), Source("chat", str(seed)))
    history.close()
    (directory,) = directories(tmp_path)
    # In an order that the file system has no say in, so that the seed decides what is damaged.
    files = sorted(path for path in directory.iterdir() if path.is_file())
    whole = {path: path.read_bytes() for path in files}
    for _ in range(30):
        for path, data in whole.items():
            path.write_bytes(data)
        path = rng.choice(files)
        flipped = bytearray(whole[path])
        for _ in range(rng.choice([1, 5, 200])):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del flipped[rng.randrange(len(flipped)) :]
        path.write_bytes(bytes(flipped))
        again = opened(tmp_path)
        for seed in range(10):
            match = again.find(text_of(seed, 200, 5000)[:100])
            if match is not None:
                again.around(match.places[0], 32, 63)
        again.remember(text_of(77, 200, 5000), RUNS)
        again.held()
        again.forget("chat", ["3"])
        again.close()
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        if not directory.exists():
            directory.mkdir()


def test_without_a_place_to_write_there_is_only_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    history = opened(blocked / "history")
    assert "Nothing is drafted from earlier answers" in history.note
    history.begin()
    assert history.remember(TEXT, RUNS) == 200
    assert finds(history)
    assert history.held() is None
    history.close()


def test_files_that_fail_later_are_no_longer_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = opened(tmp_path)
    busy = sqlite3.connect(directories(tmp_path)[0] / DATABASE, isolation_level=None)
    busy.execute("BEGIN EXCLUSIVE")
    assert history._disk is not None
    history._disk._db._db.execute("PRAGMA busy_timeout = 20")
    assert history.remember(TEXT, RUNS) == 0
    busy.close()
    assert "locked" in history.note
    history.begin()
    history.remember(TEXT, RUNS)
    assert finds(history)
    history.close()


# -- vocabularies ---------------------------------------------------------------------------------


def header(*texts: str, padding: int = 0) -> Header:
    names = [*texts, *(f"[PAD{i}]" for i in range(padding))]
    encoded = [len(name).to_bytes(8, "little") + name.encode() for name in names]
    starts = np.cumsum([0, *map(len, encoded)])
    types = [TokenType.NORMAL] * len(texts) + [TokenType.UNUSED] * padding
    return Header(
        3, {}, tokens=Tokens(b"".join(encoded), starts), token_types=np.array(types, np.int32)
    )


def test_the_key_of_a_vocabulary_is_its_texts_without_padding() -> None:
    key = vocabulary_key(header("a", "b", "c"))
    assert len(key) == 32
    assert vocabulary_key(header("a", "b", "c", padding=5)) == key
    assert vocabulary_key(header("a", "b", "d")) != key
    assert vocabulary_key(header("ab", "c")) != vocabulary_key(header("a", "bc"))
