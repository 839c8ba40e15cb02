"""The draft model's cache against the committed text, over scripted models."""

from __future__ import annotations

import numpy as np

from localspec.spec.drafter import Row
from localspec.spec.fakes import FakeDecoder, FakeSampler, says, sure
from localspec.spec.model_drafter import MAX_FAILURES, ModelDrafter

N_VOCAB = 50
TEXT = [*range(10, 40)]


def always(_n: int, _confidence: float) -> bool:
    return True


def never() -> bool:
    return False


def drafter(**options: object) -> tuple[ModelDrafter, FakeDecoder]:
    decoder = FakeDecoder(N_VOCAB, says(N_VOCAB, TEXT), **options)  # type: ignore[arg-type]
    return ModelDrafter(decoder, rng=np.random.default_rng(0), n_chunk=4), decoder


def test_begin_costs_no_decode_and_says_how_far_it_is_behind() -> None:
    mine, decoder = drafter()
    mine.begin(TEXT[:9], FakeSampler())
    offer = mine.offer()
    assert decoder.n_decodes == 0
    assert offer is not None
    assert offer.lag == 9


def test_it_catches_up_in_chunks_and_then_drafts_one_token_per_decode() -> None:
    mine, decoder = drafter()
    mine.begin(TEXT[:9], FakeSampler())
    draft = mine.propose(3, always, never)
    assert draft.tokens == TEXT[9:12]
    assert draft.dists is None
    # 7 of 9 tokens in chunks of 4, the last two with the first draft decode.
    assert decoder.widths == [4, 3, 2, 1, 1]
    _, n_decodes, _, n_catchup = mine.costs()
    assert (n_decodes, n_catchup) == (3, 7)


def test_it_reads_only_so_much_of_what_it_missed_and_the_rest_later() -> None:
    mine, decoder = drafter()
    mine.begin(TEXT[:9], FakeSampler())
    mine.read(5, never)
    assert decoder.tokens == TEXT[:5]
    assert mine.costs()[1] == 0
    assert mine.costs()[3] == 5
    mine.commit(TEXT[9:10])
    offer = mine.offer()
    assert offer is not None
    assert offer.lag == 5
    assert mine.propose(2, always, never).tokens == TEXT[10:12]
    assert mine.costs()[3] == 3
    # What is read with the first draft decode anyway is not read before.
    mine.begin(TEXT[:12], FakeSampler())
    n_before = decoder.n_decodes
    mine.read(100, never)
    assert decoder.n_decodes == n_before


def test_a_failure_while_reading_starts_the_cache_afresh_and_is_counted() -> None:
    mine, decoder = drafter(fail_at={1})
    mine.begin(TEXT[:9], FakeSampler())
    mine.read(8, never)
    assert list(decoder.tokens) == []
    offer = mine.offer()
    assert offer is not None
    assert offer.lag == 9
    mine.read(4, never)
    assert decoder.tokens == TEXT[:4]


def test_after_full_acceptance_it_is_two_behind_and_after_a_rejection_one() -> None:
    mine, _ = drafter()
    mine.begin(TEXT[:5], FakeSampler())
    mine.propose(2, always, never)
    mine.commit(TEXT[5:8])  # both accepted, and the bonus token
    offer = mine.offer()
    assert offer is not None
    assert offer.lag == 2
    mine.propose(2, always, never)
    mine.commit([TEXT[8], 3])  # the second one rejected
    offer = mine.offer()
    assert offer is not None
    assert offer.lag == 1


def test_its_cache_follows_an_edited_text() -> None:
    mine, decoder = drafter()
    mine.begin(TEXT[:9], FakeSampler())
    mine.propose(3, always, never)
    edited = [*TEXT[:4], 1, 2, 3, 1, 2]
    mine.begin(edited, FakeSampler())
    mine.propose(1, always, never)
    assert list(decoder.tokens) == edited


def test_one_failing_decode_loses_one_draft_and_nothing_else() -> None:
    mine, decoder = drafter(fail_at=[2])
    mine.begin(TEXT[:5], FakeSampler())
    assert mine.propose(2, always, never).tokens == []
    mine.commit(TEXT[5:6])
    assert mine.propose(2, always, never).tokens == TEXT[6:8]
    assert list(decoder.tokens)[:6] == TEXT[:6]


def test_a_decoder_that_keeps_failing_is_left_alone_until_the_next_answer() -> None:
    mine, decoder = drafter(fail_at=range(1, 100))
    mine.begin(TEXT[:5], FakeSampler())
    for _ in range(MAX_FAILURES):
        assert mine.offer() is not None
        mine.propose(2, always, never)
    assert mine.offer() is None
    mine.begin(TEXT[:5], FakeSampler())
    assert mine.offer() is not None
    assert decoder.n_decodes == MAX_FAILURES


def test_it_never_writes_past_the_end_of_its_context() -> None:
    for n in range(1, 9):
        mine, decoder = drafter(n_ctx=8)
        mine.begin(TEXT[:n], FakeSampler())
        offer = mine.offer()
        assert offer is not None
        draft = mine.propose(offer.available, always, never)
        assert len(draft.tokens) == offer.available == 8 - n + 1
        assert len(decoder.tokens) <= 8


def test_a_recurrent_draft_reads_the_text_again_instead_of_rolling_back() -> None:
    mine, decoder = drafter(can_roll_back=False)
    mine.begin(TEXT[:5], FakeSampler())
    mine.propose(3, always, never)
    mine.commit([TEXT[5], 2])
    mine.propose(1, always, never)
    assert list(decoder.tokens) == [*TEXT[:6], 2]


def test_above_temperature_zero_it_hands_over_what_it_drew_from() -> None:
    mine, _ = drafter()
    mine.begin(TEXT[:5], FakeSampler(temperature=1.0))
    draft = mine.propose(3, always, never)
    assert draft.dists is not None
    assert len(draft.dists) == len(draft.tokens) == 3
    for token, dist, confidence in zip(draft.tokens, draft.dists, draft.confidence, strict=True):
        assert dist.of(token) == confidence > 0


def test_a_translation_keeps_foreign_tokens_out() -> None:
    class Near:
        def draft_id(self, token: int) -> int:
            return min(token, N_VOCAB - 1)

        def project(self, row: Row) -> Row:
            small = row[:20].copy()
            small[12] = -np.inf
            return small

    decoder = FakeDecoder(N_VOCAB, lambda _: sure(N_VOCAB, 12))
    mine = ModelDrafter(decoder, rng=np.random.default_rng(0), translation=Near())
    mine.begin([1, 2, 60], FakeSampler())
    draft = mine.propose(4, always, never)
    assert all(token < 20 and token != 12 for token in draft.tokens)
    assert list(decoder.tokens)[:3] == [1, 2, N_VOCAB - 1]


def test_what_going_back_costs_is_part_of_the_lag() -> None:
    """A recurrent draft: an earlier state is put back, and three tokens are read again."""

    class Recurrent(FakeDecoder):
        def n_to_read_again(self, n_keep: int) -> int:
            return 3 if n_keep < len(self.tokens) else 0

    mine = ModelDrafter(Recurrent(N_VOCAB, says(N_VOCAB, TEXT)), rng=np.random.default_rng(0))
    mine.begin(TEXT[:5], FakeSampler())
    mine.propose(3, always, never)
    mine.commit([TEXT[5], 3])  # the second one rejected
    offer = mine.offer()
    assert offer is not None
    assert offer.lag == 1 + 3
    mine.propose(3, always, never)
    assert mine.costs()[3] == 3
