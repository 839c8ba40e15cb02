"""llama.cpp's own messages: into a log file, never onto the terminal.

llama.cpp has one log callback for the whole process, so this is the one place with process-wide
state. ``install()`` must run before any model is loaded; importing any module of this package that
touches llama.cpp goes through ``lib()`` here, which does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import deque
from pathlib import Path
from typing import Any, TextIO

import llama_cpp

from localspec import paths

MAX_LOG_BYTES = 4 * 1024 * 1024
_ERROR_LEVEL = 4  # enum ggml_log_level: 1 debug, 2 info, 3 warning, 4 error, 5 continuation


class NativeLog:
    """Receives every message; keeps the last errors to explain a failed load."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: deque[str] = deque(maxlen=8)
        self._file: TextIO | None = None
        self._level = 0
        self._callback = llama_cpp.llama_log_callback(self._receive)
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes, _user: Any) -> None:
        # Called by native code, from any thread: an exception here has nowhere to go.
        if level != 5:
            self._level = level
        message = text.decode("utf-8", "replace")
        if self._level == _ERROR_LEVEL and message.strip():
            self.errors.append(message.strip())
        with contextlib.suppress(OSError, ValueError):
            self._stream().write(message)

    def _stream(self) -> TextIO:
        if self._file is None:
            paths.make_private_dir(self.path.parent)
            if self.path.exists() and self.path.stat().st_size > MAX_LOG_BYTES:
                self.path.replace(self.path.with_suffix(".old.log"))
            self._file = self.path.open("a", encoding="utf-8", buffering=1)
            self._file.write(time.strftime("--- %Y-%m-%d %H:%M:%S\n"))
        return self._file

    def take_errors(self) -> str:
        """The last error messages since the previous call, in one line; may be empty."""
        text = "; ".join(self.errors)
        self.errors.clear()
        return text


_log: NativeLog | None = None


def install(path: Path | None = None) -> NativeLog:
    """Route llama.cpp's messages to ``path`` (default: ``paths.log_file()``). Safe to repeat."""
    global _log
    if _log is None:
        _log = NativeLog(path or paths.log_file())
        llama_cpp.llama_backend_init()
    return _log
