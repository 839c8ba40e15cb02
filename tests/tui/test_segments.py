"""A streamed answer in pieces: nothing lost, nothing long, thinking apart, however it is cut."""

from __future__ import annotations

import random

import pytest

from localspec.tui.segments import HARD, LONGEST_LINE, Add, Begin, Segmenter


def segments(text: str, n: int = 7, *, is_thinking: bool = False) -> list[tuple[str, str]]:
    """(kind, text) of each segment when ``text`` comes in fragments of ``n`` characters."""
    segmenter = Segmenter(is_thinking=is_thinking)
    found: list[tuple[str, str]] = []
    for start in range(0, len(text), n):
        fold(found, segmenter.push(text[start : start + n]))
    fold(found, segmenter.finish())
    return found


def fold(found: list[tuple[str, str]], ops: list[Begin | Add]) -> None:
    for op in ops:
        if isinstance(op, Begin):
            found.append((op.kind, ""))
        else:
            kind, text = found[-1]
            found[-1] = (kind, text + op.text)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_short_text_is_one_segment(n: int) -> None:
    text = "# Title\n\nWords <b>and</b> < more.\n\n```py\nx = 1 | 2\n```\nend"
    assert segments(text, n) == [("text", text)]


@pytest.mark.parametrize("n", [1, 2, 5, 1000])
@pytest.mark.parametrize("tag", ["think", "thinking", "thought"])
def test_thinking_is_apart(n: int, tag: str) -> None:
    text = f"<{tag}>\nhm </thin\n</{tag}>\n\nThe answer"
    assert segments(text, n) == [("thinking", "hm </thin\n"), ("text", "The answer")]


def test_thinking_that_the_prompt_began() -> None:
    text = "hm</think>\nYes"
    assert segments(text, 1, is_thinking=True) == [("thinking", "hm"), ("text", "Yes")]


def test_a_tag_in_the_middle_of_a_line_or_in_code_is_text() -> None:
    for text in ("about the <think> tag", "```\n<think>\n```\n"):
        assert segments(text, 1) == [("text", text)]


def test_unfinished_thinking_is_shown() -> None:
    assert segments("<think>\nhm </th", 1) == [("thinking", "hm </th")]


def test_half_a_tag_at_the_end_is_text() -> None:
    assert segments("a\n<thi", 1) == [("text", "a\n<thi")]


LONG = {
    "paragraphs": "Some words in a paragraph.\n\n" * 1000,
    "list": "- an item with words\n  - nested\n" * 1000,
    "one line": "word " * 6000,
    "nested list": "- top\n" + "  - nested words here\n" * 1000,
    "quote": "> words\n" * 4000,
}


@pytest.mark.parametrize("name", LONG)
def test_long_text_is_cut_and_whole(name: str) -> None:
    found = segments(LONG[name], 11)
    assert "".join(text for _, text in found) == LONG[name]
    assert max(len(text) for _, text in found) <= max(HARD, LONGEST_LINE) + 100


def test_a_long_code_block_stays_code() -> None:
    code = "".join(f"line_{i} = {i} | 1\n" for i in range(2000))
    found = segments(f"Look:\n\n```python\n{code}```\n\nDone.", 13)
    inside = [text for _, text in found]
    assert all(text.count("```") == 2 for text in inside)
    assert all("```python\n" in text for text in inside)
    kept = "".join(inside).replace("```python\n", "").replace("```\n", "")
    assert kept == f"Look:\n\n{code}\nDone."
    assert max(map(len, inside)) < HARD + 100


def test_an_unclosed_code_block_ends_open() -> None:
    code = "".join(f"line {i}\n" for i in range(1000))
    found = segments(f"```\n{code}", 13)
    assert found[-1][1].count("```") == 1


def test_a_long_table_repeats_its_head() -> None:
    rows = "".join(f"| {i} | value |\n" for i in range(1000))
    found = segments(f"| n | v |\n|---|---|\n{rows}", 17)
    assert len(found) > 3
    assert all(text.startswith("| n | v |\n|---|---|\n") for _, text in found)


def test_any_cut_into_fragments_gives_the_same() -> None:
    text = "".join(LONG.values())[:20_000] + "\n```\nx\n```\n<think>\na\n</think>\nend"
    whole = segments(text, len(text))
    shuffled = random.Random(1)
    for _ in range(5):
        assert segments(text, shuffled.randint(1, 40)) != []
        kinds = "".join(part for _, part in segments(text, shuffled.randint(1, 40)))
        assert kinds == "".join(part for _, part in whole)
