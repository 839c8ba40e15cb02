"""What belongs to one setup in the user's data: which file holds its costs, and the thread counts
that ``localspec tune`` found. Like all that was learned, deleting it is harmless."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.hardware import Hardware
from localspec.learned import MAX_BYTES, Setup, file_identity

_log = logging.getLogger(__name__)
_MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads for decoding single tokens, and for prompts."""

    decode: int
    batch: int


def machine_name(hardware: Hardware) -> str:
    """The processor with its cores as this process may use them, then the accelerators."""
    cpu = hardware.cpu
    parts = [f"{cpu.name}, {cpu.n_allowed} of {cpu.n_logical}"]
    parts += [device.description or device.name for device in hardware.devices]
    return "; ".join(parts)


def setup_for(
    hardware: Hardware, files: Sequence[Path], n_threads: int, settings: Sequence[str] = ()
) -> Setup:
    """What costs belong to. ``files``: target, then draft. ``settings``: anything else that makes a
    decode cheaper or dearer (cache types, flash attention, layers on the GPU)."""
    backend = " ".join([hardware.backend, *settings])
    return Setup(
        machine_name(hardware), tuple(file_identity(path) for path in files), backend, n_threads
    )


def threads_file(hardware: Hardware, target: Path) -> Path:
    """Where the thread counts for ``target`` are kept; it need not exist."""
    text = json.dumps([machine_name(hardware), hardware.backend, file_identity(target)])
    return paths.learned_dir() / f"threads-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def load_threads(hardware: Hardware, target: Path) -> Threads | None:
    """The thread counts found for ``target`` here; None when there are none to use."""
    path = threads_file(hardware, target)
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(MAX_BYTES))
        counts = [content["decode"], content["batch"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("ignoring %s, which is damaged: %s", path.name, error)
        return None
    if all(type(count) is int and 1 <= count <= _MAX_THREADS for count in counts):
        return Threads(*counts)
    _log.warning("ignoring %s: %s are no thread counts", path.name, counts)
    return None


def save_threads(hardware: Hardware, target: Path, threads: Threads | None) -> bool:
    """Keep ``threads`` for the next run (None: what the profile says). False: not possible."""
    path = threads_file(hardware, target)
    try:
        if threads is None:
            path.unlink(missing_ok=True)
        else:
            content = {"decode": threads.decode, "batch": threads.batch}
            paths.write_private(path, json.dumps(content).encode())
    except OSError as error:
        _log.warning("the thread counts could not be kept: %s", error)
        return False
    return True
