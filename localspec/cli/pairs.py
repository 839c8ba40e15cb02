"""``localspec pairs``: what fits this machine, and which draft goes with a model."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import AtLeast

if TYPE_CHECKING:
    from localspec.catalog import Catalog, Pair
    from localspec.config import Config
    from localspec.drafts import OnDisk, Suggestion
    from localspec.files import ModelFile
    from localspec.pairs import Ranked
    from localspec.store import Store

_WIDE = 130  # columns of a terminal that has room for remarks
_LEGEND = (
    "Speed without a draft, guessed from size: fast 25 tokens/s and more, good 10, slow 3. "
    "Gain: what a draft of that size can win at best. Match is as reported, with ? in doubt, "
    "with * compared token by token; every draft is compared before it is used."
)


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Also what cannot be used, with the reason.")
@click.option(
    "--for", "model", metavar="MODEL", help="Drafts for this model: a file or a catalog name."
)
@click.option("--profile", metavar="NAME", help="Hardware profile (see localspec profiles).")
@click.option(
    "-c",
    "--ctx-size",
    "n_ctx",
    type=AtLeast(64, 16_777_216, whole=True),
    metavar="N",
    help="Context to plan for, in tokens.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    show_all: bool, model: str | None, profile: str | None, n_ctx: int | None, as_json: bool
) -> None:
    """Pairs of target and draft that fit this machine now, the best first.

    A pair's name is what "localspec run" and "localspec pull" take. Memory is estimated; before a
    model is loaded "localspec plan" looks at its file.
    """
    from localspec import catalog
    from localspec.config import load_config
    from localspec.store import Store

    config = load_config().with_flags({"profile": profile, "n_ctx": n_ctx})
    known = catalog.load()
    store = Store(source=config.source, offline=config.offline, extra_dirs=config.model_dirs)
    if model is not None:
        _drafts(model, known, store, as_json)
    else:
        _pairs(known, store, config, show_all, as_json)


# -- pairs for this machine --------------------------------------------------------------------


def _pairs(known: Catalog, store: Store, config: Config, show_all: bool, as_json: bool) -> None:
    from localspec.cli import output
    from localspec.hardware import detect, threads_for
    from localspec.llama.devices import devices
    from localspec.pairs import default_pair, rank
    from localspec.planning import Fits, Machine, shapes_on
    from localspec.profiles import choose, customised, load_profiles

    hardware = detect(devices())
    found, _ = choose(hardware, load_profiles(), config.profile, config.source_of("profile"))
    profile = customised(found, config)
    n_ctx = profile.n_ctx
    machine = Machine(hardware, profile, threads_for(profile.threads, hardware.cpu)[0])
    budget = machine.budget
    judge = Fits(config, machine, shapes_on(hardware, store))
    choice = profile.pair_for(hardware)
    preferred = [choice[0].pair] if choice else []
    present = {name for name, model in known.models.items() if store.find(model) is not None}
    ranked = rank(known, budget, present=present, preferred=preferred, judge=judge)
    default = default_pair(
        known, budget, preferred, present, can_get=lambda _: not store.offline, judge=judge
    )
    usable = [candidate for candidate in ranked if candidate.usable]
    if as_json:
        output.data(
            {
                "n_ctx": n_ctx,
                "profile": profile.name,
                "budget": [
                    {
                        "device": device.name,
                        "kind": device.kind,
                        "n_bytes_free": device.n_bytes_free,
                        "shared_with_cpu": device.shared_with_cpu,
                        "source": device.source,
                    }
                    for device in budget.devices
                ],
                "default": default.pair.id if default else None,
                "pairs": [_as_data(candidate) for candidate in (ranked if show_all else usable)],
            }
        )
        return
    _show(usable)
    rest = [(one.pair.id, one.why) for one in ranked if not one.usable]
    if rest and show_all:
        click.echo()
        output.table(("Pair", "Why not"), rest)
    if default is not None:
        output.note(f'"localspec run" takes {default.pair.id} unless you name another.')
    if rest and not show_all:
        output.note(f"{len(rest)} more cannot be used here; --all says why.")
    if usable:
        output.note(f"{_LEGEND} Memory is for {n_ctx} tokens.")


def _show(usable: list[Ranked]) -> None:
    from localspec.cli import output

    if not usable:
        output.note("No pair of the catalog fits into the memory of this machine.")
        return
    columns = ["Pair", "Download", "Memory", "Speed", "Gain", "Match"]
    rows = [_row(candidate) for candidate in usable]
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE:
        rows = [row[: len(columns)] for row in rows]  # names must not be broken to make room
    else:
        columns.append("Remarks")
    output.table(columns, rows, right=(1, 2))


def _row(candidate: Ranked) -> tuple[str, ...]:
    from localspec.terminal import size

    pair = candidate.pair
    download = "?" if candidate.download_bytes is None else size(candidate.download_bytes)
    rough = "" if pair.n_bytes is not None else "~"
    sure = "*" if pair.checked else "?" if pair.advice == "measure" and pair.match == "near" else ""
    return (
        pair.id,
        "present" if candidate.present else download,
        "?" if candidate.need_bytes is None else rough + size(candidate.need_bytes),
        candidate.speed,
        candidate.gain if pair.draft else "-",
        pair.match + sure if pair.draft else "-",
        _remarks(pair),
    )


def _remarks(pair: Pair) -> str:
    parts = []
    if any(file.gated == "yes" for file in pair.files):
        parts.append("asks for consent on the Hub")
    if pair.advice == "measure":
        parts.append("may be refused or slow: try it")
    if pair.draft is None:
        parts.append("no draft model")
    if pair.expected:
        parts.append(pair.expected)
    return "; ".join(parts)


def _as_data(candidate: Ranked) -> dict[str, Any]:
    from localspec.pairs import memory_class

    pair = candidate.pair
    return {
        "id": pair.id,
        "target": pair.target.id,
        "draft": pair.draft.id if pair.draft else None,
        "kind": pair.kind,
        "match": pair.match,
        "checked": pair.checked,
        "advice": pair.advice,
        "reason": pair.reason,
        "expected": pair.expected,
        "licence": pair.target.licence,
        "gated": pair.target.gated,
        "guessed": {file.id: list(file.guessed) for file in pair.files},
        "usable": candidate.usable,
        "why": candidate.why,
        "where": candidate.where,
        "need_bytes": candidate.need_bytes,
        "download_bytes": candidate.download_bytes,
        "present": candidate.present,
        "speed": candidate.speed,
        "gain": candidate.gain,
        "memory_class_gib": memory_class(pair),
    }


# -- drafts for one model ----------------------------------------------------------------------


def _drafts(name: str, known: Catalog, store: Store, as_json: bool) -> None:
    from localspec.catalog import Pair
    from localspec.cli import output
    from localspec.drafts import drafts_for
    from localspec.gguf import read_header
    from localspec.select import find_model, looks_like_path
    from localspec.vocab import compare

    entry = None if looks_like_path(name) else store.locate(name)
    if entry is not None:
        found: ModelFile | Pair = entry.file
    elif "/" in name or looks_like_path(name):
        found = find_model(name, known, store)
    else:
        found = known.find(name)  # the catalog's answer needs no network
    target = found.target if isinstance(found, Pair) else found
    path = store.find(target)
    target = known.identify(target)
    header = read_header(path) if path else None
    disk = list(_on_disk(known, store, path)) if header else []
    suggestions = drafts_for(target, header, known, disk, compare)
    if as_json:
        output.data(
            {
                "target": target.id,
                "target_present": path is not None,
                "drafts": [_draft_data(one) for one in suggestions],
            }
        )
        return
    if suggestions:
        rows = [_draft_row(one) for one in suggestions]
        output.table(("Draft", "", "Size", "Gain", "Match", "Reason"), rows, right=(2,))
    if not any(one.accepted for one in suggestions):
        output.note(
            f"No draft model for {target.id} is known or here. It can still draft from the text "
            "itself (--mode lookup)."
        )
    if header is None:
        output.note(
            f"{target.id} is not on this computer, so models on the disk were not compared with it."
        )


def _draft_row(one: Suggestion) -> tuple[str, ...]:
    from localspec.pairs import weight_bytes
    from localspec.terminal import size

    n_bytes = weight_bytes(one.draft) if one.draft else None
    verdict = "yes" if one.accepted else "no"
    place = ", present" if one.present else ", to download" if one.accepted else ""
    source = "Catalog: " if one.from_catalog else ""
    return (
        one.name,
        verdict + place,
        size(n_bytes) if n_bytes else "?",
        one.gain if one.accepted else "-",
        one.match or "-",
        source + one.reason,
    )


def _draft_data(one: Suggestion) -> dict[str, Any]:
    return {
        "name": one.name,
        "path": str(one.path) if one.path else None,
        "accepted": one.accepted,
        "reason": one.reason,
        "match": one.match or None,
        "from_catalog": one.from_catalog,
        "present": one.present,
        "gain": one.gain,
    }


def _on_disk(known: Catalog, store: Store, target: Path | None) -> Iterator[OnDisk]:
    """Every model that is here, but the target."""
    from localspec.drafts import OnDisk
    from localspec.errors import LocalspecError
    from localspec.gguf import read_header
    from localspec.store import is_side_file

    here = target.resolve() if target else None
    for entry in store.inventory():
        if entry.path.resolve() == here or is_side_file(entry.path.name):
            continue
        model = known.identify(entry.file)
        try:
            yield OnDisk(model, entry.path, read_header(entry.path))
        except LocalspecError as error:
            yield OnDisk(model, entry.path, None, error.message)
