"""``localspec history``: saved chats."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.sessions import ChatInfo, Chats, SavedTurn


@click.group()
def command() -> None:
    """Saved chats: list, show, search, export, delete.

    ID is the beginning of a chat's id, as far as it takes to tell it from the others, or "latest".
    """


def _open() -> Chats:
    from localspec import paths
    from localspec.cli.output import note
    from localspec.sessions import Chats

    chats = Chats.open(paths.chats_file())
    if chats.note:
        note(chats.note)
    return chats


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _pair(info: ChatInfo) -> str:
    return f"{info.model} + {info.draft}" if info.draft else info.model


def _print_json(data: dict[str, Any]) -> None:
    from localspec.sessions_types import dump

    click.echo(dump(data))


@command.command("list")
@click.argument("words", nargs=-1)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_chats(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show the last used chats; with WORDS those that contain them all."""
    from dataclasses import asdict

    from localspec.cli.output import note, table

    with _open() as chats:
        found = chats.list(limit, " ".join(words))
    if as_json:
        _print_json({"chats": [asdict(info) for info in found]})
    elif found:
        rows = [
            [info.id, _day(info.updated), str(info.n_turns), info.title, _pair(info)]
            for info in found
        ]
        table(["id", "last used", "turns", "title", "model"], rows, right=[2])
    else:
        note("No saved chat has these words." if words else "There are no saved chats yet.")


def _numbers(turn: SavedTurn) -> str:
    """The statistics of an answer in a few words; what is not a number is left out."""
    parts = []
    for key, form in (
        ("n_tokens", "{:.0f} tokens"),
        ("tokens_per_s", "{:.1f} tokens/s"),
        ("acceptance_rate", "{:.0%} accepted"),
        ("gain", "{:.2f}x plain speed"),
    ):
        value = turn.numbers.get(key)
        if isinstance(value, (int, float)):
            parts.append(form.format(value))
    return ", ".join(parts)


@command.command()
@click.argument("chat_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(chat_id: str, as_json: bool) -> None:
    """Print a chat."""
    from localspec.sessions_types import as_data
    from localspec.terminal import clean, label

    with _open() as chats:
        chat = chats.get(chat_id)
    if as_json:
        _print_json(as_data(chat))
        return
    info = chat.info
    click.echo(label(f"{info.id}  {info.title}"))
    click.echo(label(f"{_day(info.created)}  {_pair(info)}"))
    if chat.system:
        click.echo(f"\n[system]\n{clean(chat.system)}")
    for turn in chat.turns:
        state = {"stopped": ", stopped", "partial": ", interrupted"}.get(turn.state, "")
        numbers = _numbers(turn)
        click.echo("\n" + label(f"[{turn.role}{state}]" + ("  " + numbers if numbers else "")))
        click.echo(clean(turn.content).strip("\n"))


@command.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find turns that contain all WORDS, in upper or lower case."""
    from dataclasses import asdict

    from localspec.cli.output import note, table

    with _open() as chats:
        found = chats.search(" ".join(words), limit)
    if as_json:
        _print_json({"hits": [asdict(hit) for hit in found]})
    elif found:
        rows = [[hit.chat.id, _day(hit.chat.updated), hit.role, hit.excerpt] for hit in found]
        table(["id", "last used", "who", "text"], rows)
    else:
        note("Nothing was found.")


@command.command()
@click.argument("chat_id", metavar="ID")
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A file, instead of stdout.")
def export(chat_id: str, form: str, output: str | None) -> None:
    """Write a chat as Markdown or JSON."""
    from pathlib import Path

    from localspec import paths
    from localspec.cli.output import note
    from localspec.errors import UsageError

    with _open() as chats:
        text = chats.export_json(chat_id) if form == "json" else chats.export_markdown(chat_id)
    if output is None:
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.exists():
        raise UsageError(f"{path} exists already", hint="Name a new file.")
    try:
        paths.write_private(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    note(f"Written to {path}.")


@command.command()
@click.argument("chat_ids", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all saved chats.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(chat_ids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete chats, with everything that was kept of them."""
    from localspec import paths
    from localspec.cli.output import note
    from localspec.errors import UsageError
    from localspec.history import follow_deletions
    from localspec.terminal import label

    if bool(chat_ids) == everything:
        raise UsageError("name the chats to delete, or --all")
    with _open() as chats:
        if everything:
            infos = chats.list(limit=1_000_000)
        else:
            infos = [chats.get(chat_id).info for chat_id in dict.fromkeys(chat_ids)]
        if not infos:
            note("There are no saved chats.")
            return
        if not yes:
            for info in infos[:10]:
                note(f"{info.id}  {info.title}")
            what = "this chat" if len(infos) == 1 else f"these {len(infos)} chats"
            click.confirm(label(f"Delete {what}?"), abort=True, err=True)
        follow_deletions(chats, paths.history_dir(), note)
        for info in infos:
            chats.delete(info.id)
    note(f"Deleted: {len(infos)}.")


@command.command()
@click.option("--runs", is_flag=True, help="Also what came from one-shot runs.")
@click.option("--all", "everything", is_flag=True, help="Everything, learned files too.")
def forget(runs: bool, everything: bool) -> None:
    """Remove what drafts were learned from chats that are no longer saved.

    Deleting a chat does this at once; this command is for when that was not possible.
    """
    from localspec import history, paths
    from localspec.cli.output import note

    root = paths.history_dir()
    if everything:
        history.forget_all(root)
        note("Everything is forgotten.")
        return
    held = {
        info.name
        for one in history.held_everywhere(root)
        for info in one.sources
        if info.kind == "chat"
    }
    with _open() as chats:
        saved = {info.id for info in chats.list(limit=1_000_000)}
    gone = sorted(held - saved)
    n_tokens = history.forget_everywhere(root, "chat", gone)
    if runs:
        n_tokens += history.forget_everywhere(root, "run", None)
    note(f"{n_tokens} tokens forgotten.")
