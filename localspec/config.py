"""The user's settings: ``config.yaml`` < environment ``LOCALSPEC_*`` < command-line flag.

Every value remembers where it came from, so that a surprising one can be traced.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from localspec import paths
from localspec.errors import ConfigError
from localspec.nodes import Mapping as MappingNode
from localspec.nodes import Node, Scalar, Sequence
from localspec.schema import Range, Size, convert, hints_of, known_name, nearest

PREFIX = "LOCALSPEC_"
Mode = Literal["auto", "off", "lookup", "draft"]
Source = Literal["auto", "hub", "mirror"]


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. ``None`` means: not set, the profile or the program decides."""

    profile: str | None = None
    """Name of the hardware profile, instead of the one that fits this machine."""

    pair: str | None = None
    """Catalog name of the target and draft to run when none is named."""

    model: str | None = None
    """Target model: a file, a catalog name or a Hub name; goes before ``pair``."""

    draft: str | None = None
    """Draft model: a file, a catalog name or a Hub name."""

    mode: Mode = "auto"
    """What guesses: ``auto`` picks the fastest, ``off`` nothing, ``lookup`` or ``draft`` only
    that, where it pays."""

    draft_max: Annotated[int | None, Range(1, 64)] = None
    """The most tokens to guess in one step; with the modes ``lookup`` and ``draft``: so many at
    every chance, even where that loses time."""

    n_ctx: Annotated[int | None, Range(64, 16_777_216)] = None
    """Context length in tokens: prompt, chat and answer together."""

    n_gpu_layers: Literal["auto", "all"] | Annotated[int, Range(0, 10_000)] | None = None
    """Layers of the target that go to the GPU."""

    allow_kv_quant: bool | None = None
    """May the KV cache be stored in 8 bits when memory is short? It changes answers slightly."""

    allow_shorter_context: bool | None = None
    """May the context be made shorter when memory is short?"""

    temperature: Annotated[float | None, Range(0, 100)] = None
    """0: always the most probable token; larger: more variety."""

    top_k: Annotated[int | None, Range(0)] = None
    """Keep only the k most probable tokens; 0: all."""

    top_p: Annotated[float | None, Range(0, 1)] = None
    """Keep the most probable tokens that together reach this probability; 1: all."""

    min_p: Annotated[float | None, Range(0, 1)] = None
    """Drop tokens less probable than this share of the best one; 0: none."""

    repeat_penalty: Annotated[float | None, Range(0, 100)] = None
    """Above 1: tokens that occurred lately become less probable; 1: off."""

    seed: Annotated[int | None, Range(0, 4_294_967_295)] = None
    """The same seed gives the same answer; not set: a fresh one each time."""

    max_tokens: Annotated[int | None, Range(1)] = None
    """The longest answer in tokens; not set: until the model ends or the context is full."""

    system: str | None = None
    """System message that goes before every chat."""

    threads: Annotated[int | None, Range(1, 1024)] = None
    """CPU threads; not set: what the profile's policy finds for this machine."""

    memory_limit: Annotated[int | None, Size()] = None
    """Never use more of this computer's memory than this, such as ``8GiB``."""

    model_dirs: tuple[Path, ...] = ()
    """More directories to look for GGUF files in, besides the Hugging Face cache."""

    source: Source = "auto"
    """Where to download from: ``hub``, ``mirror``, or ``auto`` (the Hub, else the mirror)."""

    offline: bool = False
    """Never use the network."""

    exact: bool = False
    """Only settings with which drafting leaves temperature-0 text the same bit for bit."""

    history: bool = True
    """Let texts from earlier answers help to guess."""

    learn: bool = True
    """Keep what was measured about speed on this machine for the next run."""

    save_chats: bool = True
    """Save conversations on this computer."""

    theme: str | None = None
    """Colour theme of the chat view."""

    colour_tokens: bool = False
    """Colour the tokens that were guessed right in the chat view."""

    sources: Mapping[str, str] = field(default_factory=dict, metadata={"setting": False})
    """Setting -> where it came from; settings at their default are not in it."""

    warnings: tuple[str, ...] = field(default=(), metadata={"setting": False})
    """Things in the environment that look like settings and are none."""

    def source_of(self, name: str) -> str:
        """``from config.yaml, line 3``, ``from LOCALSPEC_THREADS``, ``from --threads`` or
        ``the default``."""
        return self.sources.get(name, "the default")

    def with_flags(self, flags: Mapping[str, Any]) -> Config:
        """The same with command-line flags on top; a flag that is None was not given."""
        given = {name: value for name, value in flags.items() if value is not None}
        sources = dict(self.sources)
        sources.update({name: f"from --{name.replace('_', '-')}" for name in given})
        return dataclasses.replace(self, **given, sources=sources)


def setting_names() -> list[str]:
    """Every setting, in the order of the class."""
    return [f.name for f in dataclasses.fields(Config) if f.metadata.get("setting", True)]


def load_config(env: Mapping[str, str] | None = None, path: Path | None = None) -> Config:
    """File and environment together; flags come later by ``with_flags``.

    ``env`` defaults to the process environment, ``path`` to ``paths.config_file()``, which need
    not exist. An empty variable counts as not set. Raises ConfigError.
    """
    env = os.environ if env is None else env
    path = paths.config_file() if path is None else path
    hints = hints_of(Config)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, (node, source) in {**_from_file(path), **_from_environment(env)}.items():
        values[name] = convert(node, hints[name], name)
        sources[name] = source
    return Config(**values, sources=sources, warnings=_unknown_variables(env))


def _from_file(path: Path) -> dict[str, tuple[Node, str]]:
    if not path.exists():
        return {}
    from localspec.yamlfile import load  # noqa: PLC0415 - a file is rare, and YAML slow to import

    root = load(path)
    if not isinstance(root, MappingNode):
        raise ConfigError(f"{root.where}: expected settings (name: value)")
    found: dict[str, tuple[Node, str]] = {}
    for key, node in root.entries.items():
        line = root.lines[key]
        name = known_name(key, setting_names(), f"{root.name}, line {line}")
        if name in found:
            raise ConfigError(f'{root.name}, line {line}: "{name}" is set twice')
        found[name] = (node, f"from {path.name}, line {line}")
    return found


def _from_environment(env: Mapping[str, str]) -> dict[str, tuple[Node, str]]:
    found: dict[str, tuple[Node, str]] = {}
    # The switch that huggingface_hub's users know already, read as huggingface_hub reads it.
    if env.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        found["offline"] = (Scalar("on", "HF_HUB_OFFLINE", 0), "from HF_HUB_OFFLINE")
    for name in setting_names():
        variable = PREFIX + name.upper()
        text = env.get(variable, "")
        if not text:
            continue
        node: Node = Scalar(text, variable, 0)
        if name == "model_dirs":
            parts = [part for part in text.split(os.pathsep) if part]
            node = Sequence(tuple(Scalar(part, variable, 0) for part in parts), variable, 0)
        found[name] = (node, f"from {variable}")
    return found


def _unknown_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """A misspelt variable would be ignored in silence; a near miss is worth a line."""
    known = [name.upper() for name in setting_names()]
    warnings = []
    for variable in sorted(env):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in (*known, "HOME"):
            continue
        hint = nearest(name, known)
        if hint.startswith("Did you mean"):
            warnings.append(f"{variable} is set, but there is no such setting. {hint}")
    return tuple(warnings)
