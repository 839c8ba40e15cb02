"""What was learned about speed, kept from run to run: one small JSON file per setup.

A setup is a machine x model files x backend x threads: change any and the costs are others. The
files are a cache of measurements. Deleting them, or finding them broken, old or not writable, costs
a little time at the start of the next answer and nothing else, so nothing here raises.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.spec.costs import MAX_WIDTH, Learned

VERSION = 1
"""Of the file's format and of what its numbers mean; files of other versions are ignored."""
MAX_BYTES = 256 * 1024
MAX_COST = 1e4
"""No decode costs more plain decodes than this; a larger number is damage."""
MAX_DRAFTERS = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setup:
    """What the costs belong to. ``machine``: processor and cores, or the GPU. ``files``: one line
    for each model file, as ``file_identity`` makes it, target first."""

    machine: str
    files: tuple[str, ...]
    backend: str
    n_threads: int


def file_identity(path: Path) -> str:
    """The name and size of a model file: enough to tell quantisations apart without reading
    gigabytes. A file that is not there has size 0."""
    try:
        n_bytes = path.stat().st_size
    except OSError:
        n_bytes = 0
    return f"{path.name}:{n_bytes}"


def learned_file(setup: Setup) -> Path:
    """Where what was learned about ``setup`` is kept; it need not exist."""
    text = json.dumps(asdict(setup), sort_keys=True)
    return paths.learned_dir() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def load(setup: Setup) -> Learned | None:
    """What earlier runs learned about ``setup``; None when there is nothing usable."""
    path = learned_file(setup)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError:
        return None
    try:
        if len(content) > MAX_BYTES:
            raise ValueError("too large")
        return _read(json.loads(content), setup)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _log.warning("ignoring %s, which is damaged or of another version: %s", path.name, error)
        return None


def save(setup: Setup, learned: Learned) -> bool:
    """Keep ``learned`` for the next run, replacing the file in one step. False when that is not
    possible (disk full, read-only directory)."""
    content = {"version": VERSION, "setup": asdict(setup), **asdict(learned)}
    try:
        paths.write_private(learned_file(setup), json.dumps(content, indent=1).encode())
    except OSError as error:
        _log.warning("what was learned about speed could not be kept: %s", error)
        return False
    return True


def forget() -> int:
    """Remove all that was learned; returns the number of files removed."""
    n_removed = 0
    for path in sorted(paths.learned_dir().glob("*.json")):
        try:
            path.unlink()
        except OSError as error:
            _log.warning("%s could not be removed: %s", path.name, error)
        else:
            n_removed += 1
    return n_removed


def _read(content: Any, setup: Setup) -> Learned:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r}")
    if content["setup"] != {**asdict(setup), "files": list(setup.files)}:
        raise ValueError("it belongs to another setup")
    if len(content["drafts"]) > MAX_DRAFTERS:
        raise ValueError("too many drafters")
    rate = content["prompt_rate"]
    return Learned(
        widths={
            _within(int(width), MAX_WIDTH): _measured(pair)
            for width, pair in content["widths"].items()
        },
        drafts={
            name: _exactly(4, tuple(_measured(pair) for pair in parts))
            for name, parts in content["drafts"].items()
        },
        trust=_pairs(content["trust"]),
        prompt_rate=None if rate is None else _number(rate),
        # Files of the first versions know nothing of these.
        copied=tuple(tuple(map(_number, counts)) for counts in content.get("copied", ())),
        paid=_pairs(content.get("paid", {})),
    )


def _pairs(content: Any) -> dict[str, tuple[float, float]]:
    """Two numbers for each of a few drafters."""
    if len(content) > MAX_DRAFTERS:
        raise ValueError("too many drafters")
    return {name: (_number(first), _number(second)) for name, (first, second) in content.items()}


def _measured(pair: Any) -> tuple[float, int]:
    cost, n = pair
    if type(n) is not int or n < 0:
        raise ValueError(f"{n!r} is not a count")
    return _number(cost, above=0.0), n


def _number(value: Any, above: float = -1e-9) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not math.isfinite(value) or not above < value <= MAX_COST:
        raise ValueError(f"{value!r} is not a possible cost")
    return float(value)


def _within(width: int, most: int) -> int:
    if not 1 <= width <= most:
        raise ValueError(f"width {width}")
    return width


def _exactly(n: int, parts: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    if len(parts) != n:
        raise ValueError(f"{len(parts)} costs of a drafter")
    return parts
