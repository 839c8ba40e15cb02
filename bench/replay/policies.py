"""The policies that the replay compares: localspec's pacer and the classic rule."""

# ruff: noqa: ARG002 - a rule that knows nothing of costs has no use for what it is offered

from __future__ import annotations

from collections.abc import Sequence

from bench.replay.curves import Curve
from bench.replay.simulate import MODEL, Result, run
from bench.replay.traces import Trace
from localspec.spec.costs import Learned
from localspec.spec.drafter import Choice, Measured, Offer
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.pacer import AutoPacer

GUESS_ERROR = 0.8
"""File sizes tell what a draft decode costs only roughly."""
TAUGHT_BY = (
    "code-csv",
    "edit-rename",
    "extract-json",
    "rewrite-proofread",
    "chat-ja",
    "explain-tcp",
)
"""Earlier answers, after which costs count as known."""
TEACHING_SEED = 99


class PlusMinusOne(FixedPacer):
    """The classic rule on mean acceptance: one token more above 0.85, one less under 0.65, between
    2 and 8. It knows nothing of costs."""

    def __init__(self) -> None:
        super().__init__(MODEL, 4)
        self._mean = 0.75

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        """Always the draft model, at the length of the moment."""
        n = min(self._n, room)
        return Choice(MODEL, n, "±1 rule") if n > 0 else super().choose((), room)

    def learn(self, measured: Measured) -> None:
        """A running mean of acceptance moves the length."""
        if measured.n_verified:
            self._mean += 0.2 * (measured.n_accepted / measured.n_verified - self._mean)
            if self._mean > 0.85:
                self._n = min(8, self._n + 1)
            elif self._mean < 0.65:
                self._n = max(2, self._n - 1)


def auto(curve: Curve, learned: Learned | None = None) -> AutoPacer:
    """localspec's pacer on this machine, cold or with what it learned before."""
    return AutoPacer({MODEL: curve.draft * GUESS_ERROR}, learned)


def taught(curve: Curve, traces: Sequence[Trace], seed: int = TEACHING_SEED) -> Learned:
    """What a pacer knows after a few earlier answers on this machine."""
    pacer = auto(curve)
    for trace in traces:
        if trace.mode == "g" and trace.name in TAUGHT_BY:
            run(trace, curve, pacer, seed)
    return pacer.learned()


def replay(
    traces: Sequence[Trace], curve: Curve, learned: Learned | None, seeds: Sequence[int]
) -> list[tuple[Trace, Result]]:
    """Each answer with each seed, each time from the same start."""
    return [
        (trace, run(trace, curve, auto(curve, learned), seed)) for trace in traces for seed in seeds
    ]
