"""Settings files, lower half: strict YAML to nodes that remember their line.

Nothing is guessed about types here: every scalar keeps the text that was written. ``schema.read``
turns nodes into a dataclass, and its type hints decide what ``off``, ``08`` or ``8 GiB`` means.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from localspec.errors import ConfigError
from localspec.nodes import Mapping, Node, Scalar, Sequence

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 200_000


def load(source: Path | str, name: str = "") -> Node:
    """The one YAML document in the file ``source`` (a Path) or in the text ``source`` (a str).

    An empty document is an empty mapping. ``name`` is what messages call it; by default the path.

    Raises ConfigError: unreadable, too large, not YAML, a key twice, anchors, tags, nested deeper
    than ``MAX_DEPTH``.
    """
    name = name or (str(source) if isinstance(source, Path) else "settings")
    text = _read_text(source, name) if isinstance(source, Path) else source
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"{name} is larger than {MAX_BYTES // 2**20} MiB; that is no settings file"
        )
    text = text.encode("utf-8", "replace").decode("utf-8")  # the C parser stumbles over surrogates
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster
    try:
        return _Builder(name).build(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}, line {line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; no line is given
        position = getattr(error, "position", None) or 0
        line = text.count("\n", 0, position) + 1
        raise ConfigError(f"{name}, line {line}: a character that YAML does not allow") from None


def _read_text(path: Path, name: str) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"{name} is larger than {MAX_BYTES // 2**20} MiB; that is no settings file"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8 text") from None


class _Builder:
    """Parser events to nodes, without recursion, so that depth is ours to limit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_nodes = 0

    def build(self, events: Iterator[yaml.Event]) -> Node:
        # Each open collection: its opening line, whether it is a mapping, the nodes so far.
        stack: list[tuple[int, bool, list[Node]]] = []
        roots: list[Node] = []
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.NodeEvent):
                self._check(event, line, len(stack))
            if isinstance(event, yaml.DocumentStartEvent) and roots:
                raise ConfigError(f"{self.name}, line {line}: a second document begins (---)")
            done: Node | None = None
            if isinstance(event, yaml.ScalarEvent):
                done = Scalar(event.value, self.name, line, event.style in tuple("'\"|>"))
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                stack.append((line, isinstance(event, yaml.MappingStartEvent), []))
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                start, is_mapping, nodes = stack.pop()
                done = self._mapping(start, nodes) if is_mapping else self._list(start, nodes)
            if done is not None:
                (stack[-1][2] if stack else roots).append(done)
        if not roots or (isinstance(roots[0], Scalar) and not roots[0].text):
            return Mapping({}, {}, self.name, 1)
        return roots[0]

    def _check(self, event: yaml.NodeEvent, line: int, depth: int) -> None:
        self.n_nodes += 1
        if self.n_nodes > MAX_NODES:
            raise ConfigError(f"{self.name}, line {line}: more than {MAX_NODES} values")
        if depth >= MAX_DEPTH:
            raise ConfigError(f"{self.name}, line {line}: nested more than {MAX_DEPTH} deep")
        if event.anchor is not None:
            raise ConfigError(
                f"{self.name}, line {line}: anchors and aliases (&name, *name) are not allowed",
                hint="Write the value out, or put it between quotes if it is meant as text.",
            )
        tag = getattr(event, "tag", None)
        if tag is not None and not (isinstance(event, yaml.ScalarEvent) and tag == "!"):
            raise ConfigError(
                f"{self.name}, line {line}: tags ({tag}) are not allowed",
                hint="Put the value between quotes if it is meant as text.",
            )

    def _list(self, line: int, nodes: list[Node]) -> Sequence:
        return Sequence(tuple(nodes), self.name, line)

    def _mapping(self, line: int, nodes: list[Node]) -> Mapping:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key, value in zip(nodes[::2], nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                raise ConfigError(f"{key.where}: the name of a setting must be plain text")
            if key.text in entries:
                raise ConfigError(
                    f'{key.where}: "{key.text}" is set twice (first in line {lines[key.text]})'
                )
            entries[key.text] = value
            lines[key.text] = key.line
        return Mapping(entries, lines, self.name, line)
