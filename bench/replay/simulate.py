"""Run a pacer through a recorded answer on a machine that exists only as a cost curve."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.replay.curves import Curve
from bench.replay.traces import MAX_TOKENS, UNKNOWN, Trace
from localspec.spec.drafter import Draft, Measured, More, Offer, Pacer
from localspec.spec.events import PLAIN
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import MERGED

T1_S = 0.03
"""Seconds of one plain decode; no policy may depend on it."""
NOISE = 0.2
STALL_SHARE, STALL = 0.03, 2.0
MODEL = "draft"


class Clock:
    """True costs, and what a noisy machine shows of them: ±20 %, and 3 % stalls of 2x."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.true = 0.0

    def spend(self, cost: float) -> float:
        """``cost`` plain decodes pass; returns the seconds that a policy sees."""
        self.true += cost
        return self.show(cost)

    def show(self, cost: float) -> float:
        """What ``cost`` looks like, without spending it."""
        seen = cost * self._random.uniform(1 - NOISE, 1 + NOISE)
        if self._random.random() < STALL_SHARE:
            seen *= STALL
        return seen * T1_S


class RecordedModel:
    """A draft model whose tokens are in the trace, with a cache that lags behind as a real one."""

    name = MODEL

    def __init__(self, trace: Trace, curve: Curve, clock: Clock) -> None:
        self._trace, self._curve, self._clock = trace, curve, clock
        self._n_prompt = len(trace.prompt)
        self._at = 0
        self._cached = 0
        self._costs = (0.0, 0, 0.0, 0)

    def offer(self) -> Offer:
        """It can always draft; ``lag`` is what it has not read."""
        return Offer(self.name, 1, lag=self._lag)

    @property
    def _lag(self) -> int:
        return self._n_prompt + self._at - self._cached

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:  # noqa: ARG002
        """Draft as the recorded model would have."""
        lag = self._lag
        small = min(lag, MERGED)
        catchup = self._curve.drafting(lag) - self._curve.drafting(small)
        catchup_s = self._clock.spend(catchup) if lag > MERGED else 0.0
        draft_s = self._clock.spend(self._curve.drafting(small) + self._curve.draft_fixed)
        draft = Draft()
        n_right = n_wrong = 0
        while True:
            token, confidence = self._trace.drafted(self._at, n_right, n_wrong)
            draft.tokens.append(token)
            draft.confidence.append(confidence)
            at = self._at + n_right
            if n_wrong == 0 and at < len(self._trace.out) and token == self._trace.out[at]:
                n_right += 1
            else:
                n_wrong += 1
            if len(draft.tokens) >= limit or not more(len(draft.tokens), confidence):
                break
            draft_s += self._clock.spend(self._curve.drafting(1))
        # Its last token was never decoded by itself.
        self._cached = self._n_prompt + self._at + min(n_right, len(draft.tokens) - 1)
        self._costs = (draft_s, len(draft.tokens), catchup_s, lag - small)
        return draft

    def read(self, limit: int) -> None:
        """Catch up with ``limit`` tokens."""
        n_read = min(limit, max(0, self._lag - MERGED))
        self._cached += n_read
        self._costs = (0.0, 0, self._clock.spend(self._curve.drafting(n_read)), n_read)

    def costs(self) -> tuple[float, int, float, int]:
        """(draft_s, n_draft_decodes, catchup_s, n_catchup) of the last ``propose``."""
        return self._costs

    def committed(self, n_tokens: int) -> None:
        """The answer is ``n_tokens`` long now; what was cached beyond it is dropped."""
        self._at = n_tokens
        self._cached = min(self._cached, self._n_prompt + n_tokens)


class RecordedCopies:
    """Lookup, whose finds depend only on the text: looked up once for each trace."""

    name = Lookup.name

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._at = 0

    def offer(self) -> Offer | None:
        """As lookup would."""
        return self._trace.copies[self._at][0]

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:  # noqa: ARG002
        """``limit`` copied tokens; what is wrong of them is certainly wrong."""
        offer, n_right = self._trace.copies[self._at]
        chances = offer.chances if offer is not None else ()
        right = min(limit, n_right)
        tokens = self._trace.out[self._at : self._at + right] + [UNKNOWN] * (limit - right)
        return Draft(tokens, [*chances[:limit], *chances[-1:] * (limit - len(chances))])

    def commit(self, n_tokens: int) -> None:
        """``n_tokens`` more are there."""
        self._at += n_tokens


@dataclass(frozen=True, slots=True)
class Result:
    """``cost``: plain decodes that the answer took; plain decoding takes ``n_plain``."""

    cost: float
    n_plain: int
    n_steps: int
    n_verified: int
    n_accepted: int

    @property
    def speedup(self) -> float:
        """Speed over plain decoding."""
        return self.n_plain / self.cost


def run(trace: Trace, curve: Curve, pacer: Pacer, seed: int) -> Result:
    """One answer. The first token comes from the prompt pass; true costs count, seen ones teach."""
    clock = Clock(seed)
    lookup = RecordedCopies(trace)
    model = RecordedModel(trace, curve, clock)
    n_prompt = len(trace.prompt)
    pacer.begin(n_prompt, n_prompt, clock.show(curve.target(n_prompt)), trace.temperature)
    drafters: dict[str, RecordedCopies | RecordedModel] = {lookup.name: lookup, model.name: model}
    out, at = trace.out, 1
    lookup.commit(1)
    model.committed(1)
    n_steps = n_verified = n_accepted = 0
    while at < len(out):
        offers = [offer for offer in (lookup.offer(), model.offer()) if offer is not None]
        choice = pacer.choose(offers, MAX_TOKENS[trace.mode] - at - 1)
        draft, costs, evidence = Draft(), (0.0, 0, 0.0, 0), 0
        if choice.drafter != PLAIN:
            evidence = next(o.evidence for o in offers if o.drafter == choice.drafter)
            if choice.n_read:
                model.read(choice.n_read)
            else:
                drafter = drafters[choice.drafter]
                draft = drafter.propose(choice.n, pacer.more, lambda: False)
            costs = model.costs() if choice.drafter == MODEL else costs
        n_drafted = len(draft.tokens)
        if choice.drafter != MODEL or trace.temperature == 0:
            # As in the engine: what was drawn is verified whole, or the text would be biased.
            draft.cut(pacer.n_to_verify(draft))
        verify_s = clock.spend(curve.target(len(draft.tokens) + 1))
        right = 0
        while (
            right < len(draft.tokens)
            and at + right < len(out)
            and draft.tokens[right] == out[at + right]
        ):
            right += 1
        emitted = out[at : at + right + 1]
        lookup.commit(len(emitted))
        at += len(emitted)
        model.committed(at)
        pacer.learn(
            Measured(
                drafter=choice.drafter,
                evidence=evidence,
                width=len(draft.tokens) + 1,
                verify_s=verify_s,
                n_drafted=n_drafted,
                n_verified=len(draft.tokens),
                n_accepted=right,
                n_emitted=len(emitted),
                promised=tuple(draft.confidence),
                draft_s=costs[0],
                n_draft_decodes=costs[1],
                catchup_s=costs[2],
                n_catchup=costs[3],
                n_context=n_prompt + at,
                confidence=trace.p[at - 1] if trace.p and pacer.wants_confidence else None,
            )
        )
        n_steps += 1
        n_verified += len(draft.tokens)
        n_accepted += right
    return Result(clock.true, len(out) - 1, n_steps, n_verified, n_accepted)
