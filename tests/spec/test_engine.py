"""The engine over scripted models: exact accept and reject patterns, ends, cancellation, counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from localspec.errors import DecodeError, PromptError
from localspec.spec.drafter import Choice
from localspec.spec.engine import NO_ROLLBACK, Engine, Request
from localspec.spec.events import PLAIN, Event, Finished, Prefill, Step
from localspec.spec.fakes import FakeDecoder, FakeDrafter, FakeSampler, FakeVocabulary, says
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.model_drafter import ModelDrafter

N_VOCAB = 64
END = 1
PROMPT = [10, 11, 12]


class Always(FixedPacer):
    """Drafts at every step, from the first on."""

    def choose(self, offers, room):  # type: ignore[no-untyped-def]
        choice = super().choose(offers, room)
        wanted = next((o for o in offers if o.drafter == "scripted"), None)
        if wanted is None or room < 1:
            return choice
        return replace(choice, drafter="scripted", n=min(self.n, room))

    def __init__(self, n: int) -> None:
        super().__init__("scripted", n)
        self.n = n


def run(
    answer: Sequence[int],
    guess: Callable[[Sequence[int]], Sequence[int]],
    *,
    n_draft: int = 4,
    target: FakeDecoder | None = None,
    stops: Sequence[str] = (),
    max_tokens: int | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    pieces: Sequence[bytes] | None = None,
) -> tuple[list[Event], FakeDecoder, FakeSampler]:
    """The target says ``answer`` after the prompt; ``guess`` drafts from the committed tokens."""
    script = [*PROMPT, *answer, *([0] * 64)]
    target = target or FakeDecoder(N_VOCAB, says(N_VOCAB, script))
    vocabulary = FakeVocabulary(pieces or [bytes([65 + i % 26]) for i in range(N_VOCAB)], [END])
    engine = Engine(target, vocabulary, [FakeDrafter(guess)], Always(n_draft))
    sampler = FakeSampler()
    request = Request(
        PROMPT, sampler, np.random.default_rng(0), max_tokens, stops, cancelled=cancelled
    )
    return list(engine.generate(request)), target, sampler


def truth(answer: Sequence[int]) -> Callable[[Sequence[int]], list[int]]:
    """A drafter that is always right."""
    return lambda tokens: list(answer[len(tokens) - len(PROMPT) :])


def tokens_of(events: Sequence[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Step) for token in event.tokens]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, (Step, Finished)))


def finished(events: Sequence[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    return events[-1]


ANSWER = [20, 21, 22, 23, 24, 25, 26, 27, 28, END]


@pytest.mark.parametrize("n_right", range(6))
def test_what_is_emitted_does_not_depend_on_the_draft(n_right: int) -> None:
    """A drafter that is right for ``n_right`` tokens and wrong after: accepted exactly so many."""

    def guess(tokens: Sequence[int]) -> list[int]:
        right = list(ANSWER[len(tokens) - len(PROMPT) :])
        return right[:n_right] + [63] * 5

    events, target, sampler = run(ANSWER, guess, n_draft=5)
    assert tokens_of(events) == ANSWER
    steps = [event for event in events if isinstance(event, Step)][1:]
    # The first token comes from the prompt pass, then each step brings n_right + 1.
    assert [step.n_accepted for step in steps[:-1]] == [n_right] * (len(steps) - 1)
    assert sampler.accepted == ANSWER
    assert finished(events).reason == "stop"
    assert list(target.tokens) == [*PROMPT, *ANSWER][: len(target.tokens)]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("n_draft", range(2, 9))
def test_an_end_token_anywhere_in_a_block_ends_everything(k: int, n_draft: int) -> None:
    """F09: output, history, cache and counts end at the first end token."""
    answer = [*range(20, 20 + k), END, 40, 41, 42, 43, 44, 45, 46, 47]
    events, target, sampler = run(answer, truth(answer), n_draft=n_draft)
    kept = answer[: k + 1]
    assert tokens_of(events) == kept
    assert sampler.accepted == kept
    assert text_of(events) == "".join(chr(65 + t % 26) for t in kept[:-1])
    assert len(target.tokens) <= len(PROMPT) + len(kept)
    assert list(target.tokens) == [*PROMPT, *kept][: len(target.tokens)]
    stats = finished(events).stats
    assert stats.n_tokens == len(kept)
    assert stats.n_accepted == stats.n_verified  # what follows the end is in neither
    assert stats.acceptance_rate == 1.0


def test_acceptance_counts_only_what_was_verified() -> None:
    """F14: 3 of 4 right is 0.75; the target's own token counts in neither."""

    def guess(tokens: Sequence[int]) -> list[int]:
        right = [*range(20, 40)][len(tokens) - len(PROMPT) :]
        return [*right[:3], 63]

    events, _, _ = run([*range(20, 40)], guess, n_draft=4, max_tokens=10)
    stats = finished(events).stats
    assert (stats.n_verified, stats.n_accepted) == (8, 6)
    assert stats.acceptance_rate == 0.75
    assert stats.per_position == [1.0, 1.0, 1.0, 0.0]
    totals = [e for e in events if isinstance(e, Step)]
    assert sum(s.n_accepted for s in totals) == stats.n_accepted
    assert sum(s.n_verified for s in totals) == stats.n_verified
    assert sum(len(s.tokens) for s in totals) == stats.n_tokens


def test_without_a_draft_there_is_no_rate() -> None:
    events, _, _ = run(ANSWER, lambda _: [])
    stats = finished(events).stats
    assert stats.acceptance_rate is None
    assert stats.per_position == []
    assert stats.mean_accepted_length == 1.0


@pytest.mark.parametrize("limit", range(1, 10))
def test_max_tokens_cuts_inside_a_block(limit: int) -> None:
    events, target, _ = run(ANSWER, truth(ANSWER), n_draft=6, max_tokens=limit)
    assert tokens_of(events) == ANSWER[:limit]
    assert finished(events).reason == "length"
    assert len(target.tokens) <= len(PROMPT) + limit


@pytest.mark.parametrize("n_ctx", range(len(PROMPT), len(PROMPT) + 12))
def test_the_context_may_end_anywhere(n_ctx: int) -> None:
    answer = [20 + i for i in range(30)]
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, [*PROMPT, *answer]), n_ctx=n_ctx)
    events, _, _ = run(answer, truth(answer), n_draft=7, target=target)
    end = finished(events)
    assert (end.reason, end.detail) == ("length", "context full")
    # The cache holds n_ctx tokens; one more is known when it is full.
    assert tokens_of(events) == answer[: n_ctx - len(PROMPT) + 1]


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers() -> None:
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, PROMPT), n_ctx=2)
    with pytest.raises(PromptError, match=r"3 tokens.*context of 2"):
        run([20], truth([20]), target=target)


def test_an_empty_prompt_is_refused() -> None:
    engine = Engine(FakeDecoder(4, says(4, [0])), FakeVocabulary([b"a"] * 4), [], PlainPacer())
    request = Request([], FakeSampler(), np.random.default_rng(0))
    with pytest.raises(PromptError, match="empty"):
        list(engine.generate(request))


@pytest.mark.parametrize("n_draft", [1, 3, 6])
def test_a_stop_string_inside_a_block_is_never_shown(n_draft: int) -> None:
    pieces = [b"?"] * N_VOCAB
    for token, piece in zip(ANSWER, [b"one", b" t", b"wo STO", b"P", b"NOW", b"x"], strict=False):
        pieces[token] = piece
    events, target, _ = run(
        ANSWER, truth(ANSWER), n_draft=n_draft, stops=["STOPNOW"], pieces=pieces
    )
    assert text_of(events) == "one two "
    assert finished(events).detail == "stop string"
    assert len(target.tokens) <= len(PROMPT) + 5


def test_held_text_before_a_stop_whose_own_token_is_dropped_is_not_lost() -> None:
    pieces = [b"?"] * N_VOCAB
    for token, piece in zip(ANSWER, [b"x", b"ab", b"Y"], strict=False):
        pieces[token] = piece
    events, _, _ = run(ANSWER, lambda _: [], stops=["abX", "bY"], pieces=pieces)
    assert text_of(events) == "xa"


def test_cancelling_at_every_point_leaves_a_usable_engine() -> None:
    """The n-th question "cancelled?" is answered yes, for every n; then the next request works."""
    reference, _, _ = run(ANSWER, truth(ANSWER))
    for n in range(1, 40):
        target = FakeDecoder(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER, *([0] * 64)]))
        vocabulary = FakeVocabulary([b"x"] * N_VOCAB, [END])
        engine = Engine(target, vocabulary, [FakeDrafter(truth(ANSWER))], Always(3), n_chunk=1)
        asked = 0

        def cancelled(limit: int = n) -> bool:
            nonlocal asked
            asked += 1
            return asked >= limit

        request = Request(PROMPT, FakeSampler(), np.random.default_rng(0), cancelled=cancelled)
        events = list(engine.generate(request))
        said = tokens_of(events)
        assert said == ANSWER[: len(said)]
        if finished(events).reason == "stop":
            break
        assert finished(events).reason == "cancelled"
        again = replace(request, sampler=FakeSampler(), cancelled=lambda: False)
        assert tokens_of(list(engine.generate(again))) == tokens_of(reference)
    else:
        pytest.fail("cancelling never came too late")


def test_closing_the_generator_half_way_leaves_a_usable_engine() -> None:
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER, *([0] * 64)]))
    engine = Engine(
        target, FakeVocabulary([b"x"] * N_VOCAB, [END]), [FakeDrafter(truth(ANSWER))], Always(3)
    )
    request = Request(PROMPT, FakeSampler(), np.random.default_rng(0))
    for n in range(1, 6):
        events = engine.generate(replace(request, sampler=FakeSampler()))
        for _ in range(n):
            next(events)
        events.close()
        whole = list(engine.generate(replace(request, sampler=FakeSampler())))
        assert tokens_of(whole) == ANSWER


def test_the_next_prompt_reuses_what_it_shares() -> None:
    script = [*PROMPT, *ANSWER[:3], END, 30, 31, 32, END, *([0] * 64)]
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, script))
    engine = Engine(target, FakeVocabulary([b"x"] * N_VOCAB, [END]), [], PlainPacer())
    first = list(
        engine.generate(Request(PROMPT, FakeSampler(), np.random.default_rng(0), max_tokens=4))
    )
    assert finished(first).stats.n_reused == 0
    longer = [*PROMPT, *ANSWER[:3], END, 30]
    again = list(engine.generate(Request(longer, FakeSampler(), np.random.default_rng(0))))
    prefill = next(event for event in again if isinstance(event, Prefill))
    assert prefill.n_reused == len(PROMPT) + 3
    assert tokens_of(again) == [31, 32, END]


def test_an_unchanged_prompt_is_answered_again() -> None:
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER, *([0] * 9)]))
    engine = Engine(target, FakeVocabulary([b"x"] * N_VOCAB, [END]), [], PlainPacer())
    for _ in range(3):
        events = list(engine.generate(Request(PROMPT, FakeSampler(), np.random.default_rng(0))))
        assert tokens_of(events) == ANSWER


def test_a_memory_that_cannot_roll_back_turns_drafting_off_and_keeps_the_text() -> None:
    """F03: a false return is never ignored."""
    answer = [20 + i % 9 for i in range(30)] + [END]
    target = FakeDecoder(
        N_VOCAB, says(N_VOCAB, [*PROMPT, *answer, *([0] * 64)]), can_roll_back=False
    )
    engine = Engine(
        target,
        FakeVocabulary([b"x"] * N_VOCAB, [END]),
        [FakeDrafter(lambda _: [63, 63])],
        Always(2),
    )
    events = list(engine.generate(Request(PROMPT, FakeSampler(), np.random.default_rng(0))))
    assert tokens_of(events) == answer
    assert engine.broken == NO_ROLLBACK
    steps = [event for event in events if isinstance(event, Step)]
    assert sum(step.n_drafted > 0 for step in steps) == 1


def test_a_failing_target_decode_is_an_error_and_the_cache_stays_true() -> None:
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER, *([0] * 9)]), fail_at=[4])
    engine = Engine(target, FakeVocabulary([b"x"] * N_VOCAB, [END]), [], PlainPacer())
    request = Request(PROMPT, FakeSampler(), np.random.default_rng(0))
    with pytest.raises(DecodeError):
        list(engine.generate(request))
    again = list(engine.generate(replace(request, sampler=FakeSampler())))
    assert tokens_of(again) == ANSWER


def test_logits_are_asked_for_only_where_they_are_verified() -> None:
    """F16: no array of context x vocabulary anywhere; rows = width."""
    asked: list[tuple[int, int]] = []

    class Watching(FakeDecoder):
        def decode(self, tokens: Sequence[int], n_rows: int) -> None:
            asked.append((len(tokens), n_rows))
            super().decode(tokens, n_rows)

    target = Watching(N_VOCAB, says(N_VOCAB, [*PROMPT, *ANSWER, *([0] * 64)]))
    run(ANSWER, truth(ANSWER), n_draft=3, target=target)
    assert asked[0] == (len(PROMPT), 1)
    assert all(rows == width and width <= 4 for width, rows in asked[1:])


class Curious(Always):
    """Wants to know how sure the target is, at every other step."""

    @property
    def wants_confidence(self) -> bool:  # type: ignore[override]
        self.n_asked = getattr(self, "n_asked", 0) + 1
        return self.n_asked % 2 == 1


def test_how_sure_the_target_was_is_found_out_only_for_a_pacer_that_wants_it() -> None:
    script = [*PROMPT, *ANSWER, *([0] * 64)]
    target = FakeDecoder(N_VOCAB, says(N_VOCAB, script))
    vocabulary = FakeVocabulary([b"x"] * N_VOCAB, [END])
    engine = Engine(target, vocabulary, [FakeDrafter(lambda _: [])], Curious(2))
    events = list(engine.generate(Request(PROMPT, FakeSampler(), np.random.default_rng(0))))
    steps = [e for e in events if isinstance(e, Step) and e.measured is not None]
    found = [e.measured.confidence for e in steps if e.measured]
    assert len(found) > 4
    row = np.asarray(says(N_VOCAB, script)(PROMPT), dtype=float)
    best = np.exp(row - row.max())
    assert found[0] == pytest.approx(1 / best.sum(), rel=0.02)
    assert [value is not None for value in found] == [i % 2 == 0 for i in range(len(found))]


class ReadsOnce(FixedPacer):
    """Lets the drafter read two tokens, and then draft."""

    def choose(self, offers, room):  # type: ignore[no-untyped-def]
        if room < 1:
            return Choice(PLAIN, 0, "no room")
        self.lags = [*getattr(self, "lags", []), offers[0].lag]
        if len(self.lags) == 1:
            return Choice("draft", 0, "reading a little", n_read=2)
        return Choice("draft", 2, "drafting")

    def learn(self, measured):  # type: ignore[no-untyped-def]
        self.measured = [*getattr(self, "measured", []), measured]


def test_a_drafter_may_read_a_part_of_what_it_missed_while_the_target_goes_on() -> None:
    answer = list(range(20, 30))
    script = [*PROMPT, *answer, *([0] * 64)]
    draft = ModelDrafter(
        FakeDecoder(N_VOCAB, says(N_VOCAB, script)), rng=np.random.default_rng(0), name="draft"
    )
    pacer = ReadsOnce("draft", 2)
    vocabulary = FakeVocabulary([b"x"] * N_VOCAB, [END])
    engine = Engine(FakeDecoder(N_VOCAB, says(N_VOCAB, script)), vocabulary, [draft], pacer)
    request = Request(PROMPT, FakeSampler(), np.random.default_rng(0), len(answer))
    steps = [e for e in engine.generate(request) if isinstance(e, Step) and not e.is_first]
    assert [token for step in steps for token in step.tokens] == answer[1:]
    assert pacer.lags[:2] == [4, 3]  # two read, one more said
    assert (steps[0].drafter, steps[0].n_drafted, steps[0].n_verified) == ("draft", 0, 0)
    assert (steps[1].n_drafted, steps[1].n_accepted) == (2, 2)
    first = pacer.measured[0]
    assert (first.n_catchup, first.n_draft_decodes, first.width) == (2, 0, 1)
