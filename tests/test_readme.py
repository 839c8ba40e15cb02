"""Every command in the README works: the two set-up commands are run by .ci/run word for word, the
others here, and what cannot be run on every machine (GPU builds) is at least held to the facts."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import test_cli_run

from bench import versus
from localspec import opening
from localspec.__main__ import main
from localspec.cli import COMMANDS, cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
BENCH = re.compile(r"`python -m bench\.versus ([^`]+)`")
SETUP = [BLOCKS[0].strip(), BLOCKS[1].strip()]
USES = [line for block in BLOCKS[2:] for line in block.splitlines() if "localspec" in line]


def test_the_setup_commands_are_what_ci_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert SETUP[1] == "scripts/test"
    # The script takes both out of the README itself.
    assert "README.md" in script
    assert "$(setup_command 1)" in script
    assert "$(setup_command 2)" in script
    assert SETUP[0].startswith("python3 -m venv .venv && .venv/bin/pip install . && ")
    assert len(SETUP[0].splitlines()) == 1


def test_there_are_commands_to_test() -> None:
    assert len(USES) >= 5


@pytest.mark.parametrize("line", USES)
def test_the_examples_run(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(
        opening, "open_session", lambda config, *_: test_cli_run.ScriptedSession(config)
    )
    if "|" in line:
        test_cli_run.pipe_in(monkeypatch, b"something piped")
    else:
        monkeypatch.setattr(sys, "stdin", test_cli_run._Terminal())
    args = shlex.split(line.rpartition("|")[2])[1:]
    if args[0] == "chat":
        args.append("--help")  # the chat itself is run by tests/tui
    assert main(args) in (0, None)
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`localspec ([a-z]+)", README))))
def test_commands_named_in_the_text_exist(name: str) -> None:
    assert name in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_fits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: localspec {name}")
    assert max(map(len, shown.splitlines())) <= 80


def test_options_named_in_the_text_exist() -> None:
    known: set[str] = {"--version", "--help", "--force-reinstall", "--no-cache-dir"}
    for name in COMMANDS:
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        commands = [command, *getattr(command, "commands", {}).values()]
        for parameter in (p for c in commands for p in c.params):
            known |= {*parameter.opts, *parameter.secondary_opts}
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", BENCH.sub("", README))):
        assert option in known, option


def test_the_command_of_the_table_is_one_that_the_bench_understands() -> None:
    commands = BENCH.findall(README)
    assert commands
    for command in commands:
        options = versus._options(shlex.split(command))
        assert (options.model, options.draft) == ("FILE", "FILE")


def test_the_build_commands_name_the_version_that_is_installed() -> None:
    pinned = next(
        dependency
        for dependency in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "dependencies"
        ]
        if dependency.startswith("llama-cpp-python")
    )
    assert set(re.findall(r"llama-cpp-python==[\d.]+", README)) == {pinned}


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
