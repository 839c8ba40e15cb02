"""Where model files are: found on this disk, fetched when missing, removed on request."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from localspec.errors import (
    DownloadError,
    HubUnreachableError,
    ModelNotFoundError,
    UsageError,
)
from localspec.files import Cancelled, ModelFile, NoProgress, Progress, Shard
from localspec.paths import hub_cache
from localspec.store import places
from localspec.store.cache import Leftover, Repo, files_in, is_whole, repos
from localspec.store.disk import explained
from localspec.store.names import check_repo, choose, quant_tag, shard_name
from localspec.store.places import Entry
from localspec.store.settings import HubSettings, Source
from localspec.terminal import label

if TYPE_CHECKING:
    from localspec.store.download import Downloader

_OWNERS = {
    "hub": "another program that uses the Hugging Face cache",
    "llama.cpp": "llama.cpp",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "directory": "you",
}
_TRUE = ("1", "ON", "YES", "TRUE")


def offline_asked_for() -> bool:
    """Whether HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids the network."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in _TRUE for name in names)


class Store:
    """The model files of this computer.

    Nothing is asked of the network until a file is missing. One Store per run: it remembers that
    the Hub does not answer. Not for use from two threads at once.
    """

    def __init__(
        self,
        cache: Path | None = None,
        *,
        source: Source = "auto",
        offline: bool = False,
        progress: Progress | None = None,
        cancelled: Cancelled = lambda: False,
        check_room: bool = True,
        hub: HubSettings | None = None,
        extra_dirs: Sequence[Path] = (),
    ) -> None:
        """``cache``: the Hugging Face cache, ``paths.hub_cache()`` by default. ``offline`` adds to
        HF_HUB_OFFLINE. ``hub`` replaces HF_ENDPOINT and HF_TOKEN. ``extra_dirs``: where the user
        keeps models besides."""
        self.cache = cache or hub_cache()
        self.offline = offline or offline_asked_for()
        self._source: Source = source
        self._progress = progress or NoProgress()
        self._cancelled = cancelled
        self._check_room = check_room
        self._hub = hub
        self._extra_dirs = tuple(extra_dirs)
        self._made: Downloader | None = None

    def find(self, file: ModelFile) -> Path | None:
        """The path to load ``file`` from (of its first part), None unless all of it is here."""
        paths = self._paths(file)
        return paths[0] if paths else None

    def missing_bytes(self, files: Sequence[ModelFile]) -> int | None:
        """Bytes that ``fetch(files)`` would download (less saved parts), None if not known."""
        total = 0
        for repo, _, shard in self._missing(files):
            if shard.n_bytes is None:
                return None
            partial = repo.partial(shard.sha256) if shard.sha256 else None
            here = partial.stat().st_size if partial and partial.exists() else 0
            total += max(0, shard.n_bytes - here)
        return total

    def fetch(self, files: Sequence[ModelFile]) -> list[Path]:
        """The paths of ``files`` (of their first parts), downloading what is missing, one total
        over all of them.

        Raises DownloadError and its kinds (DownloadCancelledError when ``cancelled()``), and
        ModelNotFoundError. A file appears under its name only when it is whole and right; what has
        arrived of the others is kept for the next time.
        """
        missing = self._missing(files)
        if missing and self.offline:
            repo, _, shard = missing[0]
            raise HubUnreachableError(
                f"{label(shard.name)} of {repo.name} is not on this computer, and offline mode is "
                "on.",
                hint='"localspec list" shows what is here. Unset HF_HUB_OFFLINE to download.',
            )
        if missing:
            self._downloader().fetch(missing)
        return [self._present(file) for file in files]

    def read_head(self, file: ModelFile, n_bytes: int) -> bytes:
        """At most the first ``n_bytes`` of ``file``: from the disk, else by a range request.

        Raises as ``fetch``; the package index cannot give a part of a file (HubUnreachableError).
        """
        path = self.find(file)
        if path is None and file.shards and file.shards[0].sha256 and file.repo:
            partial = Repo(self.cache, file.repo).partial(file.shards[0].sha256)
            if partial.exists() and partial.stat().st_size >= n_bytes:
                path = partial
        if path is not None:
            with path.open("rb") as stream:
                return stream.read(n_bytes)
        if self.offline or self._source == "mirror" or not file.repo:
            raise HubUnreachableError(
                f"the start of {label(file.id)} cannot be read before it is downloaded."
            )
        hub = self._downloader().hub
        remote = hub.head(file.repo, file.revision, file.shards[0].name)
        return hub.first_bytes(remote, n_bytes)

    def resolve_hub(
        self, repo: str, quant: str | None = None, *, revision: str = "", refresh: bool = False
    ) -> ModelFile:
        """The model that ``repo:quant`` names, see ``names.choose`` for the rules.

        What is in the cache answers without the network, unless ``refresh``. Raises DownloadError
        and its kinds, ModelNotFoundError, UsageError.
        """
        check_repo(repo)
        cached = self._resolve_cached(repo, quant, revision)
        if cached is not None and not refresh:
            return cached
        if self.offline or self._source == "mirror":
            if cached is not None:
                return cached
            raise HubUnreachableError(
                f"{repo} is not on this computer, and its file list cannot be read "
                f"{'in offline mode' if self.offline else 'from the package index'}."
            )
        try:
            listing = self._downloader().hub.listing(repo, revision)
        except HubUnreachableError as error:
            if cached is None:
                raise
            self._progress.note(f"{error.message} Using the files that are here.")
            return cached
        known = {entry.name: entry for entry in listing.files}
        group = choose(repo, list(known), quant)
        shards = tuple(Shard(n, known[n].n_bytes, known[n].sha256) for n in group.names)
        return ModelFile(
            id=f"{repo}:{group.tag or group.names[0]}",
            shards=shards,
            repo=repo,
            revision=listing.commit,
            quant=group.tag,
            gated="yes" if listing.gated else "no",
        )

    def inventory(self) -> list[Entry]:
        """Every whole model on this disk: the Hub cache, llama.cpp's, LM Studio's and Ollama's
        directories, and the user's own."""
        return places.inventory(self.cache, self._extra_dirs)

    def locate(self, name: str) -> Entry | None:
        """The model on this disk that ``name`` means: a name as ``inventory`` gives it, or the
        name of its file if only one is called so. Raises UsageError if several are."""
        entries = self.inventory()
        wanted = name.lower()
        found = [e for e in entries if wanted in (e.name.lower(), f"ollama:{wanted}")] or [
            e for e in entries if wanted in (e.path.name.lower(), e.path.stem.lower())
        ]
        if len({entry.path for entry in found}) > 1:
            raise UsageError(
                f'"{label(name)}" fits several models on this computer.',
                hint="Give the path:\n" + "\n".join(str(entry.path) for entry in found[:20]),
            )
        return found[0] if found else None

    def remove(self, entry: Entry) -> int:
        """Remove a model that localspec downloaded; returns the bytes that became free.

        Raises DownloadError for anything else: it belongs to another program.
        """
        repo = self.check_removable(entry)
        snapshots = repo.folder / "snapshots"
        names = {"/".join(part.relative_to(snapshots).parts[1:]) for part in entry.parts}
        with explained(self.cache):
            return repo.remove(names)

    def check_removable(self, entry: Entry) -> Repo:
        """The repository in our cache that ``entry`` may be removed from.

        Raises DownloadError if it belongs to another program.
        """
        repo = next((r for r in repos(self.cache) if entry.path.is_relative_to(r.folder)), None)
        if entry.removable and repo is not None:
            return repo
        raise DownloadError(
            f"{label(entry.name)} was not downloaded by localspec but belongs to "
            f"{_OWNERS[entry.origin]}, so it is left alone.",
            hint=f"It is {entry.path}",
        )

    def leftovers(self) -> list[Leftover]:
        """What interrupted downloads left in the Hub cache."""
        return [left for repo in repos(self.cache) for left in repo.leftovers()]

    def remove_leftovers(self) -> int:
        """Remove those that localspec left and that no process works on; returns bytes freed."""
        lock = importlib.import_module("localspec.store.lock")
        freed = 0
        with explained(self.cache):
            for left in self.leftovers():
                if left.is_ours and lock.is_free(left.lock):
                    freed += left.n_bytes
                    left.path.unlink(missing_ok=True)
                    left.path.with_name(left.path.name + ".json").unlink(missing_ok=True)
                    shutil.rmtree(left.path.with_name(left.path.name + ".wheels"), True)
        return freed

    def _resolve_cached(self, repo: str, quant: str | None, revision: str) -> ModelFile | None:
        folder = Repo(self.cache, repo)
        commit = folder.commit_of(revision)
        for snapshot in folder.snapshots():
            if commit and snapshot.name != commit:
                continue
            names = [name for name, _ in files_in(snapshot)]
            try:
                group = choose(repo, names, quant)
            except (ModelNotFoundError, UsageError):
                continue
            if quant is None and len(names) > 1:
                continue  # only the server's list shows what is the usual choice
            return ModelFile(
                id=f"{repo}:{group.tag or group.names[0]}",
                shards=tuple(_shard_on_disk(snapshot / PurePosixPath(n), n) for n in group.names),
                repo=repo,
                revision=snapshot.name,
                quant=group.tag,
            )
        return None

    def _paths(self, file: ModelFile) -> list[Path] | None:
        if file.path is not None:
            paths = [file.path.parent / shard.name for shard in file.shards] or [file.path]
            shards = file.shards or (Shard(file.path.name),)
            whole = all(is_whole(p, s) for p, s in zip(paths, shards, strict=True))
            return paths if whole else None
        found = Repo(self.cache, file.repo).find(file.revision, file.shards)
        return found or places.twin(file, self._extra_dirs)

    def _present(self, file: ModelFile) -> Path:
        path = self.find(file)
        if path is None:
            raise ModelNotFoundError(f"{label(file.id)} is not there after the download.")
        return path

    def _missing(self, files: Sequence[ModelFile]) -> list[tuple[Repo, ModelFile, Shard]]:
        """What must be fetched; a file that is named twice is listed once."""
        missing: dict[tuple[str, str, str], tuple[Repo, ModelFile, Shard]] = {}
        for file in files:
            if self._paths(file) is not None:
                continue
            if file.path is not None or not file.repo:
                raise ModelNotFoundError(f"there is no whole model file at {file.path}.")
            repo = Repo(self.cache, file.repo)
            for shard in file.shards:
                if len(file.shards) == 1 or not self._is_here(repo, file.revision, shard):
                    missing.setdefault((file.repo, file.revision, shard.name), (repo, file, shard))
        return list(missing.values())

    @staticmethod
    def _is_here(repo: Repo, revision: str, shard: Shard) -> bool:
        """Whether a part is in the very snapshot that the others will be put into."""
        commit = repo.commit_of(revision)
        return bool(commit) and is_whole(repo.pointer(commit, shard.name), shard)

    def _downloader(self) -> Downloader:
        if self._made is None:
            # Only now: the HTTP stack costs a third of a second, and most runs need no download.
            module = importlib.import_module("localspec.store.download")
            self._made = cast(
                "Downloader",
                module.Downloader(
                    source=self._source,
                    settings=self._hub,
                    progress=self._progress,
                    cancelled=self._cancelled,
                    check_room=self._check_room,
                ),
            )
        return self._made


def local_model(path: Path) -> ModelFile:
    """The model at ``path``; with the path of a later part of a split model, the whole model.

    Raises ModelNotFoundError: no such file, a directory, or a part is missing.
    """
    if path.is_dir():
        raise ModelNotFoundError(
            f"{path} is a directory.", hint="Give the path of a .gguf file in it."
        )
    if not path.is_file():
        raise ModelNotFoundError(f"there is no file {path}.")
    part = shard_name(path.name)
    names = [part.name(i) for i in range(1, part.count + 1)] if part else [path.name]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise ModelNotFoundError(
            f"{path} is one of {len(names)} parts, and {missing[0]} is not beside it.",
            hint="All parts must lie in one directory under their own names.",
        )
    shards = tuple(_shard_on_disk(path.parent / name, name) for name in names)
    first = path.parent / names[0]
    return ModelFile(id=str(path), shards=shards, path=first, quant=quant_tag(first.name))


def _shard_on_disk(path: Path, name: str) -> Shard:
    try:
        return Shard(name, path.stat().st_size)
    except OSError:
        return Shard(name)
