"""The machine: processor, memory with every limit on it, accelerators.

``detect(devices)`` finds all of it; ``Hardware.budget()`` says what may be used and which number
says so. Only this package imports psutil.
"""

from localspec.hardware.cgroups import CpuQuota, MemoryLimit
from localspec.hardware.cpu import Cpu, threads_for
from localspec.hardware.gpus import Gpu, build_warning, install_command
from localspec.hardware.machine import Device, Hardware, Mismatch, detect
from localspec.hardware.probe import Probe, here
from localspec.hardware.ram import Ram, UnifiedMemory

__all__ = [
    "Cpu",
    "CpuQuota",
    "Device",
    "Gpu",
    "Hardware",
    "MemoryLimit",
    "Mismatch",
    "Probe",
    "Ram",
    "UnifiedMemory",
    "build_warning",
    "detect",
    "here",
    "install_command",
    "threads_for",
]
