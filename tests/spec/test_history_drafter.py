"""The history drafter over the real index, in the real engine, with scripted models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.history import History
from localspec.spec.drafter import Pacer, Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary, says, sure
from localspec.spec.history_drafter import (
    MIN_CHANCE,
    Calibration,
    Followed,
    HistoryDrafter,
    Match,
)
from localspec.spec.lookup import Lookup
from localspec.spec.pacer import AutoPacer, FixedPacer, PlainPacer

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
    drafter.commit([62])  # instead of EARLIER[30]
    drafter.commit([EARLIER[31]])
    assert drafter.propose(4, always, never).tokens == EARLIER[32:36]
    drafter.commit([62] * 30)
    drafter.commit([EARLIER[62]])
    assert drafter.propose(8, always, never).tokens == [], "it was lost for too long"


def test_evidence_grows_with_the_match_and_with_agreement() -> None:
    drafter = drafter_with(EARLIER)
    evidences = []
    for n in (4, 8, 16, 32):
        drafter.begin([60] * 40 + EARLIER[40 - n : 40])
        offer = drafter.offer()
        assert offer is not None
        evidences.append(offer.evidence)
    assert evidences == sorted(evidences)
    assert evidences[0] < evidences[-1]
    drafter.begin([60] * 40)
    assert drafter.offer() is None


def test_what_misled_often_is_no_longer_offered() -> None:
    drafter = drafter_with(EARLIER)
    for _ in range(300):
        drafter.begin([60] * 4 + EARLIER[30:36])
        drafter.commit([61])
    drafter.begin([60] * 4 + EARLIER[30:36])
    assert drafter.offer() is None
    assert drafter.commit([61]) == [], "what is not offered teaches the pacer nothing"
    calibration = drafter.calibration
    assert calibration.chance(6, 1, 1) < MIN_CHANCE < calibration.chance(32, 1, 1)


def test_hindsight_tells_at_every_token_whether_it_was_right() -> None:
    drafter = drafter_with(EARLIER)
    drafter.begin(EARLIER[:30])
    seen = drafter.commit([*EARLIER[30:34], 62, 62])
    assert [one.hit for one in seen][:5] == [True] * 4 + [False]
    assert all(one.drafter == "history" for one in seen)


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

    def near(self, place: int, tail: Sequence[int]) -> Match | None:
        raise AssertionError("something longer was found")

    def follow(self, match: Match, limit: int) -> list[Followed]:
        return [Followed(match.token + i, 1, 1) for i in range(limit)]

    def helped(self, match: Match, n_tokens: int) -> None:
        assert match.places == (77,)
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
    for nonsense in ([], [[1.0]], [[2.0] * 45, [1.0] * 45], [[-1.0] * 45, [float("nan")] * 45]):
        calibration.add(nonsense)
    assert calibration.counts() == before
    assert len(before[0]) == 45


def test_counts_stay_small_enough_to_change() -> None:
    calibration = Calibration()
    for _ in range(10_000):
        calibration.observe(8, 1, 1, hit=True)
    for _ in range(3000):
        calibration.observe(8, 1, 1, hit=False)
    assert calibration.chance(8, 1, 1) < 0.35
