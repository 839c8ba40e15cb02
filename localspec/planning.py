"""From what is to be run to a memory plan: headers (or catalog numbers), profile and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.budget import Budget
from localspec.config import Config
from localspec.errors import DownloadError, LocalspecError, MemoryPlanError, ModelNotFoundError
from localspec.files import ModelFile
from localspec.hardware import Hardware
from localspec.header import Header
from localspec.heads import header_of
from localspec.llama.context import ContextSettings
from localspec.llama.rollback import rows_worth_keeping
from localspec.memory import Candidate, Plan, Request, Settings, Shape, choose_plan, repacked_types
from localspec.memory.plan import Where, Wish
from localspec.nextn import Heads, heads_of, mismatch
from localspec.profiles import Profile
from localspec.select import Selection
from localspec.store import Store
from localspec.terminal import label
from localspec.vocab import Match, compare

ALL_LAYERS = 10_000
"""``n_gpu_layers: all``: more than any model has."""
OWN_HEADS = "its own MTP heads"
"""What a plan calls heads inside the target's file."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is made for."""

    hardware: Hardware
    profile: Profile
    n_threads: int
    profile_reason: str = ""
    limit_source: str = "memory_limit"
    """Where the profile's memory limit was said."""

    @property
    def budget(self) -> Budget:
        """Memory that may be used now."""
        return self.hardware.budget(self.profile.memory_limit, self.limit_source)


class Planner:
    """Plans one selection. Headers are read once; those of files that are not here come by a range
    request, or else from the catalog's numbers.

    ``match``: how the draft's vocabulary matches, None while that is not known. ``heads``: MTP
    heads that draft instead of a model, None for none. ``heads_share``: what one decode of theirs
    reads, as a share of what the target reads.
    """

    def __init__(
        self, config: Config, machine: Machine, selection: Selection, store: Store
    ) -> None:
        self._config = config
        self._machine = machine
        self._selection = selection
        self._store = store
        self._repacked = repacked_types(machine.hardware.cpu.features)
        self._headers: dict[tuple[str, Path | None], Header] = {}
        self.match: Match | None = None
        self.heads: Heads | None = None
        self.heads_share = 1.0

    def header(self, file: ModelFile) -> Header | None:
        """The header, None if the file is not here and the Hub does not give its beginning.

        Raises ModelFileError for a file that is here and broken.
        """
        # By path too: once it is downloaded, the whole header takes the place of its beginning.
        key = (file.id, self._store.find(file))
        found = self._headers.get(key)
        if found is None:
            try:
                found = self._headers[key] = header_of(file, self._store)
            except (DownloadError, ModelNotFoundError):
                if key[1] is not None:
                    raise
                return None
        return found

    def plan(self, draft: ModelFile | None, failed: Mapping[str, str] | None = None) -> Plan | None:
        """The plan for the selected target with ``draft``; None when too little is known before
        the download. ``failed``: steps that could not be loaded although they were planned, with
        the reason. Raises MemoryPlanError, PairError, ModelFileError."""
        target = self._selection.target
        target_header = self.header(target)
        target_shape = self._shape(target, target_header)
        if target_shape is None or (self._selection.heads and target_header is None):
            return None
        drafts: list[Candidate] = []
        if draft is not None:
            candidate = self._draft(draft, target_header)
            drafts = [candidate] if candidate is not None else []
        elif self._selection.heads and target_header is not None:
            drafts = self._own_heads(target_header)
        architecture = target_header.architecture if target_header is not None else ""
        request = self._request(Candidate(name_of(target), target_shape), drafts, architecture)
        return choose_plan(request, self._machine.budget, failed)

    def _own_heads(self, header: Header) -> list[Candidate]:
        """The MTP heads in the target's own file, if there are any."""
        found, shape = heads_of(header), Shape.of_heads(header, self._repacked)
        if found is None or shape is None or found.kind != "inside":
            return []
        self._use(found, shape, header)
        return [Candidate(OWN_HEADS, shape, found.unusable)]

    def _use(self, found: Heads, shape: Shape, target_header: Header | None) -> None:
        self.heads = found
        if target_header is not None:
            target = Shape.of(target_header)
            n_bytes = sum(layer.weight_bytes for layer in shape.layers)
            # Each decode also passes the output matrix, the target's or their own.
            n_bytes += shape.output.weight_bytes or target.output.weight_bytes
            self.heads_share = n_bytes / max(1, target.weight_bytes)

    def _draft(self, draft: ModelFile, target_header: Header | None) -> Candidate | None:
        """The draft as a candidate; one that does not go with the target says so."""
        try:
            header = self.header(draft)
        except LocalspecError as error:
            if self._selection.draft_wanted:
                raise
            nothing = Shape.of_numbers(draft.numbers, draft.n_bytes or 0)
            return Candidate(name_of(draft), nothing, error.message) if nothing else None
        found = heads_of(header) if header is not None else None
        if header is not None and found is not None and found.kind != "inside":
            shape = Shape.of_heads(header, self._repacked)
            assert shape is not None, "the file has heads"
            self._use(found, shape, target_header)
        else:
            found, shape = None, self._shape(draft, header)
        if shape is None:
            return None
        unusable = ""
        if header is not None and target_header is not None:
            self.match = compare(target_header, header)
            unusable = "" if self.match.usable else self.match.reason
            if found is not None:
                unusable = mismatch(target_header, header) or unusable
        return Candidate(name_of(draft), shape, unusable)

    def _shape(self, file: ModelFile, header: Header | None) -> Shape | None:
        if header is not None:
            shape = Shape.of(header, self._repacked)
            whole = file.n_bytes
            is_first_part = header.split_count > 1 and len(file.shards) > 1
            return shape.scaled_to(whole) if is_first_part and whole else shape
        if file.n_bytes is None:
            return None
        return Shape.of_numbers(file.numbers, file.n_bytes, repacks=bool(self._repacked))

    def _request(
        self, target: Candidate, drafts: Sequence[Candidate], architecture: str
    ) -> Request:
        config, profile = self._config, self._machine.profile
        wish: Wish = "plain" if config.mode == "off" else config.mode
        if wish == "auto" and self._selection.draft_wanted:
            wish = "draft"
        layers = profile.n_gpu_layers
        hardware = self._machine.hardware
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
            drafts=tuple(drafts),
            mode=wish,
            n_gpu_layers=n_gpu_layers,
            draft_device=where if drafts else "auto",
            allow_quantised_cache=profile.allow_kv_quant,
            allow_shorter_context=profile.allow_shorter_context,
            other_targets=self._smaller(),
            no_draft_reason=self._selection.draft_reason or "no draft is known for this target",
        )

    def _smaller(self) -> tuple[Candidate, ...]:
        """What could be named instead; by the catalog's numbers, which are at hand."""
        repacks = bool(self._repacked)
        found = [
            (name_of(file), Shape.of_numbers(file.numbers, file.n_bytes or 0, repacks=repacks))
            for file in self._selection.smaller
        ]
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


def _kept_states(shape: Shape, architecture: str) -> int:
    """How many recurrent states to keep for taking rejected tokens back; 0 without such layers."""
    n_bytes = sum(layer.state_bytes for layer in shape.layers)
    return rows_worth_keeping(architecture, n_bytes, shape.weight_bytes) if n_bytes else 0


def name_of(model: ModelFile) -> str:
    """A model's name for people: its file's, or the catalog's."""
    return label(model.path.name if model.path is not None else model.id)
