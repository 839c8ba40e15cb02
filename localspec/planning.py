"""From what is to be run to a memory plan: headers (or catalog numbers), profile and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.budget import Budget
from localspec.config import Config
from localspec.drafts import unfit
from localspec.errors import LocalspecError, MemoryPlanError, PairError
from localspec.files import ModelFile
from localspec.hardware import Hardware
from localspec.header import Header
from localspec.llama.context import ContextSettings
from localspec.llama.rollback import rows_worth_keeping
from localspec.memory import (
    Candidate,
    Layer,
    Plan,
    Request,
    Settings,
    Shape,
    choose_plan,
    repacked_types,
)
from localspec.memory.plan import Where, Wish
from localspec.nextn import Heads, heads_of, mismatch
from localspec.pairs import Fit, fit_of
from localspec.profiles import Profile
from localspec.select import Selection
from localspec.shapes import Shapes
from localspec.smaller import strangers
from localspec.store import Store
from localspec.terminal import label
from localspec.vocab import Match, compare

ALL_LAYERS = 10_000
"""``n_gpu_layers: all``: more than any model has."""
OWN_HEADS = "its own MTP heads"
"""What a plan calls heads inside the target's file."""
UNSEEN = "its vocabulary is compared when it is here"
_MATCH_WORDS = {"same": "same vocabulary", "near": "vocabulary near enough"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is made for."""

    hardware: Hardware
    profile: Profile
    n_threads: int
    profile_reason: str = ""
    limit_source: str = "memory_limit"
    """Where the profile's memory limit was said."""
    shapes: Shapes | None = None
    """What was read of model files while choosing, so that it is not read again."""

    @property
    def budget(self) -> Budget:
        """Memory that may be used now."""
        return self.hardware.budget(self.profile.memory_limit, self.limit_source)


@dataclass(frozen=True, slots=True)
class Drafting:
    """What could draft: a file, or (None) the MTP heads in the target's own. ``match``: how its
    vocabulary goes with the target's, None while that is not known. ``heads``: its MTP heads, None
    for a model. ``heads_share``: what one decode of heads reads, as a share of what the target
    reads."""

    candidate: Candidate
    file: ModelFile | None = None
    match: Match | None = None
    heads: Heads | None = None
    heads_share: float = 1.0


class Planner:
    """Plans one selection, again and again as more becomes known of its files.

    ``drafting``: what the last plan drafts with, None for nothing.
    """

    def __init__(
        self, config: Config, machine: Machine, selection: Selection, store: Store
    ) -> None:
        self._config = config
        self._machine = machine
        self._selection = selection
        self._store = store
        self._shapes = machine.shapes or shapes_on(machine.hardware, store)
        self._unsuitable: set[Path | None] = set()
        self.drafting: Drafting | None = None

    def plan(self, draft: ModelFile | None, failed: Mapping[str, str] | None = None) -> Plan | None:
        """The plan for the selected target with ``draft``, or with a smaller one of the selection
        if that does not fit; None when too little is known before the download.

        ``failed``: steps that could not be loaded although they were planned, with the reason.
        Raises MemoryPlanError, PairError, ModelFileError.
        """
        target = self._selection.target
        header = self._shapes.header(target)
        shape = self._shapes.of(target, header)
        self.drafting = None
        if shape is None or (self._selection.heads and header is None):
            return None
        known: list[Drafting] = []
        if draft is not None:
            first = self._judged(draft, header, shape, must=self._selection.draft_wanted)
            if first is None:
                return None
            known.append(first)
        elif self._selection.heads and header is not None:
            known += self._own_heads(header)
        request = self._request(Candidate(name_of(target), shape), known, header)
        plan, refusal = self._chosen(request, failed)
        if draft is not None and (plan is None or plan.mode != "draft"):
            # Only now is it worth while to look at the smaller drafts.
            others = self._smaller_drafts(known[0], header, shape)
            if others:
                plan, refusal = self._chosen(self._with_others(request, others), failed)
                known += others
        if plan is None:
            assert refusal is not None
            raise refusal
        self.drafting = next((one for one in known if one.candidate.name == plan.draft), None)
        return plan

    def _chosen(
        self, request: Request, failed: Mapping[str, str] | None
    ) -> tuple[Plan | None, LocalspecError | None]:
        try:
            return choose_plan(request, self._machine.budget, failed), None
        except (MemoryPlanError, PairError) as refusal:
            return None, refusal

    def _own_heads(self, header: Header) -> list[Drafting]:
        """The MTP heads in the target's own file, if there are any."""
        found, shape = heads_of(header), Shape.of_heads(header, self._shapes.repacked)
        if found is None or shape is None or found.kind != "inside":
            return []
        candidate = Candidate(OWN_HEADS, shape, found.unusable)
        return [Drafting(candidate, heads=found, heads_share=_share(shape, header))]

    def _judged(
        self, draft: ModelFile, target_header: Header | None, target: Shape, *, must: bool = False
    ) -> Drafting | None:
        """A draft with what is known of it; one that does not go with the target says so. None:
        too little is known. ``must``: raise LocalspecError if its file cannot be read."""
        name = name_of(draft)
        try:
            header = self._shapes.header(draft)
        except LocalspecError as error:
            if must:
                raise
            nothing = replace(target, layers=(), input=Layer(0), output=Layer(0))
            return Drafting(Candidate(name, nothing, error.message), draft)
        shape = self._shapes.of_draft(draft, header, target)
        if shape is None:
            return None
        found = heads_of(header) if header is not None else None
        heads = found if found is not None and found.kind != "inside" else None
        if target_header is None or header is None:
            return Drafting(Candidate(name, shape, match=UNSEEN), draft, None, heads)
        match = compare(target_header, header)
        unusable = "" if match.usable else match.reason
        if heads is not None:
            unusable = mismatch(target_header, header) or unusable
        share = _share(shape, target_header) if heads is not None else 1.0
        words = _MATCH_WORDS.get(match.verdict, "")
        return Drafting(Candidate(name, shape, unusable, words), draft, match, heads, share)

    def _smaller_drafts(
        self, first: Drafting, target_header: Header | None, target: Shape
    ) -> list[Drafting]:
        """The selection's other drafts, then smaller models on this computer that turn out to have
        the target's vocabulary."""
        listed = [
            file
            for file in self._selection.others
            # A whole family may have the fault that the first draft has: nothing is downloaded to
            # find that out.
            if not first.candidate.unusable or self._store.find(file) is not None
        ]
        assert first.file is not None
        known = [self._selection.target, first.file, *listed]
        rest = strangers(self._store, first.file.n_bytes or 0, known) if target_header else []
        found: dict[str, Drafting] = {first.candidate.name: first}
        for file in listed:
            one = self._judged(file, target_header, target)
            if one is not None:
                found.setdefault(one.candidate.name, one)
        for file in rest:
            if file.path in self._unsuitable:
                continue
            one = self._judged(file, target_header, target)
            if one is not None and self._suits(one, target_header):
                found.setdefault(one.candidate.name, one)
            else:
                self._unsuitable.add(file.path)
                self._shapes.forget(file)
        return list(found.values())[1:]

    def _suits(self, one: Drafting, target_header: Header | None) -> bool:
        if one.candidate.unusable or one.match is None or one.file is None or not target_header:
            return False
        header = self._shapes.header(one.file)
        target = self._selection.target
        return header is not None and not unfit(target, target_header, one.file, header)

    def _with_others(self, request: Request, others: Sequence[Drafting]) -> Request:
        """A draft that was named is never changed for another, which is only mentioned then."""
        candidates = tuple(one.candidate for one in others)
        if self._selection.draft_named:
            return replace(request, other_drafts=candidates, more_drafts=())
        return replace(request, drafts=(*request.drafts, *candidates), more_drafts=())

    def _request(
        self, target: Candidate, drafts: Sequence[Drafting], header: Header | None
    ) -> Request:
        selection = self._selection
        wish = wish_of(self._config)
        if wish == "auto" and selection.draft_wanted:
            wish = "draft"
        candidates = tuple(one.candidate for one in drafts)
        plain = request_for(
            self._config, self._machine, target, candidates, wish, _architecture(header)
        )
        named = selection.draft_named
        return replace(
            plain,
            other_targets=self._smaller(),
            more_drafts=() if named else tuple(name_of(file) for file in selection.others),
            draft_named=named,
            no_draft_reason=selection.draft_reason or "no draft is known for this target",
        )

    def _smaller(self) -> tuple[Candidate, ...]:
        """What could be named instead; by the catalog's numbers, which are at hand."""
        found = [(name_of(file), self._shapes.by_numbers(file)) for file in self._selection.smaller]
        return tuple(Candidate(name, shape) for name, shape in found if shape is not None)

    def context_settings(self, settings: Settings) -> ContextSettings:
        """The planned settings as llama.cpp's."""
        return ContextSettings(
            n_ctx=settings.n_ctx,
            n_batch=settings.n_batch,
            n_ubatch=settings.n_ubatch,
            n_threads=self._machine.n_threads,
            type_k=settings.type_k,  # type: ignore[arg-type]
            type_v=settings.type_v,  # type: ignore[arg-type]
            flash_attn=self._machine.profile.flash_attn,
            swa_full=settings.swa_full,
            offload_kqv=settings.offload_kqv,
            n_rs_seq=settings.n_rs_seq,
        )


def shapes_on(hardware: Hardware, store: Store) -> Shapes:
    """The shapes of the models in ``store``, on this machine's CPU."""
    return Shapes(store, repacked_types(hardware.cpu.features))


def wish_of(config: Config) -> Wish:
    """The mode that the user asks for, in the words of a plan."""
    return "plain" if config.mode == "off" else config.mode


def request_for(
    config: Config,
    machine: Machine,
    target: Candidate,
    drafts: tuple[Candidate, ...],
    wish: Wish,
    architecture: str = "",
) -> Request:
    """What this machine's profile and the user's settings ask of a plan for these models.

    Raises MemoryPlanError: layers on a graphics processor are asked for where there is none.
    """
    profile, hardware = machine.profile, machine.hardware
    layers = profile.n_gpu_layers
    if config.n_gpu_layers not in (None, 0, "auto") and not hardware.devices:
        raise MemoryPlanError(
            f"{layers} layers on a graphics processor are asked for "
            f"({config.source_of('n_gpu_layers')}), and llama.cpp finds none here.",
            hint=hardware.warning.hint if hardware.warning else "Leave --n-gpu-layers out.",
        )
    n_gpu_layers = None if layers == "auto" else ALL_LAYERS if layers == "all" else int(layers)
    where: Where = profile.draft_device
    n_ctx = profile.n_ctx
    # A default context longer than the model was trained for helps nobody; an asked one may.
    if config.n_ctx is None and target.shape.n_ctx_train:
        n_ctx = min(n_ctx, target.shape.n_ctx_train)
    return Request(
        target=target,
        settings=Settings(
            n_ctx=n_ctx,
            n_batch=profile.n_batch,
            n_ubatch=profile.n_ubatch,
            type_k=profile.cache_type_k,
            type_v=profile.cache_type_v,
            flash_attn=profile.flash_attn != "off",
            n_rs_seq=_kept_states(target.shape, architecture) if wish != "plain" else 0,
        ),
        drafts=drafts,
        mode=wish,
        n_gpu_layers=n_gpu_layers,
        draft_device=where if drafts else "auto",
        allow_quantised_cache=profile.allow_kv_quant,
        allow_shorter_context=profile.allow_shorter_context,
    )


def _architecture(header: Header | None) -> str:
    return header.architecture if header is not None else ""


def _share(heads: Shape, target_header: Header) -> float:
    """What one decode of ``heads`` reads, as a share of what the target reads."""
    target = Shape.of(target_header)
    n_bytes = sum(layer.weight_bytes for layer in heads.layers)
    # Each decode also passes the output matrix, the target's or their own.
    n_bytes += heads.output.weight_bytes or target.output.weight_bytes
    return n_bytes / max(1, target.weight_bytes)


def _kept_states(shape: Shape, architecture: str) -> int:
    """How many recurrent states to keep for taking rejected tokens back; 0 without such layers."""
    n_bytes = sum(layer.state_bytes for layer in shape.layers)
    return rows_worth_keeping(architecture, n_bytes, shape.weight_bytes) if n_bytes else 0


def name_of(model: ModelFile) -> str:
    """A model's name for people: its file's, or the catalog's."""
    return label(model.path.name if model.path is not None else model.id)


class Fits:
    """Whether a pair fits here, by the arithmetic of the plan that will be made of it: a
    ``pairs.Judge``. Headers count where the files are here, the catalog's numbers elsewhere."""

    def __init__(self, config: Config, machine: Machine, shapes: Shapes) -> None:
        self._config = config
        self._machine = machine
        self._shapes = shapes
        self._budget = machine.budget
        self._known: dict[tuple[str, str], Fit | None] = {}

    def __call__(self, target: ModelFile, draft: ModelFile | None) -> Fit | None:
        """None: too little is known. Raises MemoryPlanError as ``request_for``."""
        key = (target.id, draft.id if draft is not None else "")
        if key not in self._known:
            self._known[key] = self._fit(target, draft)
        return self._known[key]

    def _fit(self, target: ModelFile, draft: ModelFile | None) -> Fit | None:
        header = self._shapes.header_here(target)
        shape = self._shapes.of(target, header)
        if shape is None:
            return None
        wish = wish_of(self._config)
        drafts: tuple[Candidate, ...] = ()
        if draft is not None and wish in ("auto", "draft"):
            other = self._shapes.of_draft(draft, self._shapes.header_here(draft), shape)
            if other is None:
                return None
            drafts = (Candidate(draft.id, other),)
        if wish in ("auto", "draft"):
            wish = "draft" if drafts else "auto"
        wanted = Candidate(target.id, shape)
        request = request_for(
            self._config, self._machine, wanted, drafts, wish, _architecture(header)
        )
        return fit_of(request, self._budget)
