"""What localspec's own Python costs, against raw decoding through the same bindings.

    python -m bench.overhead [--model NAME] [--tokens N] [--rounds N] [--json]

Plain mode is compared with the shortest loop there is: llama_decode of one token, the best logit,
again. Both run in this process, alternating, on the same text, so that a noisy machine slows both;
the ratio of the medians is printed. Then, for each mode, the share of a step that is not spent
inside llama.cpp: everything between two decodes, the sampler chain included.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from localspec.chat import Message
from localspec.config import Config
from localspec.files import NoProgress
from localspec.llama.context import Context
from localspec.llama.sampler import Chain
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.events import Finished
from localspec.spec.sampling import Sampling

PROMPT = "Write a Python class for an LRU cache with get and put methods, with type hints."
BUDGET_TOKENS_PER_S = 30
"""Python's share is stated for this speed of decoding: the share of a 33 ms step."""


@dataclass
class Inside:
    """Seconds spent inside ``Context.decode`` and reading of rows (waiting for the device)."""

    seconds: float = 0.0
    n_decodes: int = 0


def watch(context: Context) -> Inside:
    """Time every native decode of ``context`` from now on."""
    inside = Inside()
    native = context.decode

    def decode(tokens: Sequence[int], n_rows: int) -> None:
        started = time.perf_counter()
        native(tokens, n_rows)
        if n_rows:
            context.row(0)  # waits until the result is there
        inside.seconds += time.perf_counter() - started
        inside.n_decodes += 1

    context.decode = decode  # type: ignore[method-assign]
    return inside


def raw_decoding(context: Context, prompt: list[int], n: int) -> float:
    """Tokens per second of the barest loop."""
    context.clear()
    context.decode(prompt, 1)
    token = int(context.row(0).argmax())
    started = time.perf_counter()
    for _ in range(n):
        context.decode([token], 1)
        token = int(context.row(0).argmax())
    return n / (time.perf_counter() - started)


def answer(session: Session, sampling: Sampling, n: int) -> Finished:
    """The last event of an answer of ``n`` tokens."""
    events = session.ask([Message("user", PROMPT)], sampling, max_tokens=n)
    last = list(events)[-1]
    assert isinstance(last, Finished)
    return last


def plain_ratio(session: Session, n: int, rounds: int) -> dict[str, Any]:
    """localspec in plain mode over raw decoding, medians of ``rounds`` alternating runs."""
    context = session.target_context
    prompt = session.tokenize(session.template.prompt_for([Message("user", PROMPT)]))
    session.set_mode("off")
    raw, ours = [], []
    for _ in range(rounds):
        raw.append(raw_decoding(context, prompt, n))
        context.clear()
        ours.append(answer(session, Sampling(temperature=0, seed=1), n).stats.tokens_per_s or 0.0)
    ratios = [one / other for one, other in zip(ours, raw, strict=True)]
    return {
        "raw_tokens_per_s": median(raw),
        "localspec_tokens_per_s": median(ours),
        "ratio": median(ours) / median(raw),
        "ratio_of_pairs": median(ratios),
    }


def python_share(session: Session, mode: Any, temperature: float, n: int) -> dict[str, Any]:
    """Python's microseconds per step in ``mode``."""
    session.set_mode(mode, None if mode in ("off", "auto") else 4)
    watched = [watch(context) for context in session.contexts]
    session.target_context.clear()
    try:
        stats = answer(session, Sampling(temperature=temperature, seed=1), n).stats
    finally:
        for context in session.contexts:
            del context.decode  # type: ignore[misc]
    inside = sum(one.seconds for one in watched) - stats.prompt_s
    outside = max(0.0, stats.generate_s - inside)
    per_step = outside / max(1, stats.n_steps)
    return {
        "mode": mode,
        "temperature": temperature,
        "n_steps": stats.n_steps,
        "python_us_per_step": per_step * 1e6,
        "share_at_30_tokens_per_s": per_step * BUDGET_TOKENS_PER_S,
        "share_here": outside / stats.generate_s if stats.generate_s else 0.0,
    }


def row_cost(session: Session, repeats: int = 200) -> dict[str, float]:
    """Microseconds to turn one row of logits into a distribution, for usual sampler settings."""
    row = np.random.default_rng(0).normal(0, 3, session.target_context.n_vocab)
    logits = row.astype(np.float32)
    settings = {
        "greedy": Sampling(temperature=0),
        "top-k 40, top-p, min-p": Sampling(),
        "with penalties": Sampling(repeat_penalty=1.1, presence_penalty=0.1),
        "nothing truncated": Sampling(top_k=0, top_p=1, min_p=0, temperature=1),
    }
    found = {}
    for name, sampling in settings.items():
        chain = Chain(session.target_model, sampling, [1, 2, 3])
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            if chain.greedy:
                chain.best(logits)
            else:
                chain.distribution(logits)
            times.append(time.perf_counter() - started)
        chain.close()
        found[name] = median(times) * 1e6
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # Answers that come again and again must not be copied from the history, nor kept in it.
    config = Config(model=options.model, n_ctx=2048, history=False)
    session = open_session(config, NoProgress())
    modes = ["off", "lookup", *(["draft"] if session.status.draft else []), "auto"]
    result = {
        "plain": plain_ratio(session, options.tokens, options.rounds),
        "steps": [
            python_share(session, mode, temperature, options.tokens)
            for mode in modes
            for temperature in (0.0, 0.8)
        ],
        "sampler_us_per_row": row_cost(session),
    }
    session.close()
    if options.json:
        print(json.dumps(result, indent=2))
        return
    plain = result["plain"]
    print(
        f"plain mode {plain['localspec_tokens_per_s']:.1f} tokens/s, raw decoding "
        f"{plain['raw_tokens_per_s']:.1f}: ratio {plain['ratio']:.3f} "
        f"(median of pairs {plain['ratio_of_pairs']:.3f}; to be at least 0.97)"
    )
    for row in result["steps"]:
        print(
            f"{row['mode']:>7} at {row['temperature']}: {row['python_us_per_step']:6.0f} us of "
            f"Python per step, {row['share_at_30_tokens_per_s']:.2%} of a step at 30 tokens/s, "
            f"{row['share_here']:.2%} here (to be under 3 %)"
        )
    for name, cost in result["sampler_us_per_row"].items():
        print(f"sampler, {name}: {cost:.0f} us per row")


if __name__ == "__main__":
    main()
