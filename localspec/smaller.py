"""What could be used instead when memory is short: smaller targets, smaller drafts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from localspec.catalog import Catalog, Pair
from localspec.files import ModelFile
from localspec.pairs import weight_bytes
from localspec.store import Store, is_side_file

_MAX_STRANGERS = 8  # headers that are read to look for a draft among models the catalog lacks


def smaller_than(target: ModelFile, catalog: Catalog, store: Store) -> tuple[ModelFile, ...]:
    """Models of the catalog with fewer bytes than ``target``: those that are on this computer, then
    the rest of its family; the larger ones first."""
    known = catalog.identify(target)
    most = known.n_bytes
    if most is None:
        return ()
    here, others = [], []
    for model in catalog.models.values():
        if model.id == known.id or not model.n_bytes or model.n_bytes >= most:
            continue
        if store.find(model) is not None:
            here.append(model)
        elif known.family and model.family == known.family and not store.offline:
            others.append(model)
    return (*_largest_first(here), *_largest_first(others))


def smaller_drafts(
    target: ModelFile, draft: ModelFile, catalog: Catalog, store: Store, *, download: bool
) -> tuple[ModelFile, ...]:
    """Drafts of the catalog with fewer bytes than ``draft``: what else it pairs with ``target``,
    and smaller models and quantisations of the draft's own family and vocabulary. Those that are on
    this computer come first, then, with ``download``, those that may be fetched unasked; the larger
    ones first, since they guess best.
    """
    known, most = catalog.identify(draft), weight_bytes(draft)
    if most is None:
        return ()
    pairs = [pair for pair in catalog.pairs_for(catalog.identify(target)) if _pays(pair)]
    paired = {pair.draft.id: pair.draft for pair in pairs if pair.draft is not None}
    listed = {**paired, **{model.id: model for model in _of_its_kind(known, catalog)}}
    here, others = [], []
    for model in listed.values():
        if model.id in (known.id, target.id) or not model.n_bytes or model.n_bytes >= most:
            continue
        if store.find(model) is not None:
            here.append(model)
        elif download and model.gated != "yes" and not store.offline:
            others.append(model)
    return (*_largest_first(here), *_largest_first(others))


def strangers(store: Store, most_bytes: int, known: Iterable[ModelFile]) -> list[ModelFile]:
    """Models on this computer of fewer than ``most_bytes``, but for those in ``known``; the largest
    few. Only a header can tell whether one of them goes with a target."""
    paths = {store.find(model) for model in known}
    found = [
        entry.file
        for entry in store.inventory()
        if 0 < entry.n_bytes < most_bytes
        and len(entry.parts) == 1
        and entry.path not in paths
        and not is_side_file(entry.path.name)
    ]
    return _largest_first(found)[:_MAX_STRANGERS]


def _pays(pair: Pair) -> bool:
    return pair.kind == "draft" and pair.match != "different" and pair.advice != "measure"


def _of_its_kind(draft: ModelFile, catalog: Catalog) -> Iterator[ModelFile]:
    """The draft's family, as far as its vocabulary has the same size; heads are no drafts."""
    n_vocab = draft.numbers.get("n_vocab")
    if not draft.family or n_vocab is None or "n_head_kv" not in draft.numbers:
        return
    for model in catalog.models.values():
        numbers = model.numbers
        same = model.family == draft.family and numbers.get("n_vocab") == n_vocab
        if same and "n_head_kv" in numbers:
            yield model


def _largest_first(models: Iterable[ModelFile]) -> list[ModelFile]:
    return sorted(models, key=lambda model: model.n_bytes or 0, reverse=True)
