"""``localspec tune``: measure costs now, so that the next run starts fast."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import Interrupt, config_from, model_options
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.config import Config
    from localspec.drafts import OnDisk
    from localspec.planning import Machine
    from localspec.session import Session
    from localspec.spec.costs import Learned
    from localspec.tuned import Threads
    from localspec.tuning import Files, Found, Together

N_CTX = 1024
N_PREFIX = 128
BUDGET_S = 20.0
"""After so long no further pass over the widths begins."""
N_ANSWER = 48
PROMPTS = ("code-lru", "creative-lighthouse")
"""Acceptance is measured on these: one text that is easy to guess and one that is not."""
DRAFT_LENGTH = 4
MAX_SIBLINGS = 3
"""Other quantisations of one model that are measured at most, the smallest first."""


@click.command()
@click.argument("pair", required=False)
@model_options
@click.option(
    "--files/--no-files",
    default=True,
    help="Also measure other quantisations of the same models that are on this computer. "
    "[default: on]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(pair: str | None, files: bool, as_json: bool, quiet: bool, **flags: Any) -> int:
    """Measure what PAIR costs on this machine, and keep it for the next run.

    Costs of decodes by their width, of the draft and of prompts; thread counts; and, with several
    quantisations of the same models here, which go best together. Takes a minute or two. Close
    other programs first. Nothing is kept when it is stopped.
    """  # fmt: skip
    from localspec.cli.output import TerminalProgress, note
    from localspec.cli.tune_report import show

    if pair is not None and flags.get("model"):
        raise UsageError(f'two models are named, "{pair}" and "{flags["model"]}"')
    if flags.get("learn") is False:
        raise UsageError("tune is for keeping what it measures, so --no-learn makes no sense")
    config = config_from({**flags, "model": pair or flags.get("model")})
    if not config.learn:
        raise UsageError(
            f"nothing that is measured is kept: learn is off ({config.source_of('learn')})",
            hint="Use --learn to switch it on for this command.",
        )
    config = replace(config, history=False, n_ctx=config.n_ctx or N_CTX)
    interrupt = Interrupt()
    with interrupt.watching():
        progress = TerminalProgress(quiet=quiet)
        tuning = _Tuning(config, progress, interrupt)
        found = tuning.run(files)
    if found is None:
        note("stopped; nothing was changed")
        return 130
    show(found, as_json=as_json)
    return 0


class _Tuning:
    """One run of the command; every step returns None when it was cancelled."""

    def __init__(self, config: Config, progress: Any, interrupt: Interrupt) -> None:
        self._config = config
        self._progress = progress
        self._interrupt = interrupt

    def run(self, with_files: bool) -> Found | None:
        from localspec.opening import open_session
        from localspec.spec.drafter import Interrupted

        session = open_session(self._config, self._progress, self._interrupt)
        try:
            found = self._measure(session)
            if found is not None and len(session.contexts) > 1:
                found.accepted = self._acceptance(session)
        except Interrupted:
            found = None
        finally:
            models = [context.model.path for context in session.contexts]
            session.close()
        if found is None or self._interrupt():
            return None
        target, draft = models[0], models[1] if len(models) > 1 else None
        found.in_use = (target.name, draft.name if draft else None)
        if with_files:
            found.together = tuple(self._files(found, target, draft))
        return None if self._interrupt() else found

    # -- costs and threads ------------------------------------------------------------------------

    def _measure(self, session: Session) -> Found | None:
        from localspec.tuning import (
            Found,
            ThreadCosts,
            as_learned,
            best_threads,
            cost_by_threads,
            draft_costs,
            drift,
            target_costs,
            thread_counts,
        )

        machine = self._machine
        prefix = self._prefix(session)
        contexts = session.contexts
        before = session.status.n_threads
        by_threads = ThreadCosts()
        counts = thread_counts(machine.hardware.cpu.n_allowed_logical, machine.n_threads)
        if self._config.threads is None and machine.profile.threads == "auto" and len(counts) > 1:
            with _Piece(self._progress, f"Trying {', '.join(map(str, counts))} threads"):
                by_threads = cost_by_threads(
                    contexts[0], contexts[0].set_threads, counts, prefix, cancelled=self._interrupt
                )
        best = best_threads(by_threads, machine.n_threads)
        if by_threads.by_count:
            session.set_threads(best.decode, best.batch)
        with _Piece(self._progress, "Measuring decodes of the target by width"):
            target = target_costs(contexts[0], prefix, budget_s=BUDGET_S, cancelled=self._interrupt)
        drafts = {}
        for context in contexts[1:]:
            with _Piece(self._progress, "Measuring the draft model"):
                cost = draft_costs(context, prefix, cancelled=self._interrupt)
            if cost is not None:
                drafts["draft"] = cost
        if target is None or self._interrupt():
            return None
        noise = max(by_threads.noise, drift(contexts[0], prefix, target.plain_s))
        kept = self._keep(
            session, machine, best, as_learned(target, drafts, session.learned_costs())
        )
        return Found(target, drafts, by_threads, best, before, noise, kept=kept)

    def _keep(self, session: Session, machine: Machine, best: Threads, costs: Learned) -> bool:
        from localspec.tuned import save_threads

        path = session.target_model.path
        chosen = None
        if (best.decode, best.batch) != (machine.n_threads, machine.n_threads):
            chosen = best
        if self._config.threads is None and machine.profile.threads == "auto":
            save_threads(machine.hardware, path, chosen)
        return session.teach(costs)

    @cached_property
    def _machine(self) -> Machine:
        from localspec.files import NoProgress
        from localspec.opening import prepare

        return prepare(self._config, NoProgress(), self._interrupt)[0]

    def _prefix(self, session: Session) -> list[int]:
        from localspec.benchmark import load

        text = " ".join(prompt.prompt for prompt in load())
        tokens = session.tokenize(session.template.raw(text))
        return tokens[: min(N_PREFIX, session.n_ctx // 4)]

    # -- acceptance -------------------------------------------------------------------------------

    def _acceptance(self, session: Session) -> float | None:
        from localspec.benchmark import load
        from localspec.chat import Message
        from localspec.spec.events import Finished
        from localspec.spec.sampling import Sampling
        from localspec.tuning import acceptance

        answers = []
        session.set_mode("draft", DRAFT_LENGTH)
        for prompt in (p for p in load() if p.id in PROMPTS):
            with _Piece(self._progress, f"Measuring acceptance ({prompt.kind})"):
                events = session.ask(
                    [Message("user", prompt.prompt)],
                    Sampling(temperature=0.0, seed=1),
                    max_tokens=N_ANSWER,
                    cancelled=self._interrupt,
                )
                answers += [event.stats for event in events if isinstance(event, Finished)]
        return acceptance(answers)

    # -- other files ------------------------------------------------------------------------------

    def _files(self, found: Found, target: Path, draft: Path | None) -> list[Together]:
        """Every target and draft of the same kind that is here, the fastest first."""
        from localspec.tuning import Files, compare

        targets = self._siblings(target)
        drafts = self._siblings(draft) if draft is not None else []
        files = Files({target.name: found.target})
        if draft is not None:
            files.drafts[draft.name] = found.drafts["draft"].next_s
        # All with the threads of the pair in use, or threads would be compared and not files.
        self._config = replace(self._config, threads=found.threads.decode)
        for other in targets:
            self._measure_file(other, files, as_draft=False)
        for other in drafts:
            self._measure_file(other, files, as_draft=True)
        if found.accepted is None and draft is not None:
            return []
        return compare(files, found.accepted or 0.0) if targets or drafts else []

    def _siblings(self, path: Path) -> list[OnDisk]:
        from localspec.drafts import OnDisk
        from localspec.errors import LocalspecError
        from localspec.gguf import read_header
        from localspec.store import Store, is_side_file
        from localspec.tuning import siblings

        store = Store(offline=True, extra_dirs=self._config.model_dirs)
        others = []
        for entry in store.inventory():
            same = entry.path.resolve() == path.resolve()
            if same or len(entry.parts) > 1 or is_side_file(entry.path.name):
                continue
            try:
                others.append(OnDisk(entry.file, entry.path, read_header(entry.path)))
            except LocalspecError:
                continue
        room = self._machine.budget.devices[0].n_bytes_free
        found = [
            one
            for one in siblings(read_header(path), others)
            if (one.model.n_bytes or 0) < room * 0.8 and one.path.name != path.name
        ]
        return sorted(found, key=lambda one: one.model.n_bytes or 0)[:MAX_SIBLINGS]

    def _measure_file(self, other: OnDisk, files: Files, *, as_draft: bool) -> None:
        """Load it alone, measure, free it. One that cannot be loaded is left out."""
        from localspec.cli.output import note
        from localspec.errors import LocalspecError
        from localspec.opening import open_session
        from localspec.tuning import draft_costs, target_costs

        if self._interrupt():
            return
        config = replace(self._config, model=str(other.path), draft=None, pair=None, mode="off")
        try:
            session = open_session(config, self._progress, self._interrupt)
        except LocalspecError as error:
            note(f"left out: {error.message}")
            return
        try:
            context, prefix = session.target_context, self._prefix(session)
            with _Piece(self._progress, f"Measuring {other.path.name}"):
                if as_draft:
                    cost = draft_costs(context, prefix, cancelled=self._interrupt)
                    if cost is not None:
                        files.drafts[other.path.name] = cost.next_s
                    return
                costs = target_costs(context, prefix, n_passes=2, cancelled=self._interrupt)
                if costs is not None:
                    files.targets[other.path.name] = costs
        finally:
            session.close()


class _Piece:
    """A piece of work on the progress line."""

    def __init__(self, progress: Any, label: str) -> None:
        self._progress, self._label = progress, label

    def __enter__(self) -> None:
        self._progress.start(self._label, None)

    def __exit__(self, *_: object) -> None:
        self._progress.finish()
