"""Native output goes to the log while the view is up, and nowhere else changes."""

from __future__ import annotations

import os
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
