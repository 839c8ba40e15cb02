"""The history drafter over the real index, in the real engine, with scripted models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.history import History
from localspec.spec.calibration import (
    AGREEING,
    ALONE,
    CONTRADICTED,
    MOSTLY,
    N_CELLS,
    Calibration,
    cell_of,
    prior,
)
from localspec.spec.copier import MIN_CHANCE, Match
from localspec.spec.drafter import Pacer, Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary, says, sure
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.pacer import AutoPacer

N_VOCAB = 64
EARLIER = [int(token) for token in np.random.default_rng(5).integers(0, N_VOCAB - 1, 150)]


def always(_n: int, _confidence: float) -> bool:
    return True


def never() -> bool:
    return False


def drafter_with(*texts: list[int], n_vocab: int = N_VOCAB) -> HistoryDrafter:
    history = History.in_memory()
    for text in texts:
        history.remember(text, None)
    return HistoryDrafter(history, history.calibration, n_vocab)


def answer(
    next_row: object, drafters: list[HistoryDrafter | Lookup], pacer: Pacer, prompt: list[int],
    n: int = 100, sampler: FakeSampler | None = None, seed: int = 0,
) -> tuple[list[int], Finished]:  # fmt: skip
    target = FakeDecoder(N_VOCAB, next_row)  # type: ignore[arg-type]
    vocabulary = FakeVocabulary([b"x"] * N_VOCAB)
    engine = Engine(target, vocabulary, drafters, pacer)
    request = Request(prompt, sampler or FakeSampler(), np.random.default_rng(seed), max_tokens=n)
    events = list(engine.generate(request))
    tokens = [token for event in events if isinstance(event, Step) for token in event.tokens]
    finished = events[-1]
    assert isinstance(finished, Finished)
    return tokens, finished


def test_an_answer_given_before_is_drafted() -> None:
    tokens, finished = answer(
        says(N_VOCAB, EARLIER), [drafter_with(EARLIER)], FixedPacer("history", 16), EARLIER[:20]
    )
    assert tokens == EARLIER[20:120]
    mine = finished.stats.drafters["history"]
    assert mine.n_accepted > 60
    assert mine.acceptance_rate == 1.0
    assert finished.stats.n_steps < 30


def test_a_misleading_history_changes_nothing() -> None:
    def odd(prefix: Sequence[int]) -> Row:
        # Follows the earlier text, but for every seventh token.
        at = len(prefix)
        token = EARLIER[at % len(EARLIER)]
        return sure(N_VOCAB, (token + (at % 7 == 0)) % (N_VOCAB - 1))

    plain, _ = answer(odd, [], PlainPacer(), EARLIER[:20])
    pacers: list[Pacer] = [FixedPacer("history", 16), AutoPacer({})]
    for pacer in pacers:
        drafted, _ = answer(odd, [Lookup(), drafter_with(EARLIER, plain)], pacer, EARLIER[:20])
        assert drafted == plain


def test_sampled_answers_have_the_same_distribution() -> None:
    logits = np.full((8, N_VOCAB), -20.0, np.float32)
    logits[:, :4] = np.random.default_rng(1).normal(0, 1, (8, 4))

    def row(prefix: Sequence[int]) -> Row:
        return logits[(prefix[-1] + len(prefix)) % 8]

    prompt = [0, 1, 2, 3, 0, 1, 2]
    misleading = [*prompt, 3, 3, 1, 0, 2, 2, 1, 3]
    counts: list[Counter[tuple[int, ...]]] = []
    n_verified = 0
    for use_history in (False, True):
        seen: Counter[tuple[int, ...]] = Counter()
        for seed in range(800):
            drafters: list[HistoryDrafter | Lookup] = (
                [drafter_with([*prompt, seed % 4, *misleading[8:]])] if use_history else []
            )
            pacer: Pacer = _AtOnce() if use_history else PlainPacer()
            tokens, finished = answer(row, drafters, pacer, prompt, 3, FakeSampler(1.0), seed)
            n_verified += finished.stats.n_verified
            seen[tuple(tokens[1:])] += 1
        counts.append(seen)
    keys = counts[0].keys() | counts[1].keys()
    # Chi-square of two samples of the same size; 15 degrees of freedom, limit at p < 1e-4.
    chi = sum((counts[0][k] - counts[1][k]) ** 2 / (counts[0][k] + counts[1][k]) for k in keys)
    assert n_verified > 100
    assert len(keys) <= 16
    assert chi < 45


class _AtOnce(FixedPacer):
    """Drafts in the first step already."""

    def __init__(self) -> None:
        super().__init__("history", 8)
        self._n_steps = 5

    def begin(self, *_args: object, **_kwargs: object) -> None:
        self._n_steps = 5


def test_the_pacer_chooses_it_where_lookup_knows_nothing() -> None:
    pacer = AutoPacer({})
    drafters = [Lookup(), drafter_with(EARLIER)]
    times = iter(np.arange(0, 1000, 0.01))  # every decode takes the same time, whatever its width
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, EARLIER))
    engine = Engine(
        target, FakeVocabulary([b"x"] * N_VOCAB), drafters, pacer, clock=lambda: float(next(times))
    )
    request = Request(EARLIER[:12], FakeSampler(), np.random.default_rng(0), max_tokens=120)
    finished = list(engine.generate(request))[-1]
    assert isinstance(finished, Finished)
    assert finished.stats.drafters["history"].n_accepted > 80
    assert "lookup" not in finished.stats.drafters


def test_a_draft_ends_where_the_texts_no_longer_agree() -> None:
    common, ways = EARLIER[:40], [EARLIER[50:80], EARLIER[80:110], EARLIER[110:140]]
    drafter = drafter_with(*([*common, *way] for way in ways))
    drafter.begin(common[:20])
    draft = drafter.propose(40, always, never)
    assert draft.tokens[:20] == common[20:40]
    assert draft.confidence[19] > 2 * draft.confidence[20], "the place where they part"
    assert all(0 < confidence < 1 for confidence in draft.confidence)


def test_a_text_is_followed_over_a_name_that_differs() -> None:
    drafter = drafter_with(EARLIER)
    drafter.begin(EARLIER[:30])
    assert drafter.offer() is not None
    drafter.commit([62])  # instead of EARLIER[30]
    drafter.commit([EARLIER[31]])
    assert drafter.propose(4, always, never).tokens == EARLIER[32:36]
    drafter.commit([62] * 30)
    drafter.commit([EARLIER[62]])
    assert drafter.propose(8, always, never).tokens == [], "it was lost for too long"


def test_the_answer_to_a_similar_question_is_drafted_from_its_second_token_on() -> None:
    words = list(range(1000, 1200))
    question, mark, says_it = words[:60], words[60:65], words[65:100]
    # The newest text with the same end of a question belongs to another question.
    drafter = drafter_with(
        [*question, *mark, *says_it], [*words[120:150], *mark, *words[150:170]], n_vocab=2000
    )
    similar = [7, *question[:30], 8, *question[31:], *mark]
    drafter.begin(similar)
    drafter.commit([says_it[0]])
    assert drafter.offer() is not None
    assert drafter.propose(20, always, never).tokens == says_it[1:21]
    drafter.begin(similar)
    drafter.commit([9])  # another name begins the answer
    drafter.offer()
    drafter.commit([says_it[1]])
    assert drafter.propose(5, always, never).tokens == says_it[2:7]


def test_what_differs_between_two_questions_is_put_in() -> None:
    words = list(range(1000, 1100))
    drafter = drafter_with([*words[:40], 60, *words[41:65], 1, 2, 60, 3, 4, 60, 5, 6], n_vocab=2000)
    drafter.begin([*words[:40], 61, 62, *words[41:65]])
    drafter.commit([1])
    assert drafter.propose(8, always, never).tokens == [2, 61, 62, 3, 4, 61, 62, 5]


def test_what_was_trimmed_from_a_conversation_is_still_drafted() -> None:
    """Without any earlier chat: what this process has seen is remembered in its memory."""
    early, late = EARLIER[:60], EARLIER[60:120]
    lookup, drafter = Lookup(), drafter_with([*early, *late])
    trimmed = [*late, 62, *early[:12]]  # the user quotes what no longer fits into the context
    for one in (lookup, drafter):
        one.begin([*early, *late], FakeSampler())
        one.begin(trimmed, FakeSampler())
        one.commit([early[12]])
    assert drafter.offer() is not None
    assert drafter.propose(10, always, never).tokens == early[13:23]
    lookup.commit(late[:4])
    assert lookup.propose(10, always, never).tokens == late[4:14]


def test_chances_grow_with_the_match_and_with_agreement() -> None:
    drafter = drafter_with(EARLIER)
    offers = []
    for n in (4, 8, 16, 32):
        drafter.begin([60] * 40 + EARLIER[40 - n : 40])
        offer = drafter.offer()
        assert offer is not None
        assert len(offer.chances) == offer.available
        draft = drafter.propose(100, always, never)
        assert draft.confidence == list(offer.chances)
        offers.append(offer)
    assert [offer.evidence for offer in offers] == [4, 8, 16, 32]
    firsts = [offer.chances[0] for offer in offers]
    assert firsts == sorted(set(firsts))
    drafter.begin([60] * 40)
    assert drafter.offer() is None
    votes = [
        prior(cell_of(8, False, vote, 0.8)) for vote in (CONTRADICTED, MOSTLY, ALONE, AGREEING)
    ]
    assert votes == sorted(set(votes))
    rates = [prior(cell_of(8, False, ALONE, rate)) for rate in (0.1, 0.5, 0.8, 0.95)]
    assert rates == sorted(set(rates))


def test_what_misled_often_is_no_longer_offered() -> None:
    drafter = drafter_with(EARLIER)
    for _ in range(300):
        drafter.begin([*range(30), *EARLIER[30:36]])
        drafter.offer()
        drafter.commit([61])
    drafter.begin([*range(30), *EARLIER[30:36]])
    assert drafter.offer() is None
    calibration = drafter.calibration
    assert calibration.chance(cell_of(6, False, ALONE, 0.1)) < MIN_CHANCE
    assert calibration.chance(cell_of(32, False, ALONE, 0.1)) > MIN_CHANCE


def test_chances_come_true() -> None:
    """Texts that repeat earlier ones with some noise: what is said to be right with a chance is
    right so often."""
    rng = np.random.default_rng(3)
    history = History.in_memory()
    texts = [[int(t) for t in rng.integers(0, 2000, 120)] for _ in range(8)]
    for text in texts:
        history.remember(text, None)
    drafter = HistoryDrafter(history, history.calibration, 2000)
    seen: list[tuple[float, bool]] = []
    for number in range(120):
        text, share = texts[number % 8], (0.02, 0.3, 0.6)[number // 8 % 3]
        drafter.begin(text[:20])
        drafter.commit([text[20]])
        for token in text[21:]:
            said = int(rng.integers(2000)) if rng.random() < share else token
            offer = drafter.offer()
            if offer is not None and number > 40:
                seen.append((offer.chances[0], drafter.propose(1, always, never).tokens == [said]))
            drafter.commit([said])
    history.close()
    for low, high in ((0.2, 0.6), (0.6, 0.85), (0.85, 1.0)):
        some = [(chance, hit) for chance, hit in seen if low <= chance < high]
        assert len(some) > 150, (low, len(some))
        predicted = sum(chance for chance, _ in some) / len(some)
        real = sum(hit for _, hit in some) / len(some)
        assert abs(predicted - real) < 0.06, (low, predicted, real)


def test_tokens_the_target_does_not_have_are_not_proposed() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 500, 8]
    drafter = drafter_with(text, n_vocab=100)
    drafter.begin(text[:5])
    assert drafter.propose(10, always, never).tokens == [6, 7]
    drafter.begin(text[:7])
    assert drafter.offer() is None
    assert drafter.propose(10, always, never).tokens == []


class Helped:
    """An index with one answer, that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def begin(self) -> None: ...

    def find(self, tail: Sequence[int], hint: int = 0) -> Match | None:
        return Match(20, tail[-1] + 1, 1, 1, (77,))

    def places(self, tail: Sequence[int]) -> list[int]:
        return []

    def around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        return list(range(2, 2 + n_after)), 0

    def helped(self, place: int, n_tokens: int) -> None:
        assert place == 77
        self.told.append(n_tokens)


@pytest.mark.parametrize(
    ("emitted", "told"),
    [([2, 3, 4, 5, 6], [4]), ([2, 3, 9], [2]), ([9], []), ([2], [1])],
)
def test_the_index_learns_how_many_tokens_it_brought(emitted: list[int], told: list[int]) -> None:
    index = Helped()
    drafter = HistoryDrafter(index, Calibration(), 100)
    drafter.begin([1])
    drafter.propose(4, always, never)
    drafter.commit(emitted)
    drafter.commit([50])
    assert index.told == told


def test_nonsense_in_a_saved_calibration_is_left_out() -> None:
    calibration = Calibration()
    before = calibration.counts()
    for nonsense in (
        [],
        [[1.0]],
        [[2.0] * N_CELLS, [1.0] * N_CELLS],
        [[-1.0] * N_CELLS, [float("nan")] * N_CELLS],
    ):
        calibration.add(nonsense)
    assert calibration.counts() == before
    assert len(before[0]) == N_CELLS


def test_counts_stay_small_enough_to_change() -> None:
    calibration = Calibration()
    cell = cell_of(8, False, ALONE, 0.6)
    for _ in range(10_000):
        calibration.observe(cell, hit=True)
    for _ in range(3000):
        calibration.observe(cell, hit=False)
    assert calibration.chance(cell) < 0.35
