"""Greedy text is that of plain decoding: every kind of memory, every drafter, real decoding.

The models count, but stray from it now and then, so that a draft is right for a while and then not.
Field reports: drafts corrupt a hybrid's state, or fail past a sliding window.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers_drafting import CASES, PROMPT, VOCABULARY, Models, N, Target, answer

from localspec.spec.engine import Engine
from localspec.spec.fixed_pacers import FixedPacer

MANY = 30
"""Fewest drafted tokens that must be rejected, and fewest that must stand."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    made = Models(tmp_path_factory.mktemp("identity"))
    yield made
    made.close()


def start(models: Models, kind: str, drafter: str) -> tuple[Target, Engine]:
    """The target, empty, and an engine that drafts five tokens whenever it can."""
    target = models.target(kind)
    drafting = models.drafter(drafter, kind)
    target.context.clear()
    pacer = FixedPacer(drafting.name, 5)
    return target, Engine(target.context, VOCABULARY, [drafting], pacer, n_chunk=64)


@pytest.mark.parametrize(("kind", "drafter"), CASES)
def test_the_text_is_that_of_plain_decoding(models: Models, kind: str, drafter: str) -> None:
    text = models.target(kind).plain(PROMPT, N)
    _, engine = start(models, kind, drafter)
    tokens, finished = answer(engine, PROMPT, N)
    counts = finished.stats
    assert tokens == text
    assert engine.broken == ""
    assert counts.n_verified - counts.n_accepted > MANY, "too little was rejected"
    assert counts.n_accepted > MANY, "too little stood"


@pytest.mark.parametrize(("kind", "drafter"), CASES)
def test_stopped_regenerated_continued_and_trimmed_turns(
    models: Models, kind: str, drafter: str
) -> None:
    """One conversation in one memory; each answer is that of an empty one."""
    target = models.target(kind)
    text = target.plain(PROMPT, N)
    following = [*PROMPT, *text[:60], 7, 8, 9, 90, 91, 92]
    trimmed = [*PROMPT[5:], *text[:60], 7, 8, 9, 90, 91, 92]
    expected = [target.plain(prompt, 60) for prompt in (following, trimmed)]
    target, engine = start(models, kind, drafter)
    for place in (37, 44):  # mostly inside a draft
        until = text.index(text[place]) + 1
        tokens, finished = answer(engine, PROMPT, N, stops=[f"{text[place]} "])
        assert finished.reason == "stop"
        assert text[: until - 1] == tokens[: until - 1]
        assert len(tokens) <= until
    assert answer(engine, PROMPT, 60)[0] == text[:60]
    again, finished = answer(engine, PROMPT, 60)
    assert again == text[:60]
    assert finished.stats.n_reused == len(PROMPT) - 1, "the prompt was read again"
    n_rejected = 0
    for prompt, wanted in zip((following, trimmed), expected, strict=True):
        tokens, finished = answer(engine, prompt, 60)
        assert tokens == wanted
        n_rejected += finished.stats.n_verified - finished.stats.n_accepted
    assert n_rejected > 5
    assert engine.broken == ""
