"""Walking along an earlier text over what differs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.spec.following import MAX_EDITS, MAX_OLD, PATIENCE, Edits, Said, Walk

OLD = [1, 2, 3, 4, 50, 5, 6, 7, 8, 50, 9, 10, 11, 12, 50, 51, 13, 14, 15, 16]


def guesses(walk: Walk, said: list[int]) -> list[int | None]:
    """What the walk guessed at each token of ``said``."""
    found: list[int | None] = []
    for token in said:
        ahead = walk.ahead(1)
        found.append(ahead[0].token if ahead else None)
        walk.step(token)
    return found


def test_the_same_text_is_guessed_to_its_end() -> None:
    walk = Walk(OLD, 0, 0, Edits())
    assert guesses(walk, OLD) == OLD
    assert walk.over
    assert walk.run == len(OLD)


def test_another_name_is_put_in_from_the_second_time_on() -> None:
    new = [1, 2, 3, 4, 70, 71, 5, 6, 7, 8, 70, 71, 9, 10, 11, 12, 70, 71, 51, 13, 14]
    walk = Walk(OLD, 0, 0, Edits())
    guessed = guesses(walk, new)
    wrong = [at for at, (a, b) in enumerate(zip(guessed, new, strict=True)) if a != b]
    assert wrong == [4, 5, 6], "only where the name came first"
    walk = Walk(OLD, 5, 4, walk._edits)
    assert walk.ahead(8) == [
        *(Said(token, False) for token in (5, 6, 7, 8)), Said(70, True), Said(71, True),
        Said(9, False), Said(10, False),
    ]  # fmt: skip


def test_a_name_of_one_token_costs_one_guess() -> None:
    new = [70 if token == 50 else token for token in OLD]
    guessed = guesses(Walk(OLD, 0, 0, Edits()), new)
    assert [a == b for a, b in zip(guessed, new, strict=True)].count(False) == 1


def test_what_is_left_out_or_put_in_is_passed_over() -> None:
    without = OLD[:6] + OLD[9:]
    assert guesses(Walk(OLD, 0, 0, Edits()), without)[9:] == without[9:]
    more = [*OLD[:6], 80, 81, 82, *OLD[6:]]
    assert guesses(Walk(OLD, 0, 0, Edits()), more)[10:] == more[10:]


def test_an_edit_that_no_longer_holds_is_dropped() -> None:
    edits = Edits()
    edits.learn([50], [70])
    assert guesses(Walk(OLD, 0, 0, edits), OLD)[4] == 70
    assert edits.at(OLD, 4) is None, "50 was said again"
    walk = Walk(OLD, 0, 0, edits)
    assert guesses(walk, OLD) == OLD


def test_an_edit_that_went_on_otherwise_is_learned_anew() -> None:
    edits = Edits()
    edits.learn([50], [70, 71])
    guesses(Walk(OLD, 0, 0, edits), [1, 2, 3, 4, 70, 99, 5, 6, 7])
    assert edits.at(OLD, 4) == (1, (70, 99))


def test_the_longest_edit_is_taken_and_their_number_is_bounded() -> None:
    edits = Edits()
    edits.learn([50], [70])
    edits.learn([50, 51], [80])
    assert edits.at(OLD, 14) == (2, (80,))
    assert edits.at(OLD, 4) == (1, (70,))
    edits.learn(range(MAX_OLD + 1), [1])
    edits.learn([], [1])
    edits.learn([7], [])
    assert edits.at([7, 0], 0) is None
    for old in range(1000, 1000 + 2 * MAX_EDITS):
        edits.learn([old], [1])
    assert edits.at([1000 + 2 * MAX_EDITS - 1], 0) is None
    edits.learn([50], [50])
    assert edits.at(OLD, 4) is None, "nothing is edited any more"


def test_a_walk_that_does_not_find_its_way_is_over() -> None:
    walk = Walk(OLD, 2, 2, Edits())
    for _ in range(PATIENCE):
        walk.step(99)
        assert not walk.over
    walk.step(99)
    assert walk.over
    assert walk.ahead(5) == []


tokens = st.lists(st.integers(0, 5), max_size=60)


@settings(max_examples=300, deadline=None)
@given(old=tokens, said=tokens, at=st.integers(0, 60), limit=st.integers(0, 20))
def test_whatever_is_said_it_stays_within_the_text(
    old: list[int], said: list[int], at: int, limit: int
) -> None:
    walk = Walk(old, min(at, len(old)), 0, Edits())
    known = set(old) | set(said)
    for token in said:
        ahead = walk.ahead(limit)
        assert len(ahead) <= limit
        assert {one.token for one in ahead} <= known
        walk.step(token)
        assert 0 <= walk.at <= len(old)
        assert walk.run >= 0
