"""Cores, and how many threads a decode should use.

A decode waits for its slowest thread at every layer, so one thread per *fast, whole* core is best:
a second thread on a core shares its arithmetic units, an efficiency core holds the others up, and
a thread above a container's quota is stopped in mid-step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.hardware.cgroups import CpuQuota, cpu_quota
from localspec.hardware.probe import Probe
from localspec.hardware.windows import read_cores

# As the kernel spells them; only those for which llama.cpp has kernels of their own.
_FEATURES = (
    "avx", "f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8",
    "asimd", "asimddp", "i8mm", "sve", "sve2", "sme",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor as far as this process may use it.

    ``n_physical``: cores of the machine; ``n_performance``: those of them that are not efficiency
    cores (equal when all are alike). ``n_allowed``: whole cores this process may use after
    affinity, ``n_allowed_performance`` of them fast, ``n_allowed_logical`` hardware threads.
    ``quota``: CPU time limit of the container. ``threads``: how many a decode should use.
    """

    name: str
    n_logical: int
    n_physical: int
    n_performance: int
    n_allowed: int
    n_allowed_performance: int
    n_allowed_logical: int
    quota: CpuQuota | None
    threads: int
    threads_reason: str
    features: tuple[str, ...] = ()

    @property
    def has_smt(self) -> bool:
        """Do cores run two threads at a time?"""
        return self.n_logical > self.n_physical


@dataclass(frozen=True, slots=True)
class _Cores:
    """Counts before the policy; see ``Cpu``."""

    n_logical: int
    n_physical: int
    n_performance: int
    n_allowed: int
    n_allowed_performance: int
    n_allowed_logical: int


def detect_cpu(probe: Probe) -> Cpu:
    """Cores of this machine and the threads to use."""
    cores = _linux_cores(probe) or _windows_cores(probe) or _mac_cores(probe) or _plain_cores(probe)
    quota = cpu_quota(probe)
    threads, reason = _auto_threads(cores, quota)
    return Cpu(
        _name(probe),
        cores.n_logical,
        cores.n_physical,
        cores.n_performance,
        cores.n_allowed,
        cores.n_allowed_performance,
        cores.n_allowed_logical,
        quota,
        threads,
        reason,
        _features(probe),
    )


def threads_for(policy: str | int, cpu: Cpu) -> tuple[int, str]:
    """Threads and the reason for a profile's ``threads`` setting.

    ``auto``: fast whole cores; ``physical``: all whole cores; ``logical``: all hardware threads;
    each within affinity and quota. A number is taken as it is.
    """
    if isinstance(policy, int):
        return policy, "set by the user"
    if policy == "auto":
        return cpu.threads, cpu.threads_reason
    n = cpu.n_allowed if policy == "physical" else cpu.n_allowed_logical
    what = "cores" if policy == "physical" else "hardware threads"
    return _within_quota(n, f"all {n} {what} (threads: {policy})", cpu.quota)


def _auto_threads(cores: _Cores, quota: CpuQuota | None) -> tuple[int, str]:
    n = cores.n_allowed_performance or cores.n_allowed
    if n < cores.n_allowed:
        reason = (
            f"{n} performance cores of {cores.n_allowed} cores; "
            "the efficiency cores would hold them up"
        )
    elif cores.n_logical > cores.n_physical:
        reason = f"{n} physical cores; the second thread of a core adds nothing"
    else:
        reason = f"{n} physical cores" if n != 1 else "1 physical core"
    if cores.n_allowed_logical < cores.n_logical:
        reason += (
            f" (this process may use only {cores.n_allowed_logical} of "
            f"{cores.n_logical} hardware threads)"
        )
    return _within_quota(n, reason, quota)


def _within_quota(n: int, reason: str, quota: CpuQuota | None) -> tuple[int, str]:
    if quota is None or quota.n_threads >= n:
        return n, reason
    return quota.n_threads, f"a CPU quota of {quota.n_cpus:.3g} CPUs ({quota.source})"


# --- per system ----------------------------------------------------------------------------------


def _linux_cores(probe: Probe) -> _Cores | None:
    directory = "/sys/devices/system/cpu"
    cpus = [int(name[3:]) for name in probe.names(directory) if re.fullmatch(r"cpu\d{1,5}", name)]
    core_of: dict[int, str] = {}
    for cpu in cpus:
        siblings = probe.read(f"{directory}/cpu{cpu}/topology/thread_siblings_list").strip()
        if siblings:  # an offline CPU has no topology
            core_of[cpu] = siblings
    if not core_of:
        return None
    return _count(core_of, _fast_cpus(probe, set(core_of)), probe.affinity)


def _windows_cores(probe: Probe) -> _Cores | None:
    cores = read_cores(probe.core_table)
    if not cores:
        return None
    best = max(core.efficiency_class for core in cores)
    core_of = {cpu: str(index) for index, core in enumerate(cores) for cpu in core.cpus}
    fast = {cpu for core in cores if core.efficiency_class == best for cpu in core.cpus}
    return _count(core_of, fast, probe.affinity)


def _count(core_of: dict[int, str], fast: set[int], affinity: frozenset[int] | None) -> _Cores:
    """``core_of``: which core each hardware thread belongs to; ``fast``: the threads of fast cores;
    ``affinity``: the threads this process may use."""
    allowed = set(core_of) if affinity is None else set(core_of) & affinity
    allowed = allowed or set(core_of)

    def n_cores(cpus: set[int]) -> int:
        return len({core_of[cpu] for cpu in cpus})

    return _Cores(
        len(core_of),
        n_cores(set(core_of)),
        n_cores(fast),
        n_cores(allowed),
        n_cores(allowed & fast),
        len(allowed),
    )


def _fast_cpus(probe: Probe, cpus: set[int]) -> set[int]:
    """All of ``cpus`` but the efficiency cores: Intel's two core types, or Arm's capacities."""
    intel = _cpu_list(probe.read("/sys/devices/cpu_core/cpus")) & cpus
    if intel:
        return intel
    capacity = {}
    if probe.architecture.lower() in ("aarch64", "arm64"):
        for cpu in cpus:
            text = probe.read(f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity").strip()
            capacity[cpu] = int(text) if text.isdigit() else 0
    # Half of the best: the middle cores of a three-level chip still carry their share.
    limit = max(capacity.values(), default=0) / 2
    return {cpu for cpu in cpus if capacity.get(cpu, 0) >= limit}


def _cpu_list(text: str) -> set[int]:
    """``0-3,8`` -> {0, 1, 2, 3, 8}."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match:
            found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def _mac_cores(probe: Probe) -> _Cores | None:
    if probe.system != "Darwin":
        return None
    n_physical = sysctl(probe, "hw.physicalcpu") or probe.n_physical or probe.n_logical
    n_logical = sysctl(probe, "hw.logicalcpu") or probe.n_logical
    n_fast = min(sysctl(probe, "hw.perflevel0.physicalcpu") or n_physical, n_physical)
    return _Cores(n_logical, n_physical, n_fast, n_physical, n_fast, n_logical)


def _plain_cores(probe: Probe) -> _Cores:
    """Where the system tells only counts: CPUs of one core are taken to be neighbours."""
    n_logical = max(1, probe.n_logical)
    n_physical = min(probe.n_physical or n_logical, n_logical)
    per_core = n_logical / n_physical
    allowed = set(range(n_logical)) & (probe.affinity or set(range(n_logical)))
    allowed = allowed or set(range(n_logical))
    n_allowed = len({int(cpu / per_core) for cpu in allowed})
    return _Cores(n_logical, n_physical, n_physical, n_allowed, n_allowed, len(allowed))


def sysctl(probe: Probe, name: str) -> int:
    """A number that macOS' ``sysctl`` knows; 0 when it does not."""
    text = probe.run(["/usr/sbin/sysctl", "-n", name]).strip()
    return int(text) if re.fullmatch(r"\d{1,20}", text) else 0


def _name(probe: Probe) -> str:
    if probe.system == "Darwin":
        text = probe.run(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"])
        return text.strip() or probe.architecture
    for line in probe.read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return probe.architecture


def _features(probe: Probe) -> tuple[str, ...]:
    for line in probe.read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            words = set(value.split())
            return tuple(name for name in _FEATURES if name in words)
    return ()
