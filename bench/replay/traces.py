"""Recorded answers: what the target said, and what a draft model would have proposed where.

Target Qwen2.5-Coder-1.5B-Instruct, draft Qwen2.5-Coder-0.5B-Instruct, both Q4_K_M, on the prompts
of ``bench/data/prompts.yaml``. Modes: ``g`` greedy; ``w`` greedy with a weak draft (it does not see
the prompt); ``s`` sampled at temperature 0.8, draft tokens kept if the target samples the same;
``r`` the same text, the draft sampled and accepted by the rejection rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from localspec.spec.drafter import Offer
from localspec.spec.lookup import Lookup

FILE = Path(__file__).parent.parent / "data" / "traces.json"
MODES = ("g", "w", "s", "r")
MAX_TOKENS = {"g": 300, "w": 300, "s": 150, "r": 150}
"""The length at which answers were cut when they were recorded."""
SAME_TEXT = {"w": "g", "s": "r"}
UNKNOWN = -1
"""A drafted token that the recording does not tell; certainly wrong."""


@dataclass(frozen=True)
class Trace:
    """One answer. ``y[i]``: what the draft says at position i of ``out``, given the true text
    before; ``q[i]`` its probability; ``off[i]``: how it goes on after a wrong ``y[i]``; ``p[i]``:
    the target's own probability of its best token there (empty: not recorded)."""

    name: str
    mode: str
    prompt: list[int]
    out: list[int]
    y: list[int]
    q: list[float]
    off: dict[int, list[tuple[int, float]]]
    p: list[float] = field(default_factory=list)

    @property
    def temperature(self) -> float:
        """Of the target."""
        return 0.0 if self.mode in "gw" else 0.8

    def drafted(self, position: int, n_right: int, n_wrong: int) -> tuple[int, float]:
        """The next token of a draft that began ``n_right + n_wrong`` tokens before ``position +
        n_right + n_wrong``; its first ``n_right`` tokens are right and the others are not."""
        at = position + n_right
        if n_wrong == 0:
            return (self.y[at], self.q[at]) if at < len(self.out) else (UNKNOWN, 0.5)
        beyond = self.off.get(at, [])
        return beyond[n_wrong - 1] if n_wrong <= len(beyond) else (UNKNOWN, 0.5)

    @cached_property
    def runs(self) -> list[int]:
        """runs[i]: how many tokens of a draft that starts at i are right."""
        runs = [0] * (len(self.out) + 1)
        for i in range(len(self.out) - 1, -1, -1):
            runs[i] = runs[i + 1] + 1 if self.y[i] == self.out[i] else 0
        return runs

    @cached_property
    def copies(self) -> list[tuple[Offer | None, int]]:
        """copies[i]: what lookup offers there, and how many of 63 copied tokens are right. Neither
        depends on what is drafted."""
        lookup = Lookup()
        lookup.begin(self.prompt)
        found = []
        for i, token in enumerate(self.out):
            offer = lookup.offer()
            copied = lookup.propose(63, lambda _n, _q: True, lambda: False).tokens if offer else []
            right = 0
            while (
                right < min(len(copied), len(self.out) - i) and copied[right] == self.out[i + right]
            ):
                right += 1
            found.append((offer, right))
            lookup.commit([token])
        return found


def load(path: Path = FILE) -> list[Trace]:
    """All recorded answers, by prompt and mode, in the order of the file."""
    recorded = json.loads(path.read_text(encoding="utf-8"))["traces"]
    return [
        Trace(
            name=name,
            mode=mode,
            prompt=modes["prompt"],
            out=modes[mode]["out"],
            y=modes[mode]["y"],
            q=modes[mode]["q"],
            off={
                int(at): [(token[0], token[1]) for token in tokens]
                for at, tokens in modes[mode]["off"].items()
            },
            p=modes[SAME_TEXT.get(mode, mode)]["p"],
        )
        for name, modes in recorded.items()
        for mode in MODES
    ]
