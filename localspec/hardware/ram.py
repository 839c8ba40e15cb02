"""The computer's own memory: how much can still be used, and which number says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.hardware.cgroups import MemoryLimit, memory_limits
from localspec.hardware.cpu import sysctl
from localspec.hardware.probe import Probe

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Ram:
    """Memory of the machine in bytes, and every limit that this process is under."""

    n_bytes_total: int
    n_bytes_available: int
    source: str
    limits: tuple[MemoryLimit, ...] = ()

    @property
    def usable(self) -> tuple[int, str]:
        """Bytes that we may use now, and where the number comes from: the smallest of all."""
        numbers = [(self.n_bytes_available, self.source)]
        numbers += [(limit.n_bytes_free, limit.source) for limit in self.limits]
        return min(numbers, key=lambda number: number[0])

    @property
    def n_bytes_capacity(self) -> int:
        """What we could use if nothing else ran: the same today and tomorrow, so that the choice
        of a model does not change with what happens to be open."""
        return min([self.n_bytes_total, *(limit.n_bytes for limit in self.limits)])


@dataclass(frozen=True, slots=True)
class UnifiedMemory:
    """What the GPU of a Mac may hold of the memory it shares with the CPU, in bytes."""

    n_bytes: int
    source: str


def detect_ram(probe: Probe) -> Ram:
    """Free and reclaimable memory, and the limits of containers and of the process."""
    limits = (*memory_limits(probe), *_process_limits(probe))
    if probe.system == "Linux":
        table = _kilobytes(probe.read("/proc/meminfo"))
        if "MemTotal" in table:
            available = table.get("MemAvailable")
            if available is None:  # kernels before 3.14
                available = sum(table.get(k, 0) for k in ("MemFree", "Buffers", "Cached"))
            source = "MemAvailable of /proc/meminfo"
            if probe.is_wsl:
                source += " (the part of the PC's memory that Windows gives to WSL)"
            return Ram(table["MemTotal"], min(available, table["MemTotal"]), source, limits)
    source = "free and inactive memory, as the system reports it"
    return Ram(probe.n_total, probe.n_available, source, limits)


def detect_unified(probe: Probe, ram: Ram) -> UnifiedMemory | None:
    """Metal's working-set limit on Apple silicon; None elsewhere.

    Without a limit set by the user macOS lets the GPU hold two thirds of the memory, and three
    quarters from 36 GiB on: what ``recommendedMaxWorkingSetSize`` of Metal's MTLDevice returns on
    such machines.
    """
    if probe.system != "Darwin" or probe.architecture != "arm64":
        return None
    wired = sysctl(probe, "iogpu.wired_limit_mb")
    if wired:
        return UnifiedMemory(wired * 2**20, "iogpu.wired_limit_mb")
    share, words = (
        (3 / 4, "three quarters") if ram.n_bytes_total >= 36 * GIB else (2 / 3, "two thirds")
    )
    return UnifiedMemory(
        int(ram.n_bytes_total * share), f"Metal's working-set limit, {words} of memory"
    )


def _process_limits(probe: Probe) -> list[MemoryLimit]:
    """ulimit -v and ulimit -d, minus what this process already has."""
    status = _kilobytes(probe.read("/proc/self/status"))
    limits = []
    for name, used, command in (
        ("RLIMIT_AS", "VmSize", "ulimit -v"),
        ("RLIMIT_DATA", "VmData", "ulimit -d"),
    ):
        limit = probe.rlimits.get(name)
        if limit is not None and limit < 2**60:
            free = max(0, limit - status.get(used, 0))
            source = f"{name} of this process ({command}), minus what is in use"
            limits.append(MemoryLimit(limit, free, source))
    return limits


def _kilobytes(text: str) -> dict[str, int]:
    """``MemTotal:  24684092 kB`` lines -> bytes."""
    return {
        match[1]: int(match[2]) * 1024
        for match in re.finditer(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)
    }
