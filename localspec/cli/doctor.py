"""``localspec doctor``: what this installation and this machine can do, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.cli.doctor_checks import Report
    from localspec.config import Config


@click.command()
@click.option("--offline", is_flag=True, default=None, help="Do not try to reach the Hub.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(offline: bool | None, as_json: bool) -> None:
    """Check this installation and this machine.

    Exit code 1 when something keeps localspec from working; warnings alone are no failure.
    """
    from localspec.cli import output

    report = examine(offline)
    if as_json:
        for name in ("warnings", "problems"):
            found = getattr(report, name)
            report.data[name] = [{"message": text, "hint": hint} for text, hint in found]
        output.data(report.data)
    else:
        _print(report)
    if report.problems:
        raise click.exceptions.Exit(1)


def examine(offline: bool | None) -> Report:
    """Look at everything; never raises for what it finds."""
    from localspec.cli import doctor_checks as checks

    report = checks.Report()
    _program(report)
    config = _settings(report, offline)
    hardware = checks.engine(report)
    checks.machine(report, hardware)
    profile = checks.profile(report, hardware, config)
    model = checks.default_model(report, profile, hardware)
    checks.files(report, config)
    checks.hub(report, config, model)
    return report


def _print(report: Report) -> None:
    from localspec.cli import output

    width = max(len(name) for name, value in report.lines if value) + 2
    for name, value in report.lines:
        output.text(f"{name:<{width}}{value}" if value else name)
    for title, found in (("Problem", report.problems), ("Warning", report.warnings)):
        for message, hint in found:
            output.text("")
            output.text(f"{title}: {message}")
            for part in hint.splitlines():
                output.text(f"  {part}")
    if not report.problems and not report.warnings:
        output.text("")
        output.text("Nothing to complain about.")


def _program(report: Report) -> None:
    import platform
    import sys

    from localspec import __version__

    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    report.section(f"localspec {__version__}")
    report.line("Python", f"{platform.python_version()}, {sys.executable}")
    report.line("system", system)
    report.data["localspec"] = __version__
    report.data["python"] = {"version": platform.python_version(), "executable": sys.executable}
    report.data["system"] = system


def _settings(report: Report, offline: bool | None) -> Config:
    from localspec import paths
    from localspec.config import Config, load_config
    from localspec.errors import ConfigError

    path = paths.config_file()
    try:
        config = load_config()
    except ConfigError as error:
        report.problems.append((error.message, error.hint))
        config = Config()
    config = config.with_flags({"offline": offline})
    report.warnings += [(text, "") for text in config.warnings]
    report.line("settings", str(path) if path.exists() else f"{path} (none; all at their default)")
    for name, source in config.sources.items():
        report.line(f"  {name}", f"{getattr(config, name)}, {source}")
    report.data["settings"] = {
        "file": str(path),
        "values": {
            name: {"value": _json(getattr(config, name)), "source": source}
            for name, source in config.sources.items()
        },
    }
    return config


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return value
