"""Microseconds per step of the pacer and the lookup drafter: ``python -m bench.overhead_pacer``.

The target is under 200 µs a step at any context length. Medians, so that a busy machine disturbs
little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from localspec.spec.drafter import Draft, Measured, Offer
from localspec.spec.events import PLAIN
from localspec.spec.lookup import Lookup
from localspec.spec.pacer import AutoPacer
from localspec.spec.verify import peak

CONTEXTS = (1_000, 8_000, 32_000)
N_STEPS = 2_000
N_VOCAB = 151_936
CHANCES = (0.95,) * 16
COMMITTED = 3
"""Tokens per step."""


def text(n: int, rng: random.Random) -> list[int]:
    """Tokens that repeat as code does: known lines in a new order."""
    lines = [[rng.randrange(2_000) for _ in range(rng.randrange(4, 20))] for _ in range(n // 40)]
    tokens: list[int] = []
    while len(tokens) < n:
        tokens += rng.choice(lines)
    return tokens[:n]


def timed(work: Callable[[], object], n: int = N_STEPS) -> float:
    """The median of ``n`` calls in microseconds."""
    times = []
    for _ in range(n):
        started = perf_counter()
        work()
        times.append(perf_counter() - started)
    return median(times) * 1e6


def lookup_us(n_context: int) -> tuple[float, float]:
    """(index one token of the prompt, one step: offer, a copy of 10, commit of three tokens)."""
    rng = random.Random(1)
    tokens = text(n_context, rng)
    drafter = Lookup()
    started = perf_counter()
    drafter.begin(tokens)
    index = (perf_counter() - started) / n_context * 1e6
    following = iter(text(COMMITTED * (N_STEPS + 1), rng))

    def step() -> None:
        drafter.offer()
        drafter.propose(10, lambda _n, _q: True, lambda: False)
        drafter.commit([next(following) for _ in range(COMMITTED)])

    return index, timed(step)


def pacer_us(drafter: str) -> float:
    """One step: choose, ask four times for more, cut, learn."""
    rng = random.Random(1)
    pacer = AutoPacer({"draft": 0.1})
    pacer.begin(100, 100, 0.05)
    pacer.learn(Measured(PLAIN, 0, 1, 0.01, 0, 0, 0, 1))

    def step() -> None:
        offers = [Offer("draft", 1, lag=1)] if drafter == "draft" else []
        choice = pacer.choose([*offers, Offer("lookup", 12, chances=CHANCES)], 500)
        n = min(choice.n, 4)
        if choice.drafter == "draft":
            for position in range(n):
                pacer.more(position + 1, 0.9)
        draft = Draft([0] * n, [0.9] * n)
        n_verified = pacer.n_to_verify(draft)
        seconds = 0.01 * (1 + 0.04 * n_verified) * rng.uniform(0.8, 1.2)
        cost = 0.001 * n if choice.drafter == "draft" else 0.0
        confidences = (0.9,) * n_verified
        pacer.learn(
            Measured(
                choice.drafter, 12, n_verified + 1, seconds, n, n_verified, n_verified,
                n_verified + 1, confidences, cost, n if cost else 0,
            )
        )  # fmt: skip

    return timed(step)


def main() -> None:
    """Print the figures."""
    print(f"pacer, copying           {pacer_us('lookup'):8.1f} us per step")
    print(f"pacer, drafting 4 tokens {pacer_us('draft'):8.1f} us per step")
    row = np.random.default_rng(1).normal(0, 2, N_VOCAB).astype(np.float32)
    row[7] = 15
    print(f"how sure the target is   {timed(lambda: peak(row)):8.1f} us, while a draft is behind")
    for n_context in CONTEXTS:
        index, step = lookup_us(n_context)
        print(
            f"lookup at {n_context:6d} tokens  {step:8.1f} us per step of {COMMITTED} tokens, "
            f"{index:5.2f} us per prompt token"
        )


if __name__ == "__main__":
    main()
