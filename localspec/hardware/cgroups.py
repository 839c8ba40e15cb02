"""Container limits: cgroup v1 and v2, at this level and at every parent that can be seen.

File formats: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from localspec.hardware.probe import Probe

# Version 1 writes "no limit" as the largest multiple of the page size below 2^63.
_UNLIMITED = 2**60


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of ``n_bytes``, of which ``n_bytes_free`` are not in use (page cache is free)."""

    n_bytes: int
    n_bytes_free: int
    source: str


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """So many CPUs' worth of time, such as 1.5."""

    n_cpus: float
    source: str

    @property
    def n_threads(self) -> int:
        """Threads that can run without being stopped in mid-step: the whole CPUs, at least 1."""
        return max(1, math.floor(self.n_cpus + 1e-9))


@dataclass(frozen=True, slots=True)
class _Level:
    """One directory of the hierarchy; ``name`` is what its files are called in messages."""

    directory: str
    version: int
    name: str


def memory_limits(probe: Probe) -> list[MemoryLimit]:
    """Every memory limit that counts for this process, innermost first."""
    found: list[MemoryLimit] = []
    hidden: list[MemoryLimit] = []
    for level in _levels(probe, "memory"):
        if level.version == 2:
            found += _memory_v2(probe, level)
        else:
            found += _memory_v1(probe, level)
            hidden += _hidden_v1(probe, level)
    known = min((limit.n_bytes for limit in found), default=_UNLIMITED)
    return found + [limit for limit in hidden[:1] if limit.n_bytes < known]


def cpu_quota(probe: Probe) -> CpuQuota | None:
    """The tightest CPU quota that counts for this process, None when there is none."""
    found: list[CpuQuota] = []
    for level in _levels(probe, "cpu"):
        if level.version == 2:
            words = probe.read(f"{level.directory}/cpu.max").split()
            source = f"cpu.max of {level.name}"
        else:
            words = probe.read(f"{level.directory}/cpu.cfs_quota_us").split()
            words += probe.read(f"{level.directory}/cpu.cfs_period_us").split()
            source = f"cpu.cfs_quota_us of {level.name}"
        quota, period = (_integer(word) for word in [*words, "", ""][:2])
        if quota and quota > 0 and period and period > 0:
            found.append(CpuQuota(quota / period, source))
    return min(found, key=lambda quota: quota.n_cpus, default=None)


# --- memory --------------------------------------------------------------------------------------


def _memory_v2(probe: Probe, level: _Level) -> list[MemoryLimit]:
    limits = []
    for file in ("memory.max", "memory.high"):
        # Above "high" the kernel throttles the process to a crawl, which is no better than an end.
        limit = _integer(probe.read(f"{level.directory}/{file}"))
        if limit is None or limit >= _UNLIMITED:
            continue
        used = _integer(probe.read(f"{level.directory}/memory.current")) or 0
        stat = _table(probe.read(f"{level.directory}/memory.stat"))
        cache = sum(stat.get(k, 0) for k in ("active_file", "inactive_file", "slab_reclaimable"))
        limits.append(_limit(limit, used, cache, f"{file} of {level.name}"))
    return limits


def _memory_v1(probe: Probe, level: _Level) -> list[MemoryLimit]:
    limit = _integer(probe.read(f"{level.directory}/memory.limit_in_bytes"))
    if limit is None or limit >= _UNLIMITED:
        return []
    used, cache, _ = _use_v1(probe, level)
    return [_limit(limit, used, cache, f"memory.limit_in_bytes of {level.name}")]


def _hidden_v1(probe: Probe, level: _Level) -> list[MemoryLimit]:
    """A limit of a parent that may not be mounted here; its own use cannot be seen."""
    used, cache, limit = _use_v1(probe, level)
    if limit >= _UNLIMITED:
        return []
    source = f"the limit above {level.name} (hierarchical_memory_limit)"
    return [_limit(limit, used, cache, source)]


def _use_v1(probe: Probe, level: _Level) -> tuple[int, int, int]:
    """Bytes in use, bytes of page cache among them, and the lowest limit of all parents."""
    used = _integer(probe.read(f"{level.directory}/memory.usage_in_bytes")) or 0
    stat = _table(probe.read(f"{level.directory}/memory.stat"))
    cache = sum(stat.get(f"total_{k}", stat.get(k, 0)) for k in ("active_file", "inactive_file"))
    return used, cache, stat.get("hierarchical_memory_limit", _UNLIMITED)


def _limit(limit: int, used: int, cache: int, source: str) -> MemoryLimit:
    really_used = max(0, used - min(cache, used))
    return MemoryLimit(limit, max(0, limit - really_used), f"{source}, minus what is in use")


# --- where the files are -------------------------------------------------------------------------


def _levels(probe: Probe, controller: str) -> Iterator[_Level]:
    """The directories from this process' group up to the mount point, for both versions."""
    for mount_point, mount_root, version, controllers in _mounts(probe):
        if version == 1 and controller not in controllers:
            continue
        group = _own_group(probe, version, controller)
        if group is None:
            continue
        inside = _below(group, mount_root)
        while True:
            directory = str(PurePosixPath(mount_point) / inside)
            name = "this container" if str(inside) == "." else f"/{inside}"
            yield _Level(directory, version, name)
            if str(inside) == ".":
                break
            inside = inside.parent


def _below(group: str, mount_root: str) -> PurePosixPath:
    """``group`` relative to what is mounted. A group outside of it (``/../x``) is not visible:
    the top of the mount is then the nearest that is."""
    path = PurePosixPath(group)
    if ".." in path.parts:
        return PurePosixPath(".")
    for base in (mount_root, "/"):
        if path.is_relative_to(base) and (base != "/" or mount_root == "/"):
            return path.relative_to(base)
    return PurePosixPath(".")


def _own_group(probe: Probe, version: int, controller: str) -> str | None:
    for line in probe.read("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if version == 2 and number == "0" and not controllers:
            return path
        if version == 1 and controller in controllers.split(","):
            return path
    return None


def _mounts(probe: Probe) -> Iterator[tuple[str, str, int, list[str]]]:
    """(mount point, root inside the hierarchy, version, controllers) of each cgroup mount."""
    for line in probe.read("/proc/self/mountinfo").splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not separator or len(left) < 5 or len(right) < 3:
            continue
        if right[0] in ("cgroup", "cgroup2"):
            version = 2 if right[0] == "cgroup2" else 1
            yield _unescape(left[4]), _unescape(left[3]), version, right[2].split(",")


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _integer(text: str) -> int | None:
    """None for ``max`` and for anything that is no number."""
    text = text.strip()
    return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None


def _table(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
