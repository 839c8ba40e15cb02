"""Text on its way to a terminal: untrusted characters out, sizes and durations in plain English."""

from __future__ import annotations

import os
import re
from typing import TextIO

# C0 but tab and newline, DEL, C1, and the invisible characters that reorder or hide text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_LABEL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def clean(text: str) -> str:
    """``text`` without anything that a terminal would obey; newlines and tabs stay.

    A carriage return before a newline is dropped with the rest; escape sequences lose their escape
    and show as ordinary characters.
    """
    return _CONTROL.sub("", text)


def label(text: str) -> str:
    """``text`` on one line, for names, paths and messages."""
    return _LABEL.sub("\N{REPLACEMENT CHARACTER}", text)


def wants_colour(stream: TextIO) -> bool:
    """Colour only on a real terminal, and not under a non-empty NO_COLOR or TERM=dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def size(n_bytes: float) -> str:
    """``1117320768`` -> ``1.04 GiB``."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            digits = 0 if unit == "B" or abs(value) >= 100 else (1 if abs(value) >= 10 else 2)
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """``75.2`` -> ``1 min 15 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
