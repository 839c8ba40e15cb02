"""The lookup drafter against a brute-force model of itself, and what its speed rests on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.spec.drafter import Hindsight
from localspec.spec.lookup import GRAM, MAX_CANDIDATES, MAX_MATCH, Index, Lookup

texts = st.lists(st.integers(0, 3), max_size=80)


def brute_force(tokens: list[int]) -> tuple[int, int]:
    """What ``Index.find`` promises, by looking at every place."""
    end = len(tokens)
    for known in (GRAM, 1):
        if end < known:
            continue
        gram = tokens[end - known :]
        places = [i for i in range(known, end) if tokens[i - known : i] == gram]
        best, found = 0, -1
        for place in reversed(places[-MAX_CANDIDATES:]):
            length = 0
            while (
                length < min(MAX_MATCH, place)
                and tokens[place - 1 - length] == tokens[end - 1 - length]
            ):
                length += 1
            if length > best:
                best, found = length, place
        if best:
            return best, found
    return 0, -1


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
def test_a_draft_is_what_followed_the_match(tokens: list[int], n: int) -> None:
    drafter = lookup_after(tokens)
    length, place = brute_force(tokens)
    expected = list(tokens)
    for source in range(place, place + n if length else place):
        expected.append(expected[source])
    assert propose(drafter, n) == expected[len(tokens) :]


@given(texts, texts)
def test_hindsight_tells_what_would_have_been_proposed(prompt: list[int], out: list[int]) -> None:
    expected = []
    for n, token in enumerate(out):
        so_far = prompt + out[:n]
        length, place = brute_force(so_far)
        if length:
            expected.append(Hindsight("lookup", length, so_far[place] == token))
    assert lookup_after(prompt).commit(out) == expected


def test_newest_of_equal_matches_wins() -> None:
    drafter = lookup_after([1, 2, 3, 70, 1, 2, 3, 80, 1, 2, 3])
    offer = drafter.offer()
    assert offer is not None
    assert offer.evidence == 3
    assert propose(drafter, 1) == [80]


def test_longer_older_match_beats_a_newer_one() -> None:
    assert propose(lookup_after([9, 1, 2, 3, 70, 8, 1, 2, 3, 80, 9, 1, 2, 3]), 1) == [70]


def test_periodic_text_is_copied_past_its_end() -> None:
    assert propose(lookup_after([5, 6, 5, 6, 5, 6]), 7) == [5, 6, 5, 6, 5, 6, 5]


def test_matches_are_not_counted_beyond_the_limit() -> None:
    offer = lookup_after([1] * 500).offer()
    assert offer is not None
    assert offer.evidence == MAX_MATCH


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
