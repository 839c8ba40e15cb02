"""``localspec plan``: what would fit into memory, where, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import AtLeast, config_from, model_options
from localspec.cli.output import TerminalProgress, data, table, text
from localspec.errors import MemoryPlanError, ModelNotFoundError, PairError, UsageError

if TYPE_CHECKING:
    from localspec.planning import Machine


@click.command()
@click.argument("pair", required=False)
@model_options
@click.option(
    "--context",
    type=AtLeast(64, 16_777_216, whole=True),
    metavar="N",
    help="The same as --ctx-size.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(pair: str | None, context: int | None, as_json: bool, **flags: Any) -> int:
    """Show what PAIR (or the default pair) needs, part by part, what there is, and the decision.

    Nothing is downloaded: of files that are not here only the header is read, or the catalog's
    numbers are used. Exit code 4 if nothing fits.
    """
    from localspec.opening import prepare
    from localspec.planning import Planner, name_of
    from localspec.terminal import size

    for name, one, other in [
        ("PAIR", pair, flags.get("model")),
        ("--context", context, flags.get("n_ctx")),
    ]:
        if one is not None and other is not None and one != other:
            same = "--model" if name == "PAIR" else "--ctx-size"
            raise UsageError(f"{name} ({one}) and {same} ({other}) contradict each other.")
    config = config_from(
        {**flags, "model": flags.get("model") or pair, "n_ctx": flags.get("n_ctx") or context}
    )
    machine, selection, store = prepare(config, TerminalProgress(quiet=True))
    try:
        plan = Planner(config, machine, selection, store).plan(selection.draft)
    except (MemoryPlanError, PairError) as error:
        _show_refusal(error, name_of(selection.target), machine, as_json=as_json)
        raise
    if plan is None:
        raise ModelNotFoundError(
            f"too little is known about {selection.target.id} to plan before it is downloaded.",
            hint=f'"localspec pull {selection.target.id}" fetches it.',
        )
    choice = selection.choice
    if not choice and not config.model and not config.pair:
        preferred = machine.profile.pair_for(machine.hardware)
        choice = f"No model is named: {preferred[1]}." if preferred else ""
    if as_json:
        data(
            {
                "profile": machine.profile.name,
                "n_threads": machine.n_threads,
                "choice": choice or None,
                **plan.as_dict(),
            }
        )
        return 0
    text(f"{plan.target}" + (f" with {plan.draft}" if plan.draft else "") +
         f", context of {plan.settings.n_ctx} tokens")  # fmt: skip
    if choice:
        text(choice)
    text(f"Profile {machine.profile.name} ({machine.profile_reason}), {machine.n_threads} threads.")
    click.echo()
    rows = [
        (part.device, part.what, part.role, size(part.n_bytes), size(part.needed_bytes))
        for part in plan.parts
    ]
    table(["device", "part", "of", "size", "needed"], rows, right=[3, 4])
    if any(part.evictable_bytes for part in plan.parts):
        text("Needed is less than the size where pages of the file are read once and then dropped.")
    click.echo()
    table(
        ["device", "needed", "may be used", "because"],
        [
            (device.name, size(plan.needed_bytes(device.name)), size(device.n_bytes_free),
             device.source)
            for device in plan.budget.devices
        ],
        right=[1, 2],
    )  # fmt: skip
    click.echo()
    table(["tried, best first", "outcome", ""], [(s.name, s.verdict, s.reason) for s in plan.steps])
    click.echo()
    text(f"Mode {plan.mode}: {plan.reason}")
    return 0


def _show_refusal(
    error: MemoryPlanError | PairError, target: str, machine: Machine, *, as_json: bool
) -> None:
    """What was tried. The sentence itself comes from the error."""
    steps = error.steps if isinstance(error, MemoryPlanError) else ()
    if as_json:
        data(
            {
                "profile": machine.profile.name,
                "n_threads": machine.n_threads,
                "mode": None,
                "reason": error.message,
                "hint": error.hint,
                "target": target,
                "devices": [
                    {
                        "name": device.name,
                        "kind": device.kind,
                        "free_bytes": device.n_bytes_free,
                        "source": device.source,
                    }
                    for device in machine.budget.devices
                ],
                "steps": [
                    {"name": name, "verdict": verdict, "reason": reason}
                    for name, verdict, reason in steps
                ],
            }
        )
    elif steps:
        table(["tried, best first", "outcome", ""], steps)
        click.echo()
