"""The pacers' rules, with scripted costs: what is chosen, what is left, and what that costs."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from localspec.spec.breaker import Breaker
from localspec.spec.costs import Learned, TargetCosts
from localspec.spec.drafter import Draft, Measured, Offer, Pacer
from localspec.spec.events import PLAIN
from localspec.spec.fixed_pacers import BASELINE_EVERY, N_BASELINE_FIRST, FixedPacer, PlainPacer
from localspec.spec.pacer import BASELINE_TOKENS, AutoPacer
from localspec.spec.planning import Drafted, Outlook, plan_copy

T1_S = 0.01
FLAT = 0.04
N_PROMPT = 100


def cheap(width: int) -> float:
    """A memory-bound machine: more rows cost almost nothing."""
    return 1 + FLAT * (width - 1)


def dear(width: int) -> float:
    """A machine on which a row costs as much as a decode."""
    return float(width)


class Machine:
    """Runs a pacer over an endless answer in which drafted tokens are right with given chances.

    ``spent`` is in plain decodes. ``model``: (cost of one decode, chance that a token is right,
    confidence that it claims). ``match``: (length, chance) of the copying drafter. ``sure``: the
    target's probability of its best token, always.
    """

    def __init__(
        self,
        pacer: Pacer,
        cost=cheap,
        model: tuple[float, float, float] | None = None,
        match: tuple[int, float] | None = None,
        n_prompt: int = 50,
        seed: int = 1,
        sure: float | None = None,
    ) -> None:
        self.pacer, self.cost, self.model, self.match = pacer, cost, model, match
        self.sure = sure
        self.random = random.Random(seed)
        self.n_tokens, self.spent, self.lag = 0, 0.0, n_prompt
        self.used: list[tuple[int, str, int]] = []  # (tokens before, drafter, width)
        self.reasons: list[str] = []
        pacer.begin(n_prompt, n_prompt, cost(n_prompt) * T1_S)

    def offers(self) -> list[Offer]:
        offers = []
        if self.match:
            length, chance = self.match
            offers.append(Offer("lookup", length, chances=(min(chance, 0.97),) * 16))
        if self.model:
            offers.append(Offer("draft", 1, lag=self.lag))
        return offers

    def step(self, room: int = 1000) -> None:
        choice = self.pacer.choose(self.offers(), room)
        self.reasons.append(choice.reason)
        draft, n_draft, draft_cost, catchup, lag, chance = Draft(), 0, 0.0, 0.0, 0, 0.0
        if choice.n_read:
            assert self.model
            lag = min(choice.n_read, self.lag - 2)
            catchup = self.model[0] * self.cost(lag)
            self.lag -= lag
        elif choice.drafter == "draft":
            assert self.model
            each, chance, claimed = self.model
            lag = max(0, self.lag - 2)
            catchup = each * self.cost(lag) if lag else 0.0
            while True:
                draft.tokens.append(0)
                draft.confidence.append(claimed)
                n_draft += 1
                if n_draft >= choice.n or not self.pacer.more(n_draft, claimed):
                    break
            draft_cost = each * n_draft
        elif choice.drafter == "lookup":
            assert self.match
            chance = self.match[1]
            draft = Draft([0] * choice.n, [min(chance, 0.97)] * choice.n)
        n_drafted = len(draft.tokens)
        draft.cut(self.pacer.n_to_verify(draft))
        n_accepted = 0
        while n_accepted < len(draft.tokens) and self.random.random() < chance:
            n_accepted += 1
        width, n_emitted = len(draft.tokens) + 1, n_accepted + 1
        self.lag = 1 if n_draft else self.lag + n_emitted
        self.used.append((self.n_tokens, choice.drafter, width))
        self.pacer.learn(
            Measured(
                drafter=choice.drafter,
                evidence=self.match[0] if choice.drafter == "lookup" and self.match else 1,
                width=width,
                verify_s=self.cost(width) * T1_S,
                n_drafted=n_drafted,
                n_verified=len(draft.tokens),
                n_accepted=n_accepted,
                n_emitted=n_emitted,
                promised=tuple(draft.confidence),
                draft_s=draft_cost * T1_S,
                n_draft_decodes=n_draft,
                catchup_s=catchup * T1_S,
                n_catchup=lag,
                confidence=self.sure if self.pacer.wants_confidence else None,
            )
        )
        self.n_tokens += n_emitted
        self.spent += self.cost(width) + draft_cost + catchup

    def run(self, n_tokens: int) -> Machine:
        while self.n_tokens < n_tokens:
            self.step()
        return self

    @property
    def speedup(self) -> float:
        return self.n_tokens / self.spent

    def tokens_with(self, drafter: str) -> list[int]:
        return [at for at, name, _ in self.used if name == drafter]


# -- the plain and the fixed pacer


def test_plain_never_drafts_and_times_every_step() -> None:
    machine = Machine(PlainPacer(), model=(0.1, 1.0, 1.0), match=(9, 1.0)).run(20)
    assert {name for _, name, _ in machine.used} == {PLAIN}
    assert machine.pacer.baseline_step_s() == pytest.approx(T1_S)


def test_fixed_measures_its_baseline_in_the_same_run() -> None:
    machine = Machine(FixedPacer("draft", 3), model=(0.1, 0.9, 0.9))
    for _ in range(3 * BASELINE_EVERY):
        machine.step()
    plain = [i for i, (_, name, _) in enumerate(machine.used) if name == PLAIN]
    assert plain[:N_BASELINE_FIRST] == list(range(N_BASELINE_FIRST))
    assert len(plain) == N_BASELINE_FIRST + 2
    assert {width for _, name, width in machine.used if name == "draft"} == {4}
    assert machine.pacer.baseline_step_s() == pytest.approx(T1_S)


def test_fixed_keeps_to_room_and_to_what_is_available() -> None:
    pacer = FixedPacer("draft", 8)
    machine = Machine(pacer, model=(0.1, 1.0, 1.0)).run(10)
    assert machine.used
    assert pacer.choose([Offer("draft", 1)], 2).n == 2
    assert pacer.choose([Offer("draft", 1, available=1)], 9).n == 1
    assert pacer.choose([Offer("draft", 1)], 0).drafter == PLAIN
    assert pacer.choose([Offer("lookup", 9)], 9).drafter == PLAIN


def test_a_fixed_mode_starts_each_answer_with_its_baseline() -> None:
    pacer = FixedPacer("draft", 2)
    Machine(pacer, model=(0.1, 1.0, 1.0)).run(40)
    assert Machine(pacer, model=(0.1, 1.0, 1.0)).run(1).used[0][1] == PLAIN


# -- the automatic pacer


def auto(guess: float = 0.1, **settings: object) -> AutoPacer:
    return AutoPacer({"draft": guess}, **settings)  # type: ignore[arg-type]


def test_the_first_token_is_never_delayed_by_a_drafter() -> None:
    machine = Machine(auto(), model=(0.1, 1.0, 1.0), match=(32, 1.0))
    machine.step()
    assert machine.used == [(0, PLAIN, 1)]


def test_a_good_draft_is_used() -> None:
    machine = Machine(auto(), model=(0.1, 0.95, 0.95)).run(300)
    assert machine.speedup > 2


def test_periodic_text_is_exploited_with_long_copies() -> None:
    machine = Machine(auto(), match=(32, 1.0)).run(600)
    assert machine.speedup > 6
    assert max(width for _, _, width in machine.used) > 32


@pytest.mark.parametrize("claimed", [0.3, 0.6, 0.99])
@pytest.mark.parametrize("cost", [cheap, dear])
def test_a_useless_draft_is_left_at_once_and_costs_little(cost, claimed: float) -> None:
    """F12: a draft with random weights, modest or boastful."""
    pacer = auto()
    first = Machine(pacer, cost=cost, model=(0.1, 0.0, claimed)).run(600)
    assert len([at for at in first.tokens_with("draft") if at > 150]) <= 10
    assert first.speedup > 0.97
    second = Machine(pacer, cost=cost, model=(0.1, 0.0, claimed)).run(600)
    assert second.speedup > 0.98


def test_a_draft_as_costly_as_the_target_is_never_used() -> None:
    machine = Machine(auto(1.0), model=(1.0, 1.0, 1.0)).run(400)
    assert machine.tokens_with("draft") == []


def test_a_draft_that_is_dearer_than_guessed_is_left() -> None:
    machine = Machine(auto(0.1), model=(1.5, 0.9, 0.9), n_prompt=20).run(400)
    assert machine.tokens_with("draft")
    # One bad measurement is never final, so it is tried again, rarely.
    assert len([at for at in machine.tokens_with("draft") if at > 40]) <= 1
    assert machine.speedup > 0.9


def test_useless_copies_are_left_within_a_few_dozen_tokens() -> None:
    machine = Machine(auto(), cost=lambda w: 1 + 0.3 * (w - 1), match=(5, 0.0)).run(400)
    late = [at for at in machine.tokens_with("lookup") if at > 60]
    assert machine.tokens_with("lookup")
    assert len(late) <= 4
    assert machine.speedup > 0.97


def test_nothing_is_drafted_where_a_row_costs_a_decode() -> None:
    machine = Machine(auto(), cost=dear, model=(0.1, 0.9, 0.9), match=(20, 0.9)).run(300)
    assert machine.speedup > 0.97


def test_a_drafter_that_lags_far_behind_waits_until_reading_on_will_pay() -> None:
    def cost(width: int) -> float:
        return 1 + 0.2 * (width - 1)

    far = Machine(auto(), cost=cost, model=(0.2, 0.9, 0.9), n_prompt=4000).run(100)
    near = Machine(auto(), cost=cost, model=(0.2, 0.9, 0.9), n_prompt=20).run(100)
    assert far.tokens_with("draft") == []
    assert near.tokens_with("draft")


def test_one_bad_measurement_is_never_final() -> None:
    """A stall at the first try of width 4 makes it look four times as dear as it is."""
    stalled = Learned(widths={4: (4 * cheap(4), 1)}, prompt_rate=0.5)
    machine = Machine(AutoPacer({}, stalled), match=(6, 0.95)).run(1500)
    assert machine.speedup > 1.5


def test_no_room_no_draft() -> None:
    machine = Machine(auto(), model=(0.1, 1.0, 1.0), match=(32, 1.0)).run(20)
    choice = machine.pacer.choose(machine.offers(), 0)
    assert (choice.drafter, choice.n) == (PLAIN, 0)


@pytest.mark.parametrize("room", [1, 2, 5])
def test_a_draft_fits_the_room(room: int) -> None:
    machine = Machine(auto(), model=(0.1, 1.0, 1.0), match=(32, 1.0)).run(60)
    for _ in range(20):
        assert machine.pacer.choose(machine.offers(), room).n <= room
        machine.step(room)
    assert max(width for _, _, width in machine.used[-20:]) <= room + 1


def test_the_users_cap_holds() -> None:
    machine = Machine(auto(draft_max=4), model=(0.1, 1.0, 1.0), match=(32, 1.0)).run(200)
    assert max(width for _, _, width in machine.used) == 5


def test_a_drafter_that_is_not_allowed_is_not_used() -> None:
    pacer = auto(allowed={"lookup"})
    machine = Machine(pacer, model=(0.01, 1.0, 1.0), match=(3, 0.5)).run(200)
    assert machine.tokens_with("draft") == []


def test_what_is_available_bounds_the_draft() -> None:
    machine = Machine(auto(), match=(32, 1.0)).run(100)
    offer = Offer("lookup", 32, available=30, chances=(0.99,) * 16)
    assert 16 < machine.pacer.choose([offer], 99).n <= 30, "later ones are as likely as the last"
    assert machine.pacer.choose([replace(offer, available=2, chances=(0.99,) * 2)], 99).n == 2


def test_plain_speed_is_measured_again_however_well_drafting_goes() -> None:
    machine = Machine(auto(), model=(0.05, 1.0, 1.0)).run(4 * BASELINE_TOKENS)
    plain = machine.tokens_with(PLAIN)
    assert max(b - a for a, b in pairwise(plain)) < BASELINE_TOKENS + 70
    assert machine.pacer.baseline_step_s() == pytest.approx(T1_S)


def test_a_drafter_behind_a_new_name_is_told_apart() -> None:
    """A head of the target and a draft model keep their own costs."""
    pacer = AutoPacer({"draft": 0.1, "mtp": 0.1})
    pacer.begin(50, 50, 0.05)
    for _ in range(20):
        pacer.learn(Measured(PLAIN, 0, 1, T1_S, 0, 0, 0, 1))
        for name, each in (("draft", 0.2), ("mtp", 0.02)):
            cost = 3 * each * T1_S
            pacer.learn(Measured(name, 1, 4, 1.2 * T1_S, 3, 3, 3, 4, (0.9,) * 3, cost, 3))
    drafts = pacer.learned().drafts
    assert drafts["draft"][0][0] > 5 * drafts["mtp"][0][0]


def test_a_copy_is_taken_at_its_word() -> None:
    pacer = Machine(auto(), match=(32, 1.0)).run(100).pacer

    def chosen(*chances: float) -> int:
        return pacer.choose([Offer("history", 5, available=len(chances), chances=chances)], 50).n

    assert chosen(*[0.95] * 30) > 8
    assert chosen(*[0.95] * 3) == 3, "no more than it has"
    assert chosen(0.95, 0.95, 0.01, 0.95) == 2
    assert chosen(0.02) == 0
    offers = [Offer("lookup", 9), Offer("history", 2, chances=(0.95,) * 8)]
    assert pacer.choose(offers, 50).drafter == "history", "without chances nothing is expected"


def test_unsure_drafts_are_cut_and_need_not_be_verified() -> None:
    machine = Machine(auto(), model=(0.05, 0.95, 0.95)).run(60)
    pacer = machine.pacer
    assert pacer.choose(machine.offers(), 50).drafter == "draft"
    assert not pacer.more(1, 0.001)
    assert pacer.n_to_verify(Draft([7], [0.001])) == 0


def test_sure_drafts_go_on() -> None:
    machine = Machine(auto(), model=(0.05, 0.99, 0.99)).run(100)
    assert machine.pacer.choose(machine.offers(), 50).drafter == "draft"
    assert machine.pacer.more(1, 0.999)
    assert machine.pacer.n_to_verify(Draft([7, 8], [0.999, 0.999])) == 2


def test_more_is_false_when_no_model_was_chosen() -> None:
    assert not auto().more(1, 1.0)


def test_every_choice_says_why() -> None:
    machine = Machine(auto(), model=(0.1, 0.7, 0.7), match=(4, 0.6)).run(300)
    assert all(machine.reasons)
    assert len(set(machine.reasons)) > 3


def test_an_empty_draft_after_a_failed_decode_is_survived() -> None:
    pacer = auto()
    machine = Machine(pacer, model=(0.1, 0.9, 0.9)).run(30)
    pacer.choose(machine.offers(), 50)
    pacer.learn(Measured("draft", 1, 1, T1_S, 0, 0, 0, 1, draft_s=0.0))
    assert machine.run(100).n_tokens >= 100


def test_a_slower_machine_moves_the_baseline_but_not_the_choices() -> None:
    """Costs are relative: ten times slower for everything is the same machine."""
    pacer = auto()
    Machine(pacer, model=(0.1, 0.9, 0.9)).run(200)
    slow = AutoPacer({"draft": 0.1}, pacer.learned())
    slow.begin(50, 50, 10 * cheap(50) * T1_S)
    slow.learn(Measured(PLAIN, 0, 1, 10 * T1_S, 0, 0, 0, 1))
    assert slow.baseline_step_s() == pytest.approx(10 * T1_S)
    assert slow.choose([Offer("draft", 1, lag=1)], 50).drafter == "draft"


# -- the breaker


def test_the_breaker_opens_after_a_loss_and_longer_each_time() -> None:
    breaker = Breaker()
    pauses, at = [], 0
    for _ in range(3):
        while not breaker.is_open(at):
            breaker.add(-1.0, at)
            at += 1
        opened = at
        while breaker.is_open(at):
            at += 1
        pauses.append(at - opened + 1)
    assert pauses[1] == pytest.approx(2 * pauses[0], abs=2)
    assert pauses[2] == pytest.approx(4 * pauses[0], abs=4)
    assert breaker.saved < 0


def test_what_was_saved_may_be_lost_again() -> None:
    breaker = Breaker()
    breaker.add(50.0, 10)
    breaker.add(-40.0, 20)
    assert not breaker.is_open(21)


# -- the cost table


def measured(costs: dict[int, float], noise: float = 0.0, n: int = 30) -> TargetCosts:
    rng = random.Random(3)
    table = TargetCosts()
    for _ in range(n):
        for width, cost in costs.items():
            table.learn(width, cost * T1_S * (1 + noise * (rng.random() * 2 - 1)))
    return table


def test_costs_are_found_again_through_noise() -> None:
    true = {1: 1.0, 2: 1.9, 4: 2.6, 8: 6.5, 16: 8.1}
    table = measured(true, noise=0.2)
    for width, cost in true.items():
        assert table(width) == pytest.approx(cost, rel=0.1)


def test_between_measured_widths_costs_are_linear() -> None:
    table = measured({1: 1.0, 4: 2.5, 8: 4.5})
    assert table(6) == pytest.approx((table(4) + table(8)) / 2)


def test_a_wider_decode_never_looks_cheaper() -> None:
    table = measured({1: 1.0, 4: 3.0, 6: 2.0, 8: 2.5})
    costs = [table(width) for width in range(1, 65)]
    assert all(low <= high + 1e-9 for low, high in pairwise(costs))


def test_a_single_stall_moves_an_estimate_little() -> None:
    table = measured({1: 1.0, 4: 1.5})
    before = table(4)
    table.learn(4, 10 * T1_S)
    assert table(4) < 1.05 * before


def test_slow_start() -> None:
    table = TargetCosts()
    assert table.reach == 4
    table.learn(1, T1_S)
    table.learn(4, 2 * T1_S)
    assert table.reach == 8


def test_a_prompt_rate_that_promises_cheap_rows_widens_the_start() -> None:
    table = TargetCosts()
    table.learn(1, T1_S)
    table.prefilled(400, 400 * 0.01 * T1_S, T1_S)
    assert table.reach > 16


def test_a_prompt_of_a_few_tokens_says_nothing() -> None:
    table = TargetCosts()
    table.learn(1, T1_S)
    before = table.prompt_rate
    table.prefilled(3, T1_S, T1_S)
    assert table.prompt_rate == before


def test_the_first_measurement_outweighs_the_guess() -> None:
    table = TargetCosts()
    table.learn(1, T1_S)
    guess = table(8)
    table.learn(8, 3 * guess * T1_S)
    assert table(8) > 1.8 * guess


def test_a_machine_that_slept_in_the_first_draft_drafts_on() -> None:
    """An hour in one decode says nothing about what a decode costs."""
    table = TargetCosts()
    table.learn(1, T1_S)
    guess = table(4)
    table.learn(4, 3600.0)
    assert table(4) == guess
    table.learn(4, 2 * T1_S)
    assert table(4) < 2.2


def test_what_an_earlier_run_learned_in_its_sleep_is_not_taken_over() -> None:
    costs = {4: (90.0, 1), 8: (19.0, 5), 16: (2.0, 1)}
    assert set(TargetCosts(Learned(widths=costs)).measured()) == {1, 8, 16}


def test_a_width_that_is_dear_each_time_is_believed() -> None:
    table = TargetCosts()
    table.learn(1, T1_S)
    for _ in range(2):
        table.learn(4, 9 * T1_S)
    assert table(4) > 4


@pytest.mark.parametrize("n_before", [1, 2, 5, 20])
def test_a_sleep_does_not_end_drafting(n_before: int) -> None:
    slept: list[int] = []

    def cost(width: int) -> float:
        if 1 < width < N_PROMPT:
            slept.append(width)
            if len(slept) == 2 * n_before - 1:  # ``cost`` is asked twice for each step
                return 1e5
        return cheap(width)

    machine = Machine(auto(), cost=cost, match=(9, 0.9), n_prompt=N_PROMPT).run(300)
    late = [width for at, _, width in machine.used if at > 150]
    assert sum(width > 4 for width in late) > len(late) / 2


def test_where_the_prompt_pass_is_slow_wide_decodes_are_not_even_measured() -> None:
    machine = Machine(auto(), cost=dear, match=(9, 0.9)).run(200)
    assert {width for _, _, width in machine.used} == {1}


def test_a_known_prompt_rate_spares_the_first_plain_step() -> None:
    pacer = auto()
    Machine(pacer, model=(0.1, 0.95, 0.95)).run(200)
    again = Machine(AutoPacer({"draft": 0.1}, pacer.learned()), model=(0.1, 0.95, 0.95), n_prompt=9)
    again.step()
    assert again.used[0][1] == "draft"
    again.run(200)
    assert again.tokens_with(PLAIN)
    assert again.pacer.baseline_step_s() == pytest.approx(T1_S)


def test_a_prompt_rate_of_last_time_is_not_measured_again_by_itself() -> None:
    """The first step, a draft, is timed by a scale that the old rate gave: that proves nothing."""
    pacer = auto()
    Machine(pacer, model=(0.1, 0.95, 0.95)).run(200)
    before = pacer.learned()
    assert before.prompt_rate
    old = replace(before, prompt_rate=before.prompt_rate / 2)
    again = Machine(AutoPacer({"draft": 0.1}, old), model=(0.1, 0.95, 0.95))
    again.run(200)
    assert again.used[0][1] == "draft"
    assert again.pacer.learned().prompt_rate == pytest.approx(before.prompt_rate, rel=0.2)


# -- planning


def outlook(share_next: float = 0.9, share_sure: float = 0.9) -> Outlook:
    return Outlook(share_next, share_sure, chance_sure=0.98, chance_unsure=0.5)


def test_after_an_unsure_token_less_is_expected() -> None:
    assert outlook(share_next=0.4).tokens(8) < outlook(share_next=0.9).tokens(8)
    start = Drafted(cheap, 0.7)
    low = start.go_on_value(outlook(share_next=0.4), 0.1, 8)
    assert low < start.go_on_value(outlook(share_next=0.9), 0.1, 8)


def test_a_drawn_draft_is_planned_whole() -> None:
    """Verifying none of it is no way out, so a bad token lowers what stopping is worth."""
    kept, whole = Drafted(dear, 0.7), Drafted(dear, 0.7, whole=True)
    for draft in (kept, whole):
        draft.add(0.1)
    assert (kept.n_best, whole.n_best) == (0, 1)
    assert whole.stop_value < kept.stop_value
    assert whole.go_on_value(outlook(), 0.1, 8) < kept.go_on_value(outlook(), 0.1, 8)


def test_what_a_copy_leaves_the_model_to_read_is_charged() -> None:
    survival = [0.7, 0.5, 0.3]
    free = plan_copy(survival, cheap, 0.6)
    charged = plan_copy(survival, cheap, 0.6, lag_cost=0.5)
    assert free.n > charged.n


def test_catching_up_does_not_open_the_breaker() -> None:
    breaker = Breaker()
    breaker.invested(50.0)
    assert not breaker.is_open(1)
    assert breaker.saved == -50.0
