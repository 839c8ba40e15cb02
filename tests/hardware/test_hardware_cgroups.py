"""F18: container limits of both versions, at this level and above it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_machines import GIB, V1_MOUNTS, V1_UNLIMITED, V2_MOUNT, container_v2, write

from localspec.hardware import MemoryLimit, Probe
from localspec.hardware.cgroups import cpu_quota, memory_limits


def probe(root: Path, files: dict[str, str]) -> Probe:
    write(root, files)
    return Probe("Linux", root=root)


def test_v2_page_cache_counts_as_free(tmp_path: Path) -> None:
    files = container_v2(str(2 * GIB), current=GIB, cache=GIB // 2)
    assert memory_limits(probe(tmp_path, files)) == [
        MemoryLimit(2 * GIB, 3 * GIB // 2, "memory.max of this container, minus what is in use")
    ]


def test_v2_max_is_no_limit(tmp_path: Path) -> None:
    found = probe(tmp_path, container_v2())
    assert memory_limits(found) == []
    assert cpu_quota(found) is None


def test_v2_high_counts_like_max(tmp_path: Path) -> None:
    files = container_v2(str(4 * GIB), current=0)
    files["/sys/fs/cgroup/memory.high"] = f"{3 * GIB}\n"
    limits = memory_limits(probe(tmp_path, files))
    assert [limit.n_bytes for limit in limits] == [4 * GIB, 3 * GIB]


def test_v2_limit_and_quota_at_a_parent(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup/user.slice/app.scope"
    files = {
        "/proc/self/cgroup": "0::/user.slice/app.scope\n",
        "/proc/self/mountinfo": V2_MOUNT,
        f"{group}/memory.max": "max\n",
        f"{group}/cpu.max": "400000 100000\n",
        "/sys/fs/cgroup/user.slice/memory.max": f"{3 * GIB}\n",
        "/sys/fs/cgroup/user.slice/memory.current": f"{GIB}\n",
        "/sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
    }
    found = probe(tmp_path, files)
    assert memory_limits(found) == [
        MemoryLimit(3 * GIB, 2 * GIB, "memory.max of /user.slice, minus what is in use")
    ]
    quota = cpu_quota(found)
    assert quota is not None
    assert (quota.n_cpus, quota.n_threads, quota.source) == (1.5, 1, "cpu.max of /user.slice")


def test_v1_limit_unlimited_number_and_hidden_parent(tmp_path: Path) -> None:
    """In a container without its own namespace the mount shows only its own group."""
    mounts = V1_MOUNTS.replace(" / /sys", " /docker/abc /sys")
    memory = "/sys/fs/cgroup/memory"
    files = {
        "/proc/self/cgroup": "9:memory:/docker/abc\n5:cpu,cpuacct:/docker/abc\n",
        "/proc/self/mountinfo": mounts,
        f"{memory}/memory.limit_in_bytes": V1_UNLIMITED,
        f"{memory}/memory.usage_in_bytes": f"{GIB}\n",
        f"{memory}/memory.stat": (
            f"cache 5\nhierarchical_memory_limit {2 * GIB}\n"
            f"total_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}\n"
        ),
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    found = probe(tmp_path, files)
    source = "the limit above this container (hierarchical_memory_limit), minus what is in use"
    assert memory_limits(found) == [MemoryLimit(2 * GIB, 3 * GIB // 2, source)]
    assert cpu_quota(found) is None


def test_v1_levels_of_a_host(tmp_path: Path) -> None:
    memory, cpu = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct"
    files = {
        "/proc/self/cgroup": "9:memory:/a/b\n5:cpu,cpuacct:/a/b\n0::/\n",
        "/proc/self/mountinfo": V1_MOUNTS,
        f"{memory}/memory.limit_in_bytes": V1_UNLIMITED,
        f"{memory}/a/memory.limit_in_bytes": f"{4 * GIB}\n",
        f"{memory}/a/memory.usage_in_bytes": f"{GIB}\n",
        f"{memory}/a/b/memory.stat": f"hierarchical_memory_limit {4 * GIB}\n",
        f"{memory}/a/b/memory.limit_in_bytes": V1_UNLIMITED,
        f"{cpu}/a/cpu.cfs_quota_us": "250000\n",
        f"{cpu}/a/cpu.cfs_period_us": "100000\n",
        f"{cpu}/a/b/cpu.cfs_quota_us": "-1\n",
        f"{cpu}/a/b/cpu.cfs_period_us": "100000\n",
    }
    found = probe(tmp_path, files)
    assert memory_limits(found) == [
        MemoryLimit(4 * GIB, 3 * GIB, "memory.limit_in_bytes of /a, minus what is in use")
    ]
    quota = cpu_quota(found)
    assert quota is not None
    assert (quota.n_cpus, quota.n_threads) == (2.5, 2)
    assert quota.source == "cpu.cfs_quota_us of /a"


@pytest.mark.parametrize(
    ("cpu_max", "n_threads"),
    [("150000 100000", 1), ("200000 100000", 2), ("50000 100000", 1), ("399999 100000", 3)],
)
def test_a_quota_is_rounded_down_but_never_to_nothing(
    tmp_path: Path, cpu_max: str, n_threads: int
) -> None:
    quota = cpu_quota(probe(tmp_path, container_v2(cpu_max=cpu_max)))
    assert quota is not None
    assert quota.n_threads == n_threads


def test_more_in_use_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    files = container_v2(str(GIB), current=2 * GIB)
    assert memory_limits(probe(tmp_path, files))[0].n_bytes_free == 0


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": r"1 2 0:3 / /mnt/c\040g rw - cgroup2 x rw",
        "/mnt/c g/memory.max": f"{GIB}\n",
    }
    assert [limit.n_bytes for limit in memory_limits(probe(tmp_path, files))] == [GIB]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/proc/self/cgroup": "garbage\n0::\n", "/proc/self/mountinfo": "x - cgroup2\n"},
        {"/proc/self/cgroup": "0::/../../x\n", "/proc/self/mountinfo": V2_MOUNT},
        container_v2("lots", cpu_max="a b"),
        container_v2("9" * 30, cpu_max="1"),
        container_v2("-1", cpu_max="100000 0") | {"/sys/fs/cgroup/memory.max": "\x00\xff"},
    ],
)
def test_nonsense_is_no_limit(tmp_path: Path, files: dict[str, str]) -> None:
    found = probe(tmp_path, files)
    assert memory_limits(found) == []
    assert cpu_quota(found) is None
