"""The pacers that decide nothing: never a draft, and always the same one."""

# ruff: noqa: ARG002 - all pacers satisfy one protocol; not each needs every argument

from __future__ import annotations

from collections.abc import Sequence

from localspec.spec.costs import Baseline
from localspec.spec.drafter import Choice, Draft, Measured, Offer
from localspec.spec.events import PLAIN

N_BASELINE_FIRST = 3
"""Plain steps at the start of an answer in the fixed modes: the baseline they are shown against."""
BASELINE_EVERY = 32
"""Then one step in so many is plain, because decodes get dearer as the context grows."""


class PlainPacer:
    """Never drafts. Every step is a measurement of the baseline."""

    def __init__(self, reason: str = "drafting is off") -> None:
        self._reason = reason
        self._baseline = Baseline()

    wants_confidence = False

    def begin(
        self, n_prompt: int, n_prefilled: int, prefill_s: float, temperature: float = 0.0
    ) -> None:
        """A new answer: the baseline is measured afresh."""
        self._baseline = Baseline()

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        """Plain, always."""
        return Choice(PLAIN, 0, self._reason)

    def more(self, n_so_far: int, confidence: float) -> bool:
        """False: nothing is to be drafted."""
        return False

    def n_to_verify(self, draft: Draft) -> int:
        """0: nothing is to be verified."""
        return 0

    def learn(self, measured: Measured) -> None:
        """Times the step."""
        self._baseline.add(measured.verify_s)

    def baseline_step_s(self) -> float | None:
        """Median seconds of the last plain decodes."""
        return self._baseline.step_s


class FixedPacer:
    """Always the same drafter with up to ``n`` tokens: the explicit modes, and for comparisons.

    The first ``N_BASELINE_FIRST`` steps and one in ``BASELINE_EVERY`` are plain, so that the gain
    shown is against a baseline measured in the same run.
    """

    def __init__(self, drafter: str, n: int, min_evidence: int = 1) -> None:
        self._drafter = drafter
        self._n = n
        self._min_evidence = min_evidence
        self._baseline = Baseline()
        self._n_steps = 0

    wants_confidence = False

    def begin(
        self, n_prompt: int, n_prefilled: int, prefill_s: float, temperature: float = 0.0
    ) -> None:
        """A new answer: the baseline is measured afresh."""
        self._baseline = Baseline()
        self._n_steps = 0

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        """The drafter if it offers anything, except in the steps that measure the baseline."""
        if self._n_steps < N_BASELINE_FIRST or self._n_steps % BASELINE_EVERY == 0:
            return Choice(PLAIN, 0, "measuring plain speed")
        mine = next((offer for offer in offers if offer.drafter == self._drafter), None)
        if mine is None or mine.evidence < self._min_evidence:
            return Choice(PLAIN, 0, f"{self._drafter} has nothing to propose here")
        n = min(self._n, room, mine.available)
        if n < 1:
            return Choice(PLAIN, 0, "no room for drafted tokens")
        return Choice(self._drafter, n, f"{self._drafter}, fixed length {self._n}")

    def more(self, n_so_far: int, confidence: float) -> bool:
        """True: the full length, however unsure the drafter is."""
        return True

    def n_to_verify(self, draft: Draft) -> int:
        """All of them."""
        return len(draft.tokens)

    def learn(self, measured: Measured) -> None:
        """Times plain steps."""
        self._n_steps += 1
        if measured.width == 1:
            self._baseline.add(measured.verify_s)

    def baseline_step_s(self) -> float | None:
        """Median seconds of the last plain decodes; None before the first."""
        return self._baseline.step_s
