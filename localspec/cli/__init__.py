"""The commands. This module lists them and loads one only when it is run, so that ``--help`` is
quick; each command lives in a module of its own as ``command``."""

from __future__ import annotations

import importlib

import click

from localspec import __version__

# name -> (module, what --help says about it)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("localspec.cli.run", "Answer one prompt."),
    "chat": ("localspec.cli.chat", "Chat in a full-screen terminal view."),
    "pairs": ("localspec.cli.pairs", "Which target and draft fit this machine."),
    "check": ("localspec.cli.check", "Do two models share a vocabulary?"),
    "show": ("localspec.cli.show", "What a model file says about itself."),
    "pull": ("localspec.cli.pull", "Download a model or a pair."),
    "list": ("localspec.cli.list", "Models on this computer."),
    "rm": ("localspec.cli.rm", "Remove a downloaded model."),
    "plan": ("localspec.cli.plan", "What would fit into memory, and why."),
    "profiles": ("localspec.cli.profiles", "Hardware profiles and which one is in use."),
    "doctor": ("localspec.cli.doctor", "Check this installation and this machine."),
    "bench": ("localspec.cli.bench", "Measure every mode on this machine."),
    "tune": ("localspec.cli.tune", "Measure costs now, so that the next run starts fast."),
    "verify": ("localspec.cli.verify", "Check that speculation changes nothing but speed."),
    "history": ("localspec.cli.history", "Saved chats: list, show, search, export, delete."),
    "learn": ("localspec.cli.learn", "Index your files for faster drafts."),
    "catalog": ("localspec.cli.catalog", "Check the model catalog."),
    "paths": ("localspec.cli.paths", "Where localspec keeps its files."),
}


class ReaderLeft(Exception):  # noqa: N818 - no error: whoever read our output has had enough
    """Standard output is a pipe, and nobody reads it any more (``| head``)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end the process with code 1 for it.
            raise ReaderLeft from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f' Did you mean "{near[0]}"?' if near else ' See "localspec --help".'
            raise click.UsageError(f'There is no command "{name}".{hint}', ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="localspec")
def cli() -> None:
    """Run GGUF models on this computer, faster, with the same answers.

    A small draft model, or the text itself, guesses the next words; the real model checks them all
    at once and keeps only what it would have said. When guessing does not pay, it stops.
    """
