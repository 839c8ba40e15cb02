"""``localspec catalog``: is a file of models and pairs right?"""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def command() -> None:
    """Check the model catalog."""


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def check(file: Path | None, as_json: bool) -> None:
    """Report everything that is wrong with the catalog, or with FILE laid over it.

    Without FILE: the shipped catalog and your own file, if there is one. Exit code 2 when there is
    a fault; doubts alone are none.
    """
    from localspec import catalog
    from localspec.terminal import label

    found, faults, doubts = catalog.check(file)
    unchecked = sum(1 for model in found.models.values() if model.guessed)
    if as_json:
        report = {
            "models": len(found.models),
            "pairs": len(found.pairs),
            "models_with_guesses": unchecked,
            "faults": [{"message": fault.message, "hint": fault.hint} for fault in faults],
            "doubts": doubts,
        }
        click.echo(json.dumps(report, indent=2))
    else:
        for fault in faults:
            click.echo(label(fault.message))
            if fault.hint:
                click.echo(f"  {label(fault.hint)}")
        for doubt in doubts:
            click.echo(f"doubtful: {label(doubt)}")
        click.echo(
            f"{len(found.models)} models ({unchecked} with values marked as guesses) and "
            f"{len(found.pairs)} pairs; {_count(len(faults), 'fault')}, "
            f"{_count(len(doubts), 'doubt')}."
        )
    if faults:
        raise click.exceptions.Exit(2)


def _count(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"
