"""Models that are on this computer already, wherever their programs keep them: used in place, never
copied or changed. Only names and sizes are looked at; the one kind of file that is read is Ollama's
manifest, because its model files have no names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from localspec import paths
from localspec.files import ModelFile, Shard
from localspec.store.cache import Repo, files_in, is_whole, repos
from localspec.store.names import Group, group_models, quant_tag

Origin = Literal["hub", "llama.cpp", "lmstudio", "ollama", "directory"]

_MAX_FILES = 50_000
_MAX_DEPTH = 6
_MAX_MANIFEST_BYTES = 1 << 20
_MODEL_LAYER = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Entry:
    """One model on this disk. ``name`` is what a user types for it, ``parts`` its files in order;
    ``removable``: localspec downloaded it and may remove it."""

    name: str
    parts: tuple[Path, ...]
    n_bytes: int
    origin: Origin
    removable: bool = False

    @property
    def path(self) -> Path:
        """The file to load: the first part."""
        return self.parts[0]

    @property
    def file(self) -> ModelFile:
        """The same as other parts of the program want it."""
        shards = tuple(Shard(part.name, part.stat().st_size) for part in self.parts)
        return ModelFile(id=self.name, shards=shards, path=self.path, quant=quant_tag(self.name))


def inventory(cache: Path, extra: Iterable[Path] = ()) -> list[Entry]:
    """Every whole model on this disk, by origin and name; the same file is listed once.

    ``cache``: the Hub cache. ``extra``: directories that the user named. What cannot be read is
    left out.
    """
    found = list(_hub_entries(cache))
    for root in paths.llama_cpp_caches():
        found += _hub_entries(root) if root != cache else ()
        found += _flat_entries(root, "llama.cpp", depth=1)
    for root in paths.lm_studio_dirs():
        found += _lm_studio_entries(root)
    for root in paths.ollama_dirs():
        found += _ollama_entries(root)
    for root in extra:
        found += _flat_entries(root, "directory", depth=_MAX_DEPTH)
    unique: dict[Path, Entry] = {}
    for entry in found:
        unique.setdefault(entry.path.resolve(), entry)
    return list(unique.values())


def twin(file: ModelFile, extra: Iterable[Path] = ()) -> list[Path] | None:
    """The parts of ``file`` in another program's directory, if they are all there.

    Recognised by hash (Ollama), else by repository, name and exact size; so only for files whose
    size is known.
    """
    shards = file.shards
    if not shards or any(shard.n_bytes is None for shard in shards):
        return None
    if len(shards) == 1 and shards[0].sha256:
        for root in paths.ollama_dirs():
            blob = root / "blobs" / f"sha256-{shards[0].sha256}"
            if is_whole(blob, shards[0]):
                return [blob]
    base = [PurePosixPath(shard.name).name for shard in shards]
    places = [(root / file.repo, base) for root in paths.lm_studio_dirs()]
    for root in paths.llama_cpp_caches():
        found = Repo(root, file.repo).find(file.revision, shards)
        if found:
            return found
        prefix = file.repo.replace("/", "_") + "_"
        places.append((root, [prefix + shard.name.replace("/", "_") for shard in shards]))
    for root in extra:
        places += [(root, base), (root / file.repo, base)]
    for folder, names in places:
        candidates = [folder / name for name in names]
        if all(is_whole(p, s) for p, s in zip(candidates, shards, strict=True)):
            return candidates
    return None


def _hub_entries(cache: Path) -> Iterator[Entry]:
    for repo in repos(cache):
        record = repo.record()
        groups: dict[tuple[str, ...], tuple[Group, Path]] = {}
        for snapshot in repo.snapshots():
            here = [name for name, path in files_in(snapshot) if _size(path) is not None]
            for group in group_models(here):
                if not group.missing:
                    groups.setdefault(group.names, (group, snapshot))  # the latest comes first
        names = _short_names(repo.name, [group for group, _ in groups.values()])
        for name, (group, snapshot) in zip(names, groups.values(), strict=True):
            yield _entry(
                name,
                [snapshot / PurePosixPath(part) for part in group.names],
                "hub",
                removable=all(f"{snapshot.name}/{part}" in record for part in group.names),
            )


def _short_names(repo: str, groups: list[Group]) -> list[str]:
    """``repo:quantisation`` where that is enough, else ``repo:file``."""
    tags = [group.tag for group in groups]
    return [
        f"{repo}:{group.tag if group.tag and tags.count(group.tag) == 1 else group.names[0]}"
        for group in groups
    ]


def _lm_studio_entries(root: Path) -> Iterator[Entry]:
    """``publisher/repository/file.gguf``, so that a model has the name that it has on the Hub."""
    by_folder: dict[Path, list[Group]] = {}
    for group, folder in _groups_below(root, 3):
        by_folder.setdefault(folder, []).append(group)
    for folder, groups in by_folder.items():
        where = folder.relative_to(root).parts
        names = _short_names("/".join(where[:2]), groups)
        for name, group in zip(names, groups, strict=True):
            shown = name if len(where) >= 2 else str(folder / group.names[0])
            yield _entry(shown, [folder / part for part in group.names], "lmstudio")


def _flat_entries(root: Path, origin: Origin, *, depth: int) -> Iterator[Entry]:
    for group, folder in _groups_below(root, depth):
        first = folder / group.names[0]
        name = first.name if origin == "llama.cpp" else str(first)
        yield _entry(name, [folder / part for part in group.names], origin)


def _groups_below(root: Path, depth: int) -> Iterator[tuple[Group, Path]]:
    """The whole models in each directory at most ``depth`` levels down."""
    n_seen = 0
    for folder_name, folders, names in os.walk(root):
        folder = Path(folder_name)
        level = len(folder.relative_to(root).parts)
        hidden = [f for f in folders if f.startswith((".", "models--"))]
        folders[:] = sorted(set(folders) - set(hidden)) if level + 1 < depth + 1 else []
        n_seen += len(names)
        if n_seen > _MAX_FILES:
            return
        here = [name for name in names if _size(folder / name) is not None]
        for group in group_models(here):
            if not group.missing:
                yield group, folder


def _ollama_entries(root: Path) -> Iterator[Entry]:
    """Manifests lie in ``manifests/host/namespace/model/tag`` and name their model's blob."""
    manifests = root / "manifests"
    n_seen = 0
    for folder, folders, names in os.walk(manifests):
        folders.sort()
        for name in sorted(names):
            n_seen += 1
            if n_seen > _MAX_FILES:
                return
            path = Path(folder) / name
            where = path.relative_to(manifests).parts
            blob = _ollama_blob(root, path)
            if len(where) == 4 and blob is not None and _size(blob):
                space = "" if where[1] == "library" else f"{where[1]}/"
                host = "" if where[0] == "registry.ollama.ai" else f"{where[0]}/"
                yield _entry(f"ollama:{host}{space}{where[2]}:{where[3]}", [blob], "ollama")


def _ollama_blob(root: Path, manifest: Path) -> Path | None:
    """The model file that ``manifest`` names; None unless it is exactly one file."""
    try:
        if manifest.stat().st_size > _MAX_MANIFEST_BYTES:
            return None
        layers = json.loads(manifest.read_bytes())["layers"]
        found = [x["digest"] for x in layers if x["mediaType"] == _MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(found) != 1 or not re.fullmatch(r"sha256:[0-9a-f]{64}", str(found[0])):
        return None
    return root / "blobs" / str(found[0]).replace(":", "-")


def _entry(name: str, parts: list[Path], origin: Origin, *, removable: bool = False) -> Entry:
    n_bytes = sum(_size(part) or 0 for part in parts)
    return Entry(name, tuple(parts), n_bytes, origin, removable)


def _size(path: Path) -> int | None:
    """Length of a regular file with something in it, else None."""
    try:
        return (path.stat().st_size or None) if path.is_file() else None
    except OSError:
        return None
