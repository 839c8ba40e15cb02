"""Where facts about the machine come from: files below a root, commands, and psutil.

Tests make a ``Probe`` that describes a machine nobody has at hand; ``here()`` makes the real one.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from localspec.hardware.windows import core_table

if sys.platform != "win32":
    import resource

MAX_READ = 1024 * 1024
COMMAND_TIMEOUT_S = 5.0


def _no_command(_: Sequence[str]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What can be asked about one machine. Every field can be given by a test.

    ``run(argv)``: the command's standard output, "" when it is not there or fails.
    ``n_total`` / ``n_available``: bytes of memory as psutil sees them (Linux reads /proc instead).
    ``n_logical`` / ``n_physical``: CPUs and cores as psutil sees them. ``affinity``: CPUs that this
    process may use, None when the system does not say. ``rlimits``: soft limits in bytes by name
    (RLIMIT_AS, RLIMIT_DATA). ``shell``: name of the shell that runs us, "" when unknown.
    ``core_table``: Windows' own description of its cores.
    """

    system: str
    architecture: str = "x86_64"
    release: str = ""
    root: Path = Path("/")
    run: Callable[[Sequence[str]], str] = _no_command
    n_total: int = 0
    n_available: int = 0
    n_logical: int = 1
    n_physical: int | None = None
    affinity: frozenset[int] | None = None
    rlimits: Mapping[str, int] = field(default_factory=dict)
    shell: str = ""
    core_table: bytes = b""

    def read(self, path: str) -> str:
        """The text of one of Linux's own files, at most a MiB; "" when there is none."""
        if self.system != "Linux":
            return ""
        try:
            with (self.root / path.lstrip("/")).open("rb") as stream:
                return stream.read(MAX_READ).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""

    def names(self, path: str) -> list[str]:
        """Names in a directory of Linux's own files, sorted; [] when there is none."""
        if self.system != "Linux":
            return []
        try:
            return sorted(entry.name for entry in (self.root / path.lstrip("/")).iterdir())
        except (OSError, ValueError):
            return []

    def exists(self, path: str) -> bool:
        """Is there such a file or directory on this Linux?"""
        try:
            return self.system == "Linux" and (self.root / path.lstrip("/")).exists()
        except (OSError, ValueError):
            return False

    @property
    def is_wsl(self) -> bool:
        """Linux inside Windows."""
        return self.system == "Linux" and "microsoft" in self.release.lower()


def run_command(argv: Sequence[str]) -> str:
    """The command's standard output; "" when it is missing, fails or takes over 5 s."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:MAX_READ].decode("utf-8", "replace") if done.returncode == 0 else ""


def _affinity() -> frozenset[int] | None:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # Windows; macOS has none
        return frozenset(process.cpu_affinity() or ())
    return None


def _rlimits() -> dict[str, int]:
    found: dict[str, int] = {}
    if sys.platform != "win32":
        for name in ("RLIMIT_AS", "RLIMIT_DATA"):
            kind = getattr(resource, name, None)
            if kind is not None and (soft := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
                found[name] = soft
    return found


_SHELLS = ("powershell", "pwsh", "cmd", "bash", "zsh", "fish", "sh", "dash", "ksh", "csh", "tcsh")


def _shell() -> str:
    """The nearest shell among our ancestors."""
    try:
        for parent in psutil.Process().parents():
            name = parent.name().lower().removesuffix(".exe").lstrip("-")
            if name in _SHELLS:
                return name
    except (psutil.Error, OSError):
        pass
    return Path(os.environ.get("SHELL", "")).name


def here() -> Probe:
    """This machine."""
    memory = psutil.virtual_memory()
    return Probe(
        system=platform.system(),
        architecture=platform.machine(),
        release=platform.release(),
        run=run_command,
        n_total=memory.total,
        n_available=memory.available,
        n_logical=psutil.cpu_count() or 1,
        n_physical=psutil.cpu_count(logical=False),
        affinity=_affinity(),
        rlimits=_rlimits(),
        shell=_shell() if platform.system() == "Windows" else "",
        core_table=core_table(),
    )
