"""A streamed answer in pieces of bounded size.

A Markdown widget parses its last block again whenever text is appended to it, and that block may be
a list or a code block of any length. So an answer is shown in several widgets: a new one begins at
a place where nothing is torn apart (before a heading, a paragraph, a list item), or, in a long
code block or table, at a line, with the fence or the head of the table repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "thinking"]

SOFT = 1_500
"""Characters after which a segment ends at the next good place."""
HARD = 3_000
"""Characters after which it ends at the next line, whatever is there."""
LONGEST_LINE = 4_000
"""Characters after which a line without end is broken at a space."""

_FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
_GOOD = re.compile(r"^(?:[-*+] |\d{1,9}[.)] |#{1,6} |\S)")
_ITEM = re.compile(r"^(?:[-*+] |\d{1,9}[.)] )")
_TABLE_RULE = re.compile(r"^ *\|?(?: *:?-+:? *\|)+ *(?::?-+:? *)?$")
_OPEN = ("<think>", "<thinking>", "<thought>")


@dataclass(frozen=True, slots=True)
class Begin:
    """A new segment begins. ``goes_on``: it goes on with a code block or table of the last one."""

    kind: Kind
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Add:
    """Text for the current segment."""

    text: str


Op = Begin | Add


class Segmenter:
    """Turns text, however it is cut into fragments, into ``Begin`` and ``Add``.

    Text that may turn out to be a thinking tag, or a line at which to cut, is held back until its
    line is known; ``finish`` gives what is left.
    """

    def __init__(self, *, is_thinking: bool = False) -> None:
        self._kind: Kind = "thinking" if is_thinking else "text"
        self._close = "</think>" if is_thinking else ""
        self._begun = False
        self._held = ""
        self._line = ""  # what of the current line was given out already
        self._n = 0  # characters in the segment
        self._fence = ""  # the opening line of the code block that we are in
        self._last = ""  # the last whole line
        self._table: tuple[str, str] | None = None

    def push(self, text: str) -> list[Op]:
        """What ``text`` adds."""
        self._held += text
        return list(self._work(is_end=False))

    def finish(self) -> list[Op]:
        """What was held back."""
        return list(self._work(is_end=True))

    def _work(self, *, is_end: bool) -> Iterator[Op]:
        while self._held:
            n_before = len(self._held)
            if self._kind == "thinking":
                yield from self._think(is_end)
            else:
                yield from self._write(is_end)
            if len(self._held) == n_before:
                return  # undecided

    # -- thinking ---------------------------------------------------------------------------------

    def _think(self, is_end: bool) -> Iterator[Op]:
        place = self._held.find(self._close)
        if place >= 0:
            yield from self._add(self._held[:place] if self._begun else self._held[:place].lstrip())
            self._held = self._held[place + len(self._close) :].lstrip("\n")
            self._kind, self._close, self._begun, self._line = "text", "", False, ""
            return
        n_held = 0 if is_end else _n_overlap(self._held, self._close)
        taken = self._held[: len(self._held) - n_held]
        self._held = self._held[len(taken) :]
        yield from self._add(taken if self._begun else taken.lstrip("\n"))

    def _opens_thinking(self, line: str) -> bool | None:
        """Whether ``line`` (its beginning) opens a thinking block; None: too short to know."""
        start = line.lstrip(" \t")
        if any(start.startswith(tag) for tag in _OPEN):
            return True
        return None if any(tag.startswith(start) for tag in _OPEN) else False

    # -- text -------------------------------------------------------------------------------------

    def _write(self, is_end: bool) -> Iterator[Op]:
        line, newline, rest = self._held.partition("\n")
        is_whole = bool(newline) or is_end
        if not self._line:
            opens = self._opens_thinking(line) if not self._fence else False
            if opens:
                tag = line[line.index("<") : line.index(">") + 1]
                self._held = self._held[self._held.index(">") + 1 :].removeprefix("\n")
                self._kind, self._close, self._begun = "thinking", f"</{tag[1:]}", False
                return
            if opens is None and not is_whole and line.strip(" \t"):
                return  # may be "<think>" one day
            if self._n >= SOFT:
                if not is_whole and len(line) < 12:
                    return  # what kind of line it is shows in its first characters
                yield from self._cut(line)
        elif self._n_line + len(line) > LONGEST_LINE and not self._fence:
            yield from self._break_line()
        if newline:
            self._held = rest
            yield from self._add(line + "\n")
            self._end_line(self._line + line)
        else:
            self._held = ""
            self._line += line
            yield from self._add(line)

    @property
    def _n_line(self) -> int:
        return len(self._line)

    def _end_line(self, line: str) -> None:
        found = _FENCE.match(line)
        if self._fence:
            if found and not found[2].strip() and found[1].startswith(_FENCE.match(self._fence)[1]):  # type: ignore[index]
                self._fence = ""
        elif found and not ("`" in found[2] and found[1][0] == "`"):
            self._fence = line.strip()[:80]
        if not self._fence and _TABLE_RULE.match(line) and "|" in self._last:
            self._table = (self._last, line)
        elif "|" not in line:
            self._table = None
        self._last, self._line = line, ""

    def _cut(self, line: str) -> Iterator[Op]:
        """Begin a new segment before ``line`` if this is a place for it."""
        must = self._n >= HARD
        if self._fence:
            if must and not _FENCE.match(line):
                mark = _FENCE.match(self._fence)[1]  # type: ignore[index]
                yield Add(f"{mark}\n")
                yield from self._begin(goes_on=True)
                yield from self._add(self._fence + "\n")
        elif self._table is not None and "|" in line:
            if must:
                head, rule = self._table
                yield from self._begin(goes_on=True)
                yield from self._add(f"{head}\n{rule}\n")
        elif must or _ITEM.match(line) or (not self._last.strip() and _GOOD.match(line)):
            yield from self._begin(goes_on=bool(_ITEM.match(line)))

    def _break_line(self) -> Iterator[Op]:
        self._line = ""
        yield from self._begin(goes_on=True)

    def _begin(self, *, goes_on: bool = False) -> Iterator[Op]:
        self._begun, self._n = True, 0
        yield Begin(self._kind, goes_on)

    def _add(self, text: str) -> Iterator[Op]:
        if not text:
            return
        if not self._begun:
            if not text.strip():
                return  # a segment does not begin with empty lines
            yield from self._begin()
        self._n += len(text)
        yield Add(text)


def _n_overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` are the beginning of ``tag``."""
    for n in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:n]):
            return n
    return 0
