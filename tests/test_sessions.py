"""Saved chats: what is written comes back, what is deleted is gone, a damaged file stops nobody."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec import sessions_schema
from localspec.errors import LocalspecError, UsageError
from localspec.sessions import Chats, Deleted
from localspec.sessions_schema import MIGRATIONS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.sqlite3"


@pytest.fixture
def chats(path: Path) -> Iterator[Chats]:
    with Chats.open(path) as opened:
        yield opened


def a_chat(chats: Chats, question: str = "Why is the sky blue?", answer: str = "Light.") -> str:
    chat = chats.new(model="big", draft="small", system="Be brief.", settings={"mode": "auto"})
    chats.add_turn(chat, "user", question, settings={"temperature": 0})
    chats.add_turn(chat, "assistant", answer, numbers={"n_tokens": 3, "gain": 1.5})
    return chat


def test_a_chat_comes_back_as_it_was_written(path: Path) -> None:
    with Chats.open(path) as chats:
        chat = a_chat(chats, answer="Naïve 한국어 \U0001f468\u200d\U0001f680 \x1b[31m\x00!")
    with Chats.open(path) as chats:
        saved = chats.get(chat)
    assert (saved.info.model, saved.info.draft, saved.info.n_turns) == ("big", "small", 2)
    assert (saved.system, saved.settings) == ("Be brief.", {"mode": "auto"})
    question, answer = saved.turns
    assert (question.role, question.content) == ("user", "Why is the sky blue?")
    assert question.settings == {"temperature": 0}
    assert answer.content == "Naïve 한국어 \U0001f468\u200d\U0001f680 \x1b[31m\x00!"
    assert answer.numbers == {"n_tokens": 3, "gain": 1.5}
    assert answer.state == "complete"


@pytest.mark.skipif("sys.platform == 'win32'", reason="Windows has no permission bits")
def test_only_the_owner_can_read_the_files(path: Path) -> None:
    with Chats.open(path) as chats:
        a_chat(chats)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        files = list(path.parent.iterdir())
        assert len(files) == 3  # the database and its two companions
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    path.chmod(0o644)
    Chats.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_not_saving_writes_no_file(path: Path) -> None:
    with Chats.open(None) as chats:
        chat = a_chat(chats)
        assert chats.get(chat).info.n_turns == 2
        assert chats.search("sky")
    assert not path.parent.exists()


def test_first_question_becomes_the_title(chats: Chats) -> None:
    chat = a_chat(chats, question="\n\n  What \x1b is\tthis?\nIt is long.")
    assert chats.get(chat).info.title == "What \N{REPLACEMENT CHARACTER} is this?"
    chats.rename(chat, "x" * 100 + "\nsecond line")
    assert chats.get(chat).info.title == "x" * 59 + "…"
    chats.add_turn(chat, "user", "More?")
    assert chats.get(chat).info.title == "x" * 59 + "…"


def test_list_has_the_last_used_first_and_no_empty_chats(chats: Chats) -> None:
    assert chats.latest() is None
    first, second = a_chat(chats), a_chat(chats)
    chats.new()
    assert [info.id for info in chats.list()] == [second, first]
    chats.add_turn(first, "user", "And now?")
    assert [info.id for info in chats.list()] == [first, second]
    assert [info.id for info in chats.list(1)] == [first]
    latest = chats.latest()
    assert latest is not None
    assert latest.id == first


def test_ids_are_found_by_their_beginning(chats: Chats, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("abc012abd012")
    monkeypatch.setattr("localspec.sessions.secrets.choice", lambda _: next(letters))
    a_chat(chats)
    a_chat(chats)
    assert chats.resolve("abc") == "abc012"
    assert chats.resolve(" ABDOI") == "abd012"  # o and i for 0 and 1
    assert chats.resolve("latest") == "abd012"
    with pytest.raises(UsageError, match="more than one") as caught:
        chats.resolve("ab")
    assert "abc012" in caught.value.hint
    for unknown in ("", "%", "_____", "x"):
        with pytest.raises(UsageError, match="no saved chat"):
            chats.resolve(unknown)


def test_latest_of_nothing(chats: Chats) -> None:
    with pytest.raises(UsageError, match="no saved chat yet"):
        chats.resolve("latest")


def test_change(chats: Chats) -> None:
    chat = a_chat(chats)
    chats.change(chat, system="Be long.", model="other", settings={"mode": "off"})
    saved = chats.get(chat)
    assert (saved.system, saved.info.model, saved.settings) == (
        "Be long.",
        "other",
        {"mode": "off"},
    )
    with pytest.raises(TypeError):
        chats.change(chat, id="x")


def test_fork_copies_up_to_a_turn_and_is_independent(chats: Chats) -> None:
    chat = a_chat(chats)
    chats.add_turn(chat, "user", "Sure?")
    chats.add_turn(chat, "assistant", "Ye", state="partial")
    turns = chats.get(chat).turns
    forked = chats.fork(chat, turns[1].id)
    saved = chats.get(forked)
    assert [turn.content for turn in saved.turns] == ["Why is the sky blue?", "Light."]
    assert saved.turns[1].numbers == turns[1].numbers
    assert (saved.info.parent, saved.info.title) == (chat, "Why is the sky blue? (fork)")
    assert [turn.state for turn in chats.get(chats.fork(chat)).turns][-1] == "stopped"
    chats.delete(chat)
    saved = chats.get(forked)
    assert (saved.info.parent, len(saved.turns)) == ("", 2)
    with pytest.raises(UsageError, match="no turn"):
        chats.fork(forked, 999)


def test_deleted_text_is_nowhere_on_the_disk(path: Path) -> None:
    with Chats.open(path) as chats:
        secret = a_chat(chats, answer="the word is Xylophonist" + " filler" * 2000)
        other = a_chat(chats)
        assert any(b"Xylophonist" in file.read_bytes() for file in path.parent.iterdir())
        heard: list[list[Deleted]] = []
        chats.on_delete.append(heard.append)
        turn_ids = [turn.id for turn in chats.get(secret).turns]
        chats.delete(secret)
        assert not any(b"Xylophonist" in file.read_bytes() for file in path.parent.iterdir())
        assert chats.search("Xylophonist") == []
        assert [(gone.chat_id, gone.turn_id) for gone in heard[0]] == [
            (secret, turn_id) for turn_id in turn_ids
        ]
        assert chats.deleted() == heard[0]
        assert chats.deleted(after=heard[0][0].number) == heard[0][1:]
        assert [info.id for info in chats.list()] == [other]


def test_deleting_turns_from_one_on(chats: Chats) -> None:
    chat, other = a_chat(chats), a_chat(chats)
    turn_id = chats.get(chat).turns[1].id
    chats.delete_turns_from(chat, turn_id)
    assert [turn.role for turn in chats.get(chat).turns] == ["user"]
    assert chats.get(other).info.n_turns == 2
    # Ids are not used again, so that what is derived from turns cannot be mistaken.
    assert chats.add_turn(chat, "assistant", "x") > turn_id


# A running answer


def read(path: Path, turn_id: int) -> tuple[str, str]:
    """Content and state as another process sees them."""
    db = sqlite3.connect(path)
    try:
        row: tuple[str, str] = db.execute(
            "SELECT content, state FROM turns WHERE id = ?", (turn_id,)
        ).fetchone()
        return row
    finally:
        db.close()


class Clock:
    """Time that stands still until it is moved; timers never fire by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("localspec.sessions.time.monotonic", lambda: self.now)
        monkeypatch.setattr(threading.Timer, "start", lambda _: None)


def test_running_answer_is_written_once_a_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with Chats.open(path) as chats:
        chat = chats.new()
        turn = chats.add_turn(chat, "assistant", "", state="partial")
        seen = []
        for text in ("a", "ab", "abc", "abcd", "abcde", "abcdef"):
            clock.now += 0.5
            chats.update_partial(turn, text)
            seen.append(read(path, turn)[0])
        assert seen == ["", "ab", "ab", "abcd", "abcd", "abcdef"]
        chats.finish_turn(turn, "whole", state="stopped", numbers={"n": 1})
        assert read(path, turn) == ("whole", "stopped")
    assert read(path, turn) == ("whole", "stopped")  # closing writes nothing older over it


def test_words_before_a_pause_are_written_too(path: Path) -> None:
    with Chats.open(path, interval_s=0.02) as chats:
        turn = chats.add_turn(chats.new(), "assistant", "", state="partial")
        chats.update_partial(turn, "then a long silence")
        for _ in range(1000):
            if read(path, turn)[0]:
                break
            time.sleep(0.01)
        assert read(path, turn) == ("then a long silence", "partial")


def test_closing_writes_what_is_unsaved(path: Path) -> None:
    with Chats.open(path, interval_s=1000) as chats:
        turn = chats.add_turn(chats.new(), "assistant", "", state="partial")
        chats.update_partial(turn, "last words")
    assert read(path, turn) == ("last words", "partial")


def test_an_answer_of_a_deleted_chat_may_still_come_in(chats: Chats) -> None:
    chat = chats.new()
    turn = chats.add_turn(chat, "assistant", "", state="partial")
    chats.delete(chat)
    chats.update_partial(turn, "late")
    chats.finish_turn(turn, "later")
    assert chats.list() == []


def test_two_programs_and_many_threads_write_at_once(path: Path) -> None:
    with Chats.open(path) as one, Chats.open(path) as two:

        def write(chats: Chats) -> None:
            chat = chats.new()
            for n in range(20):
                chats.add_turn(chat, "user", str(n))

        threads = [threading.Thread(target=write, args=(c,)) for c in (one, one, two, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [info.n_turns for info in one.list()] == [20] * 4


def test_half_a_surrogate_pair_can_be_saved(chats: Chats) -> None:
    chat = a_chat(chats, question="file \udcff")
    assert chats.get(chat).turns[0].content == "file ?"


# Search


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MERGESORT", True),
        ("sort merge", True),  # any order, parts of words
        ("merge heap", False),
        ("안녕", True),
        ("über", True),
        ("ÜB", True),
        ('"quoted"', True),
        ("50%", True),
        ("_", False),
        ("a*b", True),
        ("NOT OR (", False),
        ("  ", False),
    ],
)
def test_search_finds_all_words_whatever_their_case(chats: Chats, text: str, found: bool) -> None:
    answer = 'Use mergesort, 안녕 ÜBER "quoted" 50% a*b'
    chat = a_chat(chats, answer=answer)
    a_chat(chats, answer="Use a heap")
    hits = chats.search(text)
    assert [hit.chat.id for hit in hits] == [chat] * found
    assert [info.id for info in chats.list(query=text)] == (
        [chat] if found else [] if text.strip() else [info.id for info in chats.list()]
    )


def test_search_shows_the_surroundings(chats: Chats) -> None:
    a_chat(chats, answer="start " + "x " * 100 + "needle \x1b[31m\n" + "y " * 100)
    (hit,) = chats.search("NEEDLE")
    assert hit.role == "assistant"
    assert "x needle \N{REPLACEMENT CHARACTER}[31m y" in hit.excerpt
    assert hit.excerpt.startswith("… ")
    assert hit.excerpt.endswith(" …")
    assert len(hit.excerpt) < 130


def test_titles_are_found_by_list(chats: Chats) -> None:
    chat = a_chat(chats)
    chats.rename(chat, "Physics")
    assert [info.id for info in chats.list(query="phys")] == [chat]


def test_a_running_answer_is_found(chats: Chats) -> None:
    chat = chats.new()
    chats.add_turn(chat, "assistant", "unfinished", state="partial")
    assert [hit.chat.id for hit in chats.search("unfinished")] == [chat]


# Export


def test_markdown(chats: Chats) -> None:
    chat = a_chat(chats, answer="`code` \x1b[31m\n\n- list")
    chats.add_turn(chat, "user", "More")
    chats.add_turn(chat, "assistant", "Half an", state="stopped")
    title, when, rest = chats.export_markdown(chat).split("\n\n", 2)
    assert title == "# Why is the sky blue?"
    assert when.endswith(", big with small")
    assert rest == (
        "> Be brief.\n\n## You\n\nWhy is the sky blue?\n\n## Answer\n\n`code` [31m\n\n- list\n\n"
        "## You\n\nMore\n\n## Answer\n\nHalf an\n\n*(stopped)*\n"
    )


def test_json_is_whole_and_has_no_control_characters(chats: Chats) -> None:
    answer = "é \x1b[31m \x9b31m \u202e \u2028 \x7f"
    chat = a_chat(chats, answer=answer)
    text = chats.export_json(chat)
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "é" in text
    data = json.loads(text)
    assert data["id"] == chat
    assert data["turns"][1]["content"] == answer
    assert data["turns"][1]["numbers"] == {"n_tokens": 3, "gain": 1.5}
    assert data["settings"] == {"mode": "auto"}


# Old, new and damaged files


def old_file(path: Path, n_migrations: int) -> None:
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for script in MIGRATIONS[:n_migrations]:
        db.executescript(script)
    db.execute(f"PRAGMA user_version = {n_migrations}")
    db.execute("INSERT INTO chats VALUES ('abc123', 'Old', 1, 2, 'm', 'd', 's', '{}', NULL)")
    db.execute(
        "INSERT INTO turns VALUES (5, 'abc123', 'user', 'old words', 'complete', 1, '{}', '')"
    )
    db.commit()
    db.close()


@pytest.mark.parametrize("n_migrations", range(1, len(MIGRATIONS) + 1))
def test_files_of_earlier_versions_are_brought_up_to_date(path: Path, n_migrations: int) -> None:
    old_file(path, n_migrations)
    with Chats.open(path) as chats:
        saved = chats.get("abc")
        assert (saved.info.title, saved.turns[0].content) == ("Old", "old words")
        assert saved.turns[0].settings == {}
        assert [hit.turn_id for hit in chats.search("words")] == [5]
        chats.delete("abc123")
        assert [gone.turn_id for gone in chats.deleted()] == [5]
        version = chats._db.execute("PRAGMA user_version").fetchone()
    assert version == (len(MIGRATIONS),)


def test_a_failed_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_file(path, 1)
    monkeypatch.setattr(
        sessions_schema, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE x (y); nonsense")
    )
    with pytest.raises(LocalspecError, match="syntax error"):
        Chats.open(path)
    monkeypatch.undo()
    with Chats.open(path) as chats:
        assert chats.get("abc").info.title == "Old"


def test_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    Chats.open(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LocalspecError, match="newer version"):
        Chats.open(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def damaged(kind: str, whole: bytes) -> bytes:
    if kind == "not a database":
        return b"<html>" * 1000
    if kind == "cut":
        return whole[: len(whole) // 2]
    if kind == "cut in the header":
        return whole[:50]
    return whole[:4096] + b"\xa5" * (len(whole) - 4096)  # every page but the first


@pytest.mark.parametrize("kind", ["not a database", "cut", "cut in the header", "overwritten"])
def test_a_damaged_file_is_set_aside(path: Path, kind: str) -> None:
    with Chats.open(path) as chats:
        for _ in range(20):
            a_chat(chats, answer="words " * 500)
    broken = damaged(kind, path.read_bytes())
    path.write_bytes(broken)
    with Chats.open(path) as chats:
        assert chats.list() == []
        chat = a_chat(chats)
        (aside,) = [file for file in path.parent.iterdir() if ".damaged-" in file.name]
        assert aside.read_bytes() == broken
        assert aside.name in chats.note
        assert "\n" not in chats.note
    with Chats.open(path) as chats:
        assert (chats.note, len(chats.get(chat).turns)) == ("", 2)


def test_two_damaged_files_within_a_second_are_both_kept(path: Path) -> None:
    path.parent.mkdir()
    for _ in range(3):
        path.write_bytes(b"nonsense" * 100)
        Chats.open(path).close()
    assert len([file for file in path.parent.iterdir() if ".damaged-" in file.name]) == 3


def test_a_place_where_no_file_can_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "chats.sqlite3", tmp_path):
        with pytest.raises(LocalspecError, match="cannot be opened"):
            Chats.open(path)


def test_a_full_disk_is_one_sentence_and_the_rest_stays(chats: Chats) -> None:
    chat = a_chat(chats)
    pages = chats._db.execute("PRAGMA page_count").fetchone()[0]
    chats._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LocalspecError, match="full"):
        chats.add_turn(chat, "user", "x" * 100_000)
    assert chats.get(chat).info.n_turns == 2
    chats._db.execute("PRAGMA max_page_count = 100000")
    chats.add_turn(chat, "user", "x" * 100_000)
    assert chats.get(chat).info.n_turns == 3


def test_strange_contents_are_read_as_well_as_they_can_be(path: Path) -> None:
    with Chats.open(path) as chats:
        chat = a_chat(chats)
        chats._db.execute("UPDATE turns SET numbers = '[1]', settings = ?", ("[" * 100_000,))
        chats._db.execute("UPDATE turns SET content = CAST(x'68ff69' AS TEXT) WHERE role = 'user'")
        question, answer = chats.get(chat).turns
        assert (answer.numbers, answer.settings) == ({}, {})
        assert question.content == "h\N{REPLACEMENT CHARACTER}i"


def test_a_schema_that_is_not_even_text_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    chats = Chats.open(path)
    chats.close()
    data = path.read_bytes()
    place = data.index(b"CREATE TABLE")
    path.write_bytes(data[:place] + b"\xff" * 64 + data[place + 64 :])
    again = Chats.open(path)
    assert "damaged" in again.note
    assert again.list() == []
    again.close()
