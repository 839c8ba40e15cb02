"""How much memory there is and where each number came from: plain data, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda", "metal", "vulkan", "rocm", "sycl", "other"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory that one device can still give.

    ``n_bytes_free``: bytes that localspec may use on it. ``source``: one sentence fragment that
    tells the user where the number comes from ("memory.max of the container minus its use").
    ``shared_with_cpu``: the bytes are part of the computer's own memory (Apple silicon, integrated
    graphics), so that what is put here is taken from the CPU's budget too.
    """

    name: str
    kind: DeviceKind
    n_bytes_free: int
    source: str
    shared_with_cpu: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The CPU's memory first, then each accelerator in llama.cpp's order.

    Raises ValueError when there is not exactly one CPU entry, or it is not the first.
    """

    devices: tuple[DeviceMemory, ...]

    def __post_init__(self) -> None:
        kinds = [device.kind for device in self.devices]
        if kinds[:1] != ["cpu"] or kinds.count("cpu") != 1:
            raise ValueError("a budget has one CPU device, and it comes first")

    @property
    def cpu(self) -> DeviceMemory:
        """The computer's own memory."""
        return self.devices[0]

    @property
    def accelerators(self) -> tuple[DeviceMemory, ...]:
        """Every device but the CPU."""
        return self.devices[1:]

    def limited_to(self, n_bytes: int, source: str) -> Budget:
        """The same budget with at most ``n_bytes`` on the CPU (``--memory-limit``).

        Accelerators that share the computer's memory are limited with it.
        """
        return Budget(tuple(self._limit(self.devices, n_bytes, source)))

    @staticmethod
    def _limit(
        devices: Iterable[DeviceMemory], n_bytes: int, source: str
    ) -> Iterable[DeviceMemory]:
        for device in devices:
            ours = device.kind == "cpu" or device.shared_with_cpu
            if ours and device.n_bytes_free > n_bytes:
                yield DeviceMemory(
                    device.name, device.kind, n_bytes, source, device.shared_with_cpu
                )
            else:
                yield device
