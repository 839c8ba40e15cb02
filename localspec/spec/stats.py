"""Every number about an answer that a user sees comes from here.

The conventions are the field's: acceptance = accepted / verified draft tokens, and the target's own
token of each step (bonus or correction) counts in neither; mean accepted length = emitted tokens
per step; per-position acceptance is the unconditional rate over all steps that verified anything.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.spec.events import Step

PLAIN_NAME = "none"


@dataclass(slots=True)
class DrafterStats:
    """What one drafter did in one answer. ``seconds``: all its decodes, catching up included."""

    n_drafted: int = 0
    n_verified: int = 0
    n_accepted: int = 0
    seconds: float = 0.0

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / verified, or None when nothing was verified."""
        return self.n_accepted / self.n_verified if self.n_verified else None


@dataclass(slots=True)
class Stats:
    """Running totals of one answer. Times in seconds of wall clock.

    ``prompt_s``: the target's prompt pass. ``first_token_s``: from the question to the first token.
    ``generate_s``: from the first token to the last, drafting included. ``baseline_step_s``:
    what one plain decode takes now, measured in the same answer (None when none was measured).
    """

    n_prompt: int = 0
    n_reused: int = 0
    prompt_s: float = 0.0
    first_token_s: float | None = None
    generate_s: float = 0.0
    n_tokens: int = 0
    n_steps: int = 0
    """Target decodes after the prompt pass; the first token came with that and is no step."""
    n_drafted: int = 0
    n_verified: int = 0
    n_accepted: int = 0
    baseline_step_s: float | None = None
    drafters: dict[str, DrafterStats] = field(default_factory=dict)
    verified_at: list[int] = field(default_factory=list)
    """verified_at[i]: steps that verified a draft token at position i."""
    accepted_at: list[int] = field(default_factory=list)
    _n_first: int = 0
    _plain_s: float = 0.0
    _n_compared: int = 0

    def add(self, step: Step) -> None:
        """Count one step. Its time is added by the engine, which owns the clock."""
        self.n_tokens += len(step.tokens)
        if step.is_first:
            self._n_first = len(step.tokens)
            return
        self.n_steps += 1
        self.n_drafted += step.n_drafted
        self.n_verified += step.n_verified
        self.n_accepted += step.n_accepted
        if step.drafter != PLAIN_NAME:
            mine = self.drafters.setdefault(step.drafter, DrafterStats())
            mine.n_drafted += step.n_drafted
            mine.n_verified += step.n_verified
            mine.n_accepted += step.n_accepted
            mine.seconds += step.draft_s
        while len(self.verified_at) < step.n_verified:
            self.verified_at.append(0)
            self.accepted_at.append(0)
        for position in range(step.n_verified):
            self.verified_at[position] += 1
        for position in range(step.n_accepted):
            self.accepted_at[position] += 1

    def compare(self, step: Step, baseline_step_s: float | None) -> None:
        """Note what ``step`` would have taken without drafting: a plain step its own time, a
        drafted one a plain decode, as measured around that time, for each token.

        A machine that is busy for a while slows both sides then, instead of looking like a gain.
        """
        self.baseline_step_s = baseline_step_s
        if step.is_first or (step.n_verified and baseline_step_s is None):
            return
        n = len(step.tokens)
        self._n_compared += n
        self._plain_s += (
            n * baseline_step_s if step.n_verified and baseline_step_s else step.verify_s
        )

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / verified, or None when nothing was verified."""
        return self.n_accepted / self.n_verified if self.n_verified else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Emitted tokens per step."""
        return self._n_later / self.n_steps if self.n_steps else None

    @property
    def per_position(self) -> list[float]:
        """Share of all verifying steps in which the draft token at position i was accepted."""
        steps = self.verified_at[0] if self.verified_at else 0
        return [n / steps for n in self.accepted_at] if steps else []

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first per second of ``generate_s``; None for a shorter answer."""
        return self._n_later / self.generate_s if self._n_later and self.generate_s > 0 else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Prompt tokens read per second; None when none were, or the clock did not move."""
        n_read = self.n_prompt - self.n_reused
        return n_read / self.prompt_s if n_read > 0 and self.prompt_s > 0 else None

    @property
    def plain_s(self) -> float | None:
        """What ``generate_s`` would have been without drafting; None when nothing was measured."""
        n_open = self._n_later - self._n_compared
        if n_open > 0 and self.baseline_step_s is None:
            return None
        return (self._plain_s + n_open * (self.baseline_step_s or 0.0)) or None

    @property
    def baseline_tokens_per_s(self) -> float | None:
        """What plain decoding would have given, from plain steps measured in the same answer."""
        plain_s = self.plain_s
        return self._n_later / plain_s if plain_s else None

    @property
    def gain(self) -> float | None:
        """Speed over plain decoding: 1.0 is equal, None when no baseline was measured."""
        plain_s = self.plain_s
        return plain_s / self.generate_s if plain_s and self.generate_s > 0 else None

    @property
    def saved_s(self) -> float | None:
        """Seconds saved so far against plain decoding (negative: lost)."""
        plain_s = self.plain_s
        return None if plain_s is None else plain_s - self.generate_s

    @property
    def _n_later(self) -> int:
        return self.n_tokens - self._n_first


@dataclass(slots=True)
class Totals:
    """All answers of a chat together."""

    n_answers: int = 0
    n_tokens: int = 0
    n_verified: int = 0
    n_accepted: int = 0
    saved_s: float | None = None
    """Seconds saved against plain decoding in the answers that measured it, None if none did."""

    def add(self, stats: Stats) -> None:
        """Count one answer that is over."""
        self._count(stats.n_tokens, stats.n_verified, stats.n_accepted, stats.saved_s)

    def add_saved(self, numbers: Mapping[str, Any]) -> None:
        """Count an answer from an earlier run; what is missing or not a number is left out."""
        n_tokens, n_verified, n_accepted = (
            int(_number(numbers.get(name)) or 0)
            for name in ("n_tokens", "n_verified", "n_accepted")
        )
        self._count(n_tokens, n_verified, n_accepted, _number(numbers.get("saved_s")))

    def plus(self, stats: Stats) -> Totals:
        """The same with the answer that is being written."""
        whole = Totals(
            self.n_answers, self.n_tokens, self.n_verified, self.n_accepted, self.saved_s
        )
        whole.add(stats)
        return whole

    def _count(
        self, n_tokens: int, n_verified: int, n_accepted: int, saved_s: float | None
    ) -> None:
        self.n_answers += 1
        self.n_tokens += n_tokens
        self.n_verified += n_verified
        self.n_accepted += n_accepted
        if saved_s is not None:
            self.saved_s = (self.saved_s or 0.0) + saved_s

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / verified, or None when nothing was verified."""
        return self.n_accepted / self.n_verified if self.n_verified else None


class Window:
    """Acceptance over the last ``n_steps`` steps that verified anything, whatever the answer."""

    def __init__(self, n_steps: int = 64) -> None:
        self._steps: deque[tuple[int, int]] = deque(maxlen=n_steps)

    def add(self, step: Step) -> None:
        """Count one step; one without a draft says nothing about acceptance."""
        if step.n_verified:
            self._steps.append((step.n_accepted, step.n_verified))

    @property
    def n_steps(self) -> int:
        """How many steps are in it now."""
        return len(self._steps)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / verified, or None when nothing was verified."""
        return _rate(list(self._steps))

    def series(self, n: int) -> list[float]:
        """The window as at most ``n`` rates, oldest first, each over the same number of steps (the
        first may be over fewer)."""
        steps = list(self._steps)
        size = max(1, -(-len(steps) // n))
        ends = range(len(steps), 0, -size)
        parts = [_rate(steps[max(0, end - size) : end]) for end in ends]
        return [rate for rate in reversed(parts) if rate is not None]


def _rate(steps: list[tuple[int, int]]) -> float | None:
    n_verified = sum(verified for _, verified in steps)
    return sum(accepted for accepted, _ in steps) / n_verified if n_verified else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None
