"""The user's own history as a source of drafts: what is kept, what is not, and where.

What is kept: token sequences of questions and answers of *saved* chats, of one-shot ``run``
commands, and of files given to ``localspec learn``. They lie in the data directory below
``history``, one directory for each vocabulary, readable by their owner only, 64 MB in all. Token
sequences are text: whoever has the model's vocabulary can read them.

What is not: chats that are not saved stay in the memory of the process; with ``--no-history`` (or
``history: false``) nothing is kept at all and nothing is looked up. Deleting a chat, or a turn of
it, overwrites everything that came from that chat; ``localspec history forget`` and ``localspec
learn --forget`` do the same for runs and files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from localspec import paths
from localspec.header import Header, TokenType
from localspec.history.disk import (
    CAPACITIES,
    DATABASE,
    FAILURES,
    DiskIndex,
    Held,
    directory_bytes,
    is_damage,
)
from localspec.history.parts import new_parts
from localspec.history.ring import GRAM, Ids, Ring
from localspec.provenance import Kind, Source
from localspec.sessions import Chats
from localspec.sessions_types import Deleted
from localspec.spec.calibration import Calibration
from localspec.spec.copier import Match
from localspec.terminal import label

LIMIT_BYTES = 64_000_000
"""All vocabularies together; those not used for longest go first."""
MEMORY_SLOTS = 1 << 16
"""Tokens of unsaved chats that one process remembers (about 1 MB)."""
_DAMAGED = "damaged"
T = TypeVar("T")


def vocabulary_key(header: Header) -> bytes:
    """32 bytes that are the same for models whose token ids mean the same texts. Padding at the end
    does not count: models of one family differ in it by size."""
    n = len(header.tokens)
    while n and header.type_of(n - 1) == TokenType.UNUSED:
        n -= 1
    return hashlib.sha256(header.tokens.raw[: int(header.tokens.starts[n])]).digest()


class History:
    """What one session remembers and looks up; satisfies ``HistoryIndex``. It never raises: when
    the files cannot be used, ``note`` says why, and only this process's own texts are looked up."""

    def __init__(self, disk: DiskIndex | None, note: str = "") -> None:
        self._disk = disk
        self._memory: Ring | None = None
        self._memory_head = Ring.first
        self._helps: list[tuple[int, int]] = []
        self.note = note
        """One line for the user; empty while all is well."""
        self.calibration = Calibration()
        if disk is not None:
            self.calibration.add(self._on_disk(DiskIndex.counts, list[list[float]]()))

    @classmethod
    def open(
        cls,
        root: Path,
        vocabulary: bytes,
        *,
        model: str = "",
        limit_bytes: int = LIMIT_BYTES,
        capacities: Sequence[int] = CAPACITIES,
    ) -> History:
        """The history below ``root`` for a vocabulary. What is damaged or of another version is
        renamed, and ``note`` says so. ``model``: a name to show in ``learn --status``."""
        directory = root / vocabulary.hex()[:16]

        def room_for(n_bytes: int) -> bool:
            return make_room(root, directory, n_bytes, limit_bytes)

        def attempt() -> DiskIndex:
            paths.make_private_dir(root)
            disk = DiskIndex(directory, vocabulary, capacities=capacities, room_for=room_for)
            os.utime(directory / DATABASE)
            if model and disk.get("model") != model:
                disk.put("model", model)
            return disk

        try:
            return cls(attempt())
        except FAILURES as error:
            if not is_damage(error):
                return cls(None, f"Nothing is drafted from earlier answers: {_because(error)}")
            reason = _because(error)
        try:
            set_aside(root, directory)
            disk = attempt()
        except FAILURES as error:
            return cls(None, f"Nothing is drafted from earlier answers: {_because(error)}")
        kept = root / _DAMAGED
        return cls(disk, f"The history index was damaged ({reason}); it is kept in {kept}.")

    @classmethod
    def in_memory(cls) -> History:
        """One that only remembers what this process sees."""
        return cls(None)

    def close(self) -> None:
        """Let go of the files. Safe to repeat."""
        self._flush()
        if self._disk is not None:
            self._disk.close()
            self._disk = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    # -- looking up (``HistoryIndex``) ------------------------------------------------------------

    def begin(self) -> None:
        """An answer starts."""
        self._on_disk(DiskIndex.refresh, None)

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        """The longest match on disk or in memory; the latter among equals."""
        found = self._disk.find(tail, max(hint, 0)) if self._disk is not None else None
        if self._memory is not None:
            own = self._memory.find(tail, max(-hint, 0))
            if own is not None and (found is None or own.length >= found.length):
                return own._replace(places=tuple(-place for place in own.places))
        return found

    def places(self, tail: Sequence[int]) -> list[int]:
        """Where the end of ``tail`` occurred, those in memory first; see ``HistoryIndex``."""
        own = self._memory.places(tail) if self._memory is not None else []
        found = self._disk.places(tail) if self._disk is not None else []
        return [-place for place in own] + found

    def around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        """The text around a place; see ``HistoryIndex``."""
        if place < 0:  # this is how places in memory are marked
            ring = self._memory
            return ring.around(-place, n_before, n_after) if ring is not None else ([], 0)
        return self._disk.around(place, n_before, n_after) if self._disk is not None else ([], 0)

    def helped(self, place: int, n_tokens: int) -> None:
        """Remembered until the next text is added."""
        if place > 0:
            self._helps.append((place, n_tokens))

    # -- remembering ------------------------------------------------------------------------------

    def remember(self, tokens: Sequence[int], source: Source | None) -> int:
        """Add what is new in a text; returns how many tokens that is. Without a source, or without
        files, it is kept in the memory of this process only."""
        ids = np.asarray(tokens, dtype=np.uint32)
        if len(ids) <= GRAM:
            return 0
        if source is None or self._disk is None:
            return self._keep_in_memory(ids)
        self._flush()
        return self._on_disk(lambda disk: disk.add(source, ids), 0)

    def is_known(self, source: Source) -> bool:
        """Whether something of this source, with the same stamp, is on disk."""
        return self._on_disk(lambda disk: disk.stamp(source) == source.stamp, False)

    def forget(self, kind: Kind, names: Sequence[str] | None) -> int:
        """Remove sources of this vocabulary; returns how many tokens they had."""
        return self._on_disk(lambda disk: disk.forget(kind, names), 0)

    def held(self) -> Held | None:
        """What is on disk for this vocabulary; None without files."""
        return self._on_disk(DiskIndex.held, None)

    def _keep_in_memory(self, ids: Ids) -> int:
        if self._memory is None:
            self._memory = Ring.anonymous(MEMORY_SLOTS)
        ids = ids[-(MEMORY_SLOTS // 2) :]
        n_new = 0
        for start, end in new_parts(self._memory.known(ids)):
            n = end - start
            if self._memory_head + n + 1 > self._memory.capacity:
                self._memory_head = Ring.first
            self._memory.write(self._memory_head, ids[start:end])
            self._memory_head += n + 1
            n_new += n
        return n_new

    def _flush(self) -> None:
        helps, self._helps = self._helps, []
        new = self.calibration.take_new()

        def learn(disk: DiskIndex) -> None:
            together = Calibration()
            together.add(disk.counts())
            together.add(new)
            disk.learn(helps, together.counts())

        if any(new[1]) or helps:
            self._on_disk(learn, None)

    def _on_disk(self, action: Callable[[DiskIndex], T], otherwise: T) -> T:
        """What ``action`` returns; ``otherwise`` without files, or from when they fail."""
        if self._disk is None:
            return otherwise
        try:
            return action(self._disk)
        except FAILURES as error:
            self.note = f"Earlier answers are no longer used for drafts: {_because(error)}"
            self._disk.close()
            self._disk = None
            return otherwise


# -- all vocabularies ---------------------------------------------------------------------------


def directories(root: Path) -> list[Path]:
    """The directories of all vocabularies, the last used first."""
    found = []
    with contextlib.suppress(OSError):
        for directory in root.iterdir():
            with contextlib.suppress(OSError):
                if directory.name != _DAMAGED:
                    found.append(((directory / DATABASE).stat().st_mtime, directory))
    return [directory for _, directory in sorted(found, reverse=True)]


def make_room(root: Path, own: Path, n_bytes: int, limit_bytes: int) -> bool:
    """Whether ``own`` may have ``n_bytes``. Removes other vocabularies that were not used for
    longest until all together stay within ``limit_bytes``."""
    others = [directory for directory in directories(root) if directory != own]
    free = limit_bytes - n_bytes - sum(map(directory_bytes, others))
    while free < 0 and others:
        oldest = others.pop()
        free += directory_bytes(oldest)
        shutil.rmtree(oldest, ignore_errors=True)
    return free >= 0


def forget_everywhere(root: Path, kind: Kind, names: Sequence[str] | None) -> int:
    """Remove sources from every vocabulary; returns how many tokens they had. Nothing that cannot
    be cleaned is left: a damaged index is deleted. Raises OSError, sqlite3.Error when the files are
    in use and cannot be changed now."""
    total = 0
    shutil.rmtree(root / _DAMAGED, ignore_errors=True)
    for directory in directories(root):
        try:
            with contextlib.closing(_open_any(directory)) as disk:
                total += disk.forget(kind, names)
        except FAILURES as error:
            if not is_damage(error):
                raise
            shutil.rmtree(directory, ignore_errors=True)
    return total


def forget_all(root: Path) -> None:
    """Delete the whole index. Raises OSError."""
    if root.exists():
        shutil.rmtree(root)


def held_everywhere(root: Path) -> list[Held]:
    """What is held for each vocabulary; what cannot be read is left out."""
    found = []
    for directory in directories(root):
        with contextlib.suppress(*FAILURES), contextlib.closing(_open_any(directory)) as disk:
            found.append(disk.held())
    return found


def follow_deletions(chats: Chats, root: Path, tell: Callable[[str], None]) -> None:
    """From now on, what is deleted from ``chats`` is deleted here too; what was deleted while
    nobody looked, or came here after its chat was deleted, is deleted now. ``tell`` gets one line
    when it does not work. Raises LocalspecError when the chats cannot be read."""

    def forget(names: set[str], number: int) -> None:
        try:
            if names:
                forget_everywhere(root, "chat", sorted(names))
            _note_deletion(root, number)
        except FAILURES as error:
            tell(
                "What drafts were learned from deleted chats could not be removed: "
                f'{_because(error)} "localspec history forget" tries again.'
            )

    def deleted(gone: Sequence[Deleted]) -> None:
        if gone:
            forget({turn.chat_id for turn in gone}, gone[-1].number)

    chats.on_delete.append(deleted)
    held = {
        info.name for one in held_everywhere(root) for info in one.sources if info.kind == "chat"
    }
    if held:
        missed = chats.deleted(_last_deletion(root))
        saved = {info.id for info in chats.list(limit=1_000_000)}
        names = held - saved | {turn.chat_id for turn in missed} & held
        if names or missed:
            forget(names, missed[-1].number if missed else 0)


def _last_deletion(root: Path) -> int:
    """The number of the last deletion that every vocabulary has followed."""
    numbers = []
    for directory in directories(root):
        with contextlib.suppress(*FAILURES), contextlib.closing(_open_any(directory)) as disk:
            numbers.append(_number(disk.get("deleted")))
    return min(numbers, default=0)


def _number(value: str | None) -> int:
    return int(value) if value and value.isdecimal() else 0


def _note_deletion(root: Path, number: int) -> None:
    for directory in directories(root):
        with contextlib.closing(_open_any(directory)) as disk:
            disk.put("deleted", str(max(number, _number(disk.get("deleted")))))


def _open_any(directory: Path) -> DiskIndex:
    """A directory as it is, whatever its vocabulary."""
    return DiskIndex(directory, None)


def set_aside(root: Path, directory: Path) -> None:
    """Rename a damaged directory; only the last damaged one is kept. Raises OSError."""
    kept = root / _DAMAGED
    shutil.rmtree(kept, ignore_errors=True)
    directory.rename(kept)


def _because(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return label(text or type(error).__name__)
