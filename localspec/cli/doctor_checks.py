"""What ``localspec doctor`` looks at.

Each function adds to a ``Report`` and raises nothing for what it finds, so that one fault does not
hide the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.config import Config
    from localspec.hardware import Hardware
    from localspec.profiles import Profile


@dataclass
class Report:
    """What is found: ``lines`` for people, ``data`` for ``--json``, and what should be changed."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Things without which localspec cannot run at all."""

    def section(self, title: str) -> None:
        """A heading."""
        self.lines.append((title, ""))

    def line(self, name: str, value: str) -> None:
        """One fact below the last heading."""
        self.lines.append((f"  {name}", value))


def engine(report: Report) -> Hardware:
    """llama.cpp as it was built, and the machine as far as it can be seen from here."""
    from localspec.hardware import detect

    report.section("llama.cpp")
    data: dict[str, Any] = {"error": None}
    report.data["llama_cpp"] = data
    try:
        from localspec.llama import devices as llama
        from localspec.llama import ext

        words = llama.system_info()
        found = llama.devices()
        gpu = llama.supports_gpu_offload()
        version = llama.library_version()
        heads, why_no_heads = ext.load()
    # A missing library is an OSError or, by the binding's own loader, a RuntimeError.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        data["error"] = str(error)
        report.line("not usable", str(error))
        report.problems.append(
            (
                "llama-cpp-python cannot be loaded",
                "python -m pip install --force-reinstall localspec",
            )
        )
        return detect()
    hardware = detect(found)
    switches = _switches(words)
    instructions = [name for name in switches if name not in _NOT_INSTRUCTIONS]
    features = [name for name in switches if name in _NOT_INSTRUCTIONS]
    data["version"] = version
    data["gpu_offload"] = gpu
    data["instructions"] = instructions
    data["features"] = features
    data["mtp_heads"] = heads is not None
    data["devices"] = [
        {
            "name": device.name,
            "description": device.description,
            "kind": device.kind,
            "free_bytes": device.n_bytes_free,
            "total_bytes": device.n_bytes_total,
        }
        for device in found
    ]
    report.line("llama-cpp-python", version)
    report.line("GPU support", "yes" if gpu else "no, built for the CPU only")
    report.line("CPU instructions", " ".join(instructions) or "none beyond the basic ones")
    report.line("other features", " ".join(features) or "none")
    report.line("MTP heads", "can be run" if heads is not None else f"no: {why_no_heads}")
    for device in found:
        report.line(f"device {device.name}", f"{device.description}{_memory_of(device)}")
    _missing_instructions(report, hardware, instructions)
    return hardware


def _memory_of(device: Any) -> str:
    from localspec.terminal import size

    if not device.is_gpu:
        return ""
    return f", {size(device.n_bytes_free)} free of {size(device.n_bytes_total)}"


_NOT_INSTRUCTIONS = ("LLAMAFILE", "OPENMP", "REPACK", "ACCELERATE", "BLAS", "KLEIDIAI", "GRAPHS")


def _switches(words: str) -> list[str]:
    """``CPU : SSE3 = 1 | AVX = 0 |`` -> [SSE3]."""
    import re

    return [name for name, value in re.findall(r"(\w+) = (\d+)", words) if value != "0"]


# As the kernel names them -> as llama.cpp does.
_INSTRUCTIONS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
}


def _missing_instructions(report: Report, hardware: Hardware, used: list[str]) -> None:
    from localspec.hardware import here, install_command

    missing = [
        theirs
        for ours, theirs in _INSTRUCTIONS.items()
        if ours in hardware.cpu.features and theirs not in used
    ]
    if missing:
        report.warnings.append(
            (
                f"this CPU has {', '.join(missing)}, which this build of llama-cpp-python does "
                "not use; one built for this machine is faster",
                install_command("-DGGML_NATIVE=on", here()),
            )
        )


# --- the machine ---------------------------------------------------------------------------------


def machine(report: Report, hardware: Hardware) -> None:
    from localspec.terminal import size

    cpu, ram = hardware.cpu, hardware.ram
    report.section("Machine")
    report.line("processor", cpu.name)
    cores = f"{cpu.n_physical} cores, {cpu.n_logical} hardware threads"
    if cpu.n_performance != cpu.n_physical:
        cores = f"{cpu.n_performance} performance cores of {cores}"
    report.line("cores", cores)
    if cpu.quota:
        report.line("CPU quota", f"{cpu.quota.n_cpus:.3g} CPUs, {cpu.quota.source}")
    report.line("memory", f"{size(ram.n_bytes_total)}")
    report.line("available", f"{size(ram.n_bytes_available)}, {ram.source}")
    for limit in ram.limits:
        free = f"{size(limit.n_bytes_free)} of {size(limit.n_bytes)}"
        report.line("limit", f"{free}, {limit.source}")
    for gpu in hardware.gpus:
        report.line("GPU (not used)", f"{gpu.name}, seen by {gpu.source}")
    if hardware.warning:
        report.warnings.append((hardware.warning.message, hardware.warning.hint))
    report.data["cpu"] = {
        "name": cpu.name,
        "logical": cpu.n_logical,
        "physical": cpu.n_physical,
        "performance": cpu.n_performance,
        "allowed_logical": cpu.n_allowed_logical,
        "quota": cpu.quota.n_cpus if cpu.quota else None,
        "quota_source": cpu.quota.source if cpu.quota else None,
    }
    report.data["memory"] = {
        "total_bytes": ram.n_bytes_total,
        "available_bytes": ram.n_bytes_available,
        "available_source": ram.source,
        "limits": [
            {"bytes": each.n_bytes, "free_bytes": each.n_bytes_free, "source": each.source}
            for each in ram.limits
        ],
        "wsl": hardware.is_wsl,
    }
    report.data["unused_gpus"] = [
        {"name": gpu.name, "vendor": gpu.vendor, "bytes": gpu.n_bytes, "source": gpu.source}
        for gpu in hardware.gpus
    ]


def profile(report: Report, hardware: Hardware, config: Config) -> Profile | None:
    from localspec import catalog
    from localspec.errors import ConfigError
    from localspec.hardware import threads_for
    from localspec.profiles import budget_for, check_pair, choose, customised, load_profiles
    from localspec.terminal import size

    report.section("What will be used")
    try:
        found, reason = choose(
            hardware, load_profiles(), config.profile, config.source_of("profile")
        )
    except ConfigError as error:
        report.line("profile", "none")
        report.problems.append((error.message, error.hint))
        return None
    profile = customised(found, config)
    try:
        known = catalog.load()
        for choice in profile.pairs:
            check_pair(choice, known)
    except ConfigError as error:
        report.problems.append((error.message, error.hint))
    n_threads, why = threads_for(profile.threads, hardware.cpu)
    if config.threads is not None:
        why = config.source_of("threads")
    report.line("profile", f"{profile.name}: {reason}")
    report.line("threads", f"{n_threads}: {why}")
    budget = budget_for(hardware, profile, config)
    for device in budget.devices:
        report.line(f"memory on {device.name}", f"{size(device.n_bytes_free)}, {device.source}")
    report.data["profile"] = {"name": profile.name, "reason": reason, "path": str(profile.path)}
    report.data["threads"] = {"n": n_threads, "reason": why}
    report.data["budget"] = [
        {
            "device": device.name,
            "kind": device.kind,
            "free_bytes": device.n_bytes_free,
            "source": device.source,
            "shared_with_cpu": device.shared_with_cpu,
        }
        for device in budget.devices
    ]
    return profile


# --- files and network ---------------------------------------------------------------------------


def files(report: Report, config: Config) -> None:
    import os
    import shutil

    from localspec import paths
    from localspec.terminal import size

    report.section("Files")
    folder = paths.hub_cache()
    report.line("models", str(folder))
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    try:
        free = shutil.disk_usage(existing).free
    except OSError:
        free = 0
    report.line("free on that disk", size(free))
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    if not writable:
        report.problems.append(
            (
                f"models cannot be stored: {existing} is not a directory that you may write to",
                "Set HF_HUB_CACHE to one that is.",
            )
        )
    elif free < 2 * 2**30:
        report.warnings.append(
            (
                f"only {size(free)} are free for models",
                "Free some space, or set HF_HUB_CACHE to a directory on another disk.",
            )
        )
    for extra in config.model_dirs:
        report.line("also looked in", str(extra))
        if not extra.is_dir():
            source = config.source_of("model_dirs")
            report.warnings.append((f"there is no directory {extra} (model_dirs, {source})", ""))
    log = paths.log_file()
    report.line("log", str(log))
    report.data["models"] = {"path": str(folder), "writable": writable, "free_bytes": free}
    report.data["model_dirs"] = [str(extra) for extra in config.model_dirs]
    report.data["log"] = str(log)


def default_model(
    report: Report, profile: Profile | None, hardware: Hardware
) -> tuple[str, str] | None:
    """(repository, file) of the model that would be run, for asking the Hub about it."""
    from localspec import catalog
    from localspec.catalog import Pair
    from localspec.errors import LocalspecError

    chosen = profile.pair_for(hardware) if profile else None
    if chosen is None:
        return None
    name, why = chosen[0].pair, chosen[1]
    report.line("model by default", f"{name}: {why}")
    report.data["pair"] = {"name": name, "reason": why}
    try:
        entry = catalog.load().find(name)
        model = entry.target if isinstance(entry, Pair) else entry
    except LocalspecError:
        return None  # told with the profile
    return (model.repo, model.shards[0].name) if model.repo else None


def hub(report: Report, config: Config, model: tuple[str, str] | None) -> None:
    from localspec.terminal import duration

    state, message, hint, seconds = _ask_hub(config, model)
    took = f" ({duration(seconds)})" if seconds else ""
    report.section("Network")
    report.line("Hugging Face Hub", f"{message.rstrip('.')}{took}")
    report.data["hub"] = {"state": state, "message": message, "seconds": seconds}
    if state in ("unreachable", "refused"):
        report.warnings.append((message, hint))


def _ask_hub(config: Config, model: tuple[str, str] | None) -> tuple[str, str, str, float | None]:
    """(state, sentence, hint, seconds); state is ok, offline, unreachable, refused or unknown."""
    import time
    from dataclasses import replace

    from localspec.errors import HubUnreachableError, LocalspecError
    from localspec.files import NoProgress

    try:
        from localspec.store import offline_asked_for
        from localspec.store.hub import Hub, settings_from_environment
    except ImportError as error:
        return "unknown", f"cannot be asked: {error}", "", None
    if config.offline or offline_asked_for():
        source = config.source_of("offline")
        why = f" ({source})" if config.offline else ""
        return "offline", f"not asked, offline mode is on{why}", "", None
    if model is None:
        return "unknown", "not asked, no model is chosen", "", None
    began = time.monotonic()
    try:
        settings = replace(settings_from_environment(), notice_s=5.0, read_s=5.0, n_retries=0)
        Hub(settings, progress=NoProgress()).head(model[0], "main", model[1])
    except HubUnreachableError as error:
        return "unreachable", error.message, error.hint, time.monotonic() - began
    except LocalspecError as error:
        return "refused", error.message, error.hint, time.monotonic() - began
    seconds = time.monotonic() - began
    return "ok", f"{settings.endpoint} answers and has {model[0]}", "", seconds
