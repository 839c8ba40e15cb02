"""Learning from files: read, tokenise and add what changed, forget what is gone."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import UsageError
from localspec.files import Cancelled, Progress
from localspec.history.ignore import files_below
from localspec.history.index import History
from localspec.provenance import Source

MAX_FILE_BYTES = 1 << 20
"""Larger files are data or made by a program rather than written."""
MAX_TOKENS = 1_500_000
"""One ``learn`` adds at most half of what the index holds, so that chats keep their place."""

Tokenize = Callable[[str], list[int]]


@dataclass(slots=True)
class Learned:
    """What came of it. ``skipped``: reason -> number of files."""

    n_files: int = 0
    n_tokens: int = 0
    n_unchanged: int = 0
    n_forgotten: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        """One file is not learned."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def learn(
    roots: Sequence[Path],
    history: History,
    tokenize: Tokenize,
    progress: Progress,
    cancelled: Cancelled = lambda: False,
) -> Learned:
    """Add the texts of files, and of files in directories, to ``history``.

    A file that did not change since the last time is left alone, one that changed is learned anew,
    and one that is gone from a directory is forgotten. Raises UsageError when a root is not there.
    """
    done = Learned()
    sources = _sources([root.resolve() for root in roots], done)
    known = _known_files(history)
    outdated = [
        name
        for name, stamp in known.items()
        if (sources[name].stamp != stamp if name in sources else _is_in(name, roots))
    ]
    if outdated:
        history.forget("file", outdated)
        done.n_forgotten = sum(name not in sources for name in outdated)
    progress.start("Learning", sum(Path(name).stat().st_size for name in sources))
    try:
        for source in sources.values():
            if cancelled():
                break
            n_bytes = int(source.stamp.rpartition(":")[2])
            _learn_one(source, history, tokenize, done)
            progress.advance(n_bytes)
    finally:
        progress.finish()
    return done


def _learn_one(source: Source, history: History, tokenize: Tokenize, done: Learned) -> None:
    if history.is_known(source):
        done.n_unchanged += 1
        return
    if done.n_tokens >= MAX_TOKENS:
        done.skip("the index has no room for more at once")
        return
    text, reason = read_text(Path(source.name))
    if reason:
        done.skip(reason)
        return
    n_new = history.remember(tokenize(text), source)
    done.n_files += 1
    done.n_tokens += n_new


def read_text(path: Path) -> tuple[str, str]:
    """(text, ""), or ("", why it cannot be learned)."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return "", "cannot be read"
    if len(data) > MAX_FILE_BYTES:
        return "", "too large"
    if b"\0" in data:
        return "", "not text"
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return "", "not text"


def _sources(roots: Sequence[Path], done: Learned) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for root in roots:
        if not root.exists():
            raise UsageError(f"{root} does not exist")
        for path in files_below(root):
            try:
                about = path.stat()
            except OSError:
                done.skip("cannot be read")
                continue
            if not stat.S_ISREG(about.st_mode):
                done.skip("not a regular file")
            elif about.st_size > MAX_FILE_BYTES:
                done.skip("too large")
            elif about.st_size:
                stamp = f"{about.st_mtime_ns}:{about.st_size}"
                found[str(path)] = Source("file", str(path), stamp)
    return found


def _known_files(history: History) -> dict[str, str]:
    """Name -> stamp of all files that are held."""
    held = history.held()
    if held is None:
        return {}
    return {info.name: info.stamp for info in held.sources if info.kind == "file"}


def _is_in(name: str, roots: Sequence[Path]) -> bool:
    return any(Path(name).is_relative_to(root.resolve()) for root in roots)
