"""From single answers to the table: medians over rounds, geometric means over prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, median
from typing import Any

from localspec.benchmark.measure import PLAIN, Results, Run
from localspec.config import Mode

ALL = "all"
"""The kind of work of the rows over all prompts."""
NOISY, VERY_NOISY = 0.08, 0.20
"""Spread of plain runs above which differences of that size mean nothing, and above which the
whole result is not to be trusted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One mode on one kind of work (or one prompt). Rates are None where nothing was measured.

    ``tokens_per_s``: median over rounds, geometric mean over prompts; ``ratio``: the same against
    plain; ``first_token_s`` and ``first_token_ratio`` likewise. ``n_bytes``: most resident memory.
    """

    kind: str
    mode: Mode
    n_prompts: int
    n_runs: int
    tokens_per_s: float | None
    ratio: float | None
    acceptance_rate: float | None
    mean_accepted_length: float | None
    per_position: tuple[float, ...]
    first_token_s: float | None
    first_token_ratio: float | None
    n_bytes: int
    same_text: float | None
    """Share of the answers whose text is that of plain decoding in the same round."""


@dataclass(frozen=True, slots=True)
class Noise:
    """``spread``: (fastest - slowest) / median of plain runs of the same prompt, the median over
    prompts, None with one round. ``jitter``: the middle half of plain decode times over their
    median."""

    spread: float | None
    jitter: float | None

    @property
    def level(self) -> str:
        """``quiet``, ``noisy`` or ``very noisy``; ``unknown`` without plain runs."""
        worst = self.spread if self.spread is not None else self.jitter
        if worst is None:
            return "unknown"
        return "very noisy" if worst > VERY_NOISY else "noisy" if worst > NOISY else "quiet"

    @property
    def sentence(self) -> str:
        """For the user."""
        if self.spread is None:
            if self.jitter is None:
                return "No plain run was measured, so nothing can be said about noise."
            once = f"Plain decode times differ by {self.jitter:.0%} among themselves (one round"
            tail = ": name --rounds 3 or more to compare runs)."
            if self.level == "very noisy":
                tail = "). That is too noisy to trust: close other programs and measure again."
            return once + tail
        text = f"Plain runs of the same prompt differ by {self.spread:.0%}"
        if self.level == "very noisy":
            return f"{text}. That is too noisy to trust: close other programs and measure again."
        if self.level == "noisy":
            return f"{text}: smaller differences between modes mean nothing."
        return f"{text}: a quiet machine."


@dataclass(frozen=True, slots=True)
class Summary:
    """``rows``: by kind of work and mode, then over all; ``by_prompt``: the same for each prompt.
    ``curve``: width -> cost of one decode over that of width 1. ``chosen``: width -> share of the
    steps that drafted in auto mode."""

    rows: tuple[Row, ...]
    by_prompt: tuple[Row, ...]
    noise: Noise
    curve: dict[int, float]
    chosen: dict[int, float]

    def row(self, kind: str, mode: Mode) -> Row | None:
        """The row of a kind of work and a mode."""
        return next((r for r in self.rows if r.kind == kind and r.mode == mode), None)

    @property
    def kinds(self) -> list[str]:
        """Kinds of work in order, ``all`` last."""
        return list(dict.fromkeys(row.kind for row in self.rows))


def summarise(results: Results) -> Summary:
    """Raises nothing: what was not measured is None or missing."""
    runs = results.runs
    ids = list(dict.fromkeys(run.prompt.id for run in runs))
    by_prompt = [
        row
        for name in ids
        for row in _rows(name, [r for r in runs if r.prompt.id == name], results.modes)
    ]
    kinds = list(dict.fromkeys(run.prompt.kind for run in runs))
    rows = [
        row
        for kind in kinds
        for row in _rows(kind, [r for r in runs if r.prompt.kind == kind], results.modes)
    ]
    if len(kinds) > 1:
        rows += _rows(ALL, runs, results.modes)
    return Summary(
        tuple(rows), tuple(by_prompt), noise(runs), _relative(results.curve), _chosen(runs)
    )


def _rows(kind: str, runs: Sequence[Run], modes: Sequence[Mode]) -> list[Row]:
    plain = _per_prompt([run for run in runs if run.mode == PLAIN])
    texts = {(r.prompt.id, r.round): r.tokens for r in runs if r.mode == PLAIN}
    found = []
    for mode in modes:
        mine = [run for run in runs if run.mode == mode]
        if not mine:
            continue
        speeds = _per_prompt(mine)
        ratios = [
            (speed / plain[name][0], first / plain[name][1])
            for name, (speed, first) in speeds.items()
            if name in plain
        ]
        compared = [run for run in mine if (run.prompt.id, run.round) in texts]
        n_same = sum(run.tokens == texts[run.prompt.id, run.round] for run in compared)
        n_verified = sum(run.stats.n_verified for run in mine)
        n_steps = sum(run.stats.n_steps for run in mine)
        found.append(
            Row(
                kind,
                mode,
                len({run.prompt.id for run in mine}),
                len(mine),
                _mean(speed for speed, _ in speeds.values()),
                _mean(ratio for ratio, _ in ratios),
                sum(run.stats.n_accepted for run in mine) / n_verified if n_verified else None,
                # The first token of an answer comes from the prompt pass.
                sum(len(run.tokens) - 1 for run in mine) / n_steps if n_steps else None,
                _per_position(mine),
                _mean(first for _, first in speeds.values()),
                _mean(ratio for _, ratio in ratios),
                max(run.n_bytes for run in mine),
                n_same / len(compared) if compared and mode != PLAIN else None,
            )
        )
    return found


def _per_prompt(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """prompt -> medians over rounds of (tokens per second, seconds to the first token)."""
    found = {}
    for name in dict.fromkeys(run.prompt.id for run in runs):
        mine = [run.stats for run in runs if run.prompt.id == name]
        speeds = [stats.tokens_per_s for stats in mine if stats.tokens_per_s]
        firsts = [stats.first_token_s for stats in mine if stats.first_token_s]
        if speeds and firsts:
            found[name] = (median(speeds), median(firsts))
    return found


def _per_position(runs: Iterable[Run]) -> tuple[float, ...]:
    """Share of all verifying steps in which the draft token at position i was accepted."""
    accepted: Counter[int] = Counter()
    n_steps = 0
    for run in runs:
        n_steps += run.stats.verified_at[0] if run.stats.verified_at else 0
        accepted.update(dict(enumerate(run.stats.accepted_at)))
    return tuple(accepted[i] / n_steps for i in range(len(accepted))) if n_steps else ()


def _mean(values: Iterable[float]) -> float | None:
    found = [value for value in values if value > 0]
    return geometric_mean(found) if found else None


def noise(runs: Sequence[Run]) -> Noise:
    """How much plain runs differ among themselves."""
    plain = [run for run in runs if run.mode == PLAIN]
    spreads, jitters = [], []
    for name in dict.fromkeys(run.prompt.id for run in plain):
        mine = [run for run in plain if run.prompt.id == name]
        speeds = [run.stats.tokens_per_s for run in mine if run.stats.tokens_per_s]
        if len(speeds) > 1:
            spreads.append((max(speeds) - min(speeds)) / median(speeds))
        for run in mine:
            times = sorted(seconds for _, _, seconds in run.steps)
            if len(times) >= 8:
                middle = times[len(times) * 3 // 4] - times[len(times) // 4]
                jitters.append(middle / median(times))
    return Noise(median(spreads) if spreads else None, median(jitters) if jitters else None)


def _relative(curve: dict[int, float]) -> dict[int, float]:
    one = curve.get(1)
    return {width: seconds / one for width, seconds in sorted(curve.items())} if one else {}


def _chosen(runs: Sequence[Run]) -> dict[int, float]:
    widths = Counter(
        width for run in runs if run.mode == "auto" for _, width, _ in run.steps if width > 1
    )
    total = sum(widths.values())
    return {width: n / total for width, n in sorted(widths.items())}


def as_dict(results: Results, summary: Summary, about: dict[str, Any]) -> dict[str, Any]:
    """For ``--json``. ``about``: what was measured on what."""
    return {
        **about,
        "complete": results.complete,
        "seconds": results.seconds,
        "n_tokens": results.n_tokens,
        "temperature": results.sampling.temperature,
        "modes": list(results.modes),
        "noise": {
            "level": summary.noise.level,
            "spread": summary.noise.spread,
            "jitter": summary.noise.jitter,
            "sentence": summary.noise.sentence,
        },
        "rows": [asdict(row) for row in summary.rows],
        "by_prompt": [asdict(row) for row in summary.by_prompt],
        "cost_by_width": {str(width): cost for width, cost in summary.curve.items()},
        "chosen_widths": {str(width): share for width, share in summary.chosen.items()},
        "runs": [
            {
                "prompt": run.prompt.id,
                "kind": run.prompt.kind,
                "mode": run.mode,
                "round": run.round,
                "tokens_per_s": run.stats.tokens_per_s,
                "first_token_s": run.stats.first_token_s,
                "prompt_s": run.stats.prompt_s,
                "n_prompt": run.stats.n_prompt,
                "n_tokens": run.stats.n_tokens,
                "n_steps": run.stats.n_steps,
                "n_drafted": run.stats.n_drafted,
                "n_verified": run.stats.n_verified,
                "n_accepted": run.stats.n_accepted,
                "generate_s": run.stats.generate_s,
                "n_bytes": run.n_bytes,
            }
            for run in results.runs
        ],
    }
