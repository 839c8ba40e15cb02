"""Graphics processors that the machine shows by itself, without llama.cpp.

Only used to notice that llama.cpp was built without support for them, and to say how to build it
with: nothing is ever placed on a device found here.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from localspec.hardware.probe import Probe

Vendor = Literal["nvidia", "amd", "intel", "apple"]

# Below this an AMD processor's own graphics, which share the computer's memory.
_DISCRETE_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics processor. ``n_bytes`` is its own memory, None when unknown."""

    name: str
    vendor: Vendor
    n_bytes: int | None
    source: str


def detect_gpus(probe: Probe) -> tuple[Gpu, ...]:
    """Graphics processors that would be worth a build with support for them.

    Graphics inside an Intel or AMD processor are left out: they use the same memory as the CPU, and
    whether they are faster than it differs from chip to chip.
    """
    if probe.system == "Darwin":
        return _apple(probe)
    return tuple(_nvidia(probe) + _drm(probe))


def _apple(probe: Probe) -> tuple[Gpu, ...]:
    if probe.architecture != "arm64" and not is_translated(probe):
        return ()
    name = probe.run(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]).strip()
    return (Gpu(f"{name or 'Apple'} GPU", "apple", None, "Apple silicon"),)


def is_translated(probe: Probe) -> bool:
    """Is this an Intel program on Apple silicon (Rosetta)?"""
    argv = ["/usr/sbin/sysctl", "-n", "sysctl.proc_translated"]
    return probe.system == "Darwin" and probe.run(argv).strip() == "1"


def _nvidia(probe: Probe) -> list[Gpu]:
    """The driver's own list; its command is asked only where a driver is."""
    folder = "/proc/driver/nvidia/gpus"
    cards = probe.names(folder)
    if not cards and probe.system == "Linux" and not probe.exists("/dev/dxg"):
        return []
    query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    for command in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"):
        rows = [line.rpartition(",") for line in probe.run([command, *query]).splitlines()]
        found = [
            Gpu(name.strip(), "nvidia", int(size) * 2**20, "nvidia-smi")
            for name, _, size in rows
            if name.strip() and size.strip().isdigit()
        ]
        if found:
            return found
    names = [
        re.search(r"^Model:\s*(.+)$", probe.read(f"{folder}/{card}/information"), re.MULTILINE)
        for card in cards
    ]
    return [
        Gpu(name[1].strip() if name else "NVIDIA GPU", "nvidia", None, folder) for name in names
    ]


def _drm(probe: Probe) -> list[Gpu]:
    """AMD and Intel cards with memory of their own, from the kernel."""
    found = []
    for card in probe.names("/sys/class/drm"):
        if not re.fullmatch(r"card\d{1,3}", card):
            continue
        folder = f"/sys/class/drm/{card}"
        vendor = probe.read(f"{folder}/device/vendor").strip()
        if vendor == "0x1002":
            n_bytes = _integer(probe.read(f"{folder}/device/mem_info_vram_total"))
            if n_bytes >= _DISCRETE_BYTES:
                name = probe.read(f"{folder}/device/product_name").strip() or "AMD GPU"
                found.append(Gpu(name, "amd", n_bytes, folder))
        elif vendor == "0x8086":
            n_bytes = _integer(probe.read(f"{folder}/lmem_total_bytes"))
            if n_bytes >= _DISCRETE_BYTES:
                found.append(Gpu("Intel GPU", "intel", n_bytes, folder))
    return found


def _integer(text: str) -> int:
    text = text.strip()
    return int(text) if re.fullmatch(r"\d{1,20}", text) else 0


# --- what to do about it -------------------------------------------------------------------------

_OPTION = {
    "cuda": "-DGGML_CUDA=on",
    "rocm": "-DGGML_HIP=on",
    "vulkan": "-DGGML_VULKAN=on",
    "metal": "-DGGML_METAL=on",
}
_NEEDS = {
    "cuda": "It needs a C++ compiler and NVIDIA's CUDA toolkit.",
    "rocm": "It needs a C++ compiler and AMD's ROCm.",
    "vulkan": "It needs a C++ compiler and the Vulkan SDK.",
    "metal": "It needs Xcode's command-line tools (xcode-select --install).",
}


def build_warning(
    probe: Probe, gpus: tuple[Gpu, ...], python: str = sys.executable
) -> tuple[str, str] | None:
    """(sentence, what to do) for a machine whose GPUs this build of llama.cpp cannot use.

    One warning however many cards there are; None when there is no card. ``python`` is the
    interpreter whose llama-cpp-python is to be replaced.
    """
    if not gpus:
        return None
    names = ", ".join(gpu.name for gpu in gpus)
    sentence = f"{names} is not used: llama-cpp-python was built for the CPU only"
    if len(gpus) > 1:
        sentence = f"{names} are not used: llama-cpp-python was built for the CPU only"
    if is_translated(probe):
        return (
            f"{names} is not used: this Python is an Intel program running under Rosetta",
            "Install a Python for Apple silicon (arm64) and install localspec with it.",
        )
    backend = _backend(probe, gpus[0].vendor)
    command = install_command(_OPTION[backend], probe, python)
    return sentence, f"{command}\n{_NEEDS[backend]}"


def _backend(probe: Probe, vendor: Vendor) -> str:
    if vendor == "amd":
        return "rocm" if probe.exists("/opt/rocm") else "vulkan"
    return {"nvidia": "cuda", "intel": "vulkan", "apple": "metal"}[vendor]


def install_command(option: str, probe: Probe, python: str = sys.executable) -> str:
    """The command that builds llama-cpp-python with a CMake ``option``, for this shell.

    ``env NAME=value command`` works in every POSIX shell, fish and csh included.
    """
    install = (
        "-m pip install --force-reinstall --no-cache-dir --no-deps "
        f"--no-binary llama-cpp-python {_requirement()}"
    )
    if probe.system != "Windows" or probe.shell in ("bash", "zsh", "fish", "sh"):
        return f"env CMAKE_ARGS={option} {shlex.quote(python)} {install}"
    if probe.shell == "cmd":
        return f'set "CMAKE_ARGS={option}" && "{python}" {install}'
    quoted = python.replace("'", "''")
    return f"$env:CMAKE_ARGS = '{option}'; & '{quoted}' {install}"


def _requirement() -> str:
    """The version that is installed now, so that only its features change."""
    try:
        return f"llama-cpp-python=={metadata.version('llama-cpp-python')}"
    except metadata.PackageNotFoundError:
        return "llama-cpp-python"
