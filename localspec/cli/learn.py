"""``localspec learn``: index the user's own files, so that answers about them come faster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.history.disk import Held
    from localspec.history.learning import Learned

_KINDS = {"chat": "saved chats", "run": "one-shot runs", "file": "learned files"}


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-m",
    "--model",
    metavar="NAME",
    help="Learn for this model and others with its vocabulary.  [default: what run would use]",
)
@click.option("--status", is_flag=True, help="Say what is in the index.")
@click.option(
    "--forget",
    "forgotten",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Remove a file, or all files of a directory; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    paths: tuple[Path, ...],
    model: str | None,
    status: bool,
    forgotten: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Index files and directories, so that answers that repeat them are drafted from them.

    Reads source code and documents: text of at most 1 MiB a file. What git ignores, hidden files
    and keys are left out. The index stays on this computer, readable by you only; files that
    changed are read again when you learn them again. The model is not run, only its vocabulary is
    needed; answers stay the same, they only come faster.
    """
    if bool(paths) + bool(forgotten) + status != 1:
        raise click.UsageError("Name files to learn, or use --forget PATH or --status.")
    if status:
        _show_status(as_json)
    elif forgotten:
        _forget(forgotten, as_json)
    else:
        _learn(paths, model, as_json)


def _learn(paths: tuple[Path, ...], model: str | None, as_json: bool) -> None:
    from localspec.cli import output
    from localspec.cli.options import Interrupt
    from localspec.config import load_config
    from localspec.errors import LocalspecError, ModelNotFoundError, UsageError
    from localspec.gguf import read_header
    from localspec.history import History, vocabulary_key
    from localspec.history.learning import learn
    from localspec.llama.model import Model
    from localspec.opening import prepare
    from localspec.paths import history_dir
    from localspec.terminal import label

    config = load_config().with_flags({"model": model, "offline": True})
    if not config.history:
        raise UsageError(
            f"nothing is learned: history is off ({config.source_of('history')})",
            hint="Set history: true.",
        )
    progress = output.TerminalProgress()
    _, selection, store = prepare(config, progress)
    path = store.find(selection.target)
    if path is None:
        name = label(selection.target.id)
        raise ModelNotFoundError(
            f"{name} is not on this computer, and its vocabulary is needed",
            hint=f'"localspec pull {name}" downloads it; --model names another one.',
        )
    key = vocabulary_key(read_header(path))
    interrupt = Interrupt()
    history = History.open(history_dir(), key, model=path.name)
    try:
        if history.note:
            progress.note(history.note)
        vocabulary = Model(path, vocab_only=True)
        try:
            with interrupt.watching():
                done = learn(
                    paths,
                    history,
                    lambda text: vocabulary.tokenize(text, add_special=False, parse_special=False),
                    progress,
                    interrupt,
                )
        finally:
            vocabulary.close()
        held = history.held()
        if held is None:
            raise LocalspecError(history.note or "the history index cannot be written")
    finally:
        history.close()
    _tell(done, held, as_json)
    if interrupt.asked:
        click.get_current_context().exit(130)


def _tell(done: Learned, held: Held, as_json: bool) -> None:
    from dataclasses import asdict

    from localspec.cli import output
    from localspec.terminal import size

    if as_json:
        output.data({**asdict(done), "index_n_tokens": held.n_tokens, "n_bytes": held.n_bytes})
        return
    parts = [f"{done.n_files} file{'s' * (done.n_files != 1)} learned, {done.n_tokens} new tokens"]
    if done.n_unchanged:
        parts.append(f"{done.n_unchanged} unchanged")
    if done.n_forgotten:
        parts.append(f"{done.n_forgotten} gone and forgotten")
    parts += [f"{n} {reason}" for reason, n in sorted(done.skipped.items())]
    output.note("; ".join(parts) + ".")
    output.note(f"The index holds {held.n_tokens} tokens in {size(held.n_bytes)}.")


def _forget(forgotten: tuple[Path, ...], as_json: bool) -> None:
    from localspec.cli import output
    from localspec.errors import UsageError
    from localspec.history import forget_everywhere, held_everywhere
    from localspec.paths import history_dir

    roots = [path.expanduser().resolve() for path in forgotten]
    names = {
        info.name
        for held in held_everywhere(history_dir())
        for info in held.sources
        if info.kind == "file" and any(Path(info.name).is_relative_to(root) for root in roots)
    }
    if not names:
        raise UsageError(
            f"nothing of {', '.join(map(str, forgotten))} is in the index",
            hint="localspec learn --status shows what is.",
        )
    n_tokens = forget_everywhere(history_dir(), "file", sorted(names))
    if as_json:
        output.data({"n_files": len(names), "n_tokens": n_tokens})
    else:
        output.note(f"{len(names)} file{'s' * (len(names) != 1)}, {n_tokens} tokens forgotten.")


def _show_status(as_json: bool) -> None:
    from localspec.cli import output
    from localspec.history import held_everywhere
    from localspec.paths import history_dir
    from localspec.terminal import size

    everything = held_everywhere(history_dir())
    if as_json:
        output.data(
            {"directory": str(history_dir()), "vocabularies": [_as_data(h) for h in everything]}
        )
        return
    if not everything:
        output.note("Nothing is in the index yet.")
        return
    rows = []
    for held in everything:
        for kind, what in _KINDS.items():
            mine = [info for info in held.sources if info.kind == kind]
            if mine:
                n_tokens = sum(info.n_tokens for info in mine)
                number = "" if kind == "run" else str(len(mine))
                rows.append([held.model, what, number, str(n_tokens)])
    output.table(["vocabulary of", "from", "number", "tokens"], rows, right=[2, 3])
    n_bytes = sum(held.n_bytes for held in everything)
    output.note(f"{size(n_bytes)} in {history_dir()}")


def _as_data(held: Held) -> dict[str, Any]:
    return {
        "model": held.model,
        "n_bytes": held.n_bytes,
        "n_tokens": held.n_tokens,
        "capacity": held.capacity,
        "sources": [
            {"kind": info.kind, "name": info.name, "n_tokens": info.n_tokens}
            for info in held.sources
        ],
    }
