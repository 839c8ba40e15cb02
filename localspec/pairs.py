"""Which pair of the catalog for this machine: pure ranking.

Nothing here reads a disk or a device: the budget and the names of the models that are present are
handed in. ``drafts`` does the same for one model that the user already has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from localspec.budget import Budget
from localspec.catalog import Catalog, Pair, alone
from localspec.files import ModelFile
from localspec.terminal import size

Where = Literal["gpu", "gpu and cpu", "cpu", "nowhere"]
Speed = Literal["fast", "good", "slow", "very slow", "unknown"]
Gain = Literal["large", "some", "small", "none", "unknown"]
Need = Callable[[ModelFile, ModelFile | None, int], int | None]
"""Bytes that a target and its draft need with a context of so many tokens; None: not known."""

CONTEXT = 8192
"""Context, in tokens, for which memory is estimated unless the caller says otherwise."""
USABLE_KINDS = ("draft", "mtp")
"""The kinds of draft that localspec can run."""
CLASSES_GIB = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
"""Sizes that computers' memory comes in."""

_GIB = 1024**3
_OVERHEAD_BYTES = 600_000_000  # buffers of both contexts, the program itself
_OVERHEAD_SHARE = 0.03  # of the weights: alignment and repacking
_USABLE = 0.9  # of a computer's memory, for its class
_F16 = 2
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


def cache_bytes(numbers: dict[str, Any], n_ctx: int) -> int | None:
    """Bytes of an f16 key-value cache for ``n_ctx`` tokens, from a model's header numbers.

    Full-attention layers hold every token, sliding-window layers at most ``n_swa`` of them; with
    latent attention (DeepSeek-V2, arXiv 2405.04434) one compressed row serves all heads. The state
    of a recurrent layer is left out: it does not grow. None when the numbers do not suffice.
    """
    n_layer = numbers.get("n_layer")
    if n_layer is None:
        return None
    n_full = numbers.get("n_layer_full", n_layer)
    if "kv_lora_rank" in numbers:
        row = numbers["kv_lora_rank"] + numbers.get("qk_rope_head_dim", 0)
        return int(n_full * row * _F16 * n_ctx)
    if "n_head_kv" not in numbers:
        return 0  # a head that reads the target's cache
    key, value = numbers.get("n_embd_head_k"), numbers.get("n_embd_head_v")
    if key is None or value is None:
        return None
    local = numbers["n_head_kv"] * (key + value) * _F16
    wide = numbers.get("n_embd_head_full")
    full_heads = numbers.get("n_head_kv_full", numbers["n_head_kv"])
    full = full_heads * (2 * wide if wide else key + value) * _F16
    n_local = min(n_ctx, numbers.get("n_swa", n_ctx))
    return int(n_full * full * n_ctx + numbers.get("n_layer_swa", 0) * local * n_local)


def estimate(target: ModelFile, draft: ModelFile | None, n_ctx: int = CONTEXT) -> int | None:
    """Bytes that a pair needs, from catalog numbers alone: weights, f16 caches and a margin.

    None when a size is not known. ``memory.plan_memory`` is the exact one.
    """
    total = _OVERHEAD_BYTES
    for model in (target,) if draft is None else (target, draft):
        weights, cache = weight_bytes(model), cache_bytes(model.numbers, n_ctx)
        if weights is None or cache is None:
            return None
        total += weights + cache + int(weights * _OVERHEAD_SHARE)
    return total


def memory_class(pair: Pair, n_ctx: int = CONTEXT) -> int | None:
    """The smallest usual computer, in GiB of memory, that has room for the pair; None: none."""
    need = estimate(pair.target, pair.draft, n_ctx)
    if need is None:
        return None
    return next((gib for gib in CLASSES_GIB if need <= gib * _GIB * _USABLE), None)


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


def _place(need: int, budget: Budget) -> tuple[Where, float]:
    """Where ``need`` bytes go, and the share of them on accelerators."""
    own = sum(device.n_bytes_free for device in budget.accelerators if not device.shared_with_cpu)
    shared = max((d.n_bytes_free for d in budget.accelerators if d.shared_with_cpu), default=0)
    if need <= own or need <= min(shared, budget.cpu.n_bytes_free):
        return "gpu", 1.0
    if need > own + budget.cpu.n_bytes_free:
        return "nowhere", 0.0
    on_gpu = own or shared
    return ("gpu and cpu", on_gpu / need) if on_gpu else ("cpu", 0.0)


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
class Candidate:
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
    need: Need = estimate,
    n_ctx: int = CONTEXT,
    kinds: Sequence[str] = USABLE_KINDS,
) -> list[Candidate]:
    """Every pair of the catalog, best first; what cannot be used comes last, with the reason.

    ``present``: ids of the models on the disk. ``preferred``: names of pairs, or of models that run
    alone, the best first: they go before all others that fit (a profile's choice). ``kinds``: the
    kinds of draft that can be run.

    Raises ModelNotFoundError for a preferred name that the catalog does not have.
    """
    wanted = [catalog.find(name) for name in preferred]
    wished = [alone(one) if isinstance(one, ModelFile) else one for one in wanted]
    order = {pair.id: place for place, pair in reversed(list(enumerate(wished)))}
    pairs = {pair.id: pair for pair in (*catalog.pairs, *wished)}.values()
    found = [_candidate(pair, budget, present, need, n_ctx, kinds) for pair in pairs]
    return sorted(found, key=lambda c: _order(c, order))


def default_pair(
    catalog: Catalog,
    budget: Budget,
    preferred: Sequence[str] = (),
    present: Collection[str] = (),
    *,
    can_get: Callable[[ModelFile], bool] = lambda _: True,
    need: Need = estimate,
    n_ctx: int = CONTEXT,
) -> Candidate | None:
    """The pair to run when the user names none; None when no pair fits that can be had.

    One that is present goes before one that must be downloaded; a pair that may turn out not to
    match, or that asks for consent, is never downloaded unasked. ``can_get``: can this file be
    downloaded now?
    """
    ranked = rank(catalog, budget, present=present, preferred=preferred, need=need, n_ctx=n_ctx)
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


def _candidate(
    pair: Pair,
    budget: Budget,
    present: Collection[str],
    need: Need,
    n_ctx: int,
    kinds: Sequence[str],
) -> Candidate:
    need_bytes = need(pair.target, pair.draft, n_ctx)
    where, share = _place(need_bytes, budget) if need_bytes is not None else ("nowhere", 0.0)
    usable, why = _verdict(pair, need_bytes, where, budget, kinds)
    missing = [file.n_bytes for file in pair.files if file.id not in present]
    return Candidate(
        pair=pair,
        usable=usable,
        why=why,
        where=where,
        need_bytes=need_bytes,
        download_bytes=None if any(not n for n in missing) else sum(n or 0 for n in missing),
        present=not missing,
        speed=_speed(pair.target, budget, share) if where != "nowhere" else "unknown",
        gain=gain_class(pair.target, pair.draft),
    )


def _verdict(
    pair: Pair, need_bytes: int | None, where: Where, budget: Budget, kinds: Sequence[str]
) -> tuple[bool, str]:
    if pair.match == "different":
        return False, pair.reason
    if pair.kind not in kinds:
        return False, "Its kind of draft cannot be run here; the target alone can."
    if need_bytes is None:
        return False, "Its size is not known before it is asked for."
    if where == "nowhere":
        free = budget.cpu.n_bytes_free + sum(
            device.n_bytes_free for device in budget.accelerators if not device.shared_with_cpu
        )
        return False, f"It needs {size(need_bytes)} of memory and {size(free)} can be used."
    place = {"gpu": "on the GPU", "cpu": "in memory"}.get(where, "partly on the GPU")
    return True, f"It fits {place} ({size(need_bytes)})."


_SPEED_ORDER = {"fast": 0, "good": 0, "slow": 1, "very slow": 2, "unknown": 3}
_ADVICE_ORDER = {"recommended": 0, "possible": 1, "measure": 2}
GAIN_ORDER = {"large": 0, "some": 1, "small": 2, "none": 3, "unknown": 4}


def _order(candidate: Candidate, preferred: dict[str, int]) -> tuple[float | str, ...]:
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
