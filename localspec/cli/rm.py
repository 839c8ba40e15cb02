"""``localspec rm``: remove what localspec downloaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from localspec.store import Entry, Store


@click.command()
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--unfinished", is_flag=True, help="Remove what interrupted downloads left.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(names: tuple[str, ...], unfinished: bool, yes: bool) -> None:
    """Remove models that localspec downloaded.

    NAME is a name that localspec list shows, or a model or pair of the catalog. Files that another
    program downloaded are left alone.
    """
    from localspec.cli import output
    from localspec.config import load_config
    from localspec.errors import UsageError
    from localspec.store import Store
    from localspec.terminal import size

    if not names and not unfinished:
        raise click.UsageError("Say what to remove: a name, or --unfinished.")
    store = Store(offline=True, extra_dirs=load_config().model_dirs)
    entries = _entries(names, store)
    for entry in entries:
        output.note(f"{entry.name}  {size(entry.n_bytes)}  {entry.path}")
    if entries and not yes:
        if not sys.stdin.isatty():
            raise UsageError("there is nobody to ask.", hint="Add --yes to remove without asking.")
        click.confirm(f"Remove {len(entries)} from this computer?", abort=True, err=True)
    freed = sum(store.remove(entry) for entry in entries)
    if unfinished:
        freed += store.remove_leftovers()
    output.note(f"{size(freed)} freed.")


def _entries(names: tuple[str, ...], store: Store) -> list[Entry]:
    """What ``names`` stand for; everything is found, and may be removed, before anything goes.

    Raises ModelNotFoundError, UsageError, DownloadError.
    """
    from localspec import catalog
    from localspec.catalog import Pair
    from localspec.errors import ModelNotFoundError
    from localspec.terminal import label

    found: dict[object, Entry] = {}
    for name in names:
        located = store.locate(name)
        if located is not None:
            found[located.path] = located
            continue
        known = catalog.load().find(name)
        files = known.files if isinstance(known, Pair) else (known,)
        paths = {store.find(file) for file in files} - {None}
        if not paths:
            raise ModelNotFoundError(
                f'"{label(name)}" is not on this computer.', hint='See "localspec list".'
            )
        found.update({entry.path: entry for entry in store.inventory() if entry.path in paths})
    for entry in found.values():
        store.check_removable(entry)
    return list(found.values())
