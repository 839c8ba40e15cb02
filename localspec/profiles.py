"""Hardware profiles: how to run on this kind of machine, from ``profiles/*.yaml``.

Shipped profiles come first; a user's file of the same name replaces one (or adds to it, with
``extends:``), a file of another name makes a new one.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from localspec import paths
from localspec.budget import Budget, DeviceKind
from localspec.catalog import Catalog
from localspec.config import Config
from localspec.errors import ConfigError, ModelNotFoundError
from localspec.hardware import Hardware
from localspec.nodes import Mapping, Node, Scalar, Sequence
from localspec.schema import Range, Size, nearest, read
from localspec.terminal import label, size
from localspec.yamlfile import load

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


@dataclass(frozen=True, slots=True)
class PairChoice:
    """``pair`` (a catalog name) is right for machines with at least ``memory`` bytes."""

    memory: Annotated[int, Size()]
    pair: str
    n_ctx: Annotated[int | None, Range(64, 16_777_216)] = None
    """A context for this pair instead of the profile's."""
    where: str = field(default="", metadata={"setting": False})
    """File and line, set by the loader."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How to run on one kind of machine. The shipped ``profiles/cpu.yaml`` explains each setting.

    ``name`` and ``path`` are set by the loader.
    """

    description: str = ""
    backends: tuple[DeviceKind, ...] = ()
    threads: Literal["auto", "physical", "logical"] | Annotated[int, Range(1, 1024)] = "auto"
    n_batch: Annotated[int, Range(32, 65_536)] = 512
    n_ubatch: Annotated[int, Range(32, 65_536)] = 512
    n_gpu_layers: Literal["auto", "all"] | Annotated[int, Range(0, 10_000)] = "auto"
    flash_attn: Literal["auto", "on", "off"] = "auto"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    allow_kv_quant: bool = False
    allow_shorter_context: bool = False
    draft_device: Literal["auto", "cpu", "gpu"] = "auto"
    draft_max: Annotated[int | None, Range(1, 64)] = None
    n_ctx: Annotated[int, Range(64, 16_777_216)] = 8192
    memory_limit: Annotated[int | None, Size()] = None
    pairs: tuple[PairChoice, ...] = ()
    name: str = field(default="", metadata={"setting": False})
    path: Path = field(default=Path(), metadata={"setting": False})

    def __post_init__(self) -> None:
        if self.n_ubatch > self.n_batch:
            raise ValueError(
                f'"n_ubatch" is {self.n_ubatch}, but it cannot be larger than "n_batch", '
                f"which is {self.n_batch}"
            )

    def pair_for(self, hardware: Hardware) -> tuple[PairChoice, str] | None:
        """What to run when no model is named, and why; None when the profile names no pair."""
        on_gpu = bool(hardware.devices) and self.n_gpu_layers != 0
        capacity = hardware.n_bytes_capacity if on_gpu else hardware.ram.n_bytes_capacity
        words = f"{size(capacity)} on the GPU" if on_gpu else f"{size(capacity)} of memory"
        if self.memory_limit is not None and self.memory_limit < capacity and not on_gpu:
            capacity = self.memory_limit
            words = f"a memory limit of {size(capacity)}"
        fitting = [pair for pair in self.pairs if pair.memory <= capacity]
        if not fitting:
            return None
        best = max(fitting, key=lambda pair: pair.memory)
        if not best.memory:
            return best, f"the profile's smallest choice; there is {words}"
        return best, f"the profile's choice from {size(best.memory)} on; there is {words}"


def check_pair(choice: PairChoice, catalog: Catalog) -> None:
    """Raises ConfigError, with the place, if the catalog does not have what a profile names."""
    try:
        catalog.find(choice.pair)
    except ModelNotFoundError as error:
        where = f"{choice.where}: " if choice.where else ""
        raise ConfigError(f"{where}{error.message}", hint=error.hint) from None


def load_profiles(shipped: Path | None = None, users: Path | None = None) -> dict[str, Profile]:
    """All profiles by name, the shipped ones first.

    Raises ConfigError: a file is wrong, extends an unknown profile, or itself.
    """
    shipped = paths.profiles_dir() if shipped is None else shipped
    users = paths.user_profiles_dir() if users is None else users
    base = {path.stem: path for path in _files(shipped)}
    own = {path.stem: path for path in _files(users)}
    if not base and not own:
        raise ConfigError(
            f"there are no profiles in {shipped}", hint="The installation is not complete."
        )
    loader = _Loader(base, own)
    return {name: loader.profile(name) for name in [*base, *(n for n in own if n not in base)]}


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
    for path in found:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", path.stem):
            raise ConfigError(
                f"{label(str(path))}: a profile's name is made of letters, digits, dots and dashes"
            )
    stems = [path.stem for path in found]
    for path in found:
        if stems.count(path.stem) > 1:
            raise ConfigError(f'{folder}: there are two profiles "{path.stem}" (.yaml and .yml)')
    return sorted(found)


class _Loader:
    """Reads profiles, each after the one that it extends."""

    def __init__(self, shipped: dict[str, Path], own: dict[str, Path]) -> None:
        self.shipped = shipped
        self.own = own

    def profile(self, name: str) -> Profile:
        path = self.own.get(name) or self.shipped[name]
        return self._read(name, path, [])

    def _read(self, name: str, path: Path, below: list[Path]) -> Profile:
        """``below``: the files that extend this one, to notice a circle."""
        node = load(path)
        parent, settings = _split_extends(node)
        base = None
        if parent is not None:
            base = self._parent(parent, path, [*below, path])
        found = read(settings, Profile, base=base)
        return dataclasses.replace(found, name=name, path=path, pairs=_placed(found.pairs, node))

    def _parent(self, parent: Scalar, path: Path, below: list[Path]) -> Profile:
        wanted = parent.text.strip()
        # A user's cpu.yaml that extends cpu means the shipped one.
        choices = [self.own.get(wanted), self.shipped.get(wanted)]
        for choice in choices:
            if choice is not None and choice != path:
                if choice in below:
                    raise ConfigError(f'{parent.where}: "{wanted}" extends this profile already')
                return self._read(wanted, choice, below)
        if path in choices:
            raise ConfigError(f'{parent.where}: the profile "{wanted}" cannot extend itself')
        names = [*self.shipped, *(name for name in self.own if name not in self.shipped)]
        raise ConfigError(
            f'{parent.where}: there is no profile "{wanted}" to extend', hint=nearest(wanted, names)
        )


def _placed(pairs: tuple[PairChoice, ...], node: Node) -> tuple[PairChoice, ...]:
    """``pairs`` with the lines of ``node``, where it is the one that names them."""
    said = node.entries.get("pairs") if isinstance(node, Mapping) else None
    if not isinstance(said, Sequence):
        return pairs
    places = [item.where for item in said.items]
    return tuple(
        dataclasses.replace(pair, where=where) for pair, where in zip(pairs, places, strict=True)
    )


def _split_extends(node: Node) -> tuple[Scalar | None, Node]:
    if not isinstance(node, Mapping) or "extends" not in node.entries:
        return None, node
    parent = node.entries["extends"]
    if not isinstance(parent, Scalar) or not parent.text.strip():
        raise ConfigError(f'{parent.where}: "extends" must be the name of one profile')
    entries = {key: value for key, value in node.entries.items() if key != "extends"}
    return parent, Mapping(entries, node.lines, node.name, node.line)


def choose(
    hardware: Hardware,
    profiles: dict[str, Profile],
    wanted: str | None = None,
    source: str = "asked for",
) -> tuple[Profile, str]:
    """The profile to use and one sentence fragment that says why.

    ``wanted``: the name that the user asked for, ``source`` where (``from --profile``). Raises
    ConfigError: no such profile, or it needs a device that is not there.
    """
    if wanted is not None:
        return _wanted(hardware, profiles, wanted, source), source
    for profile in profiles.values():
        if hardware.backend in profile.backends:
            return profile, _reason(hardware)
    usable = [profile for profile in profiles.values() if "cpu" in profile.backends]
    if not usable:
        raise ConfigError(f"no profile is meant for {hardware.backend} devices")
    return usable[0], f"no profile is meant for {hardware.backend} devices"


def _wanted(hardware: Hardware, profiles: dict[str, Profile], wanted: str, source: str) -> Profile:
    profile = profiles.get(wanted) or profiles.get(wanted.lower())
    if profile is None:
        raise ConfigError(
            f'there is no profile "{wanted}" ({source})', hint=nearest(wanted, profiles)
        )
    present = {"cpu", *(device.kind for device in hardware.devices)}
    if profile.backends and not present & set(profile.backends):
        hint = hardware.warning.hint if hardware.warning else ""
        raise ConfigError(
            f'the profile "{wanted}" ({source}) is for {", ".join(profile.backends)}, '
            "and llama.cpp finds no such device here",
            hint=hint,
        )
    return profile


_BACKEND_NAMES: dict[DeviceKind, str] = {
    "cpu": "the CPU",
    "cuda": "CUDA",
    "metal": "Metal",
    "vulkan": "Vulkan",
    "rocm": "ROCm",
    "sycl": "SYCL",
    "other": "another backend",
}


def _reason(hardware: Hardware) -> str:
    if not hardware.devices:
        if hardware.gpus:
            return "llama.cpp was built without support for this machine's graphics processor"
        return "no graphics processor that llama.cpp can use"
    names = [
        f"{device.description or device.name} ({size(device.n_bytes_total)})"
        for device in hardware.devices
    ]
    return f"llama.cpp can use {', '.join(names)} by {_BACKEND_NAMES[hardware.backend]}"


def customised(profile: Profile, config: Config) -> Profile:
    """``profile`` with what the user set in file, environment or flags put over it; but for
    ``draft_max``, which a session may change later, while the profile's stays a bound."""
    names = (
        "threads",
        "n_gpu_layers",
        "allow_kv_quant",
        "allow_shorter_context",
        "n_ctx",
        "memory_limit",
    )
    changes = {name: value for name in names if (value := getattr(config, name)) is not None}
    return dataclasses.replace(profile, **changes)


def limit_source(profile: Profile, config: Config) -> str:
    """Where the memory limit in force was said, if there is one."""
    if config.memory_limit is not None:
        return config.source_of("memory_limit")
    return f"memory_limit of the profile {profile.name}"


def budget_for(hardware: Hardware, profile: Profile, config: Config) -> Budget:
    """What may be used on this machine under ``profile`` (after ``customised``)."""
    return hardware.budget(profile.memory_limit, limit_source(profile, config))
