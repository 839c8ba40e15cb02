"""A pair under a limit that it does not fit: lookup instead, and a refusal when nothing fits.

The limit is a real one (a control group made here) where the system lets us, else a memory limit
that localspec is told. Either way it is worked out from what localspec says each mode needs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

TARGET, DRAFT = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
MIB = 2**20
ROOT = Path("/sys/fs/cgroup")
GROUP = f"localspec-test-{os.getpid()}"


@dataclass(frozen=True)
class Group:
    """A control group for the children of this test; ``folder`` None: only a fake limit."""

    folder: Path | None = None
    limit_file: str = ""

    @property
    def sources(self) -> str:
        """What the budget says about the limit."""
        return rf"{re.escape(self.limit_file)} of .*" if self.folder else r".*memory.limit"

    def child(self, limit: int, *args: str) -> subprocess.CompletedProcess[str]:
        """``localspec ARGS`` with at most ``limit`` bytes."""
        command = [sys.executable, "-m", "localspec", *args]
        if self.folder is None:
            command += ["--memory-limit", str(limit)]
            return self._run(command)
        (self.folder / self.limit_file).write_text(str(limit), encoding="ascii")
        members = str(self.folder / "cgroup.procs")
        into = 'echo $$ > "$1" && shift && exec "$@"'
        return self._run(["/bin/sh", "-c", into, "sh", members, *command])

    @staticmethod
    def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, encoding="utf-8"
        )


def _parents() -> Iterator[tuple[Path, str]]:
    """Where a group could be made, the nearest first, and the file that limits it."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                yield ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
            elif not controllers:
                # A group of version 2 that has processes can have no groups with limits below it.
                yield ROOT / path.lstrip("/"), "memory.max"
                yield (ROOT / path.lstrip("/")).parent, "memory.max"
    yield ROOT / "memory", "memory.limit_in_bytes"


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    for parent, limit_file in _parents():
        folder = parent / GROUP
        if not parent.is_relative_to(ROOT):
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        found = Group(folder, limit_file)
        try:
            usable = (folder / limit_file).exists() and not found.child(512 * MIB, "-h").returncode
            if usable:
                yield found
                return
        except OSError:
            pass
        finally:
            folder.rmdir()
    yield Group()


@dataclass(frozen=True)
class Need:
    """Bytes: what the process takes before it plans, and what each mode needs from then on."""

    process: int
    pair: int
    lookup: int
    plain: int


@pytest.fixture(scope="module")
def need(group: Group, model_file: Callable[[str], Path]) -> Need:
    # The CPU only: a limit of the computer's memory does not bind a graphics card's.
    for name in (TARGET, DRAFT):
        model_file(name)
    enough = 3072 * MIB
    needed, process = {}, 0
    for mode in ("draft", "lookup", "off"):
        found = group.child(enough, "plan", *PLANNED, "--mode", mode, "--json")
        assert found.returncode == 0, found.stderr
        device = json.loads(found.stdout)["devices"][0]
        assert re.search(group.sources, device["source"]), "this machine has less than 3 GiB free"
        needed[mode] = device["needed_bytes"]
        process = max(process, enough - device["free_bytes"])
    result = Need(process, needed["draft"], needed["lookup"], needed["off"])
    assert result.plain <= result.lookup < result.pair - 256 * MIB
    return result


PLANNED = ("--offline", "-m", TARGET, "-c", "2048", "-ngl", "0", "--profile", "cpu")


def run(group: Group, limit: int) -> subprocess.CompletedProcess[str]:
    return group.child(limit, "run", "--json", *PLANNED, "-n", "2", "--temp", "0", "Say hello.")


def test_a_pair_that_does_not_fit_runs_in_lookup_mode(group: Group, need: Need) -> None:
    found = run(group, need.process + (need.lookup + need.pair) // 2)
    assert found.returncode == 0, found.stderr
    answer: dict[str, Any] = json.loads(found.stdout)
    assert (answer["mode"], answer["draft"]) == ("lookup", None)
    assert answer["n_tokens"] >= 1
    reason = answer["reason"]
    assert re.search(
        rf"Lookup: draft {DRAFT}\S* on the CPU needs 1\.\d+ GiB on CPU, \d+ MiB more than the "
        rf"1\.\d+ GiB available \({group.sources}\)\.$",
        reason,
    ), reason
    assert reason[reason.index("Lookup") :] in found.stderr


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(group: Group, need: Need) -> None:
    found = run(group, need.process + need.plain * 3 // 4)
    assert found.returncode == 4, found.stderr
    assert not found.stdout
    said = " ".join(found.stderr.split())
    assert re.search(
        rf"{TARGET}\S* does not fit into memory: it needs [\d.]+ \wiB on CPU, [\d.]+ MiB more than "
        rf"the [\d.]+ \wiB available \({group.sources}\)\.",
        said,
    ), said
    assert re.search(rf"These models would fit: \S*{DRAFT}", said), said
    assert "Loading" not in said
