"""The ring against a brute-force model, and against files that are not what they should be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers_history import N_VOCAB, VOCABULARY, slow_find, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.history.ring import (
    GRAM,
    LONG_GRAM,
    MAX_LINKS,
    MAX_MATCH,
    MAX_PLACES,
    DamagedError,
    Ring,
    size_bytes,
)

CAPACITY = 4096


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.anonymous(CAPACITY)
    yield made
    made.close()


def put(ring: Ring, docs: list[list[int]]) -> None:
    place = Ring.first
    for doc in docs:
        ring.write(place, np.array(doc, np.uint32))
        place += len(doc) + 1


texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(docs=texts, tail=st.lists(st.integers(0, 3), max_size=40), cut=st.integers(0, 200))
def test_finds_what_brute_force_finds(docs: list[list[int]], tail: list[int], cut: int) -> None:
    ring = Ring.anonymous(CAPACITY)
    try:
        put(ring, docs)
        known = docs[cut % len(docs)]
        tail = tail + known[: cut % (len(known) + 1)]
        match = ring.find(tail)
        length, following = slow_find(docs, tail)
        n_alike = _n_alike(docs, tail)
        if match is None:
            assert length == 0 or n_alike > MAX_PLACES
            return
        assert GRAM <= match.length <= length
        assert 1 <= match.n_agreeing <= match.n_voters <= MAX_PLACES
        assert len(match.places) == match.n_agreeing
        if n_alike <= MAX_PLACES:
            assert match.length == length
            assert match.n_voters == following.total()
            assert match.n_agreeing == max(following.values()) == following[match.token]
    finally:
        ring.close()


def _n_alike(docs: list[list[int]], tail: list[int]) -> int:
    """Places with the last four tokens of ``tail``."""
    gram = tail[-GRAM:]
    return sum(doc[i : i + GRAM] == gram for doc in docs for i in range(len(doc) - GRAM + 1))


@settings(max_examples=60, deadline=None)
@given(docs=texts, at=st.integers(0, 400), before=st.integers(0, 9), after=st.integers(0, 9))
def test_the_text_around_a_place_is_that_text(
    docs: list[list[int]], at: int, before: int, after: int
) -> None:
    ring = Ring.anonymous(CAPACITY)
    try:
        put(ring, docs)
        number = at % len(docs)
        doc = docs[number]
        offset = at % len(doc)
        place = Ring.first + sum(len(one) + 1 for one in docs[:number]) + offset
        text, n_before = ring.around(place, before, after)
        assert text[:n_before] == doc[max(0, offset - before) : offset]
        assert text[n_before:] == doc[offset : offset + after]
    finally:
        ring.close()


@settings(max_examples=100, deadline=None)
@given(docs=texts, tail=st.lists(st.integers(0, 3), max_size=6))
def test_places_are_those_of_brute_force(docs: list[list[int]], tail: list[int]) -> None:
    ring = Ring.anonymous(CAPACITY)
    try:
        put(ring, docs)
        expected, start = [], Ring.first
        for doc in docs:
            ends = range(GRAM, len(doc) + 1)
            expected += [start + end for end in ends if doc[end - GRAM : end] == tail[-GRAM:]]
            start += len(doc) + 1
        found = ring.places(tail)
        if len(expected) <= MAX_LINKS:
            assert found == expected[::-1]
        else:
            assert set(found) <= set(expected)
    finally:
        ring.close()


def test_the_longest_match_wins_over_a_newer_one(ring: Ring) -> None:
    put(ring, [[1, 2, 3, 4, 5, 6, 7], [9, 3, 4, 5, 6, 8]])
    match = ring.find([0, 2, 3, 4, 5, 6])
    assert match is not None
    assert (match.length, match.token) == (5, 7)


def test_most_votes_win_and_the_newest_among_equals(ring: Ring) -> None:
    put(ring, [[1, 2, 3, 4, 10], [1, 2, 3, 4, 11], [1, 2, 3, 4, 10], [1, 2, 3, 4, 12]])
    match = ring.find([1, 2, 3, 4])
    assert match is not None
    assert (match.token, match.n_voters, match.n_agreeing) == (10, 4, 2)
    put(ring, [[1, 2, 3, 4, 10], [1, 2, 3, 4, 11]])
    ring.blank(Ring.first + 12, 24)
    match = ring.find([1, 2, 3, 4])
    assert match is not None
    assert (match.token, match.n_voters) == (11, 2)


def test_a_long_match_is_found_behind_many_newer_short_ones(ring: Ring) -> None:
    old = list(range(100, 120))
    put(ring, [[*old, 77], *([[500 + i, *old[-5:], 88] for i in range(60)])])
    match = ring.find(old)
    assert match is not None
    assert (match.length, match.token) == (20, 77)


def test_matches_do_not_cross_from_one_text_into_the_next(ring: Ring) -> None:
    put(ring, [[1, 2, 3], [4, 5, 6]])
    assert ring.find([1, 2, 3, 4]) is None
    assert ring.find([0, 1, 2, 3]) is None


def test_nothing_is_found_after_the_end_of_a_text(ring: Ring) -> None:
    put(ring, [[1, 2, 3, 4]])
    assert ring.find([1, 2, 3, 4]) is None


def test_a_hint_finds_what_is_hidden_behind_newer_text(ring: Ring) -> None:
    put(ring, [[7, 8, 9, 1, 1, 1, 1, 2], *([[1, 1, 1, 1, 3]] * 60)])
    tail = [8, 9, 1, 1, 1, 1]
    hidden = ring.find(tail)
    assert hidden is not None
    assert hidden.length == 4
    match = ring.find(tail, Ring.first + 7)
    assert match is not None
    assert (match.length, match.token) == (6, 2)
    for wrong in (-5, 3, Ring.first + 1, 4096, 10**9):
        assert ring.find(tail, wrong) == hidden


def test_blanked_text_is_gone(ring: Ring) -> None:
    put(ring, [text_of(1)])
    tail = text_of(1)[:50]
    assert ring.find(tail) is not None
    ring.blank(Ring.first, 200)
    assert ring.find(tail) is None
    assert not ring._tokens.any()


def test_only_what_is_kept_stays(ring: Ring) -> None:
    put(ring, [text_of(1, 50), text_of(2, 50), text_of(3, 50)])
    ring.blank_all_but([(Ring.first + 51, 50)])
    assert ring.read(Ring.first + 51, 50).tolist() == text_of(2, 50)
    assert np.count_nonzero(ring._tokens) == 50


def test_overwriting_goes_on_working(ring: Ring) -> None:
    for seed in range(40):
        doc = text_of(seed, 300)
        ring.write(Ring.first + (seed * 307) % (CAPACITY - 340), np.array(doc, np.uint32))
        match = ring.find(doc[:40])
        assert match is not None
        assert match.length == MAX_MATCH


def test_known_means_that_twelve_tokens_are_there(ring: Ring) -> None:
    text = text_of(5, 120, 10_000)
    put(ring, [text])
    other = text_of(6, 60, 10_000)
    known = ring.known(np.array([*other, *text[20:80]], np.uint32))
    assert not known[: 60 + LONG_GRAM - 1].any()
    assert known[60 + LONG_GRAM - 1 :].all()
    assert not ring.known(np.array([1, 2], np.uint32)).any()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_contents_never_raise(data: st.DataObject) -> None:
    ring = Ring.anonymous(1024)
    try:
        put(ring, [text_of(1, 300)])
        rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
        words = np.frombuffer(ring._map, np.uint32, offset=4096)
        at = rng.integers(0, len(words), 1500)
        words[at] = rng.integers(0, 1 << 32, 1500, dtype=np.uint32)
        del words
        for end in range(40, 300, 7):
            match = ring.find(text_of(1, 300)[:end])
            if match is not None:
                text, at = ring.around(match.places[0], 32, 63)
                assert at <= 32
                assert len(text) <= 95
        ring.known(np.array(text_of(1, 300), np.uint32))
        ring.write(500, np.array(text_of(2, 100), np.uint32))
    finally:
        ring.close()


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_found_again_by_mapping_it(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    ring = Ring.create(path, CAPACITY, VOCABULARY)
    put(ring, [text_of(1)])
    ring.close()
    ring.close()
    assert path.stat().st_size == size_bytes(CAPACITY)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Ring.open(path, VOCABULARY)
    assert again.find(text_of(1)[:50]) is not None
    again.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[: len(data) // 2], "not whole"),
        (lambda data: data[:0], "not a history index"),
        (lambda data: data[:10], "not a history index"),
        (lambda data: b"\0" * len(data), "not a history index"),
        (lambda data: data[:8] + b"\x09" + data[9:], "another version"),
        (lambda data: data[:13] + b"\xff" + data[14:], "damaged"),
        (lambda data: data[:20] + b"\xff" + data[21:], "damaged"),
        (lambda data: data + b"more", "not whole"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path = tmp_path / "ring"
    Ring.create(path, CAPACITY, VOCABULARY).close()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedError, match=reason):
        Ring.open(path, VOCABULARY)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    Ring.create(tmp_path / "ring", CAPACITY, VOCABULARY).close()
    with pytest.raises(DamagedError, match="another vocabulary"):
        Ring.open(tmp_path / "ring", b"w" * 32)


def test_token_ids_beyond_the_vocabulary_are_never_made_up(ring: Ring) -> None:
    put(ring, [[N_VOCAB - 1] * 3 + text_of(1, 100)])
    match = ring.find([N_VOCAB - 1] * 3 + text_of(1, 100)[:30])
    assert match is not None
    text, _ = ring.around(match.places[0], 32, 63)
    assert all(0 <= token < N_VOCAB for token in text)
