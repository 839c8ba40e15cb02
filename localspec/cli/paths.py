"""``localspec paths``: where everything is."""

from __future__ import annotations

import click

from localspec import paths
from localspec.cli.output import data, table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool) -> None:
    """Show where localspec keeps its files. Nothing is made by asking."""
    found = {
        "settings": paths.config_file(),
        "own profiles": paths.user_profiles_dir(),
        "own catalog": paths.user_catalog_file(),
        "shipped profiles": paths.profiles_dir(),
        "shipped catalog": paths.catalog_file(),
        "model files": paths.hub_cache(),
        "saved chats": paths.chats_file(),
        "learned speeds": paths.learned_dir(),
        "history index": paths.history_dir(),
        "log file": paths.log_file(),
    }
    if as_json:
        data({name.replace(" ", "_"): str(path) for name, path in found.items()})
    else:
        table(["what", "where"], [(name, str(path)) for name, path in found.items()])
