"""Tokens per verify step at temperature 0.8: the rejection rule against keep-if-equal.

Both rules leave the target's distribution as it is. Keep-if-equal samples from the target and keeps
a drafted token if it is the same one; the rejection rule keeps it with probability min(1, p/q),
which is as often as any rule can (Leviathan et al. 2023). Counted on recorded answers of the same
prompts, the same pair of models and the same draft length; for the keep-if-equal runs the draft
proposes its best token, for the rejection runs it samples.

    python -m bench.acceptance_rules [--draft-max N] [--at-least 1.10]
"""

from __future__ import annotations

import argparse
import math
import sys

from bench.replay.traces import Trace, load


def tokens_per_step(trace: Trace, n_draft: int) -> float:
    """Mean number of tokens that a step of ``n_draft`` drafted tokens emits, bonus included."""
    position = n_steps = 0
    while position < len(trace.out):
        position += min(trace.runs[position], n_draft) + 1
        n_steps += 1
    return len(trace.out) / n_steps


def ratios(n_draft: int) -> list[tuple[str, float, float]]:
    """(prompt, tokens per step with keep-if-equal, with the rejection rule) for each prompt."""
    by_name: dict[str, dict[str, Trace]] = {}
    for trace in load():
        by_name.setdefault(trace.name, {})[trace.mode] = trace
    return [
        (name, tokens_per_step(modes["s"], n_draft), tokens_per_step(modes["r"], n_draft))
        for name, modes in by_name.items()
        if modes["s"].out and modes["r"].out
    ]


def geometric_mean(rows: list[tuple[str, float, float]]) -> float:
    """Of the gains of the rejection rule."""
    return math.exp(sum(math.log(new / old) for _, old, new in rows) / len(rows))


def main() -> int:
    """Print the table; 1 if the gain is below what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draft-max", type=int, default=4, help="tokens per draft")
    parser.add_argument("--at-least", type=float, default=1.10, help="gain to be reached")
    options = parser.parse_args()
    rows = ratios(options.draft_max)
    print(f"{'prompt':24} {'keep-if-equal':>14} {'rejection':>10} {'gain':>6}")
    for name, old, new in rows:
        print(f"{name:24} {old:14.3f} {new:10.3f} {new / old:6.2f}")
    gain = geometric_mean(rows)
    print(f"geometric mean of the gains over {len(rows)} prompts: {gain:.3f}")
    return 0 if gain >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
