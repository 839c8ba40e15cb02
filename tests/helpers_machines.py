"""Machines nobody has here, written out as the files and command outputs that describe them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.hardware import Probe

GIB = 2**30
MIB = 2**20

V1_UNLIMITED = "9223372036854771712\n"
V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


@dataclass(frozen=True)
class FakeDevice:
    """A device as llama.cpp would report it."""

    name: str
    description: str
    kind: str
    n_bytes_free: int
    n_bytes_total: int
    is_gpu: bool = True


def cuda(index: int, description: str, free_gib: float, total_gib: float) -> FakeDevice:
    return FakeDevice(
        f"CUDA{index}", description, "cuda", int(free_gib * GIB), int(total_gib * GIB)
    )


CPU_DEVICE = FakeDevice("CPU", "AMD EPYC", "cpu", 4 * GIB, 8 * GIB, is_gpu=False)


def commands(outputs: dict[str, str]) -> Callable[[Sequence[str]], str]:
    """A runner that knows the commands in ``outputs`` by their words."""

    def run(argv: Sequence[str]) -> str:
        return outputs.get(" ".join(argv), "")

    return run


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def meminfo(total_gib: float, available_gib: float) -> str:
    return (
        f"MemTotal:       {int(total_gib * MIB)} kB\n"
        f"MemFree:        {int(available_gib * MIB / 2)} kB\n"
        f"MemAvailable:   {int(available_gib * MIB)} kB\n"
        "HugePages_Total:       0\n"
    )


def cores(n: int, smt: int = 1, first: int = 0) -> dict[str, str]:
    """``n`` cores of ``smt`` threads each, neighbours belonging together."""
    files = {}
    for core in range(n):
        low = first + core * smt
        siblings = f"{low}-{low + smt - 1}" if smt > 1 else str(low)
        for cpu in range(low, low + smt):
            files[f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    return files


def linux(
    root: Path, total_gib: float, available_gib: float, files: dict[str, str], **facts: object
) -> Probe:
    """A Linux machine below ``root``."""
    write(root, {"/proc/meminfo": meminfo(total_gib, available_gib), **files})
    return replace(Probe("Linux", root=root), **facts)  # type: ignore[arg-type]


def mac(
    root: Path,
    total_gib: int,
    available_gib: float,
    fast: int,
    slow: int,
    chip: str,
    wired: int = 0,
) -> Probe:
    """A Mac with Apple silicon."""
    numbers = {
        "hw.physicalcpu": fast + slow,
        "hw.logicalcpu": fast + slow,
        "hw.perflevel0.physicalcpu": fast,
        "iogpu.wired_limit_mb": wired,
        "sysctl.proc_translated": 0,
    }
    outputs = {f"/usr/sbin/sysctl -n {name}": f"{value}\n" for name, value in numbers.items()}
    outputs["/usr/sbin/sysctl -n machdep.cpu.brand_string"] = f"{chip}\n"
    return Probe(
        "Darwin",
        "arm64",
        release="24.0.0",
        root=root,
        run=commands(outputs),
        n_total=total_gib * GIB,
        n_available=int(available_gib * GIB),
        n_logical=fast + slow,
        n_physical=fast + slow,
    )


def metal(total_gib: float, free_gib: float, chip: str) -> FakeDevice:
    return FakeDevice("MTL0", chip, "metal", int(free_gib * GIB), int(total_gib * GIB))


def container_v2(
    memory_max: str = "max", current: int = 0, cache: int = 0, cpu_max: str = "max 100000"
) -> dict[str, str]:
    """A container with its own cgroup namespace: its group is the root of what it sees."""
    return {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/memory.max": f"{memory_max}\n",
        "/sys/fs/cgroup/memory.high": "max\n",
        "/sys/fs/cgroup/memory.current": f"{current}\n",
        "/sys/fs/cgroup/memory.stat": f"anon 1\nactive_file {cache}\ninactive_file 0\n",
        "/sys/fs/cgroup/cpu.max": f"{cpu_max}\n",
    }
