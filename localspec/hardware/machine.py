"""``detect()``: everything about this machine that decides what runs where."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.budget import Budget, DeviceKind, DeviceMemory
from localspec.hardware.cpu import Cpu, detect_cpu
from localspec.hardware.gpus import Gpu, build_warning, detect_gpus
from localspec.hardware.probe import Probe, here
from localspec.hardware.ram import Ram, UnifiedMemory, detect_ram, detect_unified


class BackendDevice(Protocol):
    """A device as llama.cpp reports it (``localspec.llama.devices.Device`` is one)."""

    @property
    def name(self) -> str:
        """llama.cpp's name, such as ``CUDA0``."""

    @property
    def description(self) -> str:
        """The maker's name."""

    @property
    def kind(self) -> str:
        """Which backend drives it."""

    @property
    def is_gpu(self) -> bool:
        """False for the CPU and its helpers, such as a BLAS library."""

    @property
    def n_bytes_free(self) -> int:
        """Bytes free on it."""

    @property
    def n_bytes_total(self) -> int:
        """Bytes it has."""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator that this build of llama.cpp can use."""

    name: str
    description: str
    kind: DeviceKind
    n_bytes_free: int
    n_bytes_total: int
    is_shared: bool = False
    """Its memory is the computer's own memory."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that should be changed: a sentence, and how."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """This machine, as far as it matters here."""

    system: str
    architecture: str
    is_wsl: bool
    cpu: Cpu
    ram: Ram
    devices: tuple[Device, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    """Graphics processors the machine shows, looked for only when llama.cpp uses none."""
    unified: UnifiedMemory | None = None
    warning: Mismatch | None = None
    """A GPU that this build of llama.cpp cannot use."""

    @property
    def backend(self) -> DeviceKind:
        """The kind of the first accelerator, ``cpu`` when there is none."""
        return self.devices[0].kind if self.devices else "cpu"

    @property
    def n_bytes_capacity(self) -> int:
        """Bytes for models when nothing else runs: of all accelerators, else of the computer."""
        if not self.devices:
            return self.ram.n_bytes_capacity
        total = sum(device.n_bytes_total for device in self.devices if not device.is_shared)
        if total:
            return total
        shared = max(device.n_bytes_total for device in self.devices)
        unified = self.unified.n_bytes if self.unified else shared
        return min(shared, unified, self.ram.n_bytes_capacity)

    def budget(self, memory_limit: int | None = None, source: str = "memory_limit") -> Budget:
        """Bytes that may be used now on the CPU and on each accelerator, with their sources.

        ``memory_limit``: at most so many bytes of the computer's own memory; ``source`` names who
        said so.
        """
        free, why = self.ram.usable
        devices = [DeviceMemory("CPU", "cpu", free, why)]
        devices += [self._accelerator(device, free) for device in self.devices]
        budget = Budget(tuple(devices))
        if memory_limit is None:
            return budget
        return budget.limited_to(memory_limit, source)

    def _accelerator(self, device: Device, ram_free: int) -> DeviceMemory:
        numbers = [(device.n_bytes_free, f"free memory of {device.name}, from llama.cpp")]
        if device.is_shared:
            if self.unified is not None:
                numbers.append((self.unified.n_bytes, self.unified.source))
            numbers.append((ram_free, f"shared with the CPU: {self.ram.usable[1]}"))
        free, source = min(numbers, key=lambda number: number[0])
        return DeviceMemory(device.name, device.kind, free, source, device.is_shared)


def detect(
    devices: Sequence[BackendDevice] = (), probe: Probe | None = None, python: str = sys.executable
) -> Hardware:
    """This machine (or the one that ``probe`` describes).

    ``devices``: what llama.cpp reports, passed in because only ``localspec.llama`` may ask it; what
    is no GPU is left out. ``python``: the interpreter named in install commands.
    """
    probe = here() if probe is None else probe
    ram = detect_ram(probe)
    unified = detect_unified(probe, ram)
    usable = tuple(
        Device(
            device.name,
            device.description,
            _kind(device.kind),
            device.n_bytes_free,
            device.n_bytes_total,
            _is_shared(device, unified),
        )
        for device in devices
        if device.is_gpu
    )
    gpus = () if usable else detect_gpus(probe)
    found = build_warning(probe, gpus, python)
    return Hardware(
        probe.system,
        probe.architecture,
        probe.is_wsl,
        detect_cpu(probe),
        ram,
        usable,
        gpus,
        unified,
        Mismatch(*found) if found else None,
    )


# Graphics inside a processor, as Vulkan drivers name them; their "memory" is the computer's.
_INTEGRATED = re.compile(
    r"^Intel\(R\) (U?HD|Iris|Graphics|Arc\(TM\) Graphics)"
    r"|^AMD Radeon(\(TM\))? (Graphics|Vega|\d{3}M|80\d\dS)"
    r"|^(Adreno|Mali|llvmpipe|Apple)",
    re.IGNORECASE,
)


def _kind(name: str) -> DeviceKind:
    known: tuple[DeviceKind, ...] = ("cuda", "metal", "vulkan", "rocm", "sycl")
    return next((kind for kind in known if kind == name), "other")


def _is_shared(device: BackendDevice, unified: UnifiedMemory | None) -> bool:
    if device.kind == "metal":
        return unified is not None
    return device.kind in ("vulkan", "sycl") and bool(_INTEGRATED.search(device.description))
