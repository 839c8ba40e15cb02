"""The small parts: a call that can be left, a file in the making, its journal, explained errors."""

from __future__ import annotations

import errno
import hashlib
import threading
from pathlib import Path

import pytest

from localspec.errors import (
    DiskSpaceError,
    DownloadCancelledError,
    DownloadError,
    IntegrityError,
)
from localspec.store.disk import explained, nearest_existing
from localspec.store.partial import Journal, PartialFile, Promise
from localspec.store.refusals import wait_asked_for
from localspec.store.work import interruptible

CONTENT = b"0123456789" * 1000


def never() -> bool:
    return False


def test_result_and_error_come_through() -> None:
    assert interruptible(lambda _: 7, cancelled=never) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda _: 1 // 0, cancelled=never)


def test_work_that_hangs_is_left_and_told_to_stop() -> None:
    told: list[threading.Event] = []

    def hang(stop: threading.Event) -> None:
        told.append(stop)
        stop.wait(60)

    with pytest.raises(TimeoutError):
        interruptible(hang, cancelled=never, deadline_s=0.1)
    with pytest.raises(DownloadCancelledError):
        interruptible(hang, cancelled=lambda: len(told) > 1)
    assert all(stop.is_set() for stop in told)


def test_ctrl_c_in_the_waiting_thread_stops_the_work() -> None:
    told: list[threading.Event] = []

    def hang(stop: threading.Event) -> None:
        told.append(stop)
        stop.wait(60)

    def pressed() -> bool:
        if told:  # on a busy machine the work may not have begun at the first look
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        interruptible(hang, cancelled=pressed)
    assert told[0].is_set()


def promise(content: bytes = CONTENT) -> Promise:
    return Promise(len(content), "sha256", hashlib.sha256(content).hexdigest())


def test_partial_file_appears_only_when_right(tmp_path: Path) -> None:
    path, target = tmp_path / "x.incomplete", tmp_path / "x"
    with PartialFile(path, promise(), never) as partial:
        partial.append(CONTENT[:4000])
        with pytest.raises(IntegrityError, match="ended after"):
            partial.publish(target, "x")
    assert not target.exists()
    with PartialFile(path, promise(), never) as partial:
        assert partial.n_resumed == 4000
        partial.append(CONTENT[4000:])
        assert partial.is_full
        partial.publish(target, "x")
    assert target.read_bytes() == CONTENT
    assert not path.exists()


def test_partial_file_that_is_too_long_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "x.incomplete"
    path.write_bytes(CONTENT + b"more")
    with PartialFile(path, promise(), never) as partial:
        assert partial.n_bytes == 0
        partial.append(CONTENT)
        with pytest.raises(IntegrityError, match="more than the promised"):
            partial.append(b"x")
    assert path.read_bytes() == CONTENT


def test_git_hash_of_small_files(tmp_path: Path) -> None:
    # What "git hash-object" says about these six bytes.
    right = Promise(6, "git-sha1", "ce013625030ba8dba906f756967f9e9ca394464a")
    with PartialFile(tmp_path / "x", right, never) as partial:
        partial.append(b"hello\n")
        partial.publish(tmp_path / "y", "y")
    assert (tmp_path / "y").read_bytes() == b"hello\n"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"name": 1, "plan": "", "ends": []}', '{"name":"","plan":"","ends":[2,1]}'],
)
def test_journal_that_makes_no_sense_counts_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.incomplete.json").write_text(text)
    journal = Journal(tmp_path / "x.incomplete")
    assert (journal.name, journal.plan, journal.ends) == ("", "", [])


def test_journal_round_trip(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.incomplete")
    journal.name, journal.plan, journal.ends = "n", "p", [1, 5]
    journal.write()
    again = Journal(tmp_path / "x.incomplete")
    assert (again.name, again.plan, again.ends) == ("n", "p", [1, 5])


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.ENOSPC, DiskSpaceError, "is full"),
        (errno.EACCES, DownloadError, "cannot write to /cache/x: Permission denied"),
        (errno.EROFS, DownloadError, "cannot write to"),
        (errno.EIO, DownloadError, "cannot write to /cache"),
    ],
)
def test_refusals_of_the_system_are_sentences(
    number: int, kind: type[DownloadError], text: str
) -> None:
    message = {errno.EACCES: "Permission denied"}.get(number, "x")
    with pytest.raises(kind, match=text), explained(Path("/cache")):
        raise OSError(number, message, "/cache/x")


def test_nearest_existing(tmp_path: Path) -> None:
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert nearest_existing(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120.0),
        ({"ratelimit": '"api";r=0;t=55'}, 55.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "9" * 50}, None),
        ({}, None),
    ],
)
def test_wait_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_asked_for(headers) == seconds
