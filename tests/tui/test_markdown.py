"""Markdown as one text: nothing lost, nothing too wide."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.tui.markdown import render


def lines(text: str, width: int = 40) -> list[str]:
    return [line.rstrip() for line in render(text, width).plain.split("\n")]


def test_paragraphs_headings_and_rules() -> None:
    assert lines("# Title\n\nOne\ntwo **bold** *it* ~~s~~ `c`\n\n---") == [
        "Title", "", "One", "two bold it s c", "", "─" * 40,
    ]  # fmt: skip


def test_lists_hang() -> None:
    text = "- one two three four\n  - inner\n- b\n\n7. seven\n8. eight"
    assert lines(text, 14) == [
        "• one two", "  three four", "  ◦ inner", "• b", "", "7. seven", "8. eight",
    ]  # fmt: skip


def test_a_loose_list_keeps_its_gaps() -> None:
    assert lines("- a\n\n  more\n- b") == ["• a", "", "  more", "", "• b"]


def test_code_keeps_its_spaces_and_is_cut_hard() -> None:
    assert lines("```py\nif x:\n    y = 1\n\nz\n```") == [" if x:", "     y = 1", "", " z"]
    assert lines("```\n" + "x" * 30, 12) == [" " + "x" * 10] * 3


def test_tables_fit() -> None:
    assert lines("| a | b |\n|---|---|\n| one | two words |", 20) == [
        "a    │ b", "─────┼──────────", "one  │ two words",
    ]  # fmt: skip
    wide = "| a | b |\n|---|---|\n| " + "word " * 10 + "| " + "w " * 9 + "|"
    assert max(cell_len(line) for line in lines(wide, 30)) <= 30
    many = "|" + " c |" * 20 + "\n|" + "-|" * 20 + "\n|" + " 1 |" * 20
    assert lines(many, 30)[:2] == ["c: 1", "c: 1"]


def test_links_show_where_they_lead_and_do_nothing() -> None:
    content = render("[here](https://evil.example) <https://plain.example>", 80)
    assert content.plain.rstrip() == "here (https://evil.example) https://plain.example"
    assert "@click" not in str(content.spans)
    assert lines("[x](javascript:alert) ![alt](http://i)") == [
        "[x](javascript:alert) 🖼 alt (http://i)"
    ]


def test_html_and_brackets_are_text() -> None:
    assert lines("<b>x</b> <script>\n\n<div>\n\n[red]r[/] [/oops items[0") == [
        "<b>x</b> <script>", "", "<div>", "", "[red]r[/] [/oops items[0",
    ]  # fmt: skip


def test_quotes() -> None:
    assert lines("> a\n>> b") == ["▌ a", "▌", "▌ ▌ b"]


def test_control_characters_are_gone() -> None:
    assert render("a\x1b[1m\x9b2J\u202eb", 40).plain.rstrip() == "a[1m2Jb"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200), st.integers(12, 90))
@settings(max_examples=60, deadline=None)
def test_any_text_fits_and_keeps_its_letters(text: str, width: int) -> None:
    content = render(text, width)
    assert all(cell_len(line) <= width for line in content.plain.split("\n"))
    seen = re.sub(r"[^a-z]", "", content.plain)
    for word in re.findall(r"\b[a-z]+\b", text):
        assert word in seen


PIECES = [
    "```", "\n", "- ", "> ", "| a ", "|-|", "**", "x ", "    ", "1. ", "[", "](", "👩‍🚀", "é", "한",
    "# ", "`", "<b>",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_markdown_can_be_drawn(pieces: list[str]) -> None:
    width = 24
    content = render("".join(pieces), width)
    assert all(cell_len(line) <= width + 12 for line in content.plain.split("\n"))


@pytest.mark.parametrize(
    "text", ["*" * 3000, "[" * 3000, "> " * 500 + "x", "- " * 500 + "x", "|" * 3000, "`" * 3000]
)
def test_hostile_markdown_takes_no_time(text: str) -> None:
    started = time.process_time()
    render(text, 80)
    assert time.process_time() - started < 5.0
