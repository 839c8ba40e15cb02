"""Greedy texts of every mode against plain decoding, with and without --exact, and what it costs.

    python -m bench.exactness -m NAME [-md NAME] [--prompts 16] [--skip 0] [--tokens 200]
        [--threads 1 2] [--modes lookup draft auto] [--settings exact default] [--long]

``--long`` puts a text before each prompt, so that answers cross 512 cached tokens. One line per
run; exit code 1 if an exact run differs at all, or a default run where plain decoding's two best
tokens were more than 0.5 apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from localspec.chat import Message
from localspec.config import Config
from localspec.grammar import from_json_schema
from localspec.opening import open_session
from localspec.session import FIXED_LENGTH, Session
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling
from tests.helpers_schema import valid

NEAR_TIE = 0.5
GREEDY = Sampling(temperature=0.0, seed=1)
PROMPTS = Path(__file__).parent / "data" / "prompts.yaml"
SCHEMAS = Path(__file__).parent / "data" / "schemas.json"
LONG = "Notes from the archive, not needed for the question.\n" + "".join(
    f"Entry {n}: on day {n} the gauge showed {n * n % 89} units and nobody was surprised.\n"
    for n in range(1, 17)
)


@dataclass(frozen=True)
class Run:
    """One prompt in one mode. ``fork``: the first differing token; ``gap`` of plain's two best."""

    settings: str
    threads: int
    prompt: str
    mode: str
    exactness: str
    n_tokens: int
    n_verified: int
    n_cached: int
    tokens_per_s: float | None
    fork: int | None = None
    gap: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether a promise is broken."""
        if self.fork is None:
            return False
        return self.settings == "exact" or self.gap is None or self.gap >= NEAR_TIE


def answer(session: Session, messages: Sequence[Message], n: int) -> tuple[list[int], Finished]:
    """A greedy answer from an empty cache."""
    session.target_context.clear()
    tokens: list[int] = []
    finished = None
    for event in session.ask(messages, GREEDY, max_tokens=n):
        if isinstance(event, Step):
            tokens += event.tokens
        if isinstance(event, Finished):
            finished = event
    assert finished is not None
    return tokens, finished


def gap_at(session: Session, messages: Sequence[Message], tokens: Sequence[int]) -> float:
    """Gap of the two best logits after ``tokens`` of the answer, decoded one by one."""
    context = session.target_context
    prompt = session.tokenize(session.template.prompt_for(messages))
    context.clear()
    for start in range(0, len(prompt), context.n_batch):
        chunk = prompt[start : start + context.n_batch]
        context.decode(chunk, 1 if start + len(chunk) == len(prompt) else 0)
    for token in tokens:
        context.decode([token], 1)
    best = np.sort(context.row(0))[-2:]
    return float(best[1] - best[0])


def compare(session: Session, name: str, threads: int, options: argparse.Namespace) -> list[Run]:
    """All prompts in all modes with one loaded session."""
    prompts = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))[options.skip : options.prompts]
    runs = []
    for prompt in prompts:
        text = (LONG if options.long else "") + prompt["prompt"]
        messages = [Message("user", text)]
        plain: list[int] = []
        for mode in ("off", *options.modes):
            session.set_mode(mode, FIXED_LENGTH[mode])
            tokens, finished = answer(session, messages, options.tokens)
            fork = gap = None
            if mode == "off":
                plain = tokens
            elif tokens != plain:
                n = min(len(plain), len(tokens))
                fork = next((i for i in range(n) if plain[i] != tokens[i]), n)
                gap = gap_at(session, messages, plain[:fork])
            run = Run(
                settings=name, threads=threads, prompt=prompt["id"], mode=mode,
                exactness=session.status.exactness, n_tokens=len(tokens),
                n_verified=finished.stats.n_verified,
                n_cached=finished.stats.n_prompt + len(tokens),
                tokens_per_s=finished.stats.tokens_per_s, fork=fork, gap=gap,
            )  # fmt: skip
            runs.append(run)
            print(line(run), flush=True)
    return runs


def line(run: Run) -> str:
    """A run as one line."""
    speed = f"{run.tokens_per_s:6.1f}/s" if run.tokens_per_s else "      -"
    same = "same" if run.fork is None else f"differs at {run.fork + 1}, gap {run.gap:.3f}"
    if run.mode == "off":
        same = f"({run.exactness})"
    return (
        f"{run.settings:8} {run.threads} thread{'s' * (run.threads > 1):1} {run.prompt:24} "
        f"{run.mode:7} {run.n_tokens:4} tokens, {run.n_verified:4} verified, {speed}  {same}"
    )


def schemas(session: Session, options: argparse.Namespace) -> int:
    """Every schema in every mode; returns how many answers do not validate, cut ones included."""
    n_bad = n_all = 0
    for case in json.loads(SCHEMAS.read_text(encoding="utf-8")):
        grammar = from_json_schema(json.dumps(case["schema"]))
        for mode in ("off", *options.modes):
            for temperature in options.temps:
                session.set_mode(mode, FIXED_LENGTH[mode])
                sampling = Sampling(temperature=temperature, seed=5, grammar=grammar)
                text, end = "", ""
                messages = [Message("user", case["prompt"])]
                for event in session.ask(messages, sampling, max_tokens=options.tokens):
                    if isinstance(event, (Step, Finished)):
                        text += event.text
                    if isinstance(event, Finished):
                        end = event.detail
                if end != "end of text":
                    verdict = "cut"
                else:
                    verdict = "valid" if valid(json.loads(text), case["schema"]) else "INVALID"
                n_bad += verdict != "valid"
                n_all += 1
                line = f"{case['id']:18} {mode:7} {temperature:.1f} {verdict:8} {text[:80]!r}"
                print(line, flush=True)
    print(f"{n_all - n_bad} of {n_all} answers validate")
    return n_bad


def summary(runs: Sequence[Run]) -> None:
    """Forks and speed by settings and threads."""
    for key in sorted({(run.settings, run.threads) for run in runs}):
        mine = [run for run in runs if (run.settings, run.threads) == key]
        drafted = [run for run in mine if run.mode != "off"]
        forks = [run for run in drafted if run.fork is not None]
        speeds = [run.tokens_per_s for run in mine if run.mode == "off" and run.tokens_per_s]
        gaps = f", largest gap {max(run.gap or 0 for run in forks):.3f}" if forks else ""
        print(
            f"{key[0]} with {key[1]} threads: {len(forks)} of {len(drafted)} texts differ{gaps}; "
            f"plain {np.mean(speeds):.1f} tokens/s; {sum(run.n_verified for run in drafted)} "
            f"drafted tokens verified"
        )


def main() -> int:
    """Run what was asked for; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("-md", "--draft")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--skip", type=int, default=0, help="go on after so many prompts")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--modes", nargs="+", default=["lookup", "draft", "auto"])
    parser.add_argument("--settings", nargs="+", default=["exact"], choices=["exact", "default"])
    parser.add_argument("--ctx-size", type=int, default=2048)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--temps", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--schemas", action="store_true", help="the JSON schemas instead")
    parser.add_argument("--json", type=Path, help="write all runs to a file")
    options = parser.parse_args()
    runs: list[Run] = []
    n_bad = 0
    for name in options.settings:
        for threads in options.threads:
            config: Any = Config(
                model=options.model, draft=options.draft, n_ctx=options.ctx_size,
                threads=threads, exact=name == "exact", history=False,
            )  # fmt: skip
            started = time.perf_counter()
            session = open_session(config)
            print(
                f"{name}, {threads} threads: loaded in {time.perf_counter() - started:.1f} s, "
                f"{session.status.exactness}, mode {session.status.mode}"
            )
            try:
                if options.schemas:
                    n_bad += schemas(session, options)
                else:
                    runs += compare(session, name, threads, options)
            finally:
                session.close()
    summary(runs)
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    return 1 if n_bad or any(run.is_bad for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
