"""The lookup drafter against a brute-force model of itself, and what its speed rests on."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from localspec.spec.copier import Match
from localspec.spec.drafter import Offer
from localspec.spec.lookup import GRAM, MAX_CANDIDATES, MAX_MATCH, Index, Lookup

texts = st.lists(st.integers(0, 3), max_size=80)


def brute_force(tokens: list[int]) -> Match | None:
    """What ``Index.find`` promises, by looking at every place."""
    end = len(tokens)
    for known in (GRAM, 1):
        if end < known:
            continue
        gram = tokens[end - known :]
        places = [i for i in range(known, end) if tokens[i - known : i] == gram]
        lengths = {}
        for place in reversed(places[-MAX_CANDIDATES:]):
            length = 0
            while (
                length < min(MAX_MATCH, place)
                and tokens[place - 1 - length] == tokens[end - 1 - length]
            ):
                length += 1
            lengths[place] = length
        if lengths:
            best = max(lengths.values())
            longest = [place for place, length in lengths.items() if length == best]
            said = [tokens[place] for place in longest]
            return Match(
                best, said[0], len(said), said.count(said[0]), tuple(p + 1 for p in longest)
            )
    return None


def always(_n: int, _confidence: float) -> bool:
    return True


def never() -> bool:
    return False


def propose(drafter: Lookup, n: int) -> list[int]:
    return drafter.propose(n, always, never).tokens


def lookup_after(tokens: list[int]) -> Lookup:
    drafter = Lookup()
    drafter.begin(tokens)
    return drafter


@given(texts)
def test_search_is_the_longest_of_the_newest_places(tokens: list[int]) -> None:
    index = Index()
    for n, token in enumerate(tokens, start=1):
        index.push(token)
        assert index.find() == brute_force(tokens[:n])


@given(texts, texts, st.integers(0, 80))
def test_a_changed_history_is_indexed_as_if_it_were_new(
    held: list[int], tail: list[int], n_common: int
) -> None:
    """F05: a regenerated, edited or trimmed conversation leaves no stale positions."""
    drafter = lookup_after(held)
    wanted = held[:n_common] + tail
    drafter.begin(wanted)
    fresh = lookup_after(wanted)
    assert vars(drafter._index) == vars(fresh._index)
    assert drafter.offer() == fresh.offer()
    assert propose(drafter, 9) == propose(fresh, 9)


@given(texts, texts)
def test_commit_in_blocks_is_the_same_as_starting_there(prompt: list[int], out: list[int]) -> None:
    drafter = lookup_after(prompt)
    drafter.commit(out[:5])
    drafter.commit(out[5:])
    assert vars(drafter._index) == vars(lookup_after(prompt + out)._index)


@given(texts, st.integers(1, 40))
def test_a_first_draft_is_what_followed_the_match(tokens: list[int], n: int) -> None:
    drafter, match = lookup_after(tokens), brute_force(tokens)
    expected = list(tokens)
    place = match.places[0] - 1 if match else 0
    for source in range(place, place + n if match else place):
        expected.append(expected[source])
    drafted = propose(drafter, n)
    assert drafted == expected[len(tokens) :][: len(drafted)]
    offer = drafter.offer()
    if offer is not None:
        assert len(drafted) == min(n, offer.available), "shorter only where it gets too unlikely"
        assert list(offer.chances[:n]) == drafter.propose(n, always, never).confidence[:16]


@given(texts, texts)
def test_what_is_offered_does_not_depend_on_what_was_proposed(
    prompt: list[int], out: list[int]
) -> None:
    """The replay bench looks once at each place of a recorded answer."""
    quiet, busy = lookup_after(prompt), lookup_after(prompt)
    for start in range(0, len(out), 3):
        propose(busy, 7)
        busy.commit(out[start : start + 3])
        for token in out[start : start + 3]:
            quiet.offer()
            quiet.commit([token])
        assert quiet.offer() == busy.offer()


def offered(drafter: Lookup) -> Offer:
    offer = drafter.offer()
    assert offer is not None
    return offer


def test_a_copy_goes_on_behind_a_word_that_was_changed() -> None:
    source = list(range(10, 60))
    drafter = lookup_after([*source, 1, *source[:12]])
    assert propose(drafter, 3) == source[12:15]
    drafter.commit([99])  # instead of source[12]
    assert propose(drafter, 1) == source[13:14]
    drafter.commit(source[13:15])
    assert propose(drafter, 3) == source[15:18]


def test_a_word_that_was_changed_once_is_changed_again() -> None:
    """Renaming, the commonest edit of code: the old name stands at many places of the prompt."""
    old, new = [5, 6], [7, 8, 9]
    rng = random.Random(3)
    pieces = [[rng.randrange(100, 999) for _ in range(6)] for _ in range(6)]
    prompt = [token for piece in pieces for token in [*piece, *old]]
    answer = [token for piece in pieces for token in [*piece, *new]]
    drafter = lookup_after([*prompt, 1])
    n_known = 2 * (6 + 3)  # by then it has changed twice
    drafter.commit(answer[:n_known])
    for token in answer[n_known:]:
        assert propose(drafter, 1) == [token]
        drafter.commit([token])


def test_newest_of_equal_matches_wins() -> None:
    drafter = lookup_after([1, 2, 3, 70, 1, 2, 3, 80, 1, 2, 3])
    assert offered(drafter).evidence == 3
    assert propose(drafter, 1) == [80]


def test_longer_older_match_beats_a_newer_one() -> None:
    assert propose(lookup_after([9, 1, 2, 3, 70, 8, 1, 2, 3, 80, 9, 1, 2, 3]), 1) == [70]


def test_periodic_text_is_copied_past_its_end() -> None:
    assert propose(lookup_after([5, 6, 5, 6, 5, 6]), 7) == [5, 6, 5, 6, 5, 6, 5]


def test_matches_are_not_counted_beyond_the_limit() -> None:
    assert offered(lookup_after([1] * 500)).evidence == MAX_MATCH


def test_nothing_to_offer_in_new_text() -> None:
    drafter = lookup_after([1, 2, 3])
    assert drafter.offer() is None
    assert propose(drafter, 4) == []
    assert lookup_after([]).offer() is None


def test_no_room_means_no_tokens() -> None:
    assert propose(lookup_after([1, 1, 1]), 0) == []


def test_a_token_costs_the_same_at_any_length() -> None:
    """Counted, not timed: a search looks at a bounded number of earlier tokens."""

    class Counting(list[int]):
        reads = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            Counting.reads += 1
            return super().__getitem__(key)

    index = Index()
    index.tokens = Counting()
    for _ in range(20_000):
        index.push(7)
    Counting.reads = 0
    for token in (7, 7, 8, 7):
        index.find()
        index.push(token)
    assert Counting.reads < 4 * (MAX_CANDIDATES * (2 * MAX_MATCH + 2))
