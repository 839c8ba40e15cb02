"""``localspec verify``: check that drafting changes nothing but speed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import Interrupt, config_from, model_options
from localspec.cli.output import TerminalProgress, data, note, table, text
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.session import Session
    from localspec.verification import Verification


@click.command()
@click.argument("pair", required=False)
@model_options
@click.option("--thorough", is_flag=True, help="More and longer answers: minutes become an hour.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Only the result.")
def command(pair: str | None, thorough: bool, as_json: bool, quiet: bool, **flags: Any) -> int:
    """Check on this machine that drafting changes nothing but speed.

    Answers a set of prompts plainly and with each way of drafting, at temperature 0 and sampled.
    Exit code 1 if a text differs where the model was sure, or if sampled tokens do not fit the
    model's own probabilities.
    """
    if pair is not None:
        if flags.get("model") is not None:
            raise UsageError("name the model once: as PAIR or with --model")
        flags["model"] = pair
    config = config_from({**flags, "history": False})

    from localspec.opening import open_session
    from localspec.verification import QUICK, THOROUGH, Verifying, modes_of

    interrupt = Interrupt()
    with interrupt.watching():
        session = open_session(config, TerminalProgress(quiet=quiet), interrupt)
        try:
            modes = modes_of(session)
            say = (lambda _text: None) if quiet else note
            checks = Verifying(session, THOROUGH if thorough else QUICK, say, interrupt)
            found = checks.run(modes)
            if as_json:
                data(_as_dict(found, session))
            else:
                _print(found, session)
        finally:
            session.close()
    return 1 if found.n_violations else 0


def _as_dict(found: Verification, session: Session) -> dict[str, Any]:
    return {
        "model": session.status.model,
        "draft": session.status.draft,
        "exactness": session.status.exactness,
        "greedy": [{**asdict(r), "violation": r.is_violation} for r in found.greedy],
        "sampled": [{**asdict(r), "violation": r.is_violation} for r in found.sampled],
        "width_differences": found.widths,
        "n_violations": found.n_violations,
        "verdict": verdict(found, session.status.reason),
    }


def _print(found: Verification, session: Session) -> None:
    status = session.status
    text(f"{status.model}, draft {status.draft or 'none'}, {status.n_threads} threads")
    if found.greedy:
        rows = []
        for result in found.greedy:
            same = "identical"
            if result.first_difference is not None:
                same = f"differs at token {result.first_difference + 1}"
            gap = "" if result.gap is None else f"{result.gap:.3f}"
            rows.append(
                [str(result.prompt), result.mode, str(result.n_tokens), str(result.n_verified),
                 same, gap]
            )  # fmt: skip
        text("")
        table(
            ["prompt", "mode", "tokens", "drafted", "greedy text", "plain gap there"],
            rows, right=[0, 2, 3, 5],
        )  # fmt: skip
        text("")
        table(
            ["mode", "tokens", "drafted", "sampled: p-value"],
            [
                [r.mode, str(r.n_tokens), str(r.n_verified), f"{r.p_value:.3g}"
                 + (f", again {r.again:.3g}" if r.again is not None else "")]
                for r in found.sampled
            ],
            right=[1, 2],
        )  # fmt: skip
        text("")
        text(_widths(found))
    text(verdict(found, status.reason))


def _widths(found: Verification) -> str:
    if found.widths is None:
        return "Rounding by rows per decode cannot be measured with this model."
    parts = [f"{w}: {d:.2g}" if d else f"{w}: none" for w, d in sorted(found.widths.items())]
    return f"Largest logit difference from decoding one by one, by rows: {', '.join(parts)}"


def verdict(found: Verification, reason: str) -> str:
    """One sentence on what was found."""
    if not found.greedy:
        return f"Nothing to check: nothing is drafted here ({reason})."
    forks = [result for result in found.greedy if result.first_difference is not None]
    n_tokens = sum(result.n_tokens for result in found.greedy)
    if found.n_violations:
        return f"VIOLATION: {found.n_violations} results that rounding or chance cannot explain."
    tested = min(result.n_tokens for result in found.sampled)
    sampled = f"sampled tokens fit the model's own probabilities ({tested} or more in each mode)"
    if not forks:
        return f"OK: every greedy text is identical to plain decoding; {sampled}."
    largest = max(result.gap or 0.0 for result in forks)
    return (
        f"OK: {len(forks)} of {len(found.greedy)} greedy texts fork, each where the two best "
        f"tokens were nearly equal (gap at most {largest:.2g}; {n_tokens} tokens in all): the "
        f"number of rows in a decode rounds differently here, which --exact avoids. And {sampled}."
    )
