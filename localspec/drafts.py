"""Which draft for a model that the user already has: pure judgement, of the catalog's pairs and of
the models on the disk. Headers are handed in; nothing here reads a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog import Catalog, Pair
from localspec.files import ModelFile
from localspec.header import Header
from localspec.nextn import Heads, heads_of, holds_only_heads, mismatch
from localspec.pairs import GAIN_ORDER, USABLE_KINDS, Gain, gain_class, read_bytes
from localspec.terminal import label, size
from localspec.vocab import Match

_MAX_DRAFT_SHARE = 0.8  # of the target's bytes: above that no acceptance can pay
_NO_TEXT = (
    "bert",
    "modern-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "jina-bert-v2",
    "jina-bert-v3",
    "t5encoder",
    "clip",
    "gemma-embedding",
)


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A model found on this disk; ``header`` None: its file cannot be read, for the ``reason``."""

    model: ModelFile
    path: Path
    header: Header | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A draft for the user's model, accepted or not, and why. ``from_catalog``: the reason is what
    the catalog knows; else the two files were compared."""

    name: str
    draft: ModelFile | None
    accepted: bool
    reason: str
    from_catalog: bool
    present: bool
    gain: Gain
    match: str = ""
    path: Path | None = None


def drafts_for(
    target: ModelFile,
    header: Header | None,
    catalog: Catalog,
    on_disk: Iterable[OnDisk],
    compare: Callable[[Header, Header], Match],
    *,
    kinds: Sequence[str] = USABLE_KINDS,
) -> list[Suggestion]:
    """Drafts for ``target``, the accepted first: the catalog's pairs and the models on the disk.

    ``header``: the target's, None when its file is not here; then only the catalog can answer.
    ``compare``: ``vocab.compare``.
    """
    disk = [found for found in on_disk if not _same_file(found.model, target)]
    found = [_judge(target, header, other, compare) for other in disk] if header else []
    inside = heads_of(header) if header else None
    if header is not None and inside is not None and inside.kind == "inside":
        found.append(_own_heads(target, inside))
    judged = {one.draft.id for one in found if one.draft}
    present = {one.model.id for one in disk}
    found += [
        _from_catalog(pair, present, kinds)
        for pair in catalog.pairs_for(target)
        if pair.draft is None or pair.draft.id not in judged
    ]
    return sorted(found, key=_suggestion_order)


def _suggestion_order(one: Suggestion) -> tuple[bool, bool, int, str]:
    return (not one.accepted, not one.present, GAIN_ORDER[one.gain], one.name)


def _same_file(one: ModelFile, other: ModelFile) -> bool:
    if one.path is not None and other.path is not None:
        return one.path == other.path
    return one.id == other.id


def _from_catalog(pair: Pair, present: Collection[str], kinds: Sequence[str]) -> Suggestion:
    accepted, reason = pair.match != "different", pair.reason
    if accepted and pair.kind not in kinds:
        accepted, reason = False, "A kind of draft that cannot be run here."
    return Suggestion(
        name=pair.draft.id if pair.draft else pair.target.id,
        draft=pair.draft,
        accepted=accepted,
        reason=reason,
        from_catalog=True,
        present=pair.draft is not None and pair.draft.id in present,
        gain=gain_class(pair.target, pair.draft),
        match=pair.match,
    )


def _own_heads(target: ModelFile, heads: Heads) -> Suggestion:
    """MTP heads in the target's own file."""
    plural = "s" if heads.n > 1 else ""
    reason = f"Its file has {heads.n} MTP head{plural}: no draft model is needed."
    return Suggestion(
        name=label(target.id),
        draft=None,
        accepted=not heads.unusable,
        reason=f"Its MTP heads: {heads.unusable}." if heads.unusable else reason,
        from_catalog=False,
        present=True,
        gain="unknown",
        match="same",
    )


def _judge(
    target: ModelFile, header: Header, found: OnDisk, compare: Callable[[Header, Header], Match]
) -> Suggestion:
    """A model on the disk as a draft: readable, of text, cheaper, of the target's vocabulary."""
    accepted, reason, verdict = False, found.reason, ""
    if found.header is not None:
        reason = unfit(target, header, found.model, found.header)
        if not reason:
            match = compare(header, found.header)
            accepted, reason, verdict = match.usable, match.reason, match.verdict
    return Suggestion(
        name=label(found.model.id),
        draft=found.model,
        accepted=accepted,
        reason=reason,
        from_catalog=False,
        present=True,
        gain=gain_class(target, found.model) if accepted else "unknown",
        match=verdict,
        path=found.path,
    )


def unfit(target: ModelFile, target_header: Header, draft: ModelFile, header: Header) -> str:
    """Why a model cannot be a draft whatever its vocabulary; empty when it can."""
    if header.architecture in _NO_TEXT:
        return f"It does not write text ({label(header.architecture)})."
    if not header.tensors:
        return "It has a vocabulary, but no weights."
    if holds_only_heads(header):
        why = mismatch(target_header, header)
        return f"It holds only MTP heads: {why}." if why else ""
    if header.architecture.endswith("-assistant") or header.architecture.startswith("eagle"):
        return "It is a draft head made for one target, which localspec cannot run."
    one, other = read_bytes(target), read_bytes(draft)
    if one and other and other > _MAX_DRAFT_SHARE * one:
        return f"It is too large to be quicker than the target ({size(other)} and {size(one)})."
    return ""
