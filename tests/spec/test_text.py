"""Streamed text must be the text of the whole answer, and must never show a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.spec.text import TextStream

MARK = "\N{REPLACEMENT CHARACTER}"
ASTRONAUT = "\U0001f468\u200d\U0001f680"


def stream(pieces: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    """Push all pieces (token i is piece i), finish, and return what was shown at each call."""
    text = TextStream(lambda token: pieces[token], stops)
    shown = []
    for token in range(len(pieces)):
        shown.append(text.push(token))
        if text.stopped:
            break
    shown.append(text.finish())
    return shown, text


def earliest_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop that is completed first begins: looked for in every prefix, shortest first."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


def could_become_stop(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of ``text`` that is a beginning of a stop."""
    return max(
        (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0
    )


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """``data`` cut into tokens; equal places give tokens without text."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


# Few letters, so that stops and false starts happen often; characters of 1 to 4 bytes.
letters = st.text(alphabet="ab\u00e9\ud55c\U0001f680", max_size=40)
stop_lists = st.lists(st.text(alphabet="ab\u00e9\ud55c\U0001f680", max_size=6), max_size=3)
places = st.lists(st.integers(min_value=0, max_value=1000), max_size=40)
broken = st.lists(
    st.sampled_from([b"a", b"b", b"\xff", b"\x80", b"\xf0\x9f", b"\xed\xa0", b"\xe2\x82", b"\xc3"]),
    max_size=20,
).map(b"".join)


@settings(deadline=None)  # the machine may be busy
@given(letters, stop_lists, places)
def test_streamed_text_is_the_whole_text_up_to_the_stop(
    text: str, stops: list[str], at: list[int]
) -> None:
    shown, result = stream(cut(text.encode(), at), stops)
    start = earliest_stop(text, stops)
    assert "".join(shown) == text[:start]
    assert result.stopped == (start is not None)


@settings(deadline=None)  # the machine may be busy
@given(
    st.one_of(broken, st.binary(max_size=30)), st.lists(st.sampled_from(["a", MARK, "ab"])), places
)
def test_invalid_bytes_become_the_marks_of_the_whole_text(
    data: bytes, stops: list[str], at: list[int]
) -> None:
    shown, result = stream(cut(data, at), stops)
    text = data.decode("utf-8", "replace")
    start = earliest_stop(text, stops)
    assert "".join(shown) == text[:start]
    assert result.stopped == (start is not None)


@settings(deadline=None)  # the machine may be busy
@given(letters, stop_lists, places)
def test_text_is_released_as_soon_as_it_cannot_become_a_stop(
    text: str, stops: list[str], at: list[int]
) -> None:
    pieces = cut(text.encode(), at)
    result = TextStream(lambda token: pieces[token], stops)
    data, shown = b"", ""
    for token, piece in enumerate(pieces):
        data += piece
        shown += result.push(token)
        if result.stopped:
            break
        whole = data.decode("utf-8", "ignore")
        n_held = could_become_stop(whole, stops)
        assert shown == whole[: len(whole) - n_held]
        assert result.held == whole[len(whole) - n_held :]


@settings(deadline=None)  # the machine may be busy
@given(letters, stop_lists, places)
def test_tokens_with_text_before_the_stop_are_kept_and_no_others(
    text: str, stops: list[str], at: list[int]
) -> None:
    pieces = [piece for piece in cut(text.encode(), at) if piece]
    _, result = stream(pieces, stops)
    start = earliest_stop(text, stops)
    if start is None:
        assert result.n_tokens_kept == len(pieces)
    else:
        n_bytes = len(text[:start].encode())
        before = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
        assert result.n_tokens_kept == sum(position < n_bytes for position in before)


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "n_kept"),
    [
        ([b"hi", b" <", b"|e", b"nd", b"|>", b"more"], "<|end|>", "hi ", 2),  # token 2 straddles
        ([b"x", b"y ST", b"OP!", b"z"], "STOP", "xy ", 2),
        ([b"a", b"caf", b"\xc3", b"\xa9", b"s"], "caf\u00e9", "a", 1),
        ([b"STOP", b"a"], "STOP", "", 0),
        ([b"a", b"", b"STOP"], "STOP", "a", 2),  # a control token before the stop stays
        ([b"a", b"ST", b"", b"OP"], "STOP", "a", 1),  # and one inside it goes
        ([b"", b"STOP"], "STOP", "", 1),
        # The open character is broken by the stop: it is a mark, and the stop starts after it.
        ([b"a", b"\xf0\x9f", b"STOP"], "STOP", "a" + MARK, 2),
        ([b"\xf0\x9f", b"\xf0\x9f\x9a", b"\x80"], "\U0001f680", MARK, 1),
        ([b"ok", b"\xed", b"\xa0"], MARK + MARK, "ok", 1),
    ],
)
def test_stop_in_any_position(pieces: list[bytes], stop: str, text: str, n_kept: int) -> None:
    shown, result = stream(pieces, [stop])
    assert ("".join(shown), result.n_tokens_kept) == (text, n_kept)
    assert result.stop == stop


def test_false_start_is_released_at_the_end_and_as_soon_as_it_fails() -> None:
    shown, result = stream([b"a", b"S", b"T", b"x", b"ST"], ["STOP"])
    assert shown == ["a", "", "", "STx", "", "ST"]
    assert not result.stopped
    assert result.n_tokens_kept == 5


def test_stop_completed_first_wins_however_the_tokens_are_cut() -> None:
    stops = ["abcdef", "cd"]
    for pieces in ([b"abcdef"], [b"ab", b"cd", b"ef"], [bytes([c]) for c in b"abcdef"]):
        shown, result = stream(pieces, stops)
        assert "".join(shown) == "ab"
        assert result.stop == "cd"


def test_longest_stop_wins_when_one_character_completes_two() -> None:
    shown, result = stream([b"x--", b"end"], ["end", "--end"])
    assert "".join(shown) == "x"
    assert result.stop == "--end"


@pytest.mark.parametrize("text", [ASTRONAUT, "한국어 안녕", "é", "e\u0301 naïve"])
def test_characters_of_several_tokens_are_shown_whole(text: str) -> None:
    shown, _ = stream([bytes([byte]) for byte in text.encode()])
    assert "".join(shown) == text
    assert MARK not in "".join(shown)
    assert [part for part in shown if part] == list(text)


def test_cut_in_mid_character_leaves_one_mark_at_the_end() -> None:
    shown, _ = stream([b"a", b"\xf0", b"\x9f", b"\x91"])
    assert shown == ["a", "", "", "", MARK]


def test_nothing_comes_after_a_stop_or_twice() -> None:
    text = TextStream(lambda _: b"a", ["aa"])
    assert [text.push(0), text.push(0), text.push(0), text.finish()] == [""] * 4
    assert text.n_tokens == 2
    text = TextStream(lambda _: b"a", ["aa"])
    assert [text.push(0), text.finish(), text.finish()] == ["", "a", ""]


def test_what_is_held_is_shorter_than_the_stop() -> None:
    """So that work for a token depends on the stops, not on the length of the answer."""
    text = TextStream(lambda _: b"aaab", ["aaaa"])
    for _ in range(5_000):
        text.push(0)
        assert len(text.held) < 4
    assert text.n_tokens == 5_000
