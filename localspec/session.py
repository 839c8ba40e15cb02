"""A loaded target with its drafters, answering; ``opening`` makes one.

A ``Session`` belongs to the thread that uses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec import learned
from localspec.chat import Message, Prompt, Template, fit
from localspec.config import Config, Mode
from localspec.errors import PromptError
from localspec.exact import NOT_CHECKED, Exactness
from localspec.files import Cancelled
from localspec.history import History, Source
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.mtp import MtpHeads
from localspec.llama.sampler import Chain
from localspec.memory import Plan
from localspec.spec.costs import Learned
from localspec.spec.drafter import Drafter, Pacer
from localspec.spec.engine import NO_ROLLBACK, Engine, Request
from localspec.spec.events import Event, Step
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import ModelDrafter
from localspec.spec.mtp_drafter import MtpDrafter
from localspec.spec.pacer import AutoPacer
from localspec.spec.sampling import Sampling
from localspec.trace import Trace
from localspec.vocab import Match

MIROSTAT = "mirostat steers by what it has drawn, so that nothing can be drafted ahead"
DRAFT_MODEL, MTP_HEADS = "draft model", "the model's own MTP heads"
FIXED_LENGTH: Mapping[Mode, int | None] = {"off": None, "auto": None, "draft": 4, "lookup": 8}
"""Tokens per draft for checks that want something drafted at every chance, whatever it costs."""
LOOKUP_EVIDENCE = 2
"""Shortest match that is copied from when the length is fixed."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is in force, and why; shown to the user and in ``--json``."""

    model: str
    draft: str | None
    mode: Mode
    """``off``, ``lookup`` or ``draft``: the most that is used. What was asked for is in reason."""
    reason: str
    profile: str
    n_ctx: int
    n_threads: int
    plan: Plan | None = None
    exactness: str = NOT_CHECKED
    """``exact``: drafting changes no bit of temperature-0 text; ``rounding (max difference x)``;
    or ``not checked``."""


@dataclass(slots=True)
class Loaded:
    """Weights and their context."""

    model: Model
    context: Context

    def close(self) -> None:
        """Free both."""
        self.context.close()
        self.model.close()


class Session:
    """A loaded target with its drafters. Not for use from two threads at once."""

    def __init__(
        self,
        status: Status,
        target: Loaded,
        draft: Loaded | None,
        match: Match | None,
        config: Config,
        can_roll_back: bool,
        why_no_draft: str = "",
        history: History | None = None,
        heads: MtpHeads | None = None,
        heads_share: float = 0.1,
        draft_cap: int | None = None,
    ) -> None:
        """``heads_share``: what a decode of the heads reads, as a share of the target's weights.
        ``draft_cap``: the longest draft the profile allows."""
        self._draft_cap = draft_cap
        self.status = status
        self._heads = heads
        self._heads_share = heads_share
        self._mtp = None if heads is None else MtpDrafter(heads, rng=np.random.default_rng())
        self.history = history
        self.trace: Trace | None = None
        self._costs: Learned | None = None
        self._setup: learned.Setup | None = None
        self._has_answered = False
        self._why_no_draft = why_no_draft
        self._target = target
        self._draft = draft
        self._config = config
        self._can_roll_back = can_roll_back
        self._why_plain = ""
        self._aside: tuple[Status, list[Drafter], Pacer] | None = None
        model = target.model
        self.template = Template(
            model.chat_template,
            bos=model.text_of(model.bos),
            eos=model.text_of(model.eos),
            add_bos=model.add_bos,
            name=model.path.name,
            chatml=_has_chatml(model),
        )
        self._drafter: ModelDrafter | None = None
        if draft is not None:
            needs_translation = match is not None and (
                match.verdict != "same" or len(match.never_propose) > 0
            )
            self._drafter = ModelDrafter(
                draft.context,
                rng=np.random.default_rng(),
                n_chunk=draft.context.n_batch,
                translation=match if needs_translation else None,
            )
        self._lookup = Lookup()
        self._earlier: HistoryDrafter | None = None
        if history is not None:
            self._earlier = HistoryDrafter(history, history.calibration, model.n_vocab)
        self._engine = Engine(
            target.context, model, self._drafters(), self._pacer(), n_chunk=target.context.n_batch
        )

    # -- what is in force -----------------------------------------------------------------------

    def _drafters(self) -> list[Drafter]:
        mode = self.status.mode
        found: list[Drafter] = []
        if mode == "lookup" or (mode == "draft" and self._config.mode == "auto"):
            found.append(self._lookup)
        if mode != "off" and self._config.mode == "auto" and self._earlier is not None:
            found.append(self._earlier)
        if mode == "draft" and self._drafter is not None:
            found.append(self._drafter)
        if self._heads is not None and self._mtp is not None:
            # Heads that are not asked must not cost anything, and must not change the target.
            if mode == "draft":
                self._heads.follow()
                found.append(self._mtp)
            else:
                self._heads.rest()
        return found

    def _pacer(self) -> Pacer:
        mode, wanted = self.status.mode, self._config.mode
        if mode == "off":
            return PlainPacer(self.status.reason)
        length = self._config.draft_max
        if wanted != "auto" and length is not None:
            evidence = LOOKUP_EVIDENCE if mode == "lookup" else 1
            name = self._mtp.name if mode == "draft" and self._mtp is not None else mode
            return FixedPacer(name, length, evidence)
        costs = {}
        if self._draft is not None:
            costs["draft"] = self._draft.model.n_bytes / max(1, self._target.model.n_bytes)
        if self._mtp is not None:
            costs[self._mtp.name] = self._heads_share
        return AutoPacer(costs, self._costs, draft_max=length or self._draft_cap)

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._target.context.n_ctx

    @property
    def n_used(self) -> int:
        """Tokens that are in the target's cache now."""
        return len(self._target.context.tokens)

    @property
    def baseline_step_s(self) -> float | None:
        """Seconds of one plain decode as measured so far, None when none was."""
        return self._engine.pacer.baseline_step_s()

    @property
    def target_model(self) -> Model:
        """The target, for measurements and checks."""
        return self._target.model

    @property
    def target_context(self) -> Context:
        """The target's context, for measurements and checks."""
        return self._target.context

    @property
    def contexts(self) -> list[Context]:
        """Every context that decodes: the target's, then the draft's if there is one."""
        return [part.context for part in (self._target, self._draft) if part is not None]

    # -- answering ------------------------------------------------------------------------------

    def tokenize(self, prompt: Prompt) -> list[int]:
        """The token ids of a rendered prompt."""
        return self._target.model.tokenize(
            prompt.text, add_special=prompt.add_special, parse_special=True
        )

    def fit(
        self, messages: Sequence[Message], n_reserve: int, n_dropped: int = 0
    ) -> tuple[list[Message], int]:
        """``messages`` without the oldest turns that leave no ``n_reserve`` tokens for an answer,
        and how many are left out. ``n_dropped``: how many were left out before. Raises PromptError.
        """
        room = max(1, self.n_ctx - n_reserve)
        count: Callable[[Sequence[Message]], int] = lambda turns: len(  # noqa: E731
            self.tokenize(self.template.prompt_for(turns))
        )
        return fit(messages, room, count, n_dropped=n_dropped)

    def ask(
        self,
        prompt: Sequence[Message] | str,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancelled: Cancelled = lambda: False,
        source: Source | None = None,
    ) -> Iterator[Event]:
        """Answer a chat (messages, through the model's template) or a raw text.

        ``source``: what prompt and answer belong to in the history index (a saved chat, ``RUNS``);
        None: they stay in this process's memory.

        With a ``sampling.seed`` the text is the same whatever is drafted, but for what rounding
        does; without one more of a draft model's tokens are kept. Raises PromptError, UsageError
        (grammar), DecodeError.
        """
        if isinstance(prompt, str):
            if not prompt:
                raise PromptError("the prompt is empty", hint="Give some text to continue.")
            rendered = self.template.raw(prompt)
        else:
            rendered = self.template.prompt_for(prompt)
        tokens = self.tokenize(rendered)
        self._suit(sampling)
        chain = Chain(self._target.model, sampling, tokens, secrets.randbits(32))
        for part in (self._target, self._draft):
            if part is not None:
                part.context.watch(cancelled)
        whole = list(tokens)
        self._has_answered = True
        if self.trace is not None:
            self.trace.begin(tokens, self.status, sampling.temperature, sampling.seed)
        try:
            for event in self._engine.generate(
                Request(
                    tokens,
                    chain,
                    np.random.default_rng(),
                    max_tokens=max_tokens,
                    stops=stops,
                    temperature=sampling.temperature,
                    cancelled=cancelled,
                )
            ):
                if isinstance(event, Step):
                    whole += event.tokens
                if self.trace is not None:
                    self.trace.add(event)
                yield event
        finally:
            chain.close()
            if self.history is not None and len(whole) > len(tokens):
                self.history.remember(whole, source)
        if self._engine.broken and self.status.mode != "off":
            self.status = replace(self.status, mode="off", reason=self._engine.broken)

    def set_exactness(self, found: Exactness) -> None:
        """Draft only as far as ``found`` allows, and not at all where it allows nothing; read every
        prompt from its start, so that the same prompt is always read in the same pieces."""
        self._engine.reuses_cache = False
        self._engine.max_width = found.max_width
        self.status = replace(self.status, exactness=found.text)
        self._why_plain = found.reason
        if found.reason and self.status.mode != "off":
            self.set_mode(self._config.mode, self._config.draft_max)

    def _suit(self, sampling: Sampling) -> None:
        """Leave drafting out for an answer whose sampler cannot say what it would draw."""
        unfit = sampling.mirostat > 0 and sampling.temperature > 0
        if unfit and self._aside is None and self.status.mode != "off":
            self._aside = (self.status, self._engine.drafters, self._engine.pacer)
            self.status = replace(self.status, mode="off", reason=MIROSTAT)
            self._engine.drafters, self._engine.pacer = [], PlainPacer(MIROSTAT)
        elif not unfit and self._aside is not None:
            self.status, self._engine.drafters, self._engine.pacer = self._aside
            self._aside = None

    def set_mode(self, mode: Mode, draft_max: int | None = None) -> None:
        """Use another mode from the next answer on; what cannot be had falls back with a reason.
        Costs that were measured stay known. In the modes ``lookup`` and ``draft`` a ``draft_max``
        is the length of every draft; without it the pacer chooses when and how much to draft."""
        self._costs = self.learned_costs()
        self._config = replace(self._config, mode=mode, draft_max=draft_max)
        in_force, reason = mode_in_force(
            mode, self._drafts_with(), self._why_no_draft, self._can_roll_back
        )
        self.status = replace(self.status, mode=in_force, reason=reason)
        if self._why_plain and in_force != "off":
            self.status = replace(self.status, mode="off", reason=self._why_plain)
        self._aside = None
        self._engine.drafters = self._drafters()
        self._engine.pacer = self._pacer()

    # -- what is known about speed --------------------------------------------------------------

    def learn_for(self, setup: learned.Setup) -> None:
        """Start from what earlier runs learned for ``setup``, and keep there what this one learns
        when the session is closed."""
        self._setup = setup
        self._costs = learned.load(setup)
        if self._costs is not None:
            self._lookup.calibration.add(self._costs.copied)
        self._engine.pacer = self._pacer()

    def learned_costs(self) -> Learned | None:
        """What was measured by now, by this run or before; None when nothing was."""
        pacer = self._engine.pacer if self._aside is None else self._aside[2]
        found = pacer.learned() if isinstance(pacer, AutoPacer) else self._costs
        # A pacer that has answered nothing knows only that a plain decode costs one.
        if found is None or len(found.widths) <= 1:
            return self._costs
        return replace(found, copied=self._lookup.calibration.counts())

    def set_threads(self, decode: int, batch: int) -> None:
        """Use so many CPU threads from now on, for single tokens and for prompts."""
        for context in self.contexts:
            context.set_threads(decode, batch)
        if self._heads is not None:
            self._heads.set_threads(decode, batch)
        self.status = replace(self.status, n_threads=decode)
        if self._setup is not None:
            self._setup = replace(self._setup, n_threads=decode)

    def teach(self, costs: Learned) -> bool:
        """Use ``costs``, measured on purpose, from now on. Returns whether they were kept for the
        next run."""
        self._costs = costs
        self._engine.pacer = self._pacer()
        return self._setup is not None and learned.save(self._setup, costs)

    def clear(self) -> None:
        """Forget every token that was read, so that the next prompt is read from its start."""
        for context in self.contexts:
            context.clear()

    def close(self) -> None:
        """Keep what was learned and free all memory. Safe to repeat."""
        found, setup = self.learned_costs(), self._setup
        self._setup = None
        if setup is not None and found is not None and self._has_answered:
            learned.save(setup, found)
        if self.history is not None:
            self.history.close()
        for part in (self._heads, self._draft, self._target):
            if part is not None:
                part.close()

    def _drafts_with(self) -> str:
        if self._heads is not None:
            return MTP_HEADS
        return DRAFT_MODEL if self._draft is not None else ""


def mode_in_force(
    wanted: Mode, drafts_with: str, why_no_draft: str, can_roll_back: bool
) -> tuple[Mode, str]:
    """(mode, reason): what ``wanted`` comes to with what is loaded. ``drafts_with``: DRAFT_MODEL,
    MTP_HEADS, or empty."""
    if wanted == "off":
        return "off", "asked for"
    if not can_roll_back:
        return "off", NO_ROLLBACK
    if wanted != "auto" and (wanted == "lookup" or drafts_with):
        return wanted, "asked for"
    if drafts_with:
        return "draft", f"automatic: {drafts_with} and lookup, chosen step by step by what pays"
    return "lookup", f"automatic, without a draft model: {why_no_draft}"


def with_seed(sampling: Sampling) -> Sampling:
    """The same settings with a seed: a fresh one if the user named none."""
    return sampling if sampling.seed is not None else replace(sampling, seed=secrets.randbits(32))


def _has_chatml(model: Model) -> bool:
    marks = model.tokenize("<|im_start|><|im_end|>", add_special=False, parse_special=True)
    return len(marks) == 2
