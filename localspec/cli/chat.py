"""``localspec chat``: the full-screen chat."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import (
    config_from,
    model_options,
    sampling_from,
    sampling_options,
    trace_option,
)
from localspec.errors import LocalspecError, UsageError

if TYPE_CHECKING:
    from localspec.config import Config
    from localspec.files import Cancelled, Progress
    from localspec.session import Session
    from localspec.sessions import Chats
    from localspec.trace import Trace


@click.command()
@click.argument("pair", required=False)
@model_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="System message.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the last saved chat.")
@click.option("--resume", metavar="ID", help="Go on with this saved chat (localspec history list).")
@click.option("--no-save", is_flag=True, help="Do not save this chat.")
@trace_option
@click.option("--theme", type=click.Choice(["dark", "light"]), help="Colours.  [default: dark]")
def command(
    pair: str | None,
    system: str | None,
    go_on: bool,
    resume: str | None,
    no_save: bool,
    trace: Path | None,
    theme: str | None,
    **flags: Any,
) -> int:
    """Chat with a local model in a full-screen terminal view.

    PAIR is a catalog name, a .gguf file or owner/repo:quant, as for --model. F1 shows keys and
    commands.
    """
    if pair is not None and flags.get("model"):
        raise UsageError(f'two models are named, "{pair}" and "{flags["model"]}"')
    if go_on and resume:
        raise UsageError("--continue and --resume name two chats")
    config = config_from({**flags, "model": pair or flags.get("model"), "system": system})
    if theme:
        config = replace(config, theme=theme)
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "chat needs a terminal",
            hint='localspec run "…" answers one prompt and can be used in pipes.',
        )
    saves = config.save_chats and not no_save
    if not saves and (go_on or resume):
        raise UsageError("chats are not saved, so there is none to go on with")
    from localspec.trace import Trace

    record = None if trace is None else Trace(trace)
    with record or contextlib.nullcontext():
        return _chat(config, flags, "latest" if go_on else resume, record, saves=saves)


def _chat(
    config: Config,
    flags: dict[str, Any],
    resume: str | None,
    record: Trace | None,
    *,
    saves: bool,
) -> int:
    # Nothing that is made until the first picture becomes garbage; the opener turns this on again.
    gc.disable()
    from localspec import paths
    from localspec.tui.terminalio import own_terminal

    if os.environ.get("NO_COLOR") == "":
        # Textual takes an empty NO_COLOR for a set one; everything else here does not.
        del os.environ["NO_COLOR"]
    with own_terminal(paths.log_file()) as terminal:
        terminal.open_view()
        from localspec.tui.app import QUIT_S, ChatApp
        from localspec.tui.settings import Settings

        chats = _open_chats() if saves else None
        if chats is not None and resume is not None:
            resume = chats.resolve(resume)
        settings = Settings(config, sampling_from(config, flags))
        app = ChatApp(
            _Opener(record, chats),
            settings,
            chats,
            resume=resume,
            open_chats=_open_followed_chats,
            n_bytes_used=_n_bytes_used,
            model_names=_model_names,
            terminal=terminal,
        )
        code = app.run()
    gc.enable()
    app.keeper.close()
    if not app.inference.quit(QUIT_S):
        # Native code that does not return would hold up the end of the program.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    return code or app.return_code or 0


def _open_chats() -> Chats:
    from localspec import paths
    from localspec.sessions import Chats
    from localspec.tui.keeper import SAVE_EVERY_S

    return Chats.open(paths.chats_file(), interval_s=SAVE_EVERY_S)


def _open_followed_chats() -> Chats:
    chats = _open_chats()
    _follow_deletions(chats)
    return chats


def _follow_deletions(chats: Chats) -> None:
    from localspec import paths
    from localspec.history import follow_deletions

    # The screen is in use: what went wrong there goes to the log.
    follow_deletions(chats, paths.history_dir(), logging.getLogger(__name__).warning)


class _Opener:
    """``open_session``, in the inference thread: NumPy and llama.cpp are loaded while the first
    picture is on the screen, and so is the index of earlier texts, which makes up for deletions
    that came before it."""

    def __init__(self, record: Trace | None, chats: Chats | None) -> None:
        self._record = record
        self._chats = chats

    def __call__(self, config: Config, progress: Progress, cancelled: Cancelled) -> Session:
        gc.enable()
        from localspec.opening import open_session

        chats, self._chats = self._chats, None
        if chats is not None:
            try:
                _follow_deletions(chats)
            except LocalspecError:
                logging.getLogger(__name__).warning("deleted chats are not followed", exc_info=True)
        session = open_session(config, progress, cancelled)
        session.trace = self._record
        return session


def _model_names() -> list[str]:
    from localspec import catalog

    known = catalog.load()
    return [pair.id for pair in known.pairs] + list(known.models)


def _n_bytes_used() -> int:
    from localspec.hardware.process import n_bytes_used

    return n_bytes_used()
