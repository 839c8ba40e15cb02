"""Which files to run: from what the user named, the catalog, the disk and the machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.budget import Budget
from localspec.catalog import Catalog, Pair, short_name
from localspec.config import Config
from localspec.errors import (
    LocalspecError,
    MemoryPlanError,
    ModelNotFoundError,
    PairError,
    UsageError,
)
from localspec.files import ModelFile
from localspec.gguf import read_header
from localspec.nextn import heads_of
from localspec.pairs import Judge, by_numbers, default_pair
from localspec.smaller import smaller_drafts, smaller_than
from localspec.store import Store, local_model
from localspec.terminal import label

OWN_HEADS = "the model's file has MTP heads of its own"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to be run. ``draft_reason``: why there is no draft, or which one it is;
    ``draft_wanted``: the user asked for a draft, so one must work; ``draft_named``: for this one,
    which is then not changed for another. ``others``: smaller drafts, should this one not fit, see
    ``smaller.smaller_drafts``. ``heads``: drafts are to come from MTP heads in the target's own
    file; whether it has any, its header will tell. ``smaller``: what could be named instead when
    the target is too large, see ``smaller.smaller_than``. ``choice``: why, when no model was
    named, it is not the profile's."""

    target: ModelFile
    draft: ModelFile | None
    draft_reason: str
    draft_wanted: bool = False
    heads: bool = False
    smaller: tuple[ModelFile, ...] = ()
    draft_named: bool = False
    others: tuple[ModelFile, ...] = ()
    choice: str = ""


def looks_like_path(name: str) -> bool:
    """Whether the user means a file rather than a name."""
    return (
        name.lower().endswith(".gguf")
        or name.startswith((".", "~", os.sep))
        or Path(name).expanduser().exists()
    )


def find_model(name: str, catalog: Catalog, store: Store) -> ModelFile | Pair:
    """The model or pair that ``name`` means: a file, a catalog name, or ``owner/repo[:quant]``.

    Raises ModelNotFoundError, or what the Hub answers (DownloadError).
    """
    if looks_like_path(name):
        return local_model(Path(name).expanduser())
    if "/" not in name:
        return _by_name(name, catalog, store)
    if not _HUB_NAME.fullmatch(name):
        raise ModelNotFoundError(
            f'"{label(name)}" is not a file, a catalog name or a Hub name (owner/name:quant).',
            hint='"localspec pairs" lists the catalog.',
        )
    repo, _, quant = name.partition(":")
    known = catalog.by_repo(repo, quant)
    return known[0] if len(known) == 1 else store.resolve_hub(repo, quant or None)


def _by_name(name: str, catalog: Catalog, store: Store) -> ModelFile | Pair:
    """A name of the catalog, else one that ``localspec list`` shows."""
    try:
        found = catalog.find(name)
    except ModelNotFoundError:
        entry = store.locate(name)
        if entry is None:
            raise
        return entry.file
    if isinstance(found, Pair):
        return replace(found, target=_with_files(found.target, store))
    return _with_files(found, store)


def _with_files(model: ModelFile, store: Store) -> ModelFile:
    """``model``; where the catalog does not know the names of its files, as the Hub has them."""
    if model.shards or model.path is not None:
        return model
    return store.resolve_hub(model.repo, model.quant or None)


def select(
    config: Config,
    catalog: Catalog,
    store: Store,
    budget: Budget,
    preferred: str | None,
    judge: Judge | None = None,
) -> Selection:
    """The target and draft for ``config``, and what is smaller than they. ``preferred``: the
    profile's pair for this machine. ``judge``: what fits, by default by the catalog's numbers.

    Raises ModelNotFoundError, MemoryPlanError (nothing fits), PairError, UsageError.
    """
    found = _select(config, catalog, store, budget, preferred, judge)
    others: tuple[ModelFile, ...] = ()
    if found.draft is not None:
        # Where both files are here nothing is downloaded unasked to take their place.
        missing = store.find(found.target) is None or store.find(found.draft) is None
        download = missing or found.draft_named
        others = smaller_drafts(found.target, found.draft, catalog, store, download=download)
    return replace(found, smaller=smaller_than(found.target, catalog, store), others=others)


def _select(
    config: Config,
    catalog: Catalog,
    store: Store,
    budget: Budget,
    preferred: str | None,
    judge: Judge | None,
) -> Selection:
    name = config.model or config.pair
    if name is None:
        judge = judge or by_numbers(budget)
        found = _default(catalog, store, budget, preferred, judge)
        why = _not_preferred(found, catalog, preferred, judge)
        return replace(_with_draft(found, config, catalog, store), choice=why)
    return _with_draft(find_model(name, catalog, store), config, catalog, store)


def _not_preferred(
    found: Pair | ModelFile, catalog: Catalog, preferred: str | None, judge: Judge
) -> str:
    """Why the profile's choice was not taken; empty when it was, or at least its target."""
    if preferred is None:
        return ""
    wish = catalog.find(preferred)
    target, draft = (wish.target, wish.draft) if isinstance(wish, Pair) else (wish, None)
    if (found.target if isinstance(found, Pair) else found).id == target.id:
        return ""
    fit = judge(target, draft)
    lack = fit.lack if fit is not None else ""
    why = f"does not fit ({lack[0].lower()}{lack[1:-1]})" if lack else "is not on this computer"
    return f"The profile's choice, {preferred}, {why}: {label(found.id)} instead."


def _with_draft(
    found: Pair | ModelFile, config: Config, catalog: Catalog, store: Store
) -> Selection:
    wants_draft = config.mode in ("auto", "draft")
    target = found.target if isinstance(found, Pair) else found
    if config.draft is not None:
        if not wants_draft:
            raise UsageError(
                f"--draft names a draft model, but --mode {config.mode} uses none",
                hint="Leave one of them out.",
            )
        draft = find_model(config.draft, catalog, store)
        if isinstance(draft, Pair) and config.draft.lower() == short_name(draft.target):
            draft = draft.target  # the pair is only called like its target
        if isinstance(draft, Pair):
            raise UsageError(
                f'--draft needs one model, and "{label(config.draft)}" is a pair',
                hint=f'Its target is "{draft.target.id}".',
            )
        return Selection(target, draft, "asked for", draft_wanted=True, draft_named=True)
    if not wants_draft:
        return Selection(target, None, f"--mode {config.mode}")
    if isinstance(found, Pair):
        return _from_pair(found, config, store)
    return _draft_for(target, config, catalog, store)


def _from_pair(pair: Pair, config: Config, store: Store) -> Selection:
    must = config.mode == "draft"
    if pair.match == "different":
        if must:
            raise PairError(f'the pair "{pair.id}" does not go together: {pair.reason}')
        return Selection(pair.target, None, f"the catalog's draft does not match: {pair.reason}")
    if pair.kind == "mtp" and pair.draft is None:
        return Selection(pair.target, None, f'the pair "{pair.id}"', must, heads=True)
    if pair.draft is None:
        if _has_heads(pair.target, store):
            return Selection(pair.target, None, OWN_HEADS, must, heads=True)
        if must:
            raise PairError(f'"{pair.id}" has no draft model', hint="Name one with --draft.")
        return Selection(pair.target, None, "the catalog has no draft model for it")
    return Selection(pair.target, pair.draft, f'the pair "{pair.id}"', draft_wanted=must)


def _draft_for(target: ModelFile, config: Config, catalog: Catalog, store: Store) -> Selection:
    """A draft for a model that was named alone: one from the catalog. It is downloaded only
    together with the target; a model that is already here gets one that is here, too."""
    if _has_heads(target, store):
        return Selection(target, None, OWN_HEADS, config.mode == "draft", heads=True)
    pairs = [pair for pair in catalog.pairs_for(catalog.identify(target)) if _usable(pair)]
    here = [pair for pair in pairs if pair.draft is not None and store.find(pair.draft)]
    # A target that is here was looked at above: the catalog's word about its heads is not needed.
    target_is_here = store.find(target) is not None
    chosen = here or ([] if target_is_here and config.mode == "auto" else pairs)
    if chosen:
        return Selection(
            target,
            chosen[0].draft,
            f'the pair "{chosen[0].id}"',
            draft_wanted=config.mode == "draft",
            heads=chosen[0].draft is None,
        )
    hint = f'"localspec pairs --for {label(config.model or config.pair or target.id)}" lists drafts'
    if config.mode == "draft":
        raise PairError(
            "there is no draft model for this target here", hint=f"{hint}; name one with --draft."
        )
    if pairs:
        return Selection(target, None, f"no draft model for it is on this computer ({hint})")
    return Selection(target, None, "no draft model for it is known")


def _usable(pair: Pair) -> bool:
    return (pair.draft is not None or pair.kind == "mtp") and pair.match != "different"


def _has_heads(target: ModelFile, store: Store) -> bool:
    """Whether the file, if it is here, carries MTP heads that can be run. Its name does not tell:
    publishers use the same one with and without them."""
    path = store.find(target)
    if path is None:
        return False
    try:
        found = heads_of(read_header(path))
    except LocalspecError:
        return False  # what is wrong with it is said when it is opened
    return found is not None and found.kind == "inside" and not found.unusable


def _default(
    catalog: Catalog, store: Store, budget: Budget, preferred: str | None, judge: Judge | None
) -> Pair | ModelFile:
    present = {name for name, model in catalog.models.items() if store.find(model) is not None}
    chosen = default_pair(
        catalog,
        budget,
        [preferred] if preferred else [],
        present,
        can_get=lambda _: not store.offline,
        judge=judge,
    )
    if chosen is None or chosen.pair.id != preferred:
        # The profile's pair does not fit now. Its target alone, or another model that is here, is
        # nearer to what the user expects than downloading another pair.
        wished = [catalog.find(preferred)] if preferred else []
        first = [one.target.id if isinstance(one, Pair) else one.id for one in wished]
        rest = sorted(present, key=lambda name: catalog.models[name].n_bytes or 0, reverse=True)
        rest = rest if chosen is None or not chosen.present else []
        names = [name for name in dict.fromkeys([*first, *rest]) if name in present]
        by_itself = default_pair(
            catalog, budget, names, present, can_get=lambda _: False, judge=judge
        )
        if by_itself is not None and by_itself.pair.id in names:
            return by_itself.pair.target
    if chosen is not None:
        return chosen.pair
    if store.offline and present:
        raise MemoryPlanError(
            "none of the models on this computer fits into its free memory.",
            hint='Close other programs. "localspec list" shows what is here.',
        )
    if store.offline:
        raise ModelNotFoundError(
            "no model of the catalog is on this computer, and offline mode is on.",
            hint="Name a file with --model, or allow the network once.",
        )
    raise MemoryPlanError(
        "no pair of the catalog fits into the memory of this computer.",
        hint='"localspec pairs --all" shows what each needs; --model FILE runs a file of yours.',
    )
