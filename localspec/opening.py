"""The composition root: choose, plan, fetch, check and load everything a ``Session`` needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec import catalog as catalogs
from localspec import paths
from localspec.config import Config
from localspec.errors import DownloadCancelledError, LocalspecError, ModelLoadError, PairError
from localspec.files import Cancelled, ModelFile, NoProgress, Progress
from localspec.gguf import read_header
from localspec.hardware import detect, threads_for
from localspec.header import Header
from localspec.history import History, vocabulary_key
from localspec.llama.context import Context, ContextSettings
from localspec.llama.devices import devices
from localspec.llama.model import Model
from localspec.profiles import Profile, choose, customised, load_profiles
from localspec.select import Selection, select
from localspec.session import Loaded, Session, Status, mode_in_force
from localspec.store import Store
from localspec.terminal import label
from localspec.vocab import Match, compare


def open_session(
    config: Config,
    progress: Progress | None = None,
    cancelled: Cancelled = lambda: False,
) -> Session:
    """Choose, plan, fetch, check and load.

    Raises LocalspecError of every kind, KeyboardInterrupt when cancelled.
    """
    progress = progress or NoProgress()
    hardware = detect(devices())
    found, _ = choose(hardware, load_profiles(), config.profile, config.source_of("profile"))
    profile = customised(found, config)
    n_threads, _ = threads_for(profile.threads, hardware.cpu)
    store = Store(
        source=config.source,
        offline=config.offline,
        progress=progress,
        cancelled=cancelled,
        extra_dirs=config.model_dirs,
    )
    preferred = profile.pair_for(hardware)
    selection = select(
        config,
        catalogs.load(),
        store,
        hardware.budget(profile.memory_limit),
        preferred[0].pair if preferred else None,
    )
    return _Opening(config, profile, n_threads, selection, store, progress, cancelled).run()


class _Opening:
    """Fetch, check, load: each step may drop the draft with a reason, unless it was asked for."""

    def __init__(
        self,
        config: Config,
        profile: Profile,
        n_threads: int,
        selection: Selection,
        store: Store,
        progress: Progress,
        cancelled: Cancelled,
    ) -> None:
        self._config = config
        self._profile = profile
        self._n_threads = n_threads
        self._selection = selection
        self._store = store
        self._progress = progress
        self._cancelled = cancelled
        self._draft_file = selection.draft
        self._reason = selection.draft_reason

    def run(self) -> Session:
        target_path, draft_path = self._fetch()
        header = read_header(target_path)
        match = self._match(header, draft_path) if draft_path else None
        settings = _settings(self._profile, self._config, self._n_threads, header.n_ctx_train)
        target = self._load(target_path, settings)
        draft = None
        try:
            can_roll_back = target.context.can_roll_back()
            if match is not None and draft_path is not None and can_roll_back:
                draft = self._load_draft(draft_path, replace(settings, n_ctx=target.context.n_ctx))
            history = self._history(header, target_path.name)
            return self._session(target, draft, match, can_roll_back, history)
        except BaseException:
            for part in (draft, target):
                if part is not None:
                    part.close()
            raise

    def _session(
        self,
        target: Loaded,
        draft: Loaded | None,
        match: Match | None,
        can_roll_back: bool,
        history: History | None,
    ) -> Session:
        mode, reason = mode_in_force(
            self._config.mode, draft is not None, self._reason, can_roll_back
        )
        if self._config.mode in ("lookup", "draft") and mode == "off":
            raise PairError(
                f"--mode {self._config.mode} is not possible: {reason}",
                hint="--mode auto runs it without drafting.",
            )
        status = Status(
            model=_name(self._selection.target),
            draft=_name(self._draft_file) if draft is not None and self._draft_file else None,
            mode=mode,
            reason=reason,
            profile=self._profile.name,
            n_ctx=target.context.n_ctx,
            n_threads=self._n_threads,
        )
        return Session(
            status, target, draft, match, self._config, can_roll_back, self._reason, history
        )

    def _history(self, header: Header, name: str) -> History | None:
        """What was remembered with this vocabulary, unless the user wants none of it."""
        if not self._config.history:
            return None
        history = History.open(paths.history_dir(), vocabulary_key(header), model=name)
        if history.note:
            self._progress.note(history.note)
        return history

    def _drop_draft(self, error: LocalspecError) -> None:
        """Go on without the draft model, or not at all if the user asked for it."""
        if self._selection.draft_wanted:
            raise error
        assert self._draft_file is not None
        self._reason = f"{_name(self._draft_file)} cannot be used: {error.message}"
        self._progress.note(self._reason)
        self._draft_file = None

    def _fetch(self) -> tuple[Path, Path | None]:
        target = self._selection.target
        if self._draft_file is None:
            return self._store.fetch([target])[0], None
        try:
            paths = self._store.fetch([target, self._draft_file])
            return paths[0], paths[1]
        except DownloadCancelledError:
            raise
        except LocalspecError as error:
            found = self._store.find(target)
            if found is None:
                raise
            self._drop_draft(error)
            return found, None

    def _match(self, target: Header, draft_path: Path) -> Match | None:
        """How the vocabularies match, before the draft's weights are touched."""
        try:
            match = compare(target, read_header(draft_path))
            if not match.usable:
                raise PairError(
                    f"its vocabulary is not that of {_name(self._selection.target)}. "
                    f"{match.reason}",
                    hint="Target and draft must have the same tokens; "
                    '"localspec pairs --for TARGET" lists drafts that do.',
                )
        except LocalspecError as error:
            self._drop_draft(error)
            return None
        return match

    def _load_draft(self, path: Path, settings: ContextSettings) -> Loaded | None:
        try:
            return self._load(path, settings)
        except ModelLoadError as error:
            self._drop_draft(error)
            return None

    def _load(self, path: Path, settings: ContextSettings) -> Loaded:
        """Weights and context. Raises ModelLoadError, KeyboardInterrupt when cancelled."""
        self._progress.start(f"Loading {path.name}", None)
        try:
            model = Model(path, progress=lambda _share: not self._cancelled())
        except ModelLoadError:
            if self._cancelled():
                raise KeyboardInterrupt from None
            raise
        finally:
            self._progress.finish()
        try:
            return Loaded(model, Context(model, settings))
        except BaseException:
            model.close()
            raise


def _settings(
    profile: Profile, config: Config, n_threads: int, n_ctx_train: int
) -> ContextSettings:
    # A default context longer than the model was trained for helps nobody; an explicit one may.
    n_ctx = profile.n_ctx
    if config.n_ctx is None and n_ctx_train:
        n_ctx = min(n_ctx, n_ctx_train)
    return ContextSettings(
        n_ctx=n_ctx,
        n_batch=profile.n_batch,
        n_ubatch=profile.n_ubatch,
        n_threads=n_threads,
        type_k=profile.cache_type_k,
        type_v=profile.cache_type_v,
        flash_attn=profile.flash_attn,
    )


def _name(model: ModelFile) -> str:
    return label(model.path.name if model.path is not None else model.id)
