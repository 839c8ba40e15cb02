"""The prompts of the benchmark, by kind of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.errors import ConfigError, UsageError
from localspec.nodes import Sequence as SequenceNode
from localspec.schema import nearest, read
from localspec.terminal import label
from localspec.yamlfile import load as load_yaml

QUICK = (
    "code-lru",
    "edit-rename",
    "rewrite-proofread",
    "summarise-minutes",
    "translate-fr",
    "creative-lighthouse",
)
"""What is measured when nothing is named: kinds for which drafting pays, and some where it hardly
does, so that the result flatters nobody."""


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt. ``expect``: where drafting is known to pay, for the reader of the file."""

    id: str
    kind: str
    prompt: str
    expect: str = ""


def load(path: Path | None = None) -> list[BenchPrompt]:
    """The shipped prompts, or those of the user's file ``path`` (a YAML list of ``id``, ``kind``,
    ``prompt``). Raises ConfigError."""
    path = paths.bench_prompts_file() if path is None else path
    root = load_yaml(path)
    if not isinstance(root, SequenceNode) or not root.items:
        raise ConfigError(f"{root.where}: expected a list of prompts (- id: …, kind: …, prompt: …)")
    found = [read(node, BenchPrompt) for node in root.items]
    for prompt in found:
        if not prompt.prompt.strip():
            raise ConfigError(f'{path}: the prompt "{label(prompt.id)}" is empty')
    ids = [prompt.id for prompt in found]
    for name in ids:
        if ids.count(name) > 1:
            raise ConfigError(f'{path}: there are two prompts "{label(name)}"')
    return found


def choose(prompts: Sequence[BenchPrompt], wanted: str | None) -> list[BenchPrompt]:
    """Those that ``wanted`` names: ids and kinds with commas between, ``all``, or None for a few
    of different kinds. In the order of the file. Raises UsageError."""
    if wanted is None:
        quick = [prompt for prompt in prompts if prompt.id in QUICK]
        return quick or list(prompts)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names:
        raise UsageError("--prompts names no prompt")
    known = {"all", *(p.id for p in prompts), *(p.kind for p in prompts)}
    for name in names:
        if name not in known:
            raise UsageError(
                f'there is no prompt and no kind of work "{label(name)}"',
                hint=nearest(name, sorted(known)),
            )
    return [p for p in prompts if "all" in names or p.id in names or p.kind in names]
