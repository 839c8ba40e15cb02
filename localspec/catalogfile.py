"""What a catalog file says, checked: ``models.yaml`` and the user's file of the same form.

The form itself is explained at the head of ``models.yaml``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from localspec import nodes, schema, yamlfile
from localspec.errors import ConfigError
from localspec.files import Gated, ModelFile, Shard
from localspec.mirror import expand
from localspec.nodes import Mapping, Node, Scalar

Kind = Literal["draft", "mtp"]
Match = Literal["same", "near", "different"]
Advice = Literal["recommended", "possible", "measure"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and what drafts for it, as the catalog knows them.

    ``draft``: None for a model whose head (``kind`` "mtp") is inside the target's file, and for one
    that runs without a draft model (``catalog.alone``). ``match``:
    do the vocabularies agree, as far as is known; ``checked`` says whether localspec compared both
    token lists. ``expected``: what was measured with it, and where; empty when nothing is known.
    """

    id: str
    target: ModelFile
    draft: ModelFile | None
    kind: Kind = "draft"
    match: Match = "same"
    checked: bool = False
    advice: Advice = "possible"
    reason: str = ""
    expected: str = ""

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """What has to be on the disk: the target, and the draft when it is a file of its own."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def n_bytes(self) -> int | None:
        """Size of all files; None when one is unknown."""
        sizes = [file.n_bytes for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


# -- the form of the entries -----------------------------------------------------------------

_Count = Annotated[int | None, schema.Range(0, 2**53)]
_Bytes = Annotated[int | None, schema.Range(1, 2**53)]


@dataclass(frozen=True)
class _Numbers:
    """The names are those of ``header.Header`` where it has them."""

    n_layer: _Count = None
    n_layer_full: _Count = None
    n_layer_swa: _Count = None
    n_layer_recurrent: _Count = None
    n_layer_kv: _Count = None
    n_layer_nextn: _Count = None
    n_swa: _Count = None
    n_head: _Count = None
    n_head_kv: _Count = None
    n_embd_head_k: _Count = None
    n_embd_head_v: _Count = None
    n_head_kv_full: _Count = None
    n_embd_head_full: _Count = None
    kv_lora_rank: _Count = None
    qk_rope_head_dim: _Count = None
    linear_k_heads: _Count = None
    linear_v_heads: _Count = None
    linear_head_dim: _Count = None
    linear_conv: _Count = None
    n_embd: _Count = None
    n_vocab: _Count = None
    n_ctx_train: _Count = None
    n_expert: _Count = None
    n_expert_used: _Count = None
    n_active_params: _Count = None
    guessed: tuple[str, ...] = ()

    def known(self) -> dict[str, int]:
        """The numbers that are set."""
        return {name: value for name in _NUMBERS if (value := getattr(self, name)) is not None}


_NUMBERS = tuple(field.name for field in dataclasses.fields(_Numbers) if field.name != "guessed")


@dataclass(frozen=True)
class _Mirror:
    package: str
    version: str
    member: str
    parts: Annotated[int, schema.Range(1, 999)] = 1


@dataclass(frozen=True)
class _Shard:
    file: str
    bytes: _Bytes = None
    sha256: str = ""
    mirror: _Mirror | None = None


@dataclass(frozen=True)
class _Model:
    repo: str = ""
    revision: str = ""
    path: Path | None = None
    file: str = ""
    bytes: _Bytes = None
    sha256: str = ""
    shards: tuple[_Shard, ...] = ()
    about_bytes: _Bytes = None
    mirror: _Mirror | None = None
    family: str = ""
    quant: str = ""
    licence: str = ""
    gated: bool | Literal["unknown"] = "unknown"
    architecture: str = ""
    numbers: _Numbers = dataclasses.field(default_factory=_Numbers)
    guessed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pair:
    target: str
    match: Match
    reason: str
    draft: str = ""
    kind: Kind = "draft"
    checked: bool = False
    advice: Advice | None = None
    expected: str = ""


_ID = re.compile(r"[a-z0-9][a-z0-9._+-]{0,79}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9a-f]{40}")
_GUESSABLE = (
    *("repo", "revision", "bytes", "about_bytes", "sha256", "family", "quant", "licence", "gated"),
    *_NUMBERS,
)


class Reader:
    """Reads one catalog file after the other; a later entry replaces an earlier one.

    ``report``: called with each ConfigError instead of raising it; the faulty entry is left out.
    """

    def __init__(self, report: Callable[[ConfigError], None] | None = None) -> None:
        self._report = report
        self._architectures: dict[str, _Numbers] = {}
        self._models: dict[str, ModelFile] = {}
        self._pairs: dict[str, tuple[_Pair, Mapping]] = {}

    def read(self, path: Path) -> None:
        """Take in one file. Raises ConfigError with file and line."""
        root = yamlfile.load(path)
        if not isinstance(root, Mapping):
            raise ConfigError(f"{root.where}: expected the sections models and pairs")
        for key in root.entries:
            known = ("architectures", "models", "pairs")
            self._try(schema.known_name, key, known, _at(root, key), "section")
        for name, entry in self._section(root, "architectures"):
            self._try(self._architecture, name, entry)
        for name, entry in self._section(root, "models"):
            self._try(self._model, name, entry)
        for name, entry in self._section(root, "pairs"):
            self._try(self._pair, name, entry)

    def finish(self) -> tuple[dict[str, ModelFile], list[Pair]]:
        """All models by name, and all pairs. Raises ConfigError for a pair of unknown models."""
        pairs = [self._try(self._resolve, name) for name in self._pairs]
        return self._models, [pair for pair in pairs if pair is not None]

    def _try(self, act: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return act(*arguments)
        except ConfigError as error:
            if self._report is None:
                raise
            self._report(error)
            return None

    def _section(self, root: Mapping, name: str) -> list[tuple[str, Mapping]]:
        section = root.entries.get(name)
        if section is None or (isinstance(section, Scalar) and not section.text):
            return []
        if not isinstance(section, Mapping):
            raise ConfigError(f'{section.where}: "{name}" must be names with values (name: value)')
        entries = [self._try(_named, section, key) for key in section.entries]
        return [entry for entry in entries if entry is not None]

    def _architecture(self, name: str, node: Mapping) -> None:
        numbers = schema.read(node, _Numbers, what="header number")
        _check_guesses(node, numbers.guessed, numbers.known(), _NUMBERS)
        self._architectures[name] = numbers

    def _model(self, name: str, node: Mapping) -> None:
        entry = schema.read(node, _Model)
        numbers, guessed = self._numbers(entry, node)
        stated = {key for key in node.entries if key != "numbers"} | numbers.keys()
        if "shards" in node.entries:
            stated |= {"bytes", "sha256"}
        _check_guesses(node, entry.guessed, stated, _GUESSABLE)
        _check_source(node, entry)
        gated: Gated = "unknown" if entry.gated == "unknown" else "yes" if entry.gated else "no"
        if entry.about_bytes is not None:
            numbers["about_bytes"] = entry.about_bytes
        self._models[name] = ModelFile(
            id=name,
            shards=_shards(node, entry),
            repo=entry.repo,
            revision=entry.revision,
            path=entry.path,
            family=entry.family,
            quant=entry.quant,
            licence=entry.licence,
            gated=gated,
            numbers=numbers,
            guessed=tuple(dict.fromkeys((*entry.guessed, *guessed))),
        )

    def _numbers(self, entry: _Model, node: Mapping) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The architecture's numbers with the model's own over them, and which are guesses."""
        numbers: dict[str, Any] = {}
        guessed: tuple[str, ...] = ()
        if entry.architecture:
            shared = self._architectures.get(entry.architecture)
            if shared is None:
                raise ConfigError(
                    f'{_at(node, "architecture")}: there is no architecture "{entry.architecture}"',
                    hint=_near(entry.architecture, self._architectures),
                )
            numbers |= shared.known()
            guessed = shared.guessed
        own = entry.numbers.known()
        guessed = (*(name for name in guessed if name not in own), *entry.numbers.guessed)
        return numbers | own, guessed

    def _pair(self, name: str, node: Mapping) -> None:
        entry = schema.read(node, _Pair)
        if not entry.reason.strip():
            raise ConfigError(f'{_at(node, "reason")}: "reason" is empty')
        if entry.kind == "draft" and not entry.draft:
            raise ConfigError(f'{node.where}: "draft" is missing')
        if entry.target == entry.draft:
            raise ConfigError(
                f"{_at(node, 'draft')}: target and draft are the same",
                hint="For a head inside the target's file write kind: mtp and no draft.",
            )
        if entry.match == "different" and entry.advice is not None:
            raise ConfigError(f"{_at(node, 'advice')}: a pair that differs can have no advice")
        self._pairs[name] = (entry, node)

    def _resolve(self, name: str) -> Pair:
        entry, node = self._pairs[name]
        if name in self._models:
            raise ConfigError(f'{node.where}: "{name}" is the name of a model too')
        return Pair(
            id=name,
            target=self._known_model(entry.target, node, "target"),
            draft=self._known_model(entry.draft, node, "draft") if entry.draft else None,
            kind=entry.kind,
            match=entry.match,
            checked=entry.checked,
            advice=entry.advice or "possible",
            reason=entry.reason,
            expected=entry.expected,
        )

    def _known_model(self, name: str, node: Mapping, key: str) -> ModelFile:
        found = self._models.get(name)
        if found is None:
            raise ConfigError(
                f'{_at(node, key)}: there is no model "{name}"', hint=_near(name, self._models)
            )
        return found


def _at(node: Mapping, key: str) -> str:
    return f"{node.name}, line {node.lines.get(key, node.line)}"


def _near(name: str, known: dict[str, Any]) -> str:
    hint = schema.nearest(name, known)
    return hint if hint.startswith("Did") else ""


def _named(section: Mapping, key: str) -> tuple[str, Mapping]:
    if not _ID.fullmatch(key) or key.endswith(".gguf"):
        raise ConfigError(
            f'{_at(section, key)}: "{key}" cannot be a name',
            hint="Names have small letters, digits and . _ + - and do not end in .gguf.",
        )
    node: Node = section.entries[key]
    if not isinstance(node, Mapping):
        raise ConfigError(f'{_at(section, key)}: "{key}" must be names with values (name: value)')
    return key, node


def _check_guesses(node: Mapping, guessed: tuple[str, ...], stated: Any, known: Any) -> None:
    for name in guessed:
        schema.known_name(name, known, _at(node, "guessed"), "value that can be guessed")
        if name not in stated:
            raise ConfigError(f'{_at(node, "guessed")}: "{name}" is marked as a guess, but not set')


def _check_source(node: Mapping, entry: _Model) -> None:
    if entry.path is not None and entry.repo:
        raise ConfigError(f'{_at(node, "path")}: a model has a "repo" or a "path", not both')
    if not (entry.path or entry.repo):  # a mirror needs it too: it names the place in the cache
        raise ConfigError(f'{node.where}: "repo" is missing (or "path")')
    if entry.repo and not _REPO.fullmatch(entry.repo):
        raise ConfigError(f'{_at(node, "repo")}: "{entry.repo}" is not of the form owner/name')
    if entry.revision and not _REVISION.fullmatch(entry.revision):
        raise ConfigError(
            f'{_at(node, "revision")}: "{entry.revision}" is not a revision: 40 digits 0-9a-f'
        )
    if entry.shards and (entry.file or entry.bytes or entry.sha256 or entry.mirror):
        raise ConfigError(f'{_at(node, "shards")}: with "shards", each shard has its own file')
    if not entry.file and not entry.shards and (entry.bytes or entry.sha256 or entry.mirror):
        raise ConfigError(f'{node.where}: "file" is missing')


def _shards(node: Mapping, entry: _Model) -> tuple[Shard, ...]:
    if entry.path is not None and not entry.file:
        return (Shard(entry.path.name, entry.bytes, entry.sha256 or None),)
    if entry.file:
        only = _Shard(entry.file, entry.bytes, entry.sha256, entry.mirror)
        return (_shard(node, only),)
    listed = node.entries.get("shards")
    if not isinstance(listed, nodes.Sequence):
        return ()
    shards = tuple(
        _shard(item, shard)
        for item, shard in zip(listed.items, entry.shards, strict=True)
        if isinstance(item, Mapping)
    )
    names = [shard.name for shard in shards]
    if len(set(names)) != len(names):
        raise ConfigError(f"{listed.where}: two shards have the same name")
    return shards


def _shard(node: Mapping, shard: _Shard) -> Shard:
    pieces = shard.file.split("/")
    if not shard.file.endswith(".gguf") or not all(re.fullmatch(r"\w[\w.+ -]*", p) for p in pieces):
        raise ConfigError(
            f'{_at(node, "file")}: "{shard.file}" is not the name of a GGUF file in a repository'
        )
    if shard.sha256 and not _SHA256.fullmatch(shard.sha256):
        raise ConfigError(f'{_at(node, "sha256")}: "sha256" must be 64 digits 0-9a-f')
    if shard.mirror is None:
        return Shard(shard.file, shard.bytes, shard.sha256 or None)
    if not shard.sha256 or not shard.bytes:
        raise ConfigError(
            f'{_at(node, "mirror")}: a mirror needs "sha256" and "bytes" of the whole file'
        )
    mirror = shard.mirror
    try:
        parts = expand(mirror.package, mirror.version, mirror.member, mirror.parts)
    except ValueError as error:
        raise ConfigError(f"{_at(node, 'mirror')}: {error}") from None
    return Shard(shard.file, shard.bytes, shard.sha256, parts)
