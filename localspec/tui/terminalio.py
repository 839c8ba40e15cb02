"""The terminal belongs to the chat view alone: what native code writes goes to the log.

Textual draws on ``sys.__stderr__`` and asks ``sys.__stdout__`` for the size of the terminal. Both
get a duplicate of the terminal's descriptor, and descriptors 1 and 2, which native code knows, are
pointed at the log until the view is left.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from localspec import paths

FIRST_WORDS = "Choosing a model for this computer …"
"""What the loading view begins with."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"


class Terminal:
    """The real terminal while descriptors 1 and 2 lead elsewhere. ``stream`` None: they do not."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._is_open = False

    def open_view(self) -> None:
        """Switch to the screen that the view will draw on, and put the first words on it: to import
        what draws takes most of half a second. Textual then takes the screen over."""
        if self._stream is None:
            return
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return
        words = FIRST_WORDS[: size.columns]
        line, column = max(1, size.lines // 2), (size.columns - len(words)) // 2 + 1
        self._stream.write(f"{_ENTER}\x1b[{line};{column}H{words}")
        self._stream.flush()
        self._is_open = True

    def leave_view(self) -> None:
        """Back to the screen of before, where Textual did not do it."""
        if self._stream is not None and self._is_open:
            self._is_open = False
            self._stream.write(_LEAVE)
            self._stream.flush()

    def call(self, command: Sequence[str]) -> int:
        """Run a program that uses the terminal, and return its exit code. Raises OSError."""
        return subprocess.call(list(command), stdout=self._stream, stderr=self._stream)


@contextlib.contextmanager
def own_terminal(log: Path) -> Iterator[Terminal]:
    """While inside, only what is written to the ``sys.__stderr__`` of now reaches the terminal.

    Does nothing on Windows, where a descriptor of the C library is also the console handle that
    Textual needs, and nothing where there are no such descriptors; llama.cpp's own messages go to
    the log in any case. Afterwards all is as it was before.
    """
    target = _log_descriptor(log)
    out, error = sys.__stdout__, sys.__stderr__
    if target is None or out is None or error is None:
        yield Terminal()
        return
    out.flush()
    error.flush()
    kept = {1: os.dup(1), 2: os.dup(2)}
    streams = [
        os.fdopen(os.dup(kept[fd]), "w", encoding=stream.encoding, errors="replace", newline="")
        for fd, stream in ((1, out), (2, error))
    ]
    sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
    os.dup2(target, 1)
    os.dup2(target, 2)
    terminal = Terminal(streams[1])
    try:
        yield terminal
    except BaseException:
        terminal.leave_view()
        raise
    finally:
        for stream in (sys.stdout, sys.stderr, *streams):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for fd, old in kept.items():
            os.dup2(old, fd)
            os.close(old)
        os.close(target)
        sys.__stdout__, sys.__stderr__ = out, error  # type: ignore[misc]
        for stream in streams:
            with contextlib.suppress(OSError, ValueError):
                stream.close()


def _log_descriptor(log: Path) -> int | None:
    """The log, open for writing; None where descriptors are better left alone."""
    try:
        out, error = sys.__stdout__, sys.__stderr__
        if os.name == "nt" or out is None or error is None:
            return None
        if (out.fileno(), error.fileno()) != (1, 2):
            return None
        paths.make_private_dir(log.parent)
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, ValueError):
        return None
