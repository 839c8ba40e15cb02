"""Where a text that drafts may come from belongs: plain data, for those who only name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["chat", "run", "file"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a text comes from: a saved chat (``name`` is its id), one-shot runs (``name`` empty), or
    a file of the user (``name`` is its path, ``stamp`` tells one state of it from another)."""

    kind: Kind
    name: str = ""
    stamp: str = ""


RUNS = Source("run")
