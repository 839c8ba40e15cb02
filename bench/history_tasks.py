"""What a history of earlier answers is worth: twelve related prompts in two sessions.

    python -m bench.history_tasks record --model M [--tokens N]   answers, for replay
    python -m bench.history_tasks replay                          speed on cost curves
    python -m bench.history_tasks real --model M [--draft D] [--tokens N] [--prompts K]

Each compares the second session with the index that the first has left against a fresh index, and
prompts that have nothing to do with either (``bench/data/prompts.yaml``) with and without it.
``real`` takes turns: with and without the index, prompt by prompt, so that a machine that gets
busier does so for both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt
import yaml

from bench.replay import curves
from bench.replay.curves import Curve
from bench.replay.simulate import Clock
from bench.replay.traces import load as load_traces
from localspec.chat import Message
from localspec.config import load_config
from localspec.files import NoProgress
from localspec.history import RUNS, History
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.drafter import Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fakes import FakeSampler, FakeVocabulary
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.pacer import AutoPacer
from localspec.spec.sampling import Sampling
from localspec.spec.stats import Stats

DATA = Path(__file__).parent / "data"
ANSWERS = DATA / "history_answers.json"
GREEDY = Sampling(temperature=0.0, seed=1)
SEEDS = range(3)


@dataclass(frozen=True)
class Task:
    """One prompt of ``history_prompts.yaml``."""

    id: str
    session: int
    text: str


@dataclass(frozen=True)
class Answer:
    """A recorded answer: tokens of the prompt and of what the target said."""

    id: str
    session: int
    prompt: list[int]
    out: list[int]


def tasks() -> list[Task]:
    """The twelve prompts, in order."""
    found = []
    for entry in yaml.safe_load((DATA / "history_prompts.yaml").read_text("utf-8"))["prompts"]:
        text = entry["prompt"]
        if "document" in entry:
            text = f"{entry['document']}\n{text}"
        found.append(Task(entry["id"], entry["session"], text))
    return found


# -- replay ---------------------------------------------------------------------------------------


class CurveDecoder:
    """A ``Decoder`` that says what was recorded and takes the time that a curve says."""

    def __init__(self, text: Sequence[int], n_vocab: int, curve: Curve, clock: Clock) -> None:
        self.n_ctx, self.n_vocab = len(text) + 64, n_vocab
        self.seen_s = 0.0
        self._text, self._curve, self._clock = text, curve, clock
        self._tokens: list[int] = []
        self._row: npt.NDArray[np.float32] = np.zeros(n_vocab, np.float32)
        self._n_rows = 0

    @property
    def tokens(self) -> Sequence[int]:
        """What was decoded."""
        return self._tokens

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        """Time passes."""
        self.seen_s += self._clock.spend(self._curve.target(len(tokens)))
        self._tokens.extend(tokens)
        self._n_rows = n_rows

    def row(self, index: int) -> Row:
        """The recorded token; it depends on the position only, which is enough where a draft is
        rejected at its first wrong token."""
        at = len(self._tokens) - self._n_rows + index + 1
        self._row.fill(0.0)
        self._row[self._text[min(at, len(self._text) - 1)]] = 1.0
        return self._row

    def rollback(self, n_keep: int) -> bool:
        """Always possible."""
        del self._tokens[n_keep:]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._tokens.clear()


def replayed(answer: Answer, history: History, curve: Curve, seed: int, n_vocab: int) -> float:
    """Speed over plain decoding of one answer on ``curve``, without a draft model."""
    clock = Clock(seed)
    text = [*answer.prompt, *answer.out]
    target = CurveDecoder(text, n_vocab, curve, clock)
    engine = Engine(
        target,
        FakeVocabulary([b"x"] * n_vocab),
        [Lookup(), HistoryDrafter(history, history.calibration, n_vocab)],
        AutoPacer({}),
        clock=lambda: target.seen_s,
    )
    request = Request(
        answer.prompt, FakeSampler(), np.random.default_rng(0), max_tokens=len(answer.out)
    )
    start, tokens = 0.0, list[int]()
    for event in engine.generate(request):
        if isinstance(event, Step):
            tokens += event.tokens
            if event.is_first:
                start = clock.true
    assert tokens == answer.out, "a draft changed the answer"
    return (len(answer.out) - 1) / (clock.true - start)


def _compact(answers: Sequence[Answer]) -> tuple[list[Answer], int]:
    """The same with token ids 0 .. n - 1, so that a row of logits is short."""
    ids = sorted({token for a in answers for token in [*a.prompt, *a.out]})
    number = {token: i for i, token in enumerate(ids)}
    return [
        replace(a, prompt=[number[t] for t in a.prompt], out=[number[t] for t in a.out])
        for a in answers
    ], len(ids)


def speeds(
    answers: Sequence[Answer], earlier: Sequence[Answer], curve: Curve, n_vocab: int
) -> list[float]:
    """Speed over plain of ``answers``, given one after the other, after ``earlier`` ones; the mean
    over ``SEEDS``."""
    sums = [0.0] * len(answers)
    for seed in SEEDS:
        history = History.in_memory()
        for answer in earlier:
            _replay_into(history, answer)
        for number, answer in enumerate(answers):
            sums[number] += replayed(answer, history, curve, seed * 100 + number, n_vocab)
            history.remember([*answer.prompt, *answer.out], None)
        history.close()
    return [total / len(SEEDS) for total in sums]


def _replay_into(history: History, answer: Answer) -> None:
    """Learn an answer as a session does: calibration first, then the text."""
    drafter = HistoryDrafter(history, history.calibration, 1 << 31)
    drafter.begin(answer.prompt)
    drafter.commit(answer.out)
    history.remember([*answer.prompt, *answer.out], None)


def alone(answers: Sequence[Answer], curve: Curve, n_vocab: int) -> list[float]:
    """Each answer with an empty index."""
    return [speeds([answer], [], curve, n_vocab)[0] for answer in answers]


def compare(answers: Sequence[Answer]) -> dict[str, dict[str, dict[str, float]]]:
    """Curve -> suite -> numbers: speed over plain of the second session with a fresh index and with
    what the first session left, and of unrelated prompts in the same way."""
    unrelated = [Answer(t.name, 0, t.prompt, t.out) for t in load_traces() if t.mode == "g"]
    compacted, n_vocab = _compact([*answers, *unrelated])
    first = [a for a in compacted if a.session == 1]
    second = [a for a in compacted if a.session == 2]
    others = [a for a in compacted if a.session == 0]
    found = {}
    for curve in (curves.LAPTOP, curves.CPU_Q8, curves.CPU_Q4):
        found[curve.name] = {
            "second session": _numbers(
                alone(second, curve, n_vocab), _each(second, first, curve, n_vocab)
            ),
            "second session, in a row": _numbers(
                speeds(second, [], curve, n_vocab), speeds(second, first, curve, n_vocab)
            ),
            "unrelated": _numbers(
                alone(others, curve, n_vocab), _each(others, [*first, *second], curve, n_vocab)
            ),
        }
    return found


def _each(
    answers: Sequence[Answer], earlier: Sequence[Answer], curve: Curve, n_vocab: int
) -> list[float]:
    return [speeds([answer], earlier, curve, n_vocab)[0] for answer in answers]


def _numbers(fresh: Sequence[float], with_index: Sequence[float]) -> dict[str, float]:
    gains = [b / a for a, b in zip(fresh, with_index, strict=True)]
    return {
        "fresh": geometric_mean(fresh),
        "with_index": geometric_mean(with_index),
        "gain": geometric_mean(gains),
        "least": min(gains),
    }


# -- real runs ------------------------------------------------------------------------------------


def record(arguments: argparse.Namespace) -> int:
    """Let the model answer all prompts, greedy and plain, and keep the tokens."""
    session = _open(arguments, Path(tempfile.gettempdir()), mode="off", history=False)
    about = f"Greedy answers of {session.status.model} to history_prompts.yaml, token ids."
    answers: list[dict[str, object]] = []
    for task in tasks()[: arguments.prompts]:
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
    first = [task for task in chosen if task.session == 1]
    second = [task for task in chosen if task.session == 2][: arguments.prompts]
    entries = yaml.safe_load((DATA / "prompts.yaml").read_text("utf-8"))
    unrelated = [Task(entry["id"], 0, entry["prompt"]) for entry in entries][: arguments.prompts]
    with tempfile.TemporaryDirectory() as directory:
        session = _open(arguments, Path(directory), mode="auto", history=True)
        try:
            for task in first:
                _ask(session, task, arguments.tokens)
                print(task.id, file=sys.stderr)
            report = {
                "model": session.status.model,
                "draft": session.status.draft,
                "second session": _real_gain(session, second, arguments.tokens),
                "unrelated": _real_gain(session, unrelated, arguments.tokens),
            }
        finally:
            session.close()
    print(json.dumps(report, indent=2))
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


def _real_gain(session: Session, some: Sequence[Task], n_tokens: int) -> dict[str, object]:
    """Tokens per second of each prompt without and with what the first session left. The index
    does not learn meanwhile: the same prompt is asked twice."""
    engine, history = session._engine, session.history
    drafters = engine.drafters
    session.history = None
    rows: list[dict[str, float | str]] = []
    gains = []
    for number, task in enumerate(some):
        speed: dict[str, float] = {}
        for name in ("fresh", "with_index") if number % 2 else ("with_index", "fresh"):
            engine.drafters = [d for d in drafters if name == "with_index" or d.name != "history"]
            stats = _ask(session, task, n_tokens)
            speed[name] = stats.tokens_per_s or 0.0
            if "history" in stats.drafters:
                speed["n_accepted"] = stats.drafters["history"].n_accepted
        rows.append({"id": task.id, **speed})
        print(rows[-1], file=sys.stderr)
        if speed["fresh"] and speed["with_index"]:
            gains.append(speed["with_index"] / speed["fresh"])
    engine.drafters, session.history = drafters, history
    return {"gain": geometric_mean(gains), "least": min(gains), "prompts": rows}


def load_answers() -> list[Answer]:
    """What ``record`` wrote."""
    recorded = json.loads(ANSWERS.read_text("utf-8"))["answers"]
    return [Answer(a["id"], a["session"], a["prompt"], a["out"]) for a in recorded]


def replay(arguments: argparse.Namespace) -> int:
    """The comparison on cost curves, from recorded answers."""
    report = compare(load_answers())
    if arguments.json:
        print(json.dumps(report, indent=2))
        return 0
    for curve, suites in report.items():
        for suite, n in suites.items():
            print(
                f"{curve:8} {suite:26} fresh {n['fresh']:.2f}  with index {n['with_index']:.2f}"
                f"  gain {n['gain']:.2f} (least {n['least']:.2f})"
            )
    return 0


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
        command.add_argument("--tokens", type=int, default=160)
        command.add_argument("--threads", type=int)
        command.add_argument("--prompts", type=int, help="only the first so many of each suite")
        command.set_defaults(action=action)
    command = commands.add_parser("replay")
    command.add_argument("--json", action="store_true")
    command.set_defaults(action=replay)
    arguments = parser.parse_args()
    code: int = arguments.action(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
