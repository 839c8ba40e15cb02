"""Whole programs: killed in the middle, two at once, stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_store import NAME, REPO, FakeHub, sha256

CONTENT = random.Random(2).randbytes(2_500_000)
PATIENCE_S = 60.0
# The program with more patience for a silent server: a test keeps one silent for as long as another
# program takes to start, and that may be long on a busy machine.
PATIENT = """
import sys
from dataclasses import replace
from localspec.__main__ import entry
from localspec.store import download
real = download.settings_from_environment
download.settings_from_environment = lambda: replace(real(), notice_s=60.0, read_s=100.0)
sys.exit(entry())
"""

# What is told by a signal cannot be tried on Windows, where there is only "kill".
needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")


def pull(hub: FakeHub, home: Path, *more: str) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "HF_HOME": str(home),
        "HF_ENDPOINT": hub.endpoint,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PATIENT, "pull", f"{REPO}:Q4_K_M", *more],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def blobs(home: Path) -> dict[str, int]:
    folder = home / "hub" / "models--someone--Tiny-GGUF" / "blobs"
    return {p.name: p.stat().st_size for p in folder.iterdir()} if folder.exists() else {}


def partial(home: Path) -> int:
    return blobs(home).get(f"{sha256(CONTENT)}.incomplete", 0)


@needs_signals
def test_killed_three_times_then_finished_without_orphans(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    home = tmp_path / "hf"
    sent = 0
    for step in (1_000_000, 500_000, 250_000):
        hub.hold_bodies(step)
        process = pull(hub, home)
        sent += step
        wait_for(lambda sent=sent: partial(home) == sent)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert set(blobs(home)) == {
            f"{sha256(CONTENT)}.incomplete",
            f"{sha256(CONTENT)}.incomplete.json",
        }
    process = pull(hub, home, "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    path = Path(json.loads(out)["models"][0]["path"])
    assert path.read_bytes() == CONTENT
    starts = [asked.range for asked in hub.bodies()]
    assert starts == ["", "bytes=1000000-", "bytes=1500000-", "bytes=1750000-"]
    assert set(blobs(home)) == {sha256(CONTENT)}
    assert "going on with" in err


@needs_signals
def test_ctrl_c_ends_soon_and_keeps_what_arrived(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    home = tmp_path / "hf"
    hub.hold_bodies(1_000_000)
    process = pull(hub, home)
    wait_for(lambda: partial(home) == 1_000_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert not hub.go_on.is_set()  # the server was still silent when the program ended
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped" in err
    assert out == ""
    assert partial(home) == 1_000_000


def test_two_at_once_fetch_it_once(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    home = tmp_path / "hf"
    hub.hold_bodies(1_000_000)
    first = pull(hub, home)
    wait_for(lambda: partial(home) == 1_000_000)
    second = pull(hub, home)
    assert second.stderr is not None
    lines: list[str] = []
    while not any("waiting for another localspec" in line for line in lines):
        line = second.stderr.readline()
        assert line, lines
        lines.append(line)
    hub.go_on.set()
    results = [process.communicate() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert Path(results[0][0].strip()).read_bytes() == CONTENT
    assert len(hub.bodies()) == 1


def test_expired_token_and_gated_through_the_command(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    hub.files[REPO, NAME] = CONTENT
    process = pull(hub, tmp_path / "one")
    _, err = process.communicate()
    assert process.returncode == 0
    assert "token was refused" in err
    hub.gated = {REPO}
    hub.good_tokens = {"hf_verysecret"}
    process = pull(hub, tmp_path / "two")
    out, gated = process.communicate()
    assert process.returncode == 3
    assert f"{hub.endpoint}/{REPO}" in gated
    assert "hf_verysecret" not in err + gated + out
    assert "Traceback" not in err + gated
