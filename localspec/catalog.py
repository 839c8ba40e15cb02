"""Models and pairs by name: the shipped ``models.yaml`` with the user's own file laid over it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from localspec import paths
from localspec.catalogfile import Pair, Reader
from localspec.errors import ConfigError, ModelNotFoundError
from localspec.files import ModelFile
from localspec.terminal import label

__all__ = ["Catalog", "Pair", "alone", "check", "load", "short_name"]


@dataclass(frozen=True)
class Catalog:
    """All known models and pairs, in the order of the file."""

    models: dict[str, ModelFile]
    pairs: list[Pair]

    @cached_property
    def _pairs_by_id(self) -> dict[str, Pair]:
        return {pair.id: pair for pair in self.pairs}

    @cached_property
    def _models_by_short_name(self) -> dict[str, list[ModelFile]]:
        short: dict[str, list[ModelFile]] = {}
        for model in self.models.values():
            short.setdefault(short_name(model), []).append(model)
        return short

    def pair(self, name: str) -> Pair:
        """The pair called ``name``. Raises ModelNotFoundError with the nearest names."""
        found = self._pairs_by_id.get(name.lower())
        if found is None:
            raise _unknown(name, "pair", self._pairs_by_id)
        return found

    def model(self, name: str) -> ModelFile:
        """The model called ``name``; the quantisation may be left out where only one is known.

        Raises ModelNotFoundError with the nearest names, or with the choices.
        """
        found = self._model(name)
        if found is None:
            raise _unknown(name, "model", {**self.models, **self._models_by_short_name})
        return found

    def find(self, name: str) -> Pair | ModelFile:
        """The pair called ``name``, else the model. Raises ModelNotFoundError."""
        found = self._pairs_by_id.get(name.lower()) or self._model(name)
        if found is None:
            names = {**self._pairs_by_id, **self.models, **self._models_by_short_name}
            raise _unknown(name, "pair or model", names)
        return found

    def by_repo(self, repo: str, quant: str = "") -> list[ModelFile]:
        """The models of one Hub repository, of one quantisation when it is given."""
        return [
            model
            for model in self.models.values()
            if model.repo.lower() == repo.lower()
            and (not quant or model.quant.lower() == quant.lower())
        ]

    def by_file(self, name: str, n_bytes: int | None = None) -> ModelFile | None:
        """The model whose first (or only) file is called ``name`` and has ``n_bytes``.

        Publishers give the same name to different bytes: without a size that agrees there is no
        answer where several models use the name.
        """
        found = [
            model
            for model in self.models.values()
            if model.shards
            and _base(model.shards[0].name) == name
            and (n_bytes is None or model.shards[0].n_bytes in (None, n_bytes))
        ]
        return found[0] if len(found) == 1 else None

    def identify(self, model: ModelFile) -> ModelFile:
        """What the catalog knows of a file on this computer, else the model itself."""
        if model.path is None:
            return model
        return self.by_file(model.path.name, model.n_bytes) or model

    def pairs_for(self, target: ModelFile) -> list[Pair]:
        """The pairs whose target is ``target``."""
        return [pair for pair in self.pairs if pair.target.id == target.id]

    def _model(self, name: str) -> ModelFile | None:
        name = name.lower()
        if name in self.models:
            return self.models[name]
        found = self._models_by_short_name.get(name, [])
        if len(found) > 1:
            names = ", ".join(model.id for model in found)
            raise ModelNotFoundError(
                f'"{label(name)}" is not exact: the catalog has {len(found)} files of it',
                hint=f"Choose one: {names}.",
            )
        return found[0] if found else None


def alone(model: ModelFile) -> Pair:
    """``model`` without a draft model, in the form of a pair."""
    reason = "No draft model: it drafts from the text itself."
    return Pair(model.id, model, None, checked=True, reason=reason)


def short_name(model: ModelFile) -> str:
    """The model's name without the quantisation at its end."""
    return model.id.removesuffix(f"-{model.quant.lower()}") if model.quant else model.id


def load(path: Path | None = None, user: Path | None = None) -> Catalog:
    """The catalog in ``path`` (by default the shipped one), with ``user`` laid over it.

    ``user``: by default the user's own file; it need not exist. An entry of the user's replaces
    the one of the same name.

    Raises ConfigError with file and line.
    """
    reader = Reader()
    reader.read(path or paths.catalog_file())
    user = user or paths.user_catalog_file()
    if user.exists():
        reader.read(user)
    return Catalog(*reader.finish())


def check(path: Path | None = None) -> tuple[Catalog, list[ConfigError], list[str]]:
    """All that is wrong with a catalog file, where ``load`` stops at the first fault.

    ``path``: a file to be laid over the shipped catalog; None: the shipped one and the user's own.
    Returns what could be read, the faults with file and line, and doubts: entries that are allowed
    but look like mistakes.
    """
    faults: list[ConfigError] = []
    reader = Reader(faults.append)
    user = paths.user_catalog_file()
    own = path or (user if user.exists() else None)
    for file in (paths.catalog_file(), own):
        if file is not None:
            try:
                reader.read(file)
            except ConfigError as error:  # not YAML at all
                faults.append(error)
    catalog = Catalog(*reader.finish())
    return catalog, faults, [*_double_files(catalog), *_odd_pairs(catalog)]


def _double_files(catalog: Catalog) -> Iterator[str]:
    seen: dict[str, str] = {}
    for model in catalog.models.values():
        for shard in model.shards:
            key = shard.sha256 or f"{model.repo}/{shard.name}"
            if key in seen:
                yield f'"{model.id}" and "{seen[key]}" are the same file ({shard.name})'
            seen[key] = model.id


def _odd_pairs(catalog: Catalog) -> Iterator[str]:
    for pair in catalog.pairs:
        if pair.draft is None:
            continue
        one, other = pair.target.n_bytes, pair.draft.n_bytes
        if one and other and other >= one:
            yield f'pair "{pair.id}": the draft is not smaller than the target'
        rows = pair.target.numbers.get("n_vocab"), pair.draft.numbers.get("n_vocab")
        if pair.match == "same" and None not in rows and rows[0] != rows[1]:
            yield f'pair "{pair.id}": "same", but of {rows[0]} and {rows[1]} tokens'


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _unknown(name: str, what: str, known: Iterable[str]) -> ModelNotFoundError:
    near = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else 'See "localspec pairs --all".'
    return ModelNotFoundError(f'the catalog has no {what} called "{label(name)}"', hint=hint)
