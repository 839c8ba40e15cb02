"""How commands write: answers and data on stdout, everything else on stderr.

Everything printed here is cleaned of control characters first; colour follows NO_COLOR and the
terminal. rich is only used as a layout engine: no markup is ever read from a text.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

import click

from localspec.terminal import duration, size, wants_colour
from localspec.terminal import label as one_line


def note(text: str) -> None:
    """One line for the user, on stderr."""
    print(one_line(text), file=sys.stderr, flush=True)


def data(value: Any) -> None:
    """One JSON value on stdout, readable by people and programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def text(value: str) -> None:
    """One line on stdout."""
    click.echo(one_line(value))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    stream: TextIO | None = None,
) -> None:
    """Print ``rows`` below ``columns``; columns whose index is in ``right`` are right-aligned.

    On a terminal it fits the width, wrapping long cells; in a pipe nothing is cut or wrapped.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = stream or sys.stdout
    is_terminal = out.isatty()
    console = Console(
        file=out,
        no_color=not wants_colour(out),
        highlight=False,
        markup=False,
        emoji=False,
        width=None if is_terminal else 10_000,
    )
    view = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=False, show_edge=False)
    for index, name in enumerate(columns):
        view.add_column(Text(name), justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        view.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(view, soft_wrap=not is_terminal)


class TerminalProgress:
    """A ``files.Progress`` on stderr: one line that redraws itself on a terminal, plain lines every
    few seconds elsewhere."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty()
        self._label = ""
        self._total: int | None = None
        self._done = 0
        self._started = self._shown = 0.0
        self._width = 0

    def start(self, label: str, total: int | None) -> None:
        self._label, self._total, self._done = one_line(label), total, 0
        self._started = time.monotonic()
        self._shown = self._started if not self._live else 0.0
        self._draw(force=True)

    def advance(self, n: int) -> None:
        self._done += n
        self._draw()

    def finish(self) -> None:
        if self._live or self._total:
            self._draw(force=True)
        if self._live and not self._quiet and self._width:
            self._stream.write("\n")
            self._stream.flush()
        self._width = 0

    def note(self, text: str) -> None:
        if self._quiet:
            return
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0
        print(one_line(text), file=self._stream, flush=True)

    def _draw(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._quiet or (not force and now - self._shown < (0.1 if self._live else 5.0)):
            return
        self._shown = now
        line = self._line(now - self._started)
        if not self._live:
            print(line, file=self._stream, flush=True)
            return
        line = line[: shutil.get_terminal_size((80, 24)).columns - 1]
        self._stream.write("\r" + line + " " * max(0, self._width - len(line)))
        self._stream.flush()
        self._width = len(line)

    def _line(self, seconds: float) -> str:
        name = self._label
        if not self._total:
            return f"{name}: {size(self._done)}" if self._done else f"{name} ..."
        share = min(1.0, self._done / self._total)
        parts = [f"{name}: {share:4.0%} of {size(self._total)}"]
        if seconds > 1 and self._done:
            speed = self._done / seconds
            parts.append(f"{size(speed)}/s")
            if share < 1:
                parts.append(f"{duration((self._total - self._done) / speed)} left")
        if self._live:
            filled = round(share * 20)
            parts.insert(1, "[" + "#" * filled + "." * (20 - filled) + "]")
        return "  ".join(parts)
