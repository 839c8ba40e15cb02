"""The engine over scripted models, in any order of asking, stopping, editing and failing: tokens,
caches and counts stay true, and the text is what the target alone would say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from localspec.errors import DecodeError
from localspec.spec.drafter import Choice, Draft, Offer, Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Finished, Step
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.lookup import Lookup
from localspec.spec.model_drafter import ModelDrafter

N_VOCAB = 12
END = 1
N_CTX = 48


def target_row(prefix: Sequence[int]) -> Row:
    """A text that repeats itself now and then and ends at some point."""
    key = [len(prefix) % 7, prefix[-1], prefix[-2] if len(prefix) > 1 else 0]
    return np.random.default_rng(key).normal(0, 1, N_VOCAB).astype(np.float32)


def draft_row(prefix: Sequence[int]) -> Row:
    """Mostly of the same opinion."""
    if (len(prefix) + prefix[-1]) % 3 == 0:
        return np.random.default_rng(len(prefix)).normal(0, 1, N_VOCAB).astype(np.float32)
    return target_row(prefix)


def plain(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """What the target says by itself."""
    text = list(prompt)
    while True:
        token = int(target_row(text).argmax())
        text.append(token)
        n = len(text) - len(prompt)
        if token == END or n >= max_tokens or len(text) > N_CTX:
            return text[len(prompt) :]


class Scripted(FixedPacer):
    """Does what the test says: which drafter, how many tokens, how many of them to verify."""

    def __init__(self) -> None:
        super().__init__("draft", 4)
        self.drafter, self.n, self.n_verified = "draft", 4, 99

    def choose(self, offers: Sequence[Offer], room: int) -> Choice:
        offer = next((o for o in offers if o.drafter == self.drafter), None)
        if offer is None:
            return Choice("plain", 0, "nothing offered")
        return Choice(self.drafter, min(self.n, room, offer.available), "scripted")

    def more(self, n_so_far: int, confidence: float) -> bool:
        return n_so_far < self.n

    def n_to_verify(self, draft: Draft) -> int:
        return min(self.n_verified, len(draft.tokens))


class FailingOnce(FakeDecoder):
    """Fails at its next decode when told to."""

    fails = False

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        if self.fails:
            self.fails = False
            raise DecodeError("told to fail")
        super().decode(tokens, n_rows)


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.target = FailingOnce(N_VOCAB, target_row, n_ctx=N_CTX)
        self.draft = FailingOnce(N_VOCAB, draft_row, n_ctx=N_CTX)
        self.pacer = Scripted()
        self.drafter = ModelDrafter(self.draft, rng=np.random.default_rng(0), n_chunk=5)
        self.engine = Engine(
            self.target, FakeVocabulary([b"a"] * N_VOCAB, [END]), [Lookup(), self.drafter],
            self.pacer, n_chunk=7,
        )  # fmt: skip
        self.text = [3, 4, 5]
        self.turns = [len(self.text)]

    # -- what a user does -----------------------------------------------------------------------

    @rule(
        more=st.lists(st.integers(2, N_VOCAB - 1), min_size=1, max_size=6),
        max_tokens=st.integers(1, 14),
        drafter=st.sampled_from(["draft", "lookup", "none"]),
        n=st.integers(1, 9),
        n_verified=st.integers(0, 9),
    )
    def says_more(
        self, more: list[int], max_tokens: int, drafter: str, n: int, n_verified: int
    ) -> None:
        self.pacer.drafter, self.pacer.n, self.pacer.n_verified = drafter, n, n_verified
        self.text += more
        self.turns.append(len(self.text))
        self.ask(max_tokens)

    @rule(max_tokens=st.integers(1, 14), n=st.integers(1, 9))
    def regenerates(self, max_tokens: int, n: int) -> None:
        self.pacer.drafter, self.pacer.n, self.pacer.n_verified = "draft", n, 99
        self.text = self.text[: self.turns[-1]]
        self.ask(max_tokens)

    @rule(turn=st.integers(0, 20), token=st.integers(2, N_VOCAB - 1))
    def edits_an_earlier_turn(self, turn: int, token: int) -> None:
        self.turns = self.turns[: 1 + turn % len(self.turns)]
        self.text = self.text[: self.turns[-1]]
        self.text[-1] = token
        self.ask(6)

    @rule(n=st.integers(1, 12))
    def trims_the_front(self, n: int) -> None:
        n = min(n, len(self.text) - 2)
        self.text = self.text[n:]
        self.turns = [turn - n for turn in self.turns if turn - n > 0] or [len(self.text)]
        self.ask(5)

    @rule(after=st.integers(0, 12), max_tokens=st.integers(1, 14))
    def stops_an_answer(self, after: int, max_tokens: int) -> None:
        self.text = self.text[: self.turns[-1]]
        self.ask(max_tokens, cancel_after=after)

    @rule(after=st.integers(1, 5))
    def closes_an_answer(self, after: int) -> None:
        self.text = self.text[: self.turns[-1]]
        self.make_room()
        events = self.engine.generate(self.request(8))
        for _ in range(after):
            if next(events, None) is None:
                break
        events.close()

    @rule()
    def the_draft_fails_once(self) -> None:
        self.draft.fails = True

    @rule()
    def the_target_fails_once(self) -> None:
        self.make_room()
        self.target.fails = True
        try:
            list(self.engine.generate(self.request(5)))
        except DecodeError:
            pass
        else:
            raise AssertionError("an error was swallowed")

    # -- what must hold -------------------------------------------------------------------------

    def make_room(self) -> None:
        if len(self.text) >= N_CTX:
            self.text, self.turns = self.text[-6:], [6]

    def request(self, max_tokens: int, cancel_after: int | None = None) -> Request:
        asked = 0

        def cancelled() -> bool:
            nonlocal asked
            asked += 1
            return cancel_after is not None and asked > cancel_after

        return Request(
            list(self.text), FakeSampler(), np.random.default_rng(1), max_tokens,
            cancelled=cancelled,
        )  # fmt: skip

    def ask(self, max_tokens: int, cancel_after: int | None = None) -> None:
        self.make_room()
        request = self.request(max_tokens, cancel_after)
        events = list(self.engine.generate(request))
        steps = [event for event in events if isinstance(event, Step)]
        said = [token for step in steps for token in step.tokens]
        finished = events[-1]
        assert isinstance(finished, Finished)
        wanted = plain(self.text, max_tokens)
        assert said == wanted[: len(said)]
        if cancel_after is None:
            assert said == wanted
        assert isinstance(request.sampler, FakeSampler)
        assert request.sampler.accepted == said
        stats = finished.stats
        assert stats.n_tokens == len(said)
        assert stats.n_accepted == sum(step.n_accepted for step in steps)
        assert stats.n_verified == sum(step.n_verified for step in steps)
        assert stats.n_drafted == sum(step.n_drafted for step in steps)
        assert all(step.n_accepted <= step.n_verified <= step.n_drafted for step in steps)
        assert all(len(step.tokens) <= step.n_accepted + 1 for step in steps)
        self.text += said
        # All that stands is in the cache, but for the last token, which the next decode would take.
        cached = list(self.target.tokens)
        assert cached == self.text[: len(cached)]
        if said:
            assert len(cached) >= len(self.text) - 1

    @invariant()
    def drafting_goes_on(self) -> None:
        assert self.engine.broken == ""
        assert len(self.target.tokens) <= N_CTX
        assert len(self.draft.tokens) <= N_CTX


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=120, stateful_step_count=20, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


def test_after_a_failure_the_draft_model_drafts_again() -> None:
    """One failed draft decode costs one draft, not the drafter."""
    machine = Conversation()
    machine.ask(4)
    machine.the_draft_fails_once()
    machine.pacer.drafter = "draft"
    events = list(machine.engine.generate(machine.request(12)))
    drafted = [event.n_drafted for event in events if isinstance(event, Step)]
    assert drafted[1] == 0
    assert max(drafted[2:]) > 0
