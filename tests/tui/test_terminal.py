"""The chat in a real terminal with the real pair, under tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]
ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0


def python_s() -> float:
    """What a Python that does nothing takes now: about 0.03 s, more on a busy machine."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    return time.monotonic() - started


class Terminal:
    """One tmux session with a shell in it."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", "110", "-y", "34", "sh")
        self.resize(110, 34)
        # readline, which pytest imports, sets these two for all its children.
        self.type("unset COLUMNS LINES\n")
        self.type(f"cd {ROOT} && export LOCALSPEC_HOME={folder}/home PS1='READY> '\n")
        self.until("READY>")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", "t", "-l", text)

    def key(self, *names: str) -> None:
        self._tmux("send-keys", "-t", "t", *names)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def cursor_is_visible(self) -> bool:
        return self._tmux("display", "-p", "-t", "t", "#{cursor_flag}").strip() == "1"

    def alternate(self) -> bool:
        return self._tmux("display", "-p", "-t", "t", "#{alternate_on}").strip() == "1"

    def until(self, text: str, patience_s: float = PATIENCE_S) -> str:
        end = time.monotonic() + patience_s
        while text not in (screen := self.screen()):
            assert time.monotonic() < end, f"{text!r} never came:\n{screen}"
            time.sleep(0.1)
        return screen

    def start(self) -> None:
        self.type("clear; ")
        self.type(f"{sys.executable} -m localspec chat --offline -n 200; echo code=$?\n")
        self.until("Ask anything")

    def quit(self) -> None:
        """Ctrl+Q: back at the shell, whole, and soon."""
        slowest_s = python_s()
        self.key("C-q")
        started = time.monotonic()
        while "code=0" not in (screen := self.screen()):
            assert time.monotonic() < started + PATIENCE_S, screen
            slowest_s = max(slowest_s, python_s())  # the machine may be busy now and not before
        # A second where Python starts in 10 ms.
        assert time.monotonic() - started < max(1.0, 100 * slowest_s)
        assert self.cursor_is_visible()
        assert not self.alternate()
        self.type("stty -a | grep -c ' echo '\n")
        self.until("1")

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if not (Path(os.environ.get("HF_HUB_CACHE", "")) / "").is_dir():
        pytest.skip("the real pair is not on this computer (set HF_HUB_CACHE)")
    one = Terminal(tmp_path)
    try:
        yield one
    finally:
        one.close()


def test_a_whole_visit(terminal: Terminal) -> None:
    terminal.start()
    terminal.quit()  # while loading
    terminal.start()
    terminal.until("Mode")
    terminal.type("Count from 1 to 50, one number per line.")
    terminal.key("Enter")
    terminal.until("Answer")
    terminal.until("tokens/s")
    terminal.key("Escape")
    terminal.until("stopped")
    terminal.resize(70, 20)
    screen = terminal.until("accepted")
    assert max(map(len, screen.splitlines())) <= 70
    terminal.resize(110, 34)
    terminal.type("/regenerate")
    terminal.key("Enter")
    terminal.until("esc Stop")
    terminal.quit()  # while answering
    log = Path(terminal._socket).parent / "home" / "log" / "localspec.log"
    assert log.exists()
    assert "llama" in log.read_text(errors="replace")
