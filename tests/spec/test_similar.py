"""Finding the earlier question that is most like this one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers_history import text_of

from localspec.history import History
from localspec.spec.following import Edits
from localspec.spec.similar import most_similar

MARK = [901, 902, 903, 904, 905]


def question(seed: int, name: int = 950) -> list[int]:
    words = [token + 1000 * seed for token in text_of(seed, 60)]
    return [900, *words[:30], name, *words[30:], *MARK]


@pytest.fixture
def history() -> Iterator[History]:
    made = History.in_memory()
    yield made
    made.close()


def answer_at(history: History, place: int) -> list[int]:
    text, at = history.around(place, 0, 3)
    return text[at:]


def test_the_answer_to_the_most_similar_question_is_found(history: History) -> None:
    for seed in range(40):
        history.remember([*question(seed), 2000 + seed, 7, 8], None)
    for seed in (0, 17, 39):
        edits = Edits()
        place, similar = most_similar(history, question(seed, name=951), edits)
        assert 0.5 < similar < 1
        assert answer_at(history, place) == [2000 + seed, 7, 8]
        assert edits.at([950, 1], 0) == (1, (951,)), "what differs is known at once"


def test_the_newest_of_equals(history: History) -> None:
    half = question(3)
    history.remember([*half, 1, 7, 8, 9], None)
    history.remember([*half[:20], 40, 41, 42, *half[20:], 2, 7, 8, 9], None)
    assert answer_at(history, most_similar(history, half, Edits())[0])[0] == 1, "the more similar"


def test_what_a_template_says_makes_no_question_similar(history: History) -> None:
    template = list(range(500, 530))
    for seed in range(20):
        history.remember([*template, *question(seed)[:9], *MARK, 2000 + seed, 7, 8], None)
    assert most_similar(history, [*template, *question(77)[:9], *MARK], Edits())[0] == 0
    same, similar = most_similar(history, [*template, *question(3)[:9], *MARK], Edits())
    assert answer_at(history, same)[0] == 2003
    assert similar > 0.5


def test_nothing_is_found_where_nothing_is_similar(history: History) -> None:
    assert most_similar(history, question(1), Edits()) == (0, 0.0)
    for seed in range(5):
        history.remember([*question(seed), 2000 + seed, 7, 8], None)
    assert most_similar(history, question(77), Edits()) == (0, 0.0)
    assert most_similar(history, [], Edits()) == (0, 0.0)
    assert most_similar(history, MARK[:3], Edits()) == (0, 0.0)
