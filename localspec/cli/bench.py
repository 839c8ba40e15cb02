"""``localspec bench``: every mode on this machine, by kind of work."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import COUNT, AtLeast, Interrupt, config_from, model_options
from localspec.errors import DecodeError, UsageError

if TYPE_CHECKING:
    from localspec.benchmark import Options, Results, Summary
    from localspec.config import Mode
    from localspec.session import Session

N_TOKENS = 64
N_CTX = 2048
MODES: tuple[Mode, ...] = ("off", "lookup", "draft", "auto")


@click.command()
@click.argument("pair", required=False)
@model_options
@click.option(
    "--prompts",
    metavar="NAMES",
    help="Which prompts: ids or kinds of work with commas between, or all.  "
    "[default: one of each of six kinds]",
)
@click.option(
    "--prompts-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prompts of your own: a YAML list of id, kind and prompt.",
)
@click.option(
    "--modes",
    metavar="NAMES",
    help="Which modes, with commas between; plain (off) is always measured.  "
    "[default: all that this pair has]",
)
@click.option(
    "-n",
    "--tokens",
    type=COUNT,
    default=N_TOKENS,
    metavar="N",
    show_default=True,
    help="Tokens of each answer.",
)
@click.option(
    "--rounds",
    type=COUNT,
    metavar="N",
    help="How often everything is measured.  [default: up to 3, as fit into 4 minutes]",
)
@click.option(
    "--temp",
    "--temperature",
    "temperature",
    type=AtLeast(0, 100),
    default=0.0,
    metavar="T",
    show_default=True,
    help="0 takes the most probable token.",
)
@click.option(
    "--seed",
    type=AtLeast(0, 4_294_967_295, whole=True),
    default=1,
    metavar="N",
    show_default=True,
    help="Of the first round; each round has the next one.",
)
@click.option(
    "--svg",
    "svg_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw the result, as a picture for a browser.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    pair: str | None,
    prompts: str | None,
    prompts_file: Path | None,
    modes: str | None,
    tokens: int,
    rounds: int | None,
    temperature: float,
    seed: int,
    svg_path: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Measure plain decoding and every mode on this machine.

    PAIR is a catalog name, a .gguf file or owner/repo:quant, as for --model. The modes take turns,
    every answer starts from cleared caches, and medians over the rounds are shown. Ctrl-C stops and
    prints what was measured until then.
    """  # fmt: skip
    from localspec.benchmark import Options, choose, load
    from localspec.spec.sampling import Sampling

    if pair is not None and flags.get("model"):
        raise UsageError(f'two models are named, "{pair}" and "{flags["model"]}"')
    if flags.get("mode") is not None:
        raise UsageError("bench measures every mode", hint="--modes names some of them.")
    chosen = choose(load(prompts_file), prompts)
    wanted = _modes(modes)
    _check_writable(svg_path)
    options = Options(
        chosen, wanted, tokens, Sampling(temperature=temperature, seed=seed), rounds,
        flags.get("draft_max"),
    )  # fmt: skip
    flags["model"] = pair or flags.get("model")
    return _bench(flags, options, named=modes is not None, svg_path=svg_path, as_json=as_json,
                  quiet=quiet)  # fmt: skip


def _bench(
    flags: dict[str, Any],
    options: Options,
    *,
    named: bool,
    svg_path: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    from localspec.benchmark import Results, summarise
    from localspec.cli.output import TerminalProgress, note
    from localspec.opening import open_session

    # What was answered before would be copied in the next round: no history.
    config = replace(config_from({**flags, "draft_max": None}), history=False, mode="auto")
    if config.n_ctx is None:
        config = replace(config, n_ctx=N_CTX)
    interrupt = Interrupt()
    with interrupt.watching():
        session = open_session(config, TerminalProgress(quiet=quiet), interrupt)
        try:
            options = replace(options, modes=_possible(session, options.modes, named=named))
            results = Results(options.prompts, options.modes, options.n_tokens, options.sampling)
            failure = _measure(session, options, results, interrupt, quiet=quiet)
            about = _about(session)
        finally:
            session.close()
    summary = summarise(results)
    _show(results, summary, about, options.prompts, as_json=as_json)
    if svg_path is not None and results.runs:
        _draw(svg_path, summary, about, results)
    if failure is not None:
        raise failure
    if not results.complete:
        note(f"stopped after {len(results.runs)} answers")
        return 130
    return 0


def _modes(text: str | None) -> tuple[Mode, ...]:
    """Plain first: the others are compared with it."""
    if text is None:
        return MODES
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = ["off" if name in ("plain", "none") else name for name in names]
    for name in names:
        if name not in MODES:
            raise UsageError(
                f'there is no mode "{name}"', hint=f"The modes are {', '.join(MODES)}."
            )
    if not names:
        raise UsageError("--modes names no mode")
    return tuple(mode for mode in MODES if mode == "off" or mode in names)


def _possible(session: Session, modes: Sequence[Mode], *, named: bool) -> tuple[Mode, ...]:
    """Those that the loaded pair has. Raises UsageError if one was named that it has not."""
    from localspec.cli.output import note

    found: list[Mode] = []
    for mode in modes:
        session.set_mode(mode)
        if mode in ("auto", "off") or session.status.mode == mode:
            found.append(mode)
        elif named:
            raise UsageError(f"--modes {mode} is not possible: {session.status.reason}")
        else:
            note(f"without {mode}: {session.status.reason}")
    return tuple(found)


def _measure(
    session: Session, options: Options, results: Results, interrupt: Interrupt, *, quiet: bool
) -> DecodeError | None:
    """Fill ``results``; an error in the middle is returned, so that what there is can be shown."""
    from localspec.benchmark.costs import cost_by_width
    from localspec.benchmark.measure import measure
    from localspec.hardware.process import n_bytes_used
    from localspec.spec.drafter import Interrupted

    bar = Bar(quiet=quiet)
    try:
        bar(0, 1, "cost of a decode by width")
        text = options.prompts[0].prompt
        prefix = session.tokenize(session.template.raw(text))[:128]
        results.curve.update(
            cost_by_width(session.target_context, prefix, n_passes=2, cancelled=interrupt)
        )
        measure(
            session, options, cancelled=interrupt, report=bar, n_bytes_used=n_bytes_used,
            results=results,
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt):
        pass
    except DecodeError as error:
        return error
    finally:
        bar.end()
    return None


class Bar:
    """A line on stderr that says how far it is: redrawn on a terminal, every ten seconds
    elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._live = sys.stderr.isatty()
        self._quiet = quiet
        self._started = self._shown = time.monotonic()
        self._width = 0

    def __call__(self, n_done: int, n_total: int, label: str) -> None:
        """``n_done`` of ``n_total`` are done, ``label`` comes next."""
        from localspec.terminal import duration

        now = time.monotonic()
        if self._quiet or (not self._live and n_done and now - self._shown < 10):
            return
        self._shown = now
        share = n_done / n_total
        line = f"{n_done:3d} of {n_total}  {label}"
        if n_done > 2:
            line += f"  {duration((now - self._started) * (1 / share - 1))} left at most"
        if not self._live:
            print(line, file=sys.stderr, flush=True)
            return
        filled = round(share * 20)
        line = f"[{'#' * filled}{'.' * (20 - filled)}] {line}"
        line = line[: shutil.get_terminal_size((80, 24)).columns - 1]
        sys.stderr.write("\r" + line + " " * max(0, self._width - len(line)))
        sys.stderr.flush()
        self._width = len(line)

    def end(self) -> None:
        """Leave a clean line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


# -- output ---------------------------------------------------------------------------------------


def _about(session: Session) -> dict[str, Any]:
    from localspec import __version__

    status = session.status
    plan = status.plan
    draft_bytes = sum(p.n_bytes for p in plan.parts if p.role == "draft") if plan else 0
    return {
        "localspec": __version__,
        "model": status.model,
        "draft": status.draft,
        "profile": status.profile,
        "n_threads": status.n_threads,
        "n_ctx": status.n_ctx,
        "draft_bytes": draft_bytes,
    }


def _show(
    results: Results,
    summary: Summary,
    about: dict[str, Any],
    prompts: Any,
    *,
    as_json: bool,
) -> None:
    from localspec.benchmark import as_dict
    from localspec.cli import output
    from localspec.terminal import size

    if as_json:
        output.data(as_dict(results, summary, about))
        return
    if not results.runs:
        output.note("nothing was measured")
        return
    draft = about["draft"] or "no draft model"
    output.text(f"{about['model']} with {draft}, threads: {about['n_threads']}")
    rounds = max(run.round for run in results.runs) + 1
    output.text(
        f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}, {results.n_tokens} tokens each, "
        f"temperature {results.sampling.temperature:g}, medians of {rounds} "
        f"round{'s' * (rounds != 1)}"
    )
    output.text("")
    columns = ["WORK", "MODE", "TOKENS/S", "× PLAIN", "ACCEPTED", "PER STEP", "BY POSITION",
               "FIRST TOKEN", "× PLAIN", "MEMORY"]  # fmt: skip
    output.table(columns, [_cells(row) for row in summary.rows], right=[2, 3, 4, 5, 7, 8, 9])
    output.text("")
    if about["draft_bytes"]:
        output.text(
            f"Of the memory, {size(about['draft_bytes'])} are planned for the draft model, which "
            "plain and lookup would not load."
        )
    output.text(summary.noise.sentence)


def _cells(row: Any) -> list[str]:
    from localspec.terminal import size

    def number(value: float | None, text: str) -> str:
        return "–" if value is None else text.format(value)

    positions = " ".join(f"{rate * 100:.0f}" for rate in row.per_position[:4])
    if len(row.per_position) > 4:
        positions += " …"
    return [
        row.kind,
        "plain" if row.mode == "off" else row.mode,
        number(row.tokens_per_s, "{:.1f}"),
        number(row.ratio, "{:.2f}"),
        number(row.acceptance_rate, "{:.0%}"),
        number(row.mean_accepted_length, "{:.2f}"),
        f"{positions} %" if positions else "–",
        number(row.first_token_s, "{:.2f} s"),
        number(row.first_token_ratio, "{:.2f}"),
        size(row.n_bytes),
    ]


def _check_writable(path: Path | None) -> None:
    """Minutes of measuring must not end in a wrong file name."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        what = "is a directory" if path.is_dir() else "is in a directory that does not exist"
        raise UsageError(f"the picture cannot be written: {path} {what}")


def _draw(path: Path, summary: Summary, about: dict[str, Any], results: Results) -> None:
    from localspec.benchmark import svg
    from localspec.cli.output import note
    from localspec.terminal import label

    title = f"{label(about['model'])} with {label(about['draft'] or 'no draft model')}"
    subtitle = (
        f"localspec bench: {len(results.prompts)} prompts, {results.n_tokens} tokens, temperature "
        f"{results.sampling.temperature:g}, threads: {about['n_threads']}"
    )
    try:
        path.write_text(svg(summary, title, subtitle), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the picture cannot be written to {path}: {error.strerror}") from error
    note(f"the picture is in {path}")
