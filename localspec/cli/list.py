"""``localspec list``: the models on this computer."""

from __future__ import annotations

import click


@click.command()
@click.option("--paths", "show_paths", is_flag=True, help="Show where each file lies.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(show_paths: bool, as_json: bool) -> None:
    """List the models on this computer, wherever they came from.

    Looks into the Hugging Face cache, the directories of llama.cpp, LM Studio and Ollama, and those
    named in the settings (model_dirs). All can be run by the name shown or by their path.
    """
    from localspec.cli import output
    from localspec.config import load_config
    from localspec.store import Store
    from localspec.terminal import size

    config = load_config()
    store = Store(offline=True, extra_dirs=config.model_dirs)
    entries = store.inventory()
    leftovers = store.leftovers()
    if as_json:
        models = [
            {
                "name": entry.name,
                "path": str(entry.path),
                "parts": [str(part) for part in entry.parts],
                "n_bytes": entry.n_bytes,
                "origin": entry.origin,
                "removable": entry.removable,
            }
            for entry in entries
        ]
        unfinished = [
            {"path": str(left.path), "n_bytes": left.n_bytes, "removable": left.is_ours}
            for left in leftovers
        ]
        output.data({"models": models, "unfinished": unfinished})
        return
    if entries:
        columns = ["NAME", "SIZE", "FROM"] + (["PATH"] if show_paths else [])
        rows = [
            [entry.name, size(entry.n_bytes), entry.origin]
            + ([str(entry.path)] if show_paths else [])
            for entry in entries
        ]
        output.table(columns, rows, right=[1])
    else:
        output.note('There are no models on this computer yet. "localspec pairs" shows what fits.')
    _about_leftovers([left.n_bytes for left in leftovers if left.is_ours], ours=True)
    _about_leftovers([left.n_bytes for left in leftovers if not left.is_ours], ours=False)


def _about_leftovers(sizes: list[int], *, ours: bool) -> None:
    from localspec.cli import output
    from localspec.terminal import size

    if not sizes:
        return
    what = f"{len(sizes)} unfinished download{'s' if len(sizes) > 1 else ''} ({size(sum(sizes))})"
    if ours:
        output.note(f'{what}: pulling again goes on; "localspec rm --unfinished" removes.')
    else:
        output.note(f"{what} of other programs in the Hugging Face cache.")
