"""The earlier question that is most like this one: its answer is the best guess at the new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Protocol

from localspec.spec.following import Edits, moved

N_COMPARED = 384
"""How many tokens before an answer are compared."""
N_SAMPLES = 32
"""How many places of the question are looked up,"""
N_PLACES = 4
"""and how many of the earlier places with the same tokens are followed to their answer."""
MARK = 5
"""A question ends with what the template puts between it and the answer: about so many tokens."""
GRAM = 4
MIN_SIMILAR = 0.15
"""Share of a question's short sequences, weighted, that the earlier one must have too."""


class Texts(Protocol):
    """Earlier texts."""

    def places(self, tail: Sequence[int]) -> list[int]:
        """Where a token followed the last ``GRAM`` tokens of ``tail``, the newest first."""

    def around(self, place: int, n_before: int, n_after: int) -> tuple[list[int], int]:
        """The text around ``place``, and where in it that is."""


def most_similar(texts: Texts, prompt: Sequence[int], edits: Edits) -> tuple[int, float]:
    """(place of the first token of the answer to the most similar earlier question, how similar
    that is, 0 .. 1); (0, 0.0) when none is similar. ``edits`` learns in what the questions differ.

    A short sequence counts for less the more of the questions have it: what the template says is
    in all of them.
    """
    asked = list(prompt[-N_COMPARED:])
    wanted = _grams(asked)
    questions = {}
    for place in _answers(texts, asked):
        text, at = texts.around(place, N_COMPARED, 0)
        questions[place] = (text[:at], wanted & _grams(text[:at]))
    n_with = Counter(gram for _, common in questions.values() for gram in common)
    whole = sum(1 / max(1, n_with[gram]) for gram in wanted)
    best, answer = MIN_SIMILAR, 0
    for place, (_, common) in questions.items():
        similar = sum(1 / n_with[gram] for gram in common) / whole
        if similar > best:
            best, answer = similar, place
    if not answer:
        return 0, 0.0
    question = questions[answer][0]
    compared = SequenceMatcher(None, question, asked, autojunk=False)
    for what, old, old_end, new, new_end in compared.get_opcodes():
        if what == "replace":
            edits.learn(question[old:old_end], asked[new:new_end])
    return answer, best


def _answers(texts: Texts, asked: Sequence[int]) -> list[int]:
    """Places where an answer to an earlier question begins: the newest, and those that follow the
    sampled places."""
    if len(asked) < MARK:
        return []
    mark = list(asked[-MARK:])
    found = dict.fromkeys(texts.places(asked))
    step = max(1, len(asked) // N_SAMPLES)
    for end in range(GRAM, len(asked) - MARK, step):
        for place in texts.places(asked[:end])[:N_PLACES]:
            text, at = texts.around(place, 0, N_COMPARED)
            after = _after(text, at, mark)
            if after:
                found.setdefault(moved(place, after))
    return list(found)


def _after(text: Sequence[int], at: int, mark: list[int]) -> int:
    """How many tokens after ``at`` the first ``mark`` ends; 0 when there is none."""
    last = mark[-1]
    for end in range(at + 1, len(text)):
        if text[end - 1] == last and text[max(0, end - MARK) : end] == mark:
            return end - at
    return 0


def _grams(tokens: Sequence[int]) -> set[tuple[int, ...]]:
    return {tuple(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1)}
