"""``localspec run`` as a process, on a real model: streams, Ctrl-C at each stage, modes, memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

SMALL = "smollm2-135m"
COPY = "Repeat this exactly three times: the quick brown fox jumps over the lazy dog."


@pytest.fixture(scope="module", autouse=True)
def there(model_file: Callable[[str], Path]) -> Path:
    return model_file(SMALL)


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", "run", "--offline", "-m", SMALL, "-t", "1", *args],
        input=stdin, capture_output=True, timeout=300, check=False, env=dict(os.environ),
    )  # fmt: skip


def test_the_answer_is_alone_on_stdout_and_the_rest_on_stderr() -> None:
    found = run("-n", "8", "--temp", "0", "Say hello.")
    assert found.returncode == 0, found.stderr.decode()
    assert found.stdout.strip()
    assert b"tokens/s" not in found.stdout
    assert b"tokens/s" in found.stderr
    assert b"llama" not in found.stderr.replace(b"llama.cpp", b"")


@pytest.mark.parametrize("mode", ["off", "lookup", "auto"])
def test_each_mode_says_what_is_in_force(mode: str) -> None:
    # With a length the mode drafts at every chance, whether it pays on this machine or not.
    fixed = ["--draft-max", "4"] if mode == "lookup" else []
    found = run("--json", "--mode", mode, *fixed, "-n", "48", "--temp", "0", COPY)
    value = json.loads(found.stdout)
    assert value["mode"] == {"off": "off", "lookup": "lookup", "auto": "lookup"}[mode]
    assert value["reason"]
    assert value["n_tokens"] <= 48
    if mode == "lookup":
        assert value["n_drafted"] > 0
        assert value["n_accepted"] > 0
    if mode == "off":
        assert (value["n_drafted"], value["acceptance_rate"]) == (0, None)


def test_the_same_file_can_draft_for_itself() -> None:
    found = run(
        "--json", "-md", SMALL, "--mode", "draft", "--draft-max", "4", "-n", "24", "--temp", "0",
        "Count to 9.",
    )  # fmt: skip
    value = json.loads(found.stdout)
    assert value["draft"]
    assert value["acceptance_rate"] > 0.9
    assert value["drafters"]["draft"]["n_verified"] == value["n_verified"]


def test_a_seed_repeats_the_text() -> None:
    texts = {json.loads(run("--json", "--seed", "5", "-n", "16", "Tell me a story.").stdout)["text"]
             for _ in range(2)}  # fmt: skip
    assert len(texts) == 1


def test_a_context_that_is_too_small_is_explained_with_both_numbers() -> None:
    found = run("-c", "64", stdin=b"word " * 300)
    assert found.returncode == 1
    assert found.stdout == b""
    assert b"more than the context of" in found.stderr


def interrupted(
    process: subprocess.Popen[bytes], prompt: bytes, stage: str
) -> tuple[bytes, bytes, bytes]:
    """Send SIGINT when ``stage`` is reached; (first byte of the answer, rest of it, stderr)."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(prompt)
    process.stdin.close()
    first = b""
    if stage == "answer":
        first = process.stdout.read(1)
    else:
        word = b"Loading" if stage == "loading" else b"log file"
        while word not in (line := process.stderr.readline()):
            assert line, "it ended before it got there"
    if stage == "prompt":
        time.sleep(0.5)  # the prompt pass takes many seconds
    process.send_signal(signal.SIGINT)
    return first, process.stdout.read(), process.stderr.read()


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent differently on Windows")
@pytest.mark.parametrize("stage", ["loading", "prompt", "answer"])
def test_ctrl_c_ends_with_130_and_keeps_what_was_printed(stage: str) -> None:
    """F34: at each stage, without a traceback."""
    # A prompt that takes many seconds to read: however late the signal comes, no answer has begun.
    prompt = "Write a very long story." if stage == "answer" else "word " * 5000
    command = [sys.executable, "-m", "localspec", "run", "--offline", "-m", SMALL, "-t", "1", "-v"]
    command += ["--temp", "0"]  # a drawn answer may be blank, or end at once
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "-"], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        first, out, err = interrupted(process, prompt.encode(), stage)
    assert process.returncode == 130, err.decode()
    assert b"Traceback" not in err
    if stage == "answer":
        assert (first + out).strip()
    else:
        assert out == b""


def test_a_short_memory_limit_is_refused_before_loading_with_what_would_fit() -> None:
    found = run("--memory-limit", "100MiB", "hi")
    assert found.returncode == 4
    assert b"does not fit into memory" in found.stderr
    assert b"more than" in found.stderr
    assert b"Loading" not in found.stderr
