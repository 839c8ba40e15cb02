"""Whether a draft model that is behind reads what it missed, and what its decodes are taken to
cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.spec.acceptance import CAUTIOUS_SURE, TARGET_SURE, ModelAcceptance
from localspec.spec.costs import FIRST_READS, RETRY_PER_DECODE, DraftCosts, Estimate
from localspec.spec.drafter import Offer
from localspec.spec.events import PLAIN
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.pacer import AutoPacer
from localspec.spec.verify import peak
from tests.spec.test_pacer import N_PROMPT, Machine, auto, cheap

DRAFT = (0.25, 0.9, 0.9)


def steep(width: int) -> float:
    """Reading 60 tokens takes a draft of a quarter 4.7 plain decodes."""
    return 1 + 0.3 * (width - 1)


def machine(sure: float | None) -> Machine:
    return Machine(auto(0.25), cost=steep, model=DRAFT, n_prompt=60, sure=sure)


def test_a_text_of_which_the_target_is_sure_is_read_for_the_draft_and_another_is_not() -> None:
    assert min(machine(0.99).run(150).tokens_with("draft")) < 40
    assert machine(0.3).run(150).tokens_with("draft") == []


def test_what_is_cheap_to_read_is_read_without_asking_how_sure_the_target_is() -> None:
    near = Machine(auto(), cost=cheap, model=(0.1, 0.9, 0.9), n_prompt=20, sure=0.0)
    near.run(30)
    assert min(near.tokens_with("draft")) < 5
    assert not near.pacer.wants_confidence


def test_the_target_is_only_asked_while_a_draft_model_is_dear_to_catch_up() -> None:
    asked = machine(0.99)
    asked.step()
    asked.step()
    assert asked.pacer.wants_confidence
    asked.run(150)
    assert not asked.pacer.wants_confidence
    assert not PlainPacer().wants_confidence
    assert not FixedPacer("draft", 3).wants_confidence


def test_the_target_is_not_asked_for_a_draft_that_could_not_be_read_for_anyway() -> None:
    """A long text on a processor: asking costs as much as all else that the pacer does."""
    long = Machine(auto(0.25), cost=steep, model=DRAFT, n_prompt=3000, sure=0.99)
    asked = 0
    for _ in range(60):
        long.step()
        asked += long.pacer.wants_confidence
    assert asked == 0
    assert long.tokens_with("draft") == []


def test_nothing_is_read_for_the_last_tokens_of_an_answer() -> None:
    late = machine(0.99)
    for _ in range(100):
        late.step(room=8)
    assert late.tokens_with("draft") == []


def test_where_copies_serve_nearly_all_a_model_reads_nothing() -> None:
    served = machine(0.99)
    served.match = (20, 0.97)
    served.run(300)
    assert served.tokens_with("draft") == []
    assert len(served.tokens_with("lookup")) > 20


def test_how_sure_the_target_is_moves_what_is_expected_of_a_draft() -> None:
    sure, unsure, unknown = ModelAcceptance(), ModelAcceptance(), ModelAcceptance()
    for _ in range(20):
        sure.target_was(0.95)
        unsure.target_was(0.5)
    plain = unknown.outlook()
    assert unknown.outlook(TARGET_SURE).share_next == pytest.approx(plain.share_next)
    assert unknown.outlook(CAUTIOUS_SURE).share_next < plain.share_next
    assert sure.outlook(CAUTIOUS_SURE).share_next > plain.share_next
    assert unsure.outlook(TARGET_SURE).share_next < plain.share_next
    assert sure.outlook() == plain  # once it drafts, its own tokens tell more
    sure.begin(0.0)
    assert sure.outlook(TARGET_SURE).share_next == pytest.approx(plain.share_next)


@pytest.mark.parametrize("lead", [-2, 0, 2, 4, 8])
def test_the_peak_of_a_row_is_its_best_probability(lead: float) -> None:
    row = np.random.default_rng(1).normal(0, 2, 150_000).astype(np.float32)
    row[77] = 14 + lead  # all the others together are as likely as one of 13.9
    exact = 1 / np.exp(row.astype(float) - float(row.max())).sum()
    assert exact <= peak(row) < 1.4 * exact
    assert (peak(row) >= 0.8) == (exact >= 0.8)
    assert peak(row + np.float32(100)) == pytest.approx(peak(row), rel=1e-3)


def test_a_draft_that_lost_what_was_read_for_it_is_not_read_for_again_soon() -> None:
    useless = Machine(auto(0.25), cost=steep, model=(0.25, 0.0, 0.9), n_prompt=40, sure=0.99)
    useless.run(300)
    read = [at for at in useless.tokens_with("draft") if at > 0]
    assert read
    assert max(read) - min(read) < 100
    assert useless.speedup > 0.95


def test_what_reading_takes_is_found_out_on_a_few_tokens_first() -> None:
    """Of a draft that takes four times as long as its size says: it has not the processor alone."""
    starved = Machine(auto(0.25), cost=steep, model=(1.0, 0.9, 0.9), n_prompt=60, sure=0.99)
    starved.run(300)
    first = next(reason for reason in starved.reasons if "reading" in reason)
    assert "8 at first" in first
    assert starved.speedup > 0.97
    fed = machine(0.99).run(300)
    pieces = [reason for reason in fed.reasons if "at first" in reason]
    assert pieces[0] == first
    assert ["16 at first" in piece for piece in pieces[1:]] == [True]
    assert fed.speedup > 1.2


def test_a_second_piece_shows_what_a_short_one_slipped_past() -> None:
    costs = DraftCosts.guess(0.25)
    costs.learn(0.0, 0, 8 * 0.1, 8)
    before = costs.catch_up(80)
    costs.learn(0.0, 0, 16 * 0.6, 16)
    assert costs.catch_up(80) > 3 * before
    assert costs.next.value > 0.25  # nor are its decodes as cheap as guessed
    steady = DraftCosts.guess(0.25)
    for n in FIRST_READS:
        steady.learn(0.0, 0, n * 0.1, n)
    assert steady.catch_up(80) == pytest.approx(before)


def test_what_is_cheap_or_was_read_before_is_read_whole() -> None:
    near = Machine(auto(), cost=cheap, model=(0.1, 0.9, 0.9), n_prompt=20, sure=0.99).run(100)
    assert near.tokens_with("draft")
    assert not any("at first" in reason for reason in near.reasons)
    learned = machine(0.99).run(300).pacer.learned()
    again = Machine(
        auto(0.25, learned=learned), cost=steep, model=DRAFT, n_prompt=60, sure=0.99
    ).run(300)
    assert again.tokens_with("draft")
    assert not any("at first" in reason for reason in again.reasons)


def answers(pacer: AutoPacer, model: tuple[float, float, float], n: int) -> list[Machine]:
    """One after the other, with a new prompt each."""
    return [
        Machine(pacer, cost=steep, model=model, n_prompt=60, sure=0.99, seed=seed).run(300)
        for seed in range(n)
    ]


def test_for_a_draft_that_never_paid_is_read_less_often_though_not_never() -> None:
    """It is so unsure of its own tokens that none is ever checked: acceptance says nothing."""
    unsure = answers(auto(0.25), (0.25, 0.0, 0.3), 30)
    read = [bool(answer.tokens_with("draft")) for answer in unsure]
    assert read[0]
    assert 1 <= sum(read[10:]) <= 3
    assert min(answer.speedup for answer in unsure) > 0.97


def test_one_answer_that_did_not_pay_does_not_spoil_a_good_draft() -> None:
    pacer = auto(0.25)
    answers(pacer, (0.25, 0.9, 0.9), 3)
    answers(pacer, (0.25, 0.0, 0.3), 1)
    returned, invested = pacer.learned().paid["draft"]
    assert returned > invested
    again = answers(auto(0.25, learned=pacer.learned()), (0.25, 0.9, 0.9), 1)
    assert again[0].tokens_with("draft")


def test_what_did_not_pay_is_remembered_from_run_to_run() -> None:
    pacer = auto(0.25)
    answers(pacer, (0.25, 0.0, 0.3), 2)
    known = pacer.learned()
    assert known.paid["draft"][0] == 0.0
    model = (0.25, 0.0, 0.3)
    assert answers(auto(0.25, learned=known), model, 1)[0].tokens_with("draft") == []
    forgotten = replace(known, paid={})
    assert answers(auto(0.25, learned=forgotten), model, 1)[0].tokens_with("draft") != []


# -- what wide decodes cost


def tiles(width: int) -> float:
    """Rows are dear one by one and cheap in a full tile of 16, as with 4-bit K-quants."""
    return 7.0 if width == 16 else min(1 + 0.75 * (width - 1), 12.0)


def copies(match: int, chance: float) -> Machine:
    again = Machine(auto(), cost=tiles, match=(match, chance), n_prompt=N_PROMPT)
    return again.run(600)


def test_a_full_tile_is_tried_once_on_a_long_match_though_half_of_one_is_dear() -> None:
    widths = [width for _, _, width in copies(40, 0.99).used]
    assert widths.count(16) > 10


def test_on_a_short_match_it_is_not() -> None:
    assert all(width < 16 for _, _, width in copies(8, 0.6).used)


# -- what a draft decode costs


def test_a_first_draft_that_reads_cold_weights_is_not_believed_a_second_is() -> None:
    costs = DraftCosts.guess(0.25)
    costs.learn(1.6, 2, 0.0, 0)
    assert costs.first.value == costs.next.value == 0.25
    costs.learn(1.6, 2, 0.0, 0)
    assert costs.first.value > 0.5


def test_cold_weights_in_the_first_draft_do_not_end_drafting() -> None:
    cold = Machine(auto(0.1), model=(0.1, 0.95, 0.95), n_prompt=20)
    cold.model = (2.0, 0.95, 0.95)
    while not cold.tokens_with("draft"):
        cold.step()
    cold.model = (0.1, 0.95, 0.95)
    cold.run(300)
    late = [name for at, name, _ in cold.used if at > 100]
    assert late.count("draft") > len(late) / 2


def test_a_draft_that_looked_dear_is_tried_again_but_not_as_cheaper_than_guessed() -> None:
    costs = DraftCosts.guess(0.2)
    for _ in range(2):
        costs.learn(0.9, 1, 0.0, 0)
    dear = costs.first.value
    assert dear > 0.5
    assert costs.hope == 1.0
    for _ in range(round(0.1 / RETRY_PER_DECODE)):
        costs.idle()
    assert costs.hope == pytest.approx(0.9, abs=0.01)
    for _ in range(10_000):
        costs.idle()
    assert costs.hope * dear >= 0.2
    costs.learn(0.9, 1, 0.0, 0)
    assert costs.hope == 1.0
    cheaper = DraftCosts.guess(0.2)
    cheaper.learn(0.1, 1, 0.0, 0)
    for _ in range(10_000):
        cheaper.idle()
    assert cheaper.hope == 1.0


def test_plain_decoding_stays_a_choice() -> None:
    pacer = auto(0.25)
    pacer.begin(60, 60, 0.1)
    assert pacer.choose([Offer("draft", 1, lag=60)], 63).drafter == PLAIN


def test_what_was_dear_and_is_not_measured_is_half_forgotten_after_some_runs() -> None:
    kept = ((0.6, 4), (0.5, 3), (0.1, 0), (0.05, 1))
    for _ in range(7):
        first, following, few, many = (Estimate(*part) for part in kept)
        unused = DraftCosts(first, following, few, many, guessed=0.2)
        kept = unused.kept()
    assert kept[0] == (pytest.approx(0.39, abs=0.01), 4)
    assert kept[1] == (pytest.approx(0.34, abs=0.01), 3)
    assert kept[2:] == ((0.1, 0), (0.05, 1))


def test_what_is_measured_in_a_run_or_cheaper_than_guessed_is_kept_as_it_is() -> None:
    used = DraftCosts.guess(0.2)
    for _ in range(20):
        used.learn(0.6, 1, 0.0, 0)
    assert used.kept()[0] == (used.first.value, used.first.n)
    cheap_one = DraftCosts(*(Estimate(0.1, 4) for _ in range(4)), guessed=0.2)
    assert cheap_one.kept() == ((0.1, 4),) * 4
