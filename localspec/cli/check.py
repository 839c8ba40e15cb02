"""``localspec check``: do two models share a vocabulary?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.catalog import Catalog
    from localspec.errors import DownloadError
    from localspec.files import ModelFile
    from localspec.store import Store
    from localspec.vocab import Match


@click.command()
@click.argument("target")
@click.argument("draft", required=False)
@click.option("--offline", is_flag=True, default=None, help="Never use the network.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(target: str, draft: str | None, offline: bool | None, as_json: bool) -> None:
    """Compare the vocabularies of a target and a draft, from their headers alone.

    Each is a .gguf file, a model of the catalog, or owner/repo:quant on the Hugging Face Hub; of a
    model that is not here only the first bytes are fetched. With one name, it is a pair of the
    catalog. Exit code 0: they go together (the same vocabulary, or near enough); 1: they do not.
    """
    from localspec import catalog
    from localspec.config import load_config
    from localspec.errors import DownloadError
    from localspec.heads import header_of
    from localspec.store import Store
    from localspec.vocab import compare

    config = load_config().with_flags({"offline": offline})
    store = Store(source=config.source, offline=config.offline, extra_dirs=config.model_dirs)
    known = catalog.load()
    one, other = _listed(target, draft, known)
    try:
        one, other = _both(target, draft, known, store)
        match = compare(header_of(one, store), header_of(other, store))
    except DownloadError as error:
        if one is None or other is None:
            raise
        usable = _from_catalog(one, other, known, error, as_json=as_json)
    else:
        usable = match.usable
        _show(one, other, match, as_json=as_json)
    if not usable:
        click.get_current_context().exit(1)


def _listed(
    target: str, draft: str | None, known: Catalog
) -> tuple[ModelFile | None, ModelFile | None]:
    """The two as the catalog lists them, None where it does not: enough for its own verdict, even
    if only the Hub knows the names of the files."""
    from localspec.catalog import Pair
    from localspec.errors import ModelNotFoundError

    found: list[Pair | ModelFile | None] = []
    for name in (target, draft or target):
        try:
            found.append(known.find(name))
        except ModelNotFoundError:
            found.append(None)
    one, other = found
    return (
        one.target if isinstance(one, Pair) else one,
        (other.draft or other.target) if isinstance(other, Pair) else other,
    )


def _both(
    target: str, draft: str | None, known: Catalog, store: Store
) -> tuple[ModelFile, ModelFile]:
    """The two models that the names mean. Raises ModelNotFoundError, UsageError, DownloadError."""
    from localspec.catalog import Pair
    from localspec.errors import UsageError
    from localspec.select import find_model

    one = find_model(target, known, store)
    if draft is None:
        if not isinstance(one, Pair) or one.draft is None:
            raise UsageError(
                f'"{target}" is not a pair of two models.',
                hint="Name a target and a draft, or a pair that localspec pairs --all lists.",
            )
        return one.target, one.draft
    other = find_model(draft, known, store)
    return (
        one.target if isinstance(one, Pair) else one,
        (other.draft or other.target) if isinstance(other, Pair) else other,
    )


def _show(one: ModelFile, other: ModelFile, match: Match, *, as_json: bool) -> None:
    from localspec.cli import output

    if as_json:
        output.data(_as_dict(one, other, match))
        return
    output.text(f"{match.verdict}: {match.reason}")
    if match.differences:
        rows = [
            (str(each.id), _piece(each.target), _piece(each.draft)) for each in match.differences
        ]
        output.table(("Id", "Target", "Draft"), rows, right=(0,))
        rest = match.n_differences - len(match.differences)
        if rest:
            output.text(f"... and {rest} more")
    for remark in match.notes:
        output.text(remark)


def _piece(text: bytes | None) -> str:
    return "-" if text is None else text[:80].decode("utf-8", "replace")


def _as_dict(one: ModelFile, other: ModelFile, match: Match) -> dict[str, Any]:
    return {
        "target": one.id,
        "draft": other.id,
        "verdict": match.verdict,
        "usable": match.usable,
        "reason": match.reason,
        "source": "headers",
        "n_target": match.n_target,
        "n_draft": match.n_draft,
        "n_common": match.n_common,
        "n_differences": match.n_differences,
        "differences": [
            {
                "id": each.id,
                "target": None if each.target is None else _piece(each.target),
                "draft": None if each.draft is None else _piece(each.draft),
            }
            for each in match.differences
        ],
        "n_never_proposed": len(match.never_propose),
        "notes": list(match.notes),
    }


def _from_catalog(
    one: ModelFile, other: ModelFile, known: Catalog, error: DownloadError, *, as_json: bool
) -> bool:
    """What the catalog says of two models that cannot be read now; raises ``error`` again when it
    says nothing."""
    from localspec.cli import output

    pairs = [pair for pair in known.pairs_for(one) if pair.draft and pair.draft.id == other.id]
    if not pairs:
        raise error
    pair = pairs[0]
    usable = pair.match != "different"
    if as_json:
        output.data(
            {
                "target": one.id,
                "draft": other.id,
                "verdict": pair.match,
                "usable": usable,
                "reason": pair.reason,
                "source": "catalog",
                "checked": pair.checked,
            }
        )
    else:
        output.text(f"{pair.match}: {pair.reason}")
    how = "it was checked once" if pair.checked else "it was never checked"
    output.note(f"This is what the catalog says; {how}. Not read now: {error.message}")
    return usable
