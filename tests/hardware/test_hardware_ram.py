"""What may really be used, and which number says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers_machines import GIB, MIB, container_v2, cores, linux, mac

from localspec.hardware import Probe, detect
from localspec.hardware.ram import detect_ram, detect_unified


def test_available_is_free_and_reclaimable(tmp_path: Path) -> None:
    ram = detect_ram(linux(tmp_path, 16, 9, {}))
    assert ram.usable == (9 * GIB, "MemAvailable of /proc/meminfo")
    assert ram.n_bytes_capacity == 16 * GIB


def test_an_old_kernel_without_memavailable(tmp_path: Path) -> None:
    text = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nBuffers: 1024 kB\nCached: 2097152 kB\n"
    ram = detect_ram(linux(tmp_path, 0, 0, {"/proc/meminfo": text}))
    assert ram.n_bytes_available == 3 * GIB + MIB


def test_the_smallest_number_wins(tmp_path: Path) -> None:
    """psutil would show the host: 64 GiB, with 60 free."""
    files = container_v2(str(2 * GIB), current=300 * MIB, cache=100 * MIB)
    ram = detect_ram(linux(tmp_path, 64, 60, files))
    assert ram.usable == (
        2 * GIB - 200 * MIB,
        "memory.max of this container, minus what is in use",
    )
    assert ram.n_bytes_capacity == 2 * GIB


def test_a_limit_larger_than_what_is_free_does_not_help(tmp_path: Path) -> None:
    ram = detect_ram(linux(tmp_path, 8, 1, container_v2(str(4 * GIB))))
    assert ram.usable == (GIB, "MemAvailable of /proc/meminfo")


def test_process_limits(tmp_path: Path) -> None:
    status = "VmPeak: 9 kB\nVmSize:  1048576 kB\nVmData:  524288 kB\n"
    rlimits = {"RLIMIT_AS": 3 * GIB, "RLIMIT_DATA": 2 * GIB}
    probe = linux(tmp_path, 16, 8, {"/proc/self/status": status}, rlimits=rlimits)
    assert detect_ram(probe).usable == (
        3 * GIB // 2,
        "RLIMIT_DATA of this process (ulimit -d), minus what is in use",
    )


def test_wsl_says_so(tmp_path: Path) -> None:
    probe = linux(tmp_path, 8, 6, {}, release="5.15.153.1-microsoft-standard-WSL2")
    assert detect_ram(probe).usable == (
        6 * GIB,
        "MemAvailable of /proc/meminfo (the part of the PC's memory that Windows gives to WSL)",
    )


def test_other_systems_use_psutil_s_numbers() -> None:
    ram = detect_ram(Probe("Windows", n_total=16 * GIB, n_available=5 * GIB))
    assert ram.usable == (5 * GIB, "free and inactive memory, as the system reports it")


@pytest.mark.parametrize(
    ("total", "wired", "expected", "source"),
    [
        (8, 0, int(8 * GIB * 2 / 3), "Metal's working-set limit, two thirds of memory"),
        (16, 0, int(16 * GIB * 2 / 3), "Metal's working-set limit, two thirds of memory"),
        (36, 0, 27 * GIB, "Metal's working-set limit, three quarters of memory"),
        (64, 0, 48 * GIB, "Metal's working-set limit, three quarters of memory"),
        (16, 14336, 14 * GIB, "iogpu.wired_limit_mb"),
    ],
)
def test_metal_s_working_set(
    tmp_path: Path, total: int, wired: int, expected: int, source: str
) -> None:
    """Of unified memory the graphics processor may hold only a part: all of it is no budget."""
    probe = mac(tmp_path, total, total / 2, 4, 4, "Apple M2", wired)
    unified = detect_unified(probe, detect_ram(probe))
    assert unified is not None
    assert (unified.n_bytes, unified.source) == (expected, source)


def test_an_intel_mac_has_no_unified_memory(tmp_path: Path) -> None:
    probe = Probe("Darwin", "x86_64", root=tmp_path, n_total=16 * GIB, n_available=8 * GIB)
    assert detect_unified(probe, detect_ram(probe)) is None


def test_a_memory_limit_names_who_set_it(tmp_path: Path) -> None:
    hardware = detect(probe=linux(tmp_path, 16, 8, cores(2)))
    cpu = hardware.budget(4 * GIB, "from --memory-limit").cpu
    assert (cpu.n_bytes_free, cpu.source) == (4 * GIB, "from --memory-limit")
    assert hardware.budget(12 * GIB).cpu.source == "MemAvailable of /proc/meminfo"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process limit itself so")
def test_a_real_limit_of_this_process_is_seen() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from localspec.hardware import detect\n"
        "b = detect().budget().cpu; print(b.n_bytes_free, b.source)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    free, _, source = done.partition(" ")
    assert 0 < int(free) < 3 * GIB
    assert source.startswith("RLIMIT_AS of this process (ulimit -v)")
