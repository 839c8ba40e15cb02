"""``localspec profiles``: which hardware profiles there are, which is in use and why."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.profiles import Profile


@click.command()
@click.argument("name", required=False)
@click.option("--profile", help="Choose this profile instead of the one that fits the machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(name: str | None, profile: str | None, as_json: bool) -> None:
    """Show the hardware profiles, which one would be used here, and why.

    With NAME: the settings of that profile.
    """
    from localspec import catalog
    from localspec import config as settings
    from localspec.cli import output
    from localspec.errors import UsageError
    from localspec.hardware import detect, threads_for
    from localspec.llama.devices import devices
    from localspec.profiles import check_pair, choose, customised, load_profiles
    from localspec.schema import nearest

    config = settings.load_config().with_flags({"profile": profile})
    profiles = load_profiles()
    known = catalog.load()
    for each in profiles.values():
        for choice in each.pairs:
            check_pair(choice, known)
    if name is not None:
        if name not in profiles:
            raise UsageError(f'there is no profile "{name}"', hint=nearest(name, profiles))
        _show(profiles[name], as_json)
        return
    hardware = detect(devices())
    found, reason = choose(hardware, profiles, config.profile, config.source_of("profile"))
    chosen = customised(found, config)
    n_threads, threads_reason = threads_for(chosen.threads, hardware.cpu)
    if config.threads is not None:
        threads_reason = config.source_of("threads")
    pair = chosen.pair_for(hardware)
    if as_json:
        output.data(
            {
                "profile": found.name,
                "reason": reason,
                "pair": pair[0].pair if pair else None,
                "pair_reason": pair[1] if pair else None,
                "threads": n_threads,
                "threads_reason": threads_reason,
                "profiles": [_plain(each) for each in profiles.values()],
            }
        )
        return
    rows = [
        ["*" if each.name == found.name else "", each.name, each.description, _origin(each)]
        for each in profiles.values()
    ]
    output.table(["", "profile", "what for", "file"], rows)
    output.text("")
    output.text(f"profile  {found.name}: {reason}")
    output.text(f"threads  {n_threads}: {threads_reason}")
    output.text(f"pair     {pair[0].pair}: {pair[1]}" if pair else "pair     none is named")


def _show(profile: Profile, as_json: bool) -> None:
    from localspec.cli import output

    settings = _plain(profile)
    if as_json:
        output.data(settings)
        return
    rows = [[name, _words(value)] for name, value in settings.items() if name != "pairs"]
    rows += [[f"from {_size(pair['memory'])} on", pair["pair"]] for pair in settings["pairs"]]
    output.table(["setting", "value"], rows)


def _plain(profile: Profile) -> dict[str, Any]:
    """The profile as JSON can hold it, its name first."""
    settings = dataclasses.asdict(profile)
    return {"name": settings.pop("name"), **settings, "path": str(profile.path)}


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return "not set" if value is None else str(value)


def _size(n_bytes: int) -> str:
    from localspec.terminal import size

    return size(n_bytes)


def _origin(profile: Profile) -> str:
    from localspec import paths

    shipped = profile.path.parent == paths.profiles_dir()
    return "comes with localspec" if shipped else str(profile.path)
