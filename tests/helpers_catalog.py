"""Budgets of machines nobody has here, and the shipped catalog without anybody's own file."""

from __future__ import annotations

from pathlib import Path

from localspec import catalog
from localspec.budget import Budget, DeviceKind, DeviceMemory
from localspec.catalog import Catalog

GIB = 1024**3
NOWHERE = Path("/nonexistent/models.yaml")


def shipped() -> Catalog:
    return catalog.load(user=NOWHERE)


def budget(cpu_gib: float, kind: DeviceKind | None = None, gib: float = 0) -> Budget:
    devices = [DeviceMemory("CPU", "cpu", int(cpu_gib * GIB), "test")]
    if kind is not None:
        unified = kind == "metal"
        devices.append(DeviceMemory(f"{kind}0", kind, int(gib * GIB), "test", unified))
    return Budget(tuple(devices))
