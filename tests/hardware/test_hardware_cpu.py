"""Threads follow whole, fast cores, affinity and quota; each number has its reason."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_machines import container_v2, cores, linux, mac

from localspec.hardware import Probe, detect, threads_for
from localspec.hardware.cpu import Cpu, detect_cpu
from localspec.hardware.windows import read_cores


def cpu(root: Path, files: dict[str, str], **facts: object) -> Cpu:
    return detect_cpu(linux(root, 16, 8, files, **facts))


def test_two_plain_cores(tmp_path: Path) -> None:
    found = cpu(tmp_path, cores(2))
    assert (found.threads, found.threads_reason) == (2, "2 physical cores")
    assert not found.has_smt


def test_a_second_thread_of_a_core_is_not_used(tmp_path: Path) -> None:
    found = cpu(tmp_path, cores(8, smt=2))
    assert (found.n_logical, found.n_physical) == (16, 8)
    assert found.threads == 8
    assert found.threads_reason == "8 physical cores; the second thread of a core adds nothing"


def test_a_hybrid_laptop_uses_its_performance_cores(tmp_path: Path) -> None:
    files = cores(6, smt=2) | cores(8, first=12)
    files["/sys/devices/cpu_core/cpus"] = "0-11\n"
    files["/sys/devices/cpu_atom/cpus"] = "12-19\n"
    found = cpu(tmp_path, files)
    assert (found.n_logical, found.n_physical, found.n_performance) == (20, 14, 6)
    assert found.threads == 6
    assert found.threads_reason == (
        "6 performance cores of 14 cores; the efficiency cores would hold them up"
    )


def test_a_hybrid_process_pinned_to_efficiency_cores_uses_these(tmp_path: Path) -> None:
    files = cores(6, smt=2) | cores(8, first=12)
    files["/sys/devices/cpu_core/cpus"] = "0-11\n"
    found = cpu(tmp_path, files, affinity=frozenset(range(12, 16)))
    assert found.threads == 4


def test_arm_capacities(tmp_path: Path) -> None:
    files = cores(8)
    for index, capacity in enumerate([250, 250, 250, 250, 700, 700, 700, 1024]):
        files[f"/sys/devices/system/cpu/cpu{index}/cpu_capacity"] = f"{capacity}\n"
    assert cpu(tmp_path, files, architecture="aarch64").threads == 4
    assert cpu(tmp_path, files, architecture="x86_64").threads == 8


def test_affinity_counts_whole_cores(tmp_path: Path) -> None:
    found = cpu(tmp_path, cores(8, smt=2), affinity=frozenset({0, 1, 2, 5}))
    assert (found.n_allowed, found.n_allowed_logical) == (3, 4)
    assert found.threads == 3
    assert found.threads_reason == (
        "3 physical cores; the second thread of a core adds nothing "
        "(this process may use only 4 of 16 hardware threads)"
    )


def test_a_quota_below_the_cores_wins(tmp_path: Path) -> None:
    found = cpu(tmp_path, cores(32) | container_v2(cpu_max="150000 100000"))
    assert found.threads == 1
    assert found.threads_reason == "a CPU quota of 1.5 CPUs (cpu.max of this container)"
    assert threads_for("logical", found)[0] == 1
    assert threads_for(4, found) == (4, "set by the user")


def test_a_quota_above_the_cores_changes_nothing(tmp_path: Path) -> None:
    found = cpu(tmp_path, cores(2) | container_v2(cpu_max="800000 100000"))
    assert (found.threads, found.threads_reason) == (2, "2 physical cores")


def test_policies(tmp_path: Path) -> None:
    files = cores(6, smt=2) | cores(8, first=12) | {"/sys/devices/cpu_core/cpus": "0-11\n"}
    found = cpu(tmp_path, files)
    assert threads_for("auto", found)[0] == 6
    assert threads_for("physical", found) == (14, "all 14 cores (threads: physical)")
    assert threads_for("logical", found) == (20, "all 20 hardware threads (threads: logical)")


def test_an_offline_cpu_is_not_counted(tmp_path: Path) -> None:
    files = cores(4)
    files["/sys/devices/system/cpu/cpu4/uevent"] = "x\n"
    assert cpu(tmp_path, files).n_logical == 4


def test_a_mac(tmp_path: Path) -> None:
    found = detect_cpu(mac(tmp_path, 16, 8, fast=8, slow=2, chip="Apple M1 Pro"))
    assert found.name == "Apple M1 Pro"
    assert found.threads == 8
    assert found.threads_reason == (
        "8 performance cores of 10 cores; the efficiency cores would hold them up"
    )


@pytest.mark.parametrize(
    ("logical", "physical", "affinity", "threads"),
    [(16, 8, None, 8), (16, 8, frozenset({0, 1, 2, 3}), 2), (4, 4, None, 4), (0, None, None, 1)],
)
def test_windows_tells_counts_only(
    logical: int, physical: int | None, affinity: frozenset[int] | None, threads: int
) -> None:
    probe = Probe("Windows", "AMD64", n_logical=logical, n_physical=physical, affinity=affinity)
    assert detect_cpu(probe).threads == threads


def record(mask: int, efficiency_class: int, group: int = 0) -> bytes:
    """One SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX of a core, as 64-bit Windows writes it."""
    head = struct.pack("<IIBB20xH", 0, 48, int(mask.bit_count() > 1), efficiency_class, 1)
    return head + struct.pack("<QH6x", mask, group)


def test_a_hybrid_windows_laptop() -> None:
    table = b"".join(record(0b11 << 2 * i, 1) for i in range(4))
    table += b"".join(record(1 << i, 0) for i in range(8, 16))
    probe = Probe("Windows", "AMD64", n_logical=16, n_physical=12, core_table=table)
    found = detect_cpu(probe)
    assert (found.n_logical, found.n_physical, found.n_performance) == (16, 12, 4)
    assert found.threads == 4
    pinned = replace(probe, affinity=frozenset(range(8, 11)))
    assert detect_cpu(pinned).threads == 3


def test_windows_processor_groups() -> None:
    table = record(0b11, 0) + record(0b11, 0, group=1)
    assert [sorted(core.cpus) for core in read_cores(table)] == [[0, 1], [64, 65]]


@pytest.mark.parametrize(
    "table",
    [
        b"x",
        record(1, 0)[:-1],
        record(0, 0),
        struct.pack("<II24x", 0, 0),
        struct.pack("<IIBB20xH", 0, 32, 0, 0, 9),
    ],
)
def test_a_broken_windows_table_is_not_believed(table: bytes) -> None:
    assert read_cores(table) == []
    probe = Probe("Windows", n_logical=4, n_physical=2, core_table=table)
    assert detect_cpu(probe).threads == 2


def test_name_and_instructions(tmp_path: Path) -> None:
    info = "processor : 0\nmodel name\t: AMD Ryzen 7\nflags\t\t: fpu avx2 f16c avx512f nonsense\n"
    found = cpu(tmp_path, cores(1) | {"/proc/cpuinfo": info})
    assert (found.name, found.features) == ("AMD Ryzen 7", ("f16c", "avx2", "avx512f"))
    assert found.threads_reason == "1 physical core"


def test_nothing_to_read_is_one_core(tmp_path: Path) -> None:
    assert detect_cpu(Probe("Linux", root=tmp_path / "none")).threads == 1


def test_this_machine() -> None:
    found = detect().cpu
    assert 1 <= found.threads <= found.n_logical
    assert found.n_allowed <= found.n_physical <= found.n_logical
    assert found.threads_reason
