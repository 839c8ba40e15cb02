"""Whole machines that nobody has here, and the profile, pair, threads and budget of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers_machines import (
    CPU_DEVICE,
    GIB,
    FakeDevice,
    container_v2,
    cores,
    cuda,
    linux,
    mac,
    metal,
)

from localspec.hardware import Probe

MEMINFO = "MemAvailable of /proc/meminfo"
NO_GPU = "no graphics processor that llama.cpp can use"
HYBRID = cores(6, smt=2) | cores(8, first=12) | {"/sys/devices/cpu_core/cpus": "0-11\n"}


@dataclass(frozen=True)
class Expected:
    profile: str
    profile_reason: str
    pair: str
    pair_reason: str
    threads: int
    threads_reason: str
    budget: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Machine:
    name: str
    probe: Callable[[Path], Probe]
    devices: Sequence[FakeDevice]
    expected: Expected


MACHINES = [
    Machine(
        "the test machine: 2 cores, 24 GiB, no GPU",
        lambda root: linux(root, 23.54, 22.6, cores(2)),
        [CPU_DEVICE],
        Expected(
            "cpu",
            NO_GPU,
            "qwen2.5-coder-1.5b",
            "the profile's choice from 3.00 GiB on; there is 23.5 GiB of memory",
            2,
            "2 physical cores",
            (("CPU", int(22.6 * 2**20) * 1024, MEMINFO),),
        ),
    ),
    Machine(
        "hybrid laptop, 32 GB, no GPU",
        lambda root: linux(root, 31.2, 24, HYBRID),
        [CPU_DEVICE],
        Expected(
            "cpu",
            NO_GPU,
            "qwen2.5-coder-7b",
            "the profile's choice from 30.0 GiB on; there is 31.2 GiB of memory",
            6,
            "6 performance cores of 14 cores; the efficiency cores would hold them up",
            (("CPU", 24 * GIB, MEMINFO),),
        ),
    ),
    Machine(
        "container of 2 CPUs and 2 GB on a host of 64 cores",
        lambda root: linux(
            root,
            256,
            200,
            cores(64, smt=2)
            | container_v2(str(2 * GIB), 512 * 2**20, 256 * 2**20, "200000 100000"),
        ),
        [CPU_DEVICE],
        Expected(
            "cpu",
            NO_GPU,
            "qwen2.5-coder-0.5b",
            "the profile's smallest choice; there is 2.00 GiB of memory",
            2,
            "a CPU quota of 2 CPUs (cpu.max of this container)",
            (
                (
                    "CPU",
                    2 * GIB - 256 * 2**20,
                    "memory.max of this container, minus what is in use",
                ),
            ),
        ),
    ),
    Machine(
        "WSL with half of 16 GB",
        lambda root: linux(
            root, 7.7, 6, cores(4, smt=2), release="5.15.153.1-microsoft-standard-WSL2"
        ),
        [CPU_DEVICE],
        Expected(
            "cpu",
            NO_GPU,
            "qwen2.5-coder-1.5b",
            "the profile's choice from 3.00 GiB on; there is 7.70 GiB of memory",
            4,
            "4 physical cores; the second thread of a core adds nothing",
            (
                (
                    "CPU",
                    6 * GIB,
                    f"{MEMINFO} (the part of the PC's memory that Windows gives to WSL)",
                ),
            ),
        ),
    ),
    Machine(
        "Apple, 8 GB",
        lambda root: mac(root, 8, 3.5, 4, 4, "Apple M2"),
        [metal(5.33, 5.3, "Apple M2")],
        Expected(
            "metal",
            "llama.cpp can use Apple M2 (5.33 GiB) by Metal",
            "qwen2.5-coder-1.5b",
            "the profile's smallest choice; there is 5.33 GiB on the GPU",
            4,
            "4 performance cores of 8 cores; the efficiency cores would hold them up",
            (
                ("CPU", int(3.5 * GIB), "free and inactive memory, as the system reports it"),
                (
                    "MTL0",
                    int(3.5 * GIB),
                    "shared with the CPU: free and inactive memory, as the system reports it",
                ),
            ),
        ),
    ),
    Machine(
        "Apple, 16 GB, whose backend reports all of the memory",
        lambda root: mac(root, 16, 12, 4, 4, "Apple M2"),
        [metal(16, 16, "Apple M2")],
        Expected(
            "metal",
            "llama.cpp can use Apple M2 (16.0 GiB) by Metal",
            "qwen2.5-coder-7b",
            "the profile's choice from 10.0 GiB on; there is 10.7 GiB on the GPU",
            4,
            "4 performance cores of 8 cores; the efficiency cores would hold them up",
            (
                ("CPU", 12 * GIB, "free and inactive memory, as the system reports it"),
                ("MTL0", int(16 * GIB * 2 / 3), "Metal's working-set limit, two thirds of memory"),
            ),
        ),
    ),
    Machine(
        "Apple, 64 GB",
        lambda root: mac(root, 64, 50, 8, 2, "Apple M1 Max"),
        [metal(48, 47.5, "Apple M1 Max")],
        Expected(
            "metal",
            "llama.cpp can use Apple M1 Max (48.0 GiB) by Metal",
            "qwen2.5-coder-32b",
            "the profile's choice from 40.0 GiB on; there is 48.0 GiB on the GPU",
            8,
            "8 performance cores of 10 cores; the efficiency cores would hold them up",
            (
                ("CPU", 50 * GIB, "free and inactive memory, as the system reports it"),
                ("MTL0", int(47.5 * GIB), "free memory of MTL0, from llama.cpp"),
            ),
        ),
    ),
    Machine(
        "CUDA 6 GB, 16 GB of RAM",
        lambda root: linux(root, 15.5, 11, cores(6, smt=2)),
        [cuda(0, "NVIDIA GeForce RTX 2060", 5.6, 5.8), CPU_DEVICE],
        Expected(
            "cuda",
            "llama.cpp can use NVIDIA GeForce RTX 2060 (5.80 GiB) by CUDA",
            "qwen2.5-coder-1.5b",
            "the profile's smallest choice; there is 5.80 GiB on the GPU",
            6,
            "6 physical cores; the second thread of a core adds nothing",
            (
                ("CPU", 11 * GIB, MEMINFO),
                ("CUDA0", int(5.6 * GIB), "free memory of CUDA0, from llama.cpp"),
            ),
        ),
    ),
    Machine(
        "CUDA 8 GB, 16 GB of RAM",
        lambda root: linux(root, 15.5, 11, cores(8, smt=2)),
        [cuda(0, "NVIDIA GeForce RTX 4060", 7.1, 7.6)],
        Expected(
            "cuda",
            "llama.cpp can use NVIDIA GeForce RTX 4060 (7.60 GiB) by CUDA",
            "qwen2.5-coder-7b",
            "the profile's choice from 7.50 GiB on; there is 7.60 GiB on the GPU",
            8,
            "8 physical cores; the second thread of a core adds nothing",
            (
                ("CPU", 11 * GIB, MEMINFO),
                ("CUDA0", int(7.1 * GIB), "free memory of CUDA0, from llama.cpp"),
            ),
        ),
    ),
    Machine(
        "CUDA 24 GB, 32 GB of RAM",
        lambda root: linux(root, 31, 25, cores(12, smt=2)),
        [cuda(0, "NVIDIA GeForce RTX 3090", 23.2, 23.6)],
        Expected(
            "cuda",
            "llama.cpp can use NVIDIA GeForce RTX 3090 (23.6 GiB) by CUDA",
            "qwen2.5-coder-14b",
            "the profile's choice from 15.0 GiB on; there is 23.6 GiB on the GPU",
            12,
            "12 physical cores; the second thread of a core adds nothing",
            (
                ("CPU", 25 * GIB, MEMINFO),
                ("CUDA0", int(23.2 * GIB), "free memory of CUDA0, from llama.cpp"),
            ),
        ),
    ),
    Machine(
        "two GPUs",
        lambda root: linux(root, 62, 55, cores(16, smt=2)),
        [cuda(0, "NVIDIA A", 23, 24), cuda(1, "NVIDIA B", 7, 8), CPU_DEVICE],
        Expected(
            "cuda",
            "llama.cpp can use NVIDIA A (24.0 GiB), NVIDIA B (8.00 GiB) by CUDA",
            "qwen2.5-coder-32b",
            "the profile's choice from 30.0 GiB on; there is 32.0 GiB on the GPU",
            16,
            "16 physical cores; the second thread of a core adds nothing",
            (
                ("CPU", 55 * GIB, MEMINFO),
                ("CUDA0", 23 * GIB, "free memory of CUDA0, from llama.cpp"),
                ("CUDA1", 7 * GIB, "free memory of CUDA1, from llama.cpp"),
            ),
        ),
    ),
    Machine(
        "Vulkan on a laptop's own graphics",
        lambda root: linux(root, 15, 9, cores(8, smt=2)),
        [FakeDevice("Vulkan0", "AMD Radeon 780M (RADV PHOENIX)", "vulkan", 11 * GIB, 12 * GIB)],
        Expected(
            "cuda",
            "llama.cpp can use AMD Radeon 780M (RADV PHOENIX) (12.0 GiB) by Vulkan",
            "qwen2.5-coder-7b",
            "the profile's choice from 7.50 GiB on; there is 12.0 GiB on the GPU",
            8,
            "8 physical cores; the second thread of a core adds nothing",
            (
                ("CPU", 9 * GIB, MEMINFO),
                ("Vulkan0", 9 * GIB, f"shared with the CPU: {MEMINFO}"),
            ),
        ),
    ),
    Machine(
        "Windows laptop with 16 GB",
        lambda root: Probe(  # noqa: ARG005
            "Windows",
            "AMD64",
            n_total=int(15.7 * GIB),
            n_available=8 * GIB,
            n_logical=16,
            n_physical=8,
        ),
        [CPU_DEVICE],
        Expected(
            "cpu",
            NO_GPU,
            "qwen2.5-coder-1.5b",
            "the profile's choice from 3.00 GiB on; there is 15.7 GiB of memory",
            8,
            "8 physical cores; the second thread of a core adds nothing",
            (("CPU", 8 * GIB, "free and inactive memory, as the system reports it"),),
        ),
    ),
]
