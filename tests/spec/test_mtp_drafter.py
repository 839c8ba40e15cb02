"""The MTP drafter over scripted heads."""

from __future__ import annotations

import numpy as np

from localspec.errors import DecodeError
from localspec.spec.drafter import Row
from localspec.spec.fakes import FakeSampler, sure
from localspec.spec.mtp_drafter import MAX_FAILURES, MERGED, MtpDrafter

N_VOCAB = 50


class FakeHeads:
    """Heads that count: after token t they say t + 1. Remembers what it was asked."""

    def __init__(self, n_known: int, n_waiting: int = 1, max_draft: int = 63) -> None:
        self.n_ctx = 100
        self.max_draft = max_draft
        self.n_known = n_known
        self.n_waiting = n_waiting
        self.calls: list[str] = []
        self.fails = False

    def read(self, n_left: int) -> int:
        if self.fails:
            raise DecodeError("told to fail")
        n_read, self.n_waiting = self.n_waiting - n_left, n_left
        self.calls.append(f"read {n_read}")
        return n_read

    def start(self, token: int) -> Row:
        if self.fails:
            raise DecodeError("told to fail")
        self.calls.append(f"start {token}")
        self.n_waiting = 0
        return sure(N_VOCAB, token + 1)

    def extend(self, token: int) -> Row:
        self.calls.append(f"extend {token}")
        return sure(N_VOCAB, token + 1)

    def stop(self) -> None:
        self.calls.append("stop")

    def reset(self) -> None:
        self.calls.append("reset")


class Clock:
    """One second for each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def drafter(heads: FakeHeads, temperature: float = 0.0) -> MtpDrafter:
    made = MtpDrafter(heads, rng=np.random.default_rng(0), clock=Clock())
    made.begin([5, 6, 7], FakeSampler(temperature))
    return made


def always(_n: int, _confidence: float) -> bool:
    return True


def never_cancelled() -> bool:
    return False


def test_it_drafts_from_the_last_committed_token() -> None:
    heads = FakeHeads(n_known=2)
    made = drafter(heads)
    assert made.offer() is not None
    draft = made.propose(3, always, never_cancelled)
    assert draft.tokens == [8, 9, 10]
    assert draft.dists is None
    assert all(confidence > 0.99 for confidence in draft.confidence)
    assert heads.calls == ["start 7", "extend 8", "extend 9", "stop"]
    made.commit([8, 20])
    heads.n_known = 4
    assert made.propose(1, always, never_cancelled).tokens == [21]


def test_it_reads_some_of_what_waits_and_leaves_what_a_draft_reads_anyway() -> None:
    heads = FakeHeads(n_known=2)
    heads.n_waiting = 40
    made = drafter(heads)
    made.read(8, never_cancelled)
    assert heads.n_waiting == 32
    assert made.costs() == (0.0, 0, 1.0, 8)
    made.read(100, never_cancelled)
    assert heads.n_waiting == MERGED
    heads.fails = True
    made.read(8, never_cancelled)
    assert heads.calls == ["read 8", "read 16", "reset"]


def test_heads_that_did_not_see_all_the_target_decoded_are_not_asked() -> None:
    heads = FakeHeads(n_known=2)
    made = drafter(heads)
    made.commit([8])
    assert made.offer() is None
    heads.n_known = 3
    assert made.offer() is not None


def test_what_is_offered_has_bounds() -> None:
    offer = drafter(FakeHeads(n_known=2, max_draft=3)).offer()
    assert offer is not None
    assert (offer.drafter, offer.available, offer.lag) == ("mtp", 3, 1)
    heads = FakeHeads(n_known=2)
    heads.n_ctx = 4
    offer = drafter(heads).offer()
    assert offer is not None
    assert offer.available == 2
    heads.n_ctx = 2
    assert drafter(heads).offer() is None


def test_a_short_wait_is_part_of_the_draft_and_a_long_one_a_prompt_pass() -> None:
    short = FakeHeads(n_known=2, n_waiting=MERGED)
    made = drafter(short)
    offer = made.offer()
    assert offer is not None
    assert offer.lag == 1
    made.propose(1, always, never_cancelled)
    assert made.costs()[1:] == (1, 0.0, 0)
    long = FakeHeads(n_known=2, n_waiting=MERGED + 30)
    made = drafter(long)
    offer = made.offer()
    assert offer is not None
    assert offer.lag == MERGED + 31
    made.propose(2, always, never_cancelled)
    assert long.calls[0] == "read 30"
    assert made.costs()[1:] == (2, 1.0, 30)


def test_it_stops_when_the_pacer_has_enough() -> None:
    made = drafter(FakeHeads(n_known=2))
    assert made.propose(9, lambda n, _: n < 2, never_cancelled).tokens == [8, 9]


def test_it_never_drafts_more_than_it_has_heads_for() -> None:
    made = drafter(FakeHeads(n_known=2, max_draft=2))
    assert made.propose(9, always, never_cancelled).tokens == [8, 9]


def test_a_cancelled_draft_is_what_there_was_of_it() -> None:
    heads = FakeHeads(n_known=2)
    looks = iter([False, False, True])
    draft = drafter(heads).propose(9, always, lambda: next(looks))
    assert draft.tokens == [8, 9]
    assert heads.calls[-1] == "stop"


def test_above_temperature_0_tokens_are_drawn_and_come_with_what_they_were_drawn_from() -> None:
    draft = drafter(FakeHeads(n_known=2), 1.0).propose(3, always, never_cancelled)
    assert draft.dists is not None
    assert len(draft.dists) == len(draft.tokens) == 3
    for token, dist, confidence in zip(draft.tokens, draft.dists, draft.confidence, strict=True):
        assert dist.of(token) == confidence > 0


def test_failures_are_survived_and_end_in_silence() -> None:
    heads = FakeHeads(n_known=2)
    heads.fails = True
    made = drafter(heads)
    for _ in range(MAX_FAILURES):
        assert made.offer() is not None
        assert made.propose(3, always, never_cancelled).tokens == []
    assert heads.calls.count("reset") == MAX_FAILURES
    assert made.offer() is None
    made.begin([5, 6, 7], FakeSampler())
    assert made.offer() is not None
