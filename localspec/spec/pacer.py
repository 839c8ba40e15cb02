"""Who drafts next, and how much."""

# ruff: noqa: ARG002 - all pacers satisfy one protocol; not each needs every argument

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from localspec.spec.acceptance import CopyAcceptance, ModelAcceptance, expected_sure
from localspec.spec.breaker import Breaker, TrackRecord
from localspec.spec.costs import (
    FIRST_WIDTH,
    MAX_WIDTH,
    Baseline,
    DraftCosts,
    Estimate,
    Learned,
    TargetCosts,
)
from localspec.spec.drafter import Choice, Draft, Measured, Offer
from localspec.spec.events import PLAIN
from localspec.spec.planning import Drafted, Plan, plan_copy

PRICE_TOKENS = 64
"""The price of a token is an average over about so many."""
PRICE_FLOOR = 0.25
"""The price lies this share of the way back towards plain decoding: a good stretch of text must not
make all that follows look dear."""
MARGIN = 0.03
"""Plain decoding wins unless a draft is worth this much more."""
MODEL_PREMIUM = 0.04
"""A model's draft must be worth this much more on top."""
MAX_MODEL_DRAFT = 48
"""Its own probability ends a draft long before, but copied or formulaic text goes on and on."""
TRIAL = 6
"""The longest draft of a model whose decodes are not measured yet, or hoped to be cheaper than they
were: it may turn out to be many times dearer than guessed."""
MAX_COPY = MAX_WIDTH - 1
IN_PIECES_FROM = 2.5
"""What is taken to cost more plain decodes to read than that is read in pieces at first."""
SMALL_LAG = 2
"""A model drafter this little behind catches up in its first decode."""
HORIZON, HORIZON_GROWTH = 16, 0.5
"""Tokens over which catching up must pay for itself, and how many more for each token that there is
already: an answer goes on for the longer the longer it is."""
UNAIDED_TOKENS = 32
"""Of these only the share to which no copy helps: an average over about so many."""
STAKE, STAKE_DRAWN = 12.0, 2.5
STAKE_AT_ONCE, STAKE_RAMP, STAKE_PER_TOKEN = 1.0, 0.6, 0.05
"""The most that catching up may cost, in plain decodes: a part that grows quickly to its full size,
so that very short answers risk little, and a part that grows with the answer. It is smaller where
drafts are drawn, which gain less: they must be verified whole. What is as cheap as a decode may be
done at once."""
HOPELESS_TO_READ = 2.0
"""How sure the target is of a text is not even found out for a draft model that costs so many times
what may be staked on it."""
PROBE_AFTER = 48
"""Plain steps of an answer with nothing wider ever measured, after which a good match is used to
measure: the prompt rate alone may have promised too little."""
PROBE_EVIDENCE = 4
WIDE, WIDE_EVIDENCE = 16, 32
"""A decode so wide is tried once on a match so long, however dear the widths below were: kernels
work on tiles of 8 or 16 rows, and a full one may cost less than half of one."""
BASELINE_FIRST, BASELINE_TOKENS = 64, 256
"""At the latest after so many tokens a plain step is taken, to see what plain decoding costs: the
first of an answer, and later ones."""
BASELINE_CHEAP = 0.25
"""From half of that on it is taken as soon as drafting is worth no more than so many decodes."""


class AutoPacer:
    """Chooses what is expected to give the most tokens per second, from what was measured.

    ``model_costs``: the drafters that run a model, with a first guess of what one of their decodes
    costs in target decodes (the ratio of file sizes will do); all other drafters are taken to copy
    text at no cost, and to tell the chances themselves. ``allowed``: drafters that may be used
    (None: all). ``draft_max``: the longest draft allowed (None: the pacer's own limits).
    """

    def __init__(
        self,
        model_costs: Mapping[str, float],
        learned: Learned | None = None,
        allowed: Collection[str] | None = None,
        draft_max: int | None = None,
    ) -> None:
        known = learned or Learned()
        self._allowed = None if allowed is None else frozenset(allowed)
        self._draft_max = MAX_COPY if draft_max is None else min(draft_max, MAX_COPY)
        self._target = TargetCosts(known)
        self._baseline = Baseline()
        self._drafts = {name: _draft_costs(name, cost, known) for name, cost in model_costs.items()}
        self._models = {name: ModelAcceptance() for name in model_costs}
        self._records = {
            name: TrackRecord(*known.paid.get(name, (0.0, 0.0))) for name in model_costs
        }
        self._drafted: Drafted | None = None
        self._chosen = PLAIN
        self._limit = 0
        self.begin(0, 0, 0.0)
        for name, model in self._models.items():  # what fades with an answer did not yet
            model.accepted, model.claimed = known.trust.get(name, (0.0, 0.0))

    def begin(
        self, n_prompt: int, n_prefilled: int, prefill_s: float, temperature: float = 0.0
    ) -> None:
        """A new answer: what the last text taught about acceptance is forgotten, costs stay."""
        self._prefill: tuple[int, float] | None = (n_prefilled, prefill_s)
        self._target.guess_scale(n_prefilled, prefill_s)
        self._copies: dict[str, CopyAcceptance] = {}
        for model in self._models.values():
            model.begin(temperature)
        for record in self._records.values():
            record.begin()
        self._sampled = temperature > 0
        self._behind = False
        self._breaker = Breaker()
        self._rate = 1.0
        self._unaided = 1.0
        self._missed = dict.fromkeys(self._models, 0.0)
        self._n_tokens = 0
        self._tokens_since_plain = 0
        self._n_plain = 0

    @property
    def wants_confidence(self) -> bool:
        """While a draft model is behind, and reading on would have to be paid for."""
        return self._behind

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        """The offer that is worth most, if it is worth clearly more than plain decoding."""
        self._drafted = None
        self._behind = False
        usable = [o for o in offers if self._allowed is None or o.drafter in self._allowed]
        left, room = room, min(room, self._draft_max, self._target.reach - 1)
        if not usable:
            return Choice(PLAIN, 0, "nothing to propose here")
        if room < 1:
            return Choice(PLAIN, 0, "no room for drafted tokens")
        wait = BASELINE_TOKENS if self._n_plain else BASELINE_FIRST
        if self._target.scale_s is None or self._tokens_since_plain >= wait:
            return Choice(PLAIN, 0, "measuring plain speed")
        if self._breaker.is_open(self._n_tokens):
            return Choice(PLAIN, 0, "paused, because drafting lost time lately")
        choice, gain = self._weigh(usable, room, left)
        if gain < BASELINE_CHEAP and 2 * self._tokens_since_plain >= wait:
            return Choice(PLAIN, 0, "measuring plain speed where it costs least")
        if choice.drafter in self._models:
            self._drafted = Drafted(self._target, self._price, self._sampled)
            if self._drafts[choice.drafter].is_trial:
                choice = replace(choice, n=min(choice.n, TRIAL))
            self._chosen, self._limit = choice.drafter, choice.n
        return choice

    def more(self, n_so_far: int, confidence: float) -> bool:
        """Is another token of the model worth more than to stop at the best place so far?"""
        if self._drafted is None:
            return False
        model = self._models[self._chosen]
        model.drafted(confidence)
        self._drafted.add(model.chance(confidence))
        costs = self._drafts[self._chosen]
        go_on = self._drafted.go_on_value(
            model.outlook(), costs.hope * costs.next.value, self._limit
        )
        return go_on > self._drafted.stop_value

    def n_to_verify(self, draft: Draft) -> int:
        """All of a copy; of a model's draft as many as are worth a wider decode, perhaps none."""
        if self._drafted is None:
            return len(draft.tokens)
        model = self._models[self._chosen]
        for confidence in draft.confidence[self._drafted.n :]:  # those ``more`` did not see
            model.drafted(confidence)
            self._drafted.add(model.chance(confidence))
        return min(self._drafted.n_best, len(draft.tokens))

    def learn(self, measured: Measured) -> None:
        """Costs from the times, chances from what was accepted."""
        scale = self._learn_target(measured)
        name, n_emitted = measured.drafter, measured.n_emitted
        cost, invested = self._target(measured.width), 0.0
        if name in self._models and scale:
            draft, catchup = measured.draft_s / scale, measured.catchup_s / scale
            self._drafts[name].learn(draft, measured.n_draft_decodes, catchup, measured.n_catchup)
            self._models[name].verified(measured.promised, measured.n_accepted)
            cost += draft
            invested = catchup
            self._records[name].read(invested)
            if measured.n_drafted:
                self._missed[name] = 0.0
                self._records[name].drafted(n_emitted - cost)
        elif measured.n_verified:
            copies = self._copy(name)
            expected = copies.survival(measured.promised, measured.n_verified)
            copies.copied(sum(expected), measured.n_accepted)
        for other, model in self._models.items():
            if measured.confidence is not None:
                model.target_was(measured.confidence)
            if other != name:
                model.passed(n_emitted)
                self._drafts[other].idle()
        self._n_tokens += n_emitted
        if n_emitted > 0:
            self._breaker.add(n_emitted - cost if name != PLAIN else 0.0, self._n_tokens)
            self._breaker.invested(invested)
            weight = 1 - math.exp(-n_emitted / PRICE_TOKENS)
            self._rate += weight * (min(1.0, cost / n_emitted) - self._rate)
            if name not in self._models:
                weight = 1 - math.exp(-n_emitted / UNAIDED_TOKENS)
                self._unaided += weight * ((name == PLAIN) - self._unaided)

    def baseline_step_s(self) -> float | None:
        """Median seconds of the last plain decodes of this run; None before the first."""
        return self._baseline.step_s

    def learned(self) -> Learned:
        """What is worth keeping for the next run."""
        return Learned(
            widths=self._target.measured(),
            drafts={name: costs.kept() for name, costs in self._drafts.items()},
            trust={name: (m.accepted, m.claimed) for name, m in self._models.items()},
            prompt_rate=self._target.prompt_rate,
            paid={name: record.kept() for name, record in self._records.items()},
        )

    def _learn_target(self, measured: Measured) -> float | None:
        """Seconds of one plain decode now."""
        self._target.learn(measured.width, measured.verify_s)
        if measured.width == 1:
            self._baseline.add(measured.verify_s)
            self._tokens_since_plain = 0
            self._n_plain += 1
        else:
            self._tokens_since_plain += measured.n_emitted
        if self._prefill is not None and self._target.scale_s:
            if measured.width == 1:
                # After a draft the scale may be nothing but a guess, made of the rate of last time.
                plain_s = measured.verify_s if self._n_tokens else self._target.scale_s
                self._target.prefilled(*self._prefill, plain_s)
                self._prefill = None
            for costs in self._drafts.values():
                costs.guess_lag(self._target.prompt_rate)
        return self._target.scale_s

    @property
    def _price(self) -> float:
        """What a token is worth, in plain decodes."""
        return self._rate + PRICE_FLOOR * (1 - self._rate)

    def _weigh(self, offers: Sequence[Offer], room: int, left: int) -> tuple[Choice, float]:
        best = Choice(PLAIN, 0, "no draft is expected to pay here")
        worth = self._price - 1 + MARGIN
        behind: list[tuple[Offer, float, Plan]] = []
        lag_cost = sum(
            self._drafts[o.drafter].lag_few.value
            for o in offers
            if o.drafter in self._models and o.lag <= SMALL_LAG
        )
        for offer in offers:
            limit = min(room, offer.available)
            if offer.drafter not in self._models:
                plan = self._plan_copy(offer, limit, lag_cost)
                reason = f"match of {offer.evidence}"
            elif offer.lag <= SMALL_LAG:
                plan = self._plan_model(offer.drafter, limit)
                reason = "sure enough of its tokens"
            else:
                price = self._to_read(offer)
                most = self._most_to_read(offer.drafter, math.inf)
                self._behind |= STAKE_AT_ONCE < price < HOPELESS_TO_READ * most
                if price <= most:
                    behind.append((offer, price, self._plan_far(offer, price, limit, left)))
                continue
            if plan.n and plan.value > worth:
                expected = f"{plan.tokens:.1f} tokens expected for {plan.cost:.1f} decodes"
                best, worth = Choice(offer.drafter, plan.n, f"{reason}: {expected}"), plan.value
        for offer, price, plan in behind:
            gain = plan.value - worth
            if plan.n and gain > 0 and self._catches_up(offer.drafter, price, plan, gain, left):
                best, worth = self._reading(offer, price, min(room, plan.n)), plan.value
                break
        if best.n < WIDE - 1 and not self._target.tried(WIDE):
            for offer in offers:
                if offer.drafter not in self._models and self._wide_may_pay(offer, left):
                    reason = "measuring what a wide decode costs"
                    return Choice(offer.drafter, WIDE - 1, reason), 1.0
        if best.n == 0 and self._target.may_pay and self._n_plain >= PROBE_AFTER:
            for offer in offers:
                if offer.drafter not in self._models and offer.evidence >= PROBE_EVIDENCE:
                    n = min(room, offer.available, FIRST_WIDTH - 1)
                    return Choice(offer.drafter, n, "measuring what a wider decode costs"), 1.0
        return best, worth - (self._price - 1)

    def _wide_may_pay(self, offer: Offer, left: int) -> bool:
        """If a wide decode costs no more per row than a prompt pass, is a copy worth it?"""
        n = WIDE - 1
        if offer.evidence < WIDE_EVIDENCE or min(left, self._draft_max, offer.available) < n:
            return False
        tokens = 1 + sum(self._survival(offer, n))
        return tokens * self._price > max(1.0, self._target.prompt_rate * WIDE)

    def _plan_copy(self, offer: Offer, limit: int, lag_cost: float) -> Plan:
        return plan_copy(self._survival(offer, limit), self._target, self._price, lag_cost)

    def _survival(self, offer: Offer, n: int) -> list[float]:
        return self._copy(offer.drafter).survival(offer.chances, n)

    def _copy(self, name: str) -> CopyAcceptance:
        return self._copies.setdefault(name, CopyAcceptance())

    def _reading(self, offer: Offer, price: float, n: int) -> Choice:
        reason = f"reading the {offer.lag} tokens it missed"
        piece = self._drafts[offer.drafter].piece_to_try
        if piece and price > IN_PIECES_FROM:
            reason = f"{reason}, {piece} at first to see what that costs"
            return Choice(offer.drafter, 0, reason, n_read=piece)
        return Choice(offer.drafter, n, reason)

    def _plan_far(self, offer: Offer, price: float, limit: int, left: int) -> Plan:
        """A draft after all that was missed is read for ``price``."""
        if price > STAKE_AT_ONCE:
            # To look no further than wide decodes were tried would be too modest.
            limit = min(left, self._draft_max, offer.available)
        return self._plan_model(offer.drafter, limit, expected_sure(price))

    def _plan_model(self, name: str, limit: int, text_sure: float = 0.0) -> Plan:
        limit = min(limit, MAX_MODEL_DRAFT)
        costs = self._drafts[name]
        outlook = self._models[name].outlook(text_sure)
        start = Drafted(self._target, self._price, self._sampled)
        value = start.go_on_value(outlook, costs.hope * costs.next.value, limit)
        value -= costs.hope * (costs.first.value - costs.next.value) + MODEL_PREMIUM
        tokens = outlook.tokens(limit)
        return Plan(limit, value, tokens, self._price * tokens - value)

    def _to_read(self, offer: Offer) -> float:
        """What reading all that a model missed costs, in plain decodes."""
        return self._drafts[offer.drafter].catch_up(offer.lag - 1)

    def _most_to_read(self, name: str, ramp: float) -> float:
        """What may be staked on reading now, in plain decodes; ``ramp``: how far its first part has
        grown."""
        record = self._records[name]
        stake = min(STAKE_DRAWN if self._sampled else STAKE, STAKE_AT_ONCE + ramp)
        stake = record.share * (stake + STAKE_PER_TOKEN * self._n_tokens)
        # What this drafter lost in this answer counts twice: it had its chance.
        return stake + self._breaker.saved + min(0.0, record.balance)

    def _catches_up(self, name: str, price: float, plan: Plan, gain: float, left: int) -> bool:
        """Like ski rental: pay once what was missed, and what is to come, covers the price."""
        if price > self._most_to_read(name, STAKE_RAMP * self._n_tokens):
            return False
        self._missed[name] += gain
        horizon = HORIZON + HORIZON_GROWTH * self._n_tokens
        missed = self._missed[name]
        if left < MAX_COPY:  # the end is in sight: only what is to come can pay
            horizon, missed = min(horizon, left + 1), 0.0
        return missed + gain * self._unaided * horizon / plan.tokens > price


def _draft_costs(name: str, guess: float, known: Learned) -> DraftCosts:
    """From an earlier run, whose counts are capped: the machine may have changed."""
    if name not in known.drafts:
        return DraftCosts.guess(guess)
    first, following, few, many = (Estimate(v, min(n, 8)) for v, n in known.drafts[name])
    return DraftCosts(first, following, few, many, guess)
