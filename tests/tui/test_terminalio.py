"""Native output goes to the log while the view is up, and nowhere else changes."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.chat import command

ROOT = str(Path(__file__).parents[2])
PROGRAM = """
import os, sys, pathlib
sys.path.insert(0, {root!r})
from localspec.tui.terminalio import own_terminal
log = pathlib.Path({log!r})
print("out before"); print("err before", file=sys.stderr)
with own_terminal(log) as terminal:
    os.write(1, b"native out\\n"); os.write(2, b"native err\\n")
    print("python err", file=sys.stderr)
    sys.__stderr__.write("drawing\\n"); sys.__stderr__.flush()
    assert os.get_terminal_size
    sys.__stdout__.fileno()
    terminal.call([sys.executable, "-c", "print('editor')"])
    try:
        with own_terminal(log):
            raise ValueError
    except ValueError:
        pass
print("out after"); print("err after", file=sys.stderr)
os.write(2, b"native after\\n")
"""


@pytest.mark.skipif(os.name == "nt", reason="on Windows descriptors are left alone")
def test_descriptors_are_moved_and_restored(tmp_path: Path) -> None:
    """F33."""
    log = tmp_path / "deep" / "x.log"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=ROOT, log=str(log))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out before\nout after\n"
    assert done.stderr == "err before\ndrawing\neditor\nerr after\nnative after\n"
    written = log.read_text()
    assert "native out" in written
    assert "native err" in written
    assert "python err" in written


VIEW = """
import os, sys, pathlib
sys.path.insert(0, {root!r})
from localspec.tui.terminalio import own_terminal
with own_terminal(pathlib.Path({log!r})) as terminal:
    terminal.open_view()
    {then}
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows consoles need Textual to read such codes")
@pytest.mark.parametrize("columns", [100, 20])
def test_the_first_words_are_there_before_the_view_and_the_screen_comes_back(
    tmp_path: Path, columns: int
) -> None:
    """Importing what draws takes half a second; if it fails the terminal must be as before."""
    program = VIEW.format(root=ROOT, log=str(tmp_path / "x.log"), then="raise ValueError('broken')")
    shown, code = under_a_terminal(program, columns)
    assert code == 1
    before, rest = shown.split("\x1b[?1049h", 1)
    words, after = rest.split("\x1b[?1049l", 1)
    assert "Choosing a model"[:columns] in words
    assert ("for this computer" in words) == (columns == 100)
    assert "\x1b[?25h" in words  # the cursor is back
    assert "broken" in after
    assert not before


def under_a_terminal(program: str, columns: int) -> tuple[str, int]:
    """(all that reached the terminal, exit code)."""
    fcntl, pty = pytest.importorskip("fcntl"), pytest.importorskip("pty")
    termios = pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return shown.decode(), process.wait()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "chat needs a terminal"),
        (["a", "-m", "b"], "two models are named"),
        (["--continue", "--resume", "x"], "name two chats"),
    ],
)
def test_what_makes_no_sense_is_said(args: list[str], message: str) -> None:
    result = CliRunner().invoke(command, args)
    assert message in str(result.exception)


def test_the_view_is_drawn_before_llama_cpp_is_loaded() -> None:
    code = (
        "import sys, localspec.tui.app, localspec.cli.chat\n"
        "print([m for m in ('llama_cpp', 'huggingface_hub', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "llama_cpp" not in done.stdout
    assert "huggingface_hub" not in done.stdout
