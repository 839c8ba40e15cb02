"""Cores of a Windows machine, from ``GetLogicalProcessorInformationEx``.

Record layout: SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX with a PROCESSOR_RELATIONSHIP, winnt.h. The
system call is apart from the reading, so that the reading is tested everywhere.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from dataclasses import dataclass

_CORE = 0  # RelationProcessorCore
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WindowsCore:
    """One core: its hardware threads, and its class (the larger, the faster)."""

    cpus: frozenset[int]
    efficiency_class: int


def core_table() -> bytes:
    """The records of all cores as Windows gives them; b"" elsewhere and on failure."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32")
        n_bytes = ctypes.c_uint32(0)
        kernel.GetLogicalProcessorInformationEx(_CORE, None, ctypes.byref(n_bytes))
        if not 0 < n_bytes.value <= _MAX_BYTES:
            return b""
        table = ctypes.create_string_buffer(n_bytes.value)
        done = kernel.GetLogicalProcessorInformationEx(_CORE, table, ctypes.byref(n_bytes))
        return table.raw[: n_bytes.value] if done else b""
    else:  # noqa: RET505 - the type checker reads only one of the two
        return b""


def read_cores(table: bytes) -> list[WindowsCore]:
    """The cores in ``table``; [] when it is not a whole table of a 64-bit system."""
    cores: list[WindowsCore] = []
    at = 0
    while at < len(table):
        if at + 32 > len(table):
            return []
        relationship, n_bytes = struct.unpack_from("<II", table, at)
        if n_bytes < 32 or at + n_bytes > len(table):
            return []
        if relationship == _CORE:
            core = _core(table[at : at + n_bytes])
            if core is None:
                return []
            cores.append(core)
        at += n_bytes
    return cores


def _core(record: bytes) -> WindowsCore | None:
    efficiency_class = record[9]
    (n_groups,) = struct.unpack_from("<H", record, 30)
    if 32 + 16 * n_groups > len(record):
        return None
    cpus: set[int] = set()
    for index in range(n_groups):
        mask, group = struct.unpack_from("<QH", record, 32 + 16 * index)
        cpus.update(64 * group + bit for bit in range(64) if mask >> bit & 1)
    return WindowsCore(frozenset(cpus), efficiency_class) if cpus else None
