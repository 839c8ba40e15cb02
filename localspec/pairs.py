"""Which pair of the catalog for this machine: pure ranking.

Nothing here reads a disk or a device: the budget and the names of the models that are present are
handed in. ``drafts`` does the same for one model that the user already has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from localspec.budget import Budget, DeviceMemory
from localspec.catalog import Catalog, Pair, alone
from localspec.files import ModelFile
from localspec.memory import Candidate, Layer, Request, Settings, Shape, Shortfall, first_fit
from localspec.terminal import size

Where = Literal["gpu", "gpu and cpu", "cpu", "nowhere"]
Speed = Literal["fast", "good", "slow", "very slow", "unknown"]
Gain = Literal["large", "some", "small", "none", "unknown"]
CONTEXT = 8192
"""Context, in tokens, for which memory is estimated unless the caller says otherwise."""
USABLE_KINDS = ("draft", "mtp")
"""The kinds of draft that localspec can run."""
CLASSES_GIB = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
"""Sizes that computers' memory comes in."""

_GIB = 1024**3
_USABLE = 0.9  # of a computer's memory, for its class
# Bytes that are read in a second while decoding. Rough on purpose: they only sort models into four
# classes, and the real speed is measured when a model runs.
_BANDWIDTH = {"cpu": 30e9, "shared": 100e9, "gpu": 300e9}
_SPEEDS: tuple[tuple[float, Speed], ...] = ((25, "fast"), (10, "good"), (3, "slow"))  # tokens/s
_BYTES_PER_PARAMETER = 0.6  # about, for the 4-bit files that the catalog lists
# A draft's share of the target's reading time, and what can then be won.
_GAINS: tuple[tuple[float, Gain], ...] = ((0.06, "large"), (0.16, "some"), (0.45, "small"))


# -- memory ------------------------------------------------------------------------------------


def weight_bytes(model: ModelFile) -> int | None:
    """Size of a model's weights: of its files, else the rough size that the catalog has."""
    if model.n_bytes:
        return model.n_bytes
    about = model.numbers.get("about_bytes")
    return about if isinstance(about, int) else None


def shape_by_numbers(model: ModelFile, *, repacks: bool = False) -> Shape | None:
    """What the catalog tells of a model's memory; None when that does not suffice. ``repacks``:
    this CPU keeps rearranged copies of some weights."""
    n_bytes = weight_bytes(model)
    return Shape.of_numbers(model.numbers, n_bytes, repacks=repacks) if n_bytes else None


def request_by_numbers(
    target: ModelFile, draft: ModelFile | None, n_ctx: int = CONTEXT
) -> Request | None:
    """What a memory plan of a pair is asked, from the catalog alone and with usual settings."""
    shape = shape_by_numbers(target)
    if shape is None:
        return None
    candidates: list[Candidate] = []
    if draft is not None:
        other = shape_by_numbers(draft) or heads_by_size(draft, shape)
        if other is None:
            return None
        candidates.append(Candidate(draft.id, other))
    return Request(
        Candidate(target.id, shape),
        Settings(n_ctx),
        tuple(candidates),
        mode="draft" if candidates else "lookup",
    )


def heads_by_size(file: ModelFile, target: Shape) -> Shape | None:
    """MTP heads for ``target`` in a file of their own whose header is not known: as heavy as the
    file, as wide as the target, and without a cache. None: it is no such file, or of unknown size.
    """
    if not file.n_bytes or "n_layer" not in file.numbers or "n_head_kv" in file.numbers:
        return None
    nothing = Layer(0)
    return replace(
        target,
        layers=(Layer(file.n_bytes),),
        input=nothing,
        output=nothing,
        tied=False,
        estimated=True,
        is_heads=True,
    )


def estimate(target: ModelFile, draft: ModelFile | None, n_ctx: int = CONTEXT) -> int | None:
    """Bytes that a pair needs on a computer without a graphics processor, by the arithmetic of the
    memory plan and the catalog's numbers. None when these do not suffice."""
    request = request_by_numbers(target, draft, n_ctx)
    if request is None:
        return None
    everything = Budget((DeviceMemory("CPU", "cpu", 1 << 62, ""),))
    fit = fit_of(request, everything)
    return fit.need_bytes


def memory_class(pair: Pair, n_ctx: int = CONTEXT) -> int | None:
    """The smallest usual computer, in GiB of memory, that has room for the pair; None: none."""
    need = estimate(pair.target, pair.draft, n_ctx)
    if need is None:
        return None
    return next((gib for gib in CLASSES_GIB if need <= gib * _GIB * _USABLE), None)


@dataclass(frozen=True, slots=True)
class Fit:
    """How much a pair needs and where it goes; ``share`` of the target on accelerators. Where it
    does not fit (``nowhere``), the bytes are those of the device that is too small, and ``lack``
    says so in a sentence."""

    need_bytes: int
    where: Where
    share: float = 0.0
    lack: str = ""


Judge = Callable[[ModelFile, ModelFile | None], "Fit | None"]
"""Whether and where a target and its draft fit; None: too little is known."""


def fit_of(request: Request, budget: Budget) -> Fit:
    """Whether the request can be fulfilled, by the memory plan's own cascade."""
    found = first_fit(request, budget)
    if isinstance(found, Shortfall):
        place = "of memory" if found.device.kind == "cpu" else f"on {found.device.name}"
        lack = (
            f"It needs {size(found.needed_bytes)} {place} and "
            f"{size(found.device.n_bytes_free)} can be used."
        )
        return Fit(found.needed_bytes, "nowhere", lack=lack)
    need = sum(part.needed_bytes for part in found.parts)
    n_all = len(request.target.shape.layers) + 1
    n_layers = min(found.settings.n_gpu_layers, n_all) if budget.accelerators else 0
    draft = found.draft_settings
    draft_on_gpu = draft is not None and draft.n_gpu_layers > 0 and bool(budget.accelerators)
    if n_layers == n_all and (draft is None or draft_on_gpu):
        return Fit(need, "gpu", 1.0)
    where: Where = "gpu and cpu" if n_layers or draft_on_gpu else "cpu"
    return Fit(need, where, n_layers / n_all)


def by_numbers(budget: Budget, n_ctx: int = CONTEXT) -> Judge:
    """Judges pairs by the catalog's numbers alone."""

    def judge(target: ModelFile, draft: ModelFile | None) -> Fit | None:
        request = request_by_numbers(target, draft, n_ctx)
        return fit_of(request, budget) if request is not None else None

    return judge


# -- speed -------------------------------------------------------------------------------------


def read_bytes(model: ModelFile) -> float | None:
    """Bytes of weights that one token passes: all of them, or of a mixture of experts a part."""
    weights = weight_bytes(model)
    active = model.numbers.get("n_active_params")
    if weights is None or active is None:
        return weights
    return min(float(weights), float(active) * _BYTES_PER_PARAMETER)


def gain_class(target: ModelFile, draft: ModelFile | None) -> Gain:
    """What a draft can win at best, from its size alone: acceptance decides, and is measured."""
    if draft is None:
        return "unknown"
    one, other = read_bytes(target), read_bytes(draft)
    if not one or not other:
        return "unknown"
    return next((gain for share, gain in _GAINS if other <= share * one), "none")


def _speed(target: ModelFile, budget: Budget, share: float) -> Speed:
    n_bytes = read_bytes(target)
    if n_bytes is None:
        return "unknown"
    own = any(not device.shared_with_cpu for device in budget.accelerators)
    fast = _BANDWIDTH["gpu" if own else "shared"]
    seconds = n_bytes * (share / fast + (1 - share) / _BANDWIDTH["cpu"])
    return next((name for rate, name in _SPEEDS if seconds * rate <= 1), "very slow")


# -- pairs for a machine -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ranked:
    """A pair of the catalog on this machine.

    ``usable``: it fits and goes together. ``why``: the reason, one sentence. ``need_bytes`` and
    ``download_bytes``: None when a size is not known; the download leaves out what is present.
    ``present``: both files are on the disk. ``speed``: plain decoding, in four rough classes;
    ``gain``: what the draft can win at best.
    """

    pair: Pair
    usable: bool
    why: str
    where: Where
    need_bytes: int | None
    download_bytes: int | None
    present: bool
    speed: Speed
    gain: Gain


def rank(
    catalog: Catalog,
    budget: Budget,
    *,
    present: Collection[str] = (),
    preferred: Sequence[str] = (),
    judge: Judge | None = None,
    kinds: Sequence[str] = USABLE_KINDS,
) -> list[Ranked]:
    """Every pair of the catalog, best first; what cannot be used comes last, with the reason.

    ``present``: ids of the models on the disk. ``preferred``: names of pairs, or of models that run
    alone, the best first: they go before all others that fit (a profile's choice). ``judge``: what
    fits, by default by the catalog's numbers. ``kinds``: the kinds of draft that can be run.

    Raises ModelNotFoundError for a preferred name that the catalog does not have.
    """
    wished = _wished(catalog, preferred)
    order = {pair.id: place for place, pair in reversed(list(enumerate(wished)))}
    pairs = {pair.id: pair for pair in (*catalog.pairs, *wished)}.values()
    judge = judge or by_numbers(budget)
    found = [_ranked(pair, budget, present, judge, kinds) for pair in pairs]
    return sorted(found, key=lambda c: _order(c, order))


def _wished(catalog: Catalog, names: Sequence[str]) -> list[Pair]:
    found = [catalog.find(name) for name in names]
    return [alone(one) if isinstance(one, ModelFile) else one for one in found]


def default_pair(
    catalog: Catalog,
    budget: Budget,
    preferred: Sequence[str] = (),
    present: Collection[str] = (),
    *,
    can_get: Callable[[ModelFile], bool] = lambda _: True,
    judge: Judge | None = None,
) -> Ranked | None:
    """The pair to run when the user names none; None when no pair fits that can be had.

    One that is present goes before one that must be downloaded; a pair that may turn out not to
    match, or that asks for consent, is never downloaded unasked. ``can_get``: can this file be
    downloaded now?
    """
    judge = judge or by_numbers(budget)
    for pair in _wished(catalog, preferred):  # the usual answer, without judging every pair
        wanted = _ranked(pair, budget, present, judge, USABLE_KINDS)
        if wanted.usable and wanted.present:
            return wanted
    ranked = rank(catalog, budget, present=present, preferred=preferred, judge=judge)
    usable = [candidate for candidate in ranked if candidate.usable]
    for candidate in usable:
        if candidate.present:
            return candidate
    for candidate in usable:
        missing = [file for file in candidate.pair.files if file.id not in present]
        if (
            candidate.pair.advice != "measure"
            and candidate.download_bytes is not None
            and all(file.gated != "yes" and can_get(file) for file in missing)
        ):
            return candidate
    return None


def _ranked(
    pair: Pair,
    budget: Budget,
    present: Collection[str],
    judge: Judge,
    kinds: Sequence[str],
) -> Ranked:
    fit = judge(pair.target, pair.draft)
    where: Where = fit.where if fit is not None else "nowhere"
    usable, why = _verdict(pair, fit, kinds)
    missing = [file.n_bytes for file in pair.files if file.id not in present]
    return Ranked(
        pair=pair,
        usable=usable,
        why=why,
        where=where,
        need_bytes=fit.need_bytes if fit is not None else None,
        download_bytes=None if any(not n for n in missing) else sum(n or 0 for n in missing),
        present=not missing,
        speed=_speed(pair.target, budget, fit.share) if fit and where != "nowhere" else "unknown",
        gain=gain_class(pair.target, pair.draft),
    )


def _verdict(pair: Pair, fit: Fit | None, kinds: Sequence[str]) -> tuple[bool, str]:
    if pair.match == "different":
        return False, pair.reason
    if pair.kind not in kinds:
        return False, "Its kind of draft cannot be run here; the target alone can."
    if fit is None:
        return False, "Its size is not known before it is asked for."
    if fit.where == "nowhere":
        return False, fit.lack
    place = {"gpu": "on the GPU", "cpu": "in memory"}.get(fit.where, "partly on the GPU")
    return True, f"It fits {place} ({size(fit.need_bytes)})."


_SPEED_ORDER = {"fast": 0, "good": 0, "slow": 1, "very slow": 2, "unknown": 3}
_ADVICE_ORDER = {"recommended": 0, "possible": 1, "measure": 2}
GAIN_ORDER = {"large": 0, "some": 1, "small": 2, "none": 3, "unknown": 4}


def _order(candidate: Ranked, preferred: dict[str, int]) -> tuple[float | str, ...]:
    """Usable first; then as the profile likes; then what is quick enough to read along; then what
    is recommended; then the largest target, with the quickest draft.

    MTP heads count as a step less recommended: llama.cpp drives them by functions that are not
    public, and what they bring on this machine only shows when they run.
    """
    pair = candidate.pair
    return (
        not candidate.usable,
        preferred.get(pair.id, len(preferred)),
        _SPEED_ORDER[candidate.speed],
        _ADVICE_ORDER[pair.advice] + (candidate.gain == "none" or pair.kind == "mtp"),
        -(weight_bytes(pair.target) or 0),
        GAIN_ORDER[candidate.gain],
        pair.id,
    )
