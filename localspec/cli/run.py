"""``localspec run``: one prompt in, one answer out."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import (
    Interrupt,
    config_from,
    model_options,
    sampling_from,
    sampling_options,
    trace_option,
)
from localspec.cli.output import TerminalProgress, note
from localspec.errors import PromptError, UsageError

if TYPE_CHECKING:
    from localspec.cli.run_chat import Continued
    from localspec.config import Config
    from localspec.session import Session, Status
    from localspec.spec.events import Finished
    from localspec.spec.sampling import Sampling
    from localspec.spec.stats import Stats
    from localspec.trace import Trace

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Longest text read from standard input or a file: far more than any context holds."""


@click.command()
@click.argument("prompt", required=False)
@model_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="System message.")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Put a text file before the prompt; may be repeated.",
)
@click.option(
    "-r",
    "--raw",
    is_flag=True,
    help="Continue the text as it is, without the model's chat template.",
)
@click.option("--continue", "go_on", is_flag=True, help="Add to the last saved chat.")
@click.option("--resume", metavar="ID", help="Add to this saved chat (localspec history list).")
@click.option(
    "--stop",
    "stops",
    multiple=True,
    metavar="TEXT",
    help="End the answer before TEXT; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@trace_option
@click.option(
    "--stats/--no-stats", default=True, help="A line about speed after the answer.  [default: on]"
)
@click.option("-q", "--quiet", is_flag=True, help="Only the answer, and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is done and where the log is.")
def command(
    prompt: str | None,
    system: str | None,
    files: tuple[Path, ...],
    raw: bool,
    go_on: bool,
    resume: str | None,
    stops: tuple[str, ...],
    as_json: bool,
    trace: Path | None,
    stats: bool,
    quiet: bool,
    verbose: bool,
    **flags: Any,
) -> int:
    """Answer PROMPT with a local model.

    "-" or a pipe reads the prompt from standard input; with both, the piped text comes first, then
    PROMPT. The answer goes to standard output, everything else to standard error.
    """
    config = config_from({**flags, "system": system})
    text = _prompt_text(prompt, files, raw)
    sampling = sampling_from(config, flags)
    if "" in stops:
        raise UsageError("--stop needs a text that is not empty")
    for warning in config.warnings if not quiet else ():
        note(warning)
    chat_id = _chat_id(go_on, resume, raw, config)

    from localspec.opening import open_session
    from localspec.session import with_seed

    record = _trace(trace)
    interrupt = Interrupt()
    with (
        interrupt.watching(),
        record or contextlib.nullcontext(),
        contextlib.ExitStack() as closing,
    ):
        chat = None
        if chat_id is not None:
            chat = _continued(chat_id, system, config, sampling)
            closing.callback(chat.close)
        session = open_session(config, TerminalProgress(quiet=quiet), interrupt)
        closing.callback(session.close)
        if record is not None:
            session.trace = record
        if verbose:
            _explain(session)
        if as_json or record is not None:
            sampling = with_seed(sampling)  # it is reported, so the answer must come again with it
        finished, whole = _answer(
            session, text, config.system, raw, sampling, config.max_tokens, stops, interrupt, chat,
            stream=not as_json, quiet=quiet,
        )  # fmt: skip
        if as_json:
            _print_json(finished, whole, session.status, sampling, chat)
        elif stats and not quiet:
            note(stats_line(finished.stats, session.status))
        if sampling.grammar and finished.detail != "end of text":
            note(f"the answer was cut ({finished.detail}): it is not complete as asked for")
    if record is not None and record.failure:
        note(record.failure)
    return 130 if finished.reason == "cancelled" else 0


def _trace(path: Path | None) -> Trace | None:
    """The record to write, opened before the model is loaded: a wrong name costs no waiting."""
    from localspec.trace import Trace

    return None if path is None else Trace(path)


def _chat_id(go_on: bool, resume: str | None, raw: bool, config: Config) -> str | None:
    """Which saved chat to add to, if any. Raises UsageError for what cannot go together."""
    if not go_on and resume is None:
        return None
    if go_on and resume is not None:
        raise UsageError("--continue and --resume name two chats")
    if raw:
        raise UsageError(
            "--raw continues a text without the chat template, so it cannot add to a saved chat"
        )
    if not config.save_chats:
        raise UsageError("chats are not saved, so there is none to go on with")
    return "latest" if resume is None else resume


def _continued(chat_id: str, system: str | None, config: Config, sampling: Sampling) -> Continued:
    """The saved chat, found before the model is loaded: a wrong id costs no waiting."""
    from localspec.cli.run_chat import Continued
    from localspec.tui.settings import Settings

    return Continued(chat_id, system, Settings(config, sampling).as_saved())


# -- input ----------------------------------------------------------------------------------------


def _prompt_text(prompt: str | None, files: tuple[Path, ...], raw: bool) -> str:
    """Files, then piped text, then the argument, with an empty line between them."""
    parts = [_read_file(path) for path in files]
    if prompt == "-" or not sys.stdin.isatty():
        parts.append(_read_stdin())
    if prompt is not None and prompt != "-":
        parts.append(prompt)
    text = "\n\n".join(part for part in (p if raw else p.strip() for p in parts) if part)
    if not text.strip():
        raise PromptError(
            "the prompt is empty",
            hint='Give it as an argument, localspec run "…", or pipe it in.',
        )
    return text


def _read_stdin() -> str:
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    return _decode(data, "standard input")


def _read_file(path: Path) -> str:
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a text file")
    try:
        with path.open("rb") as stream:
            return _decode(stream.read(MAX_INPUT_BYTES + 1), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _decode(data: bytes, where: str) -> str:
    if len(data) > MAX_INPUT_BYTES:
        raise PromptError(f"{where} holds more than {MAX_INPUT_BYTES // 1024**2} MiB of text")
    if b"\0" in data:
        raise PromptError(f"{where} does not hold text", hint="Only text files can be read.")
    return data.decode("utf-8-sig", "replace")


# -- answering ------------------------------------------------------------------------------------


def _answer(
    session: Session,
    text: str,
    system: str | None,
    raw: bool,
    sampling: Any,
    max_tokens: int | None,
    stops: tuple[str, ...],
    interrupt: Interrupt,
    chat: Continued | None,
    *,
    stream: bool,
    quiet: bool,
) -> tuple[Finished, str]:
    """Print the answer while it comes (if ``stream``); returns the last event and the text."""
    from localspec.chat import Message
    from localspec.history import RUNS
    from localspec.spec.events import Finished, Step

    prompt: Any = text
    if chat is not None:
        prompt = chat.prompt(session, text, max_tokens, quiet=quiet)
    elif not raw:
        turns = [Message("system", system)] if system else []
        prompt = [*turns, Message("user", text)]
    if not raw and not quiet and session.template.note:
        note(session.template.note)
    printer = Printer() if stream else None
    whole: list[str] = []
    finished: Finished | None = None
    for event in session.ask(
        prompt, sampling, max_tokens=max_tokens, stops=stops, cancelled=interrupt,
        source=RUNS if chat is None else chat.source,
    ):  # fmt: skip
        if isinstance(event, (Step, Finished)):
            whole.append(event.text)
            if printer is not None:
                printer.write(event.text)
            if chat is not None:
                chat.add(event.text)
        if isinstance(event, Finished):
            finished = event
    if printer is not None:
        printer.end()
    assert finished is not None
    if chat is not None:
        chat.finish(finished, session.status, sampling.seed)
    return finished, "".join(whole)


class Printer:
    """Writes the answer to stdout as it comes; a terminal never sees a control character."""

    def __init__(self) -> None:
        from localspec.terminal import clean

        self._clean = clean if sys.stdout.isatty() else str
        self._last = "\n"

    def write(self, text: str) -> None:
        """Show ``text`` now."""
        if text:
            sys.stdout.write(self._clean(text))
            sys.stdout.flush()
            self._last = text[-1]

    def end(self) -> None:
        """The answer is over: end its last line."""
        if self._last != "\n":
            sys.stdout.write("\n")
            sys.stdout.flush()


# -- numbers --------------------------------------------------------------------------------------


def stats_line(stats: Stats, status: Status) -> str:
    """One line: speed, acceptance, tokens per step, gain over plain decoding, mode and reason."""
    parts = []
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tokens/s")
    else:
        parts.append(f"{stats.n_tokens} token{'s' * (stats.n_tokens != 1)}")
    rate = stats.acceptance_rate
    accepted = "–" if rate is None else f"{rate:.0%} ({stats.n_accepted} of {stats.n_verified})"
    parts.append(f"accepted {accepted}")
    if stats.mean_accepted_length is not None:
        parts.append(f"{stats.mean_accepted_length:.2f} tokens/step")
    if stats.gain is not None and stats.baseline_tokens_per_s is not None:
        parts.append(f"{stats.gain:.2f}× plain ({stats.baseline_tokens_per_s:.1f})")
    parts.append(f"mode {status.mode}: {status.reason}")
    return "[" + " · ".join(parts) + "]"


def _print_json(
    finished: Finished, text: str, status: Status, sampling: Any, chat: Continued | None
) -> None:
    from localspec.report import as_dict

    value = as_dict(finished, text, status, sampling.seed)
    if sampling.grammar:
        value["grammar_complete"] = finished.detail == "end of text"
    if chat is not None:
        value["chat"] = chat.id
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def _explain(session: Session) -> None:
    from localspec import paths

    status = session.status
    note(f"target {status.model}, draft {status.draft or 'none'}, profile {status.profile}")
    note(f"context {status.n_ctx} tokens, {status.n_threads} threads")
    note(f"mode {status.mode}: {status.reason}")
    note(f"log file: {paths.log_file()}")
