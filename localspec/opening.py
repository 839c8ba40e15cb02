"""The composition root: choose, plan, fetch, check and load everything a ``Session`` needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec import catalog as catalogs
from localspec import paths
from localspec.catalog import Catalog
from localspec.config import Config
from localspec.errors import (
    AllocationError,
    DownloadCancelledError,
    LocalspecError,
    ModelLoadError,
    PairError,
)
from localspec.exact import PLAIN, ExactPlan, judge, plan_exact
from localspec.files import Cancelled, NoProgress, Progress
from localspec.gguf import read_header
from localspec.hardware import Hardware, detect, threads_for
from localspec.header import Header
from localspec.history import History, vocabulary_key
from localspec.llama.devices import devices
from localspec.llama.probe import width_differences
from localspec.loading import Loader, Parts
from localspec.memory import Plan, PlanView
from localspec.nextn import holds_only_heads
from localspec.planning import OWN_HEADS, Fits, Machine, Planner, name_of, shapes_on
from localspec.profiles import (
    PairChoice,
    Profile,
    check_pair,
    choose,
    customised,
    limit_source,
    load_profiles,
)
from localspec.select import Selection, select
from localspec.session import (
    DRAFT_MODEL,
    MTP_HEADS,
    Session,
    Status,
    mode_in_force,
)
from localspec.store import Store
from localspec.tuned import load_threads, setup_for
from localspec.vocab import Match


def open_session(
    config: Config,
    progress: Progress | None = None,
    cancelled: Cancelled = lambda: False,
) -> Session:
    """Choose, plan, fetch, check and load.

    Raises LocalspecError of every kind, KeyboardInterrupt when cancelled.
    """
    progress = progress or NoProgress()
    machine, selection, store = prepare(config, progress, cancelled)
    if machine.hardware.warning is not None:
        progress.note(machine.hardware.warning.message)
    if selection.choice:
        progress.note(selection.choice)
    return _Opening(config, machine, selection, store, progress, cancelled).run()


def prepare(
    config: Config, progress: Progress, cancelled: Cancelled = lambda: False
) -> tuple[Machine, Selection, Store]:
    """This machine with its profile, what is to be run on it, and where files come from.

    Nothing is downloaded but, for a Hub name, the list of its files.
    """
    hardware = detect(devices())
    found, why = choose(hardware, load_profiles(), config.profile, config.source_of("profile"))
    profile = customised(found, config)
    n_threads, _ = threads_for(profile.threads, hardware.cpu)
    store = Store(
        source=config.source,
        offline=config.offline,
        progress=progress,
        cancelled=cancelled,
        extra_dirs=config.model_dirs,
    )
    catalog = catalogs.load()
    shapes = shapes_on(hardware, store)
    preferred = _preferred(config, profile, hardware, catalog)
    n_ctx = preferred.n_ctx if preferred is not None and config.n_ctx is None else None
    wished = profile if n_ctx is None else replace(profile, n_ctx=n_ctx)
    machine = Machine(hardware, wished, n_threads, why, limit_source(profile, config), shapes)
    selection = select(
        config,
        catalog,
        store,
        machine.budget,
        preferred.pair if preferred else None,
        Fits(config, machine, shapes),
    )
    if preferred is not None and selection.choice:  # something else: the profile's context
        machine = replace(machine, profile=profile)
    return machine, selection, store


def _preferred(
    config: Config, profile: Profile, hardware: Hardware, catalog: Catalog
) -> PairChoice | None:
    """The profile's choice for this machine, when the user names no model."""
    found = profile.pair_for(hardware)
    if found is None or config.model or config.pair:
        return None
    check_pair(found[0], catalog)
    return found[0]


class _Opening:
    """Plan, fetch, plan with what is really there, load: each step may drop the draft with a
    reason, unless it was asked for."""

    def __init__(
        self,
        config: Config,
        machine: Machine,
        selection: Selection,
        store: Store,
        progress: Progress,
        cancelled: Cancelled,
    ) -> None:
        self._config = config
        self._machine = machine
        self._selection = selection
        self._store = store
        self._progress = progress
        self._cancelled = cancelled
        self._planner = Planner(config, machine, selection, store)
        self._wanted = selection.draft
        self._draft_file = selection.draft
        self._own_heads = selection.heads
        self._reason = selection.draft_reason

    def run(self) -> Session:
        self._follow(self._planner.plan(self._wanted))
        target_path, draft_path = self._fetch()
        header = read_header(target_path)
        if holds_only_heads(header):
            raise ModelLoadError(
                f"{target_path.name} holds only MTP heads, which draft for another model.",
                hint="Name that model, and these heads with --draft.",
            )
        failed: dict[str, str] = {}
        while True:
            planned_for = self._draft_file
            plan = self._planner.plan(self._wanted, failed)
            assert plan is not None, "the header of a file that is here can be read"
            if failed:
                self._tell(plan.reason)  # it names what failed, and what comes instead
            self._follow(plan)
            if self._draft_file is not None and self._draft_file != planned_for:
                # Another draft than the one that was fetched, whose header may show more.
                target_path, draft_path = self._fetch()
                continue
            try:
                return self._load(plan, header, target_path, draft_path)
            except AllocationError as error:
                # Everything half-loaded is free again: try the next step of the cascade.
                if plan.step in failed:
                    raise
                failed[plan.step] = error.message

    def _load(self, plan: Plan, header: Header, target: Path, draft: Path | None) -> Session:
        given_up = self._draft_file is None and not self._own_heads
        drafting = None if given_up else self._planner.drafting
        heads = drafting.heads if drafting is not None else None
        match = drafting.match if drafting is not None else None
        exact = None
        if self._config.exact:
            exact = plan_exact(header, self._planner.context_settings(plan.settings))
        used = draft if heads is not None or match is not None else None
        loader = Loader(self._planner, self._progress, self._cancelled)
        parts = loader.load(plan, target, header, used, heads, exact)
        try:
            if parts.draft_error is not None:
                self._drop_draft(parts.draft_error)
            drafts = parts.draft is not None or parts.heads is not None
            session = self._session(parts, match, self._history(header, target.name), plan)
            self._use_learned(session, target, used if drafts else None, plan)
            if exact is not None:
                self._check_exact(session, exact)
            return session
        except BaseException:
            parts.close()
            raise

    def _check_exact(self, session: Session, exact: ExactPlan) -> None:
        """Believe in exactness only after comparing on this machine."""
        if session.status.mode == "off":
            # Nothing is drafted: this is plain decoding.
            session.set_exactness(PLAIN)
            return
        self._progress.start("Checking that drafting changes no bit", None)
        try:
            found = width_differences(session.target_context, exact.max_width, self._cancelled)
        finally:
            self._progress.finish()
        verdict = judge(found)
        session.set_exactness(verdict)
        if verdict.reason:
            self._progress.note(verdict.reason)

    def _follow(self, plan: Plan | None) -> None:
        """Show the plan to those who can, and draft with what it names, or with nothing."""
        if plan is not None and isinstance(self._progress, PlanView):
            self._progress.planned(plan)
        drafting = self._draft_file is not None or self._own_heads
        if plan is None or not drafting:
            return
        chosen = self._planner.drafting
        if chosen is None:
            self._tell(plan.reason)
            self._give_up_drafting()
        elif chosen.file != self._draft_file:
            self._tell(plan.reason)
            self._draft_file = chosen.file

    def _tell(self, reason: str) -> None:
        """Why it runs as it does: a line now, and for whoever asks later."""
        if reason != self._reason:
            self._progress.note(reason)
        self._reason = reason

    def _give_up_drafting(self) -> None:
        self._wanted = self._draft_file = None
        self._own_heads = False

    def _session(
        self, parts: Parts, match: Match | None, history: History | None, plan: Plan
    ) -> Session:
        drafts_with = MTP_HEADS if parts.heads else DRAFT_MODEL if parts.draft else ""
        mode, reason = mode_in_force(
            self._config.mode, drafts_with, self._reason, parts.can_roll_back
        )
        if plan.mode == "plain" and mode == "lookup" and self._config.mode == "auto":
            mode, reason = "off", plan.reason
            if self._reason != reason:
                self._progress.note(reason)
        if self._config.mode in ("lookup", "draft") and mode == "off":
            raise PairError(
                f"--mode {self._config.mode} is not possible: {reason}",
                hint="--mode auto runs it without drafting.",
            )
        status = Status(
            model=name_of(self._selection.target),
            draft=self._draft_name() if drafts_with else None,
            mode=mode,
            reason=reason,
            profile=self._machine.profile.name,
            n_ctx=parts.target.context.n_ctx,
            n_threads=self._machine.n_threads,
            plan=plan,
        )
        return Session(
            status,
            parts.target,
            parts.draft,
            match,
            self._config,
            parts.can_roll_back,
            self._reason,
            history,
            parts.heads,
            self._planner.drafting.heads_share if self._planner.drafting else 1.0,
            self._machine.profile.draft_max,
        )

    def _draft_name(self) -> str:
        return OWN_HEADS if self._draft_file is None else name_of(self._draft_file)

    def _use_learned(self, session: Session, target: Path, draft: Path | None, plan: Plan) -> None:
        """Start from the costs and thread counts that were measured here before, if the user does
        not say otherwise."""
        if not self._config.learn:
            return
        hardware, profile = self._machine.hardware, self._machine.profile
        tuned = load_threads(hardware, target) if profile.threads == "auto" else None
        if tuned is not None:
            session.set_threads(tuned.decode, tuned.batch)
        settings = plan.settings
        session.learn_for(
            setup_for(
                hardware,
                [target, *([draft] if draft is not None else [])],
                session.status.n_threads,
                (
                    f"layers={settings.n_gpu_layers}",
                    f"cache={settings.type_k},{settings.type_v}",
                    f"flash={profile.flash_attn}",
                    f"exact={self._config.exact}",
                ),
            )
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
        self._tell(f"{self._draft_name()} cannot be used: {error.message}")
        self._give_up_drafting()

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
