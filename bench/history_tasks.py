"""What a history of earlier answers is worth: twelve related prompts in two sessions.

    python -m bench.history_tasks record --model M [--tokens N]   answers, for replay
    python -m bench.history_tasks replay                          speed on cost curves
    python -m bench.history_tasks real --model M [--draft D] [--tokens N] [--prompts K] [--rounds R]

Each compares the second session with the index that the first has left against a fresh index, and
prompts that have nothing to do with either (``bench/data/prompts.yaml``) with and without it.
``real`` takes turns: with and without the index, prompt by prompt, so that a machine that gets
busier does so for both. ``replay`` also says what share of each answer of the second session is in
the first, what perfect foresight would gain, and whether the drafter's chances come true.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import yaml

from bench.history_replay import (
    ANSWERS,
    DATA,
    MACHINES,
    Task,
    calibrated,
    compare,
    foresight,
    load_answers,
    shared,
    tasks,
)
from localspec.chat import Message
from localspec.config import load_config
from localspec.files import NoProgress
from localspec.history import RUNS
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling
from localspec.spec.stats import Stats

GREEDY = Sampling(temperature=0.0, seed=1)


def replay(arguments: argparse.Namespace) -> int:
    """The comparison on cost curves, from recorded answers."""
    answers = load_answers()
    first = [answer for answer in answers if answer.session == 1]
    second = [answer for answer in answers if answer.session == 2]
    report: dict[str, Any] = {
        "shared": {answer.id: shared(answer, first) for answer in second},
        "foresight": {
            curve.name: geometric_mean(
                [foresight(a, first, curve) / foresight(a, [], curve) for a in second]
            )
            for curve in MACHINES
        },
        "calibration": calibrated(second, first),
        "curves": compare(answers),
    }
    if arguments.json:
        print(json.dumps(report, indent=2))
        return 0
    for name, share in report["shared"].items():
        print(f"{name}: {share:.0%} of its tokens in runs that the first session has")
    for name, gain in report["foresight"].items():
        print(f"{name:8} gain of perfect foresight {gain:.2f}")
    for high, promised, real_share, n in report["calibration"]:
        print(f"chance up to {high:.1f}: promised {promised:.2f}, right {real_share:.2f} of {n}")
    for curve, suites in report["curves"].items():
        for suite, numbers in suites.items():
            print(
                f"{curve:8} {suite:26} fresh {numbers['fresh']:.2f}  with index "
                f"{numbers['with_index']:.2f}  gain {numbers['gain']:.2f} "
                f"(least {numbers['least']:.2f})"
            )
    return 0


def record(arguments: argparse.Namespace) -> int:
    """Let the model answer all prompts, greedy and plain, and keep the tokens."""
    session = _open(arguments, Path(tempfile.gettempdir()), mode="off", history=False)
    about = f"Greedy answers of {session.status.model} to history_prompts.yaml, token ids."
    answers: list[dict[str, object]] = []
    for task in tasks():
        messages = [Message("user", task.text)]
        prompt = session.tokenize(session.template.prompt_for(messages))
        out = [
            token
            for event in session.ask(messages, GREEDY, max_tokens=arguments.tokens)
            if isinstance(event, Step)
            for token in event.tokens
        ]
        answers.append({"id": task.id, "session": task.session, "prompt": prompt, "out": out})
        print(task.id, len(out), file=sys.stderr, flush=True)
        lines = ",\n".join(json.dumps(answer) for answer in answers)
        ANSWERS.write_text(f'{{"about": {json.dumps(about)}, "answers": [\n{lines}\n]}}\n', "utf-8")
    session.close()
    return 0


def real(arguments: argparse.Namespace) -> int:
    """Both sessions with the model: related and unrelated prompts, with the index and without."""
    chosen = tasks()
    n = arguments.prompts
    first = [task for task in chosen if task.session == 1][:n]
    second = [task for task in chosen if task.session == 2][:n]
    entries = yaml.safe_load((DATA / "prompts.yaml").read_text("utf-8"))
    unrelated = [Task(entry["id"], 0, entry["prompt"]) for entry in entries]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        session = _open(arguments, Path(directory), mode="auto", history=True)
        try:
            for task in first:
                stats = _ask(session, task, arguments.tokens)
                print(f"first session: {task.id}: {stats.n_tokens} tokens", file=sys.stderr)
            suites = {"second session": second, "unrelated": unrelated[: arguments.unrelated]}
            report: dict[str, Any] = {
                "model": session.status.model,
                "draft": session.status.draft,
                "n_threads": session.status.n_threads,
                **{
                    name: _real_gain(session, some, arguments.tokens, arguments.rounds)
                    for name, some in suites.items()
                    if some
                },
            }
        finally:
            session.close()
    report["seconds"] = time.monotonic() - started
    if arguments.json:
        print(json.dumps(report, indent=2))
        return 0
    for name in suites:
        if name in report:
            numbers = report[name]
            print(
                f"{name}: {numbers['gain']:.2f} x (geometric mean of {len(numbers['prompts'])} "
                f"ratios; least {numbers['least']:.2f}, most {numbers['most']:.2f})"
            )
    return 0


def _open(arguments: argparse.Namespace, home: Path, *, mode: str, history: bool) -> Session:
    """A session whose history, if any, is in a directory of its own."""
    os.environ["LOCALSPEC_HOME"] = str(home)
    flags = {"model": arguments.model, "draft": arguments.draft, "threads": arguments.threads}
    flags |= {"mode": mode, "history": history, "n_ctx": 2048}
    return open_session(load_config().with_flags(flags), NoProgress())


def _ask(session: Session, task: Task, n_tokens: int) -> Stats:
    messages = [Message("user", task.text)]
    for event in session.ask(messages, GREEDY, max_tokens=n_tokens, source=RUNS):
        if isinstance(event, Finished):
            return event.stats
    raise AssertionError("an answer always ends")


def _real_gain(
    session: Session, some: Sequence[Task], n_tokens: int, n_rounds: int
) -> dict[str, Any]:
    """Tokens per second of each prompt without and with what the first session left, in turns. The
    index does not learn meanwhile: the same prompt is asked several times."""
    engine, history = session._engine, session.history
    drafters = engine.drafters
    session.history = None
    rows: list[dict[str, Any]] = []
    for number, task in enumerate([*some] * n_rounds):
        row: dict[str, Any] = {"id": task.id}
        order = ("fresh", "with_index") if number % 2 else ("with_index", "fresh")
        for name in order:
            engine.drafters = [d for d in drafters if name == "with_index" or d.name != "history"]
            stats = _ask(session, task, n_tokens)
            row[name] = stats.tokens_per_s or 0.0
            row["n_tokens"] = stats.n_tokens
            if name == "with_index":
                mine = stats.drafters.get("history")
                row["n_accepted"] = mine.n_accepted if mine is not None else 0
        row["gain"] = row["with_index"] / row["fresh"] if row["fresh"] else 1.0
        rows.append(row)
        print(
            f"{task.id}: {row['fresh']:.1f} tokens/s without, {row['with_index']:.1f} with the "
            f"index: {row['gain']:.2f} x; {row['n_accepted']} of {row['n_tokens']} tokens from it",
            file=sys.stderr,
            flush=True,
        )
    engine.drafters, session.history = drafters, history
    gains = [row["gain"] for row in rows]
    return {
        "gain": geometric_mean(gains), "least": min(gains), "most": max(gains), "prompts": rows,
    }  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, action in (("record", record), ("real", real)):
        command = commands.add_parser(name)
        command.add_argument("--model", required=True)
        command.add_argument("--draft")
        command.add_argument("--tokens", type=int, default=200 if name == "record" else 150)
        command.add_argument("--threads", type=int)
        command.set_defaults(action=action)
    command.add_argument("--prompts", type=int, help="only the first so many of each session")
    command.add_argument("--unrelated", type=int, default=4, help="so many unrelated prompts")
    command.add_argument("--rounds", type=int, default=1)
    command.add_argument("--json", action="store_true")
    command = commands.add_parser("replay")
    command.add_argument("--json", action="store_true")
    command.set_defaults(action=replay)
    arguments = parser.parse_args()
    code: int = arguments.action(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
