"""On a real model: the end of the context, conversations, the sliding window and JSON schemas.

SmolLM2-135M is target and draft at once; its file is exact at any width with one thread, so that
texts are compared bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from helpers_exact import GREEDY, Pair
from helpers_schema import SCHEMAS, valid

from localspec.grammar import from_json_schema
from localspec.spec.sampling import Sampling

pytestmark = pytest.mark.real

MODES = ["lookup", "draft", "both", "history"]
PARAGRAPH = "The cat sat on the mat. The dog sat on the log. The cat sat on the mat. The dog"


@pytest.fixture(scope="module")
def small(model_file) -> Iterator[Pair]:  # type: ignore[no-untyped-def]
    path = model_file("smollm2-135m")
    pair = Pair(path, path, n_ctx=256, n_batch=128)  # llama.cpp rounds a context up to 256
    yield pair
    pair.close()


def prompt_of(pair: Pair, n: int) -> list[int]:
    tokens = pair.tokens(PARAGRAPH * 20)
    return tokens[:n]


@pytest.mark.parametrize("mode", ["off", *MODES])
@pytest.mark.parametrize("room", [20, 7, 3, 2, 1, 0, -1])
def test_the_context_may_end_anywhere(small: Pair, mode: str, room: int) -> None:
    n_ctx = small.context.n_ctx
    prompt = prompt_of(small, n_ctx - room)
    if room < 0:
        with pytest.raises(Exception, match=f"{n_ctx - room} tokens.*context of {n_ctx}"):
            small.ask(prompt, mode, max_tokens=None)
        return
    plain = small.ask(prompt, "off", max_tokens=None)
    answer = small.ask(prompt, mode, max_tokens=None)
    assert answer.tokens == plain.tokens
    assert len(answer.tokens) == room + 1
    assert (answer.finished.reason, answer.finished.detail) == ("length", "context full")


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_of_edits_stops_and_failures_stays_true(small: Pair, mode: str) -> None:
    """After each turn the text is the plain one, and the cache holds the conversation."""
    small.engine.reuses_cache = True

    def turn(prompt: list[int], **how: int) -> list[int]:
        answer = small.ask(prompt, mode, max_tokens=12, **how)
        cached = list(small.context.tokens)
        whole = [*prompt, *answer.tokens]
        assert cached == whole[: len(cached)]
        if answer.finished.reason != "cancelled":
            assert len(cached) >= len(whole) - 1
            # The same prompt in the same pieces: plain decoding from the same cache.
            small.context.rollback(min(len(cached), len(prompt) - 1))
            plain = small.ask(prompt, "off", max_tokens=12)
            small.assert_same_or_near_tie(prompt, plain.tokens, answer.tokens)
        return whole

    first = turn(small.tokens("List: one, two, three, one, two, three, one,"))
    longer = turn([*first, *small.tokens(" And again: one, two")])
    turn(first)  # an earlier turn once more
    turn([*first, *small.tokens(" What about four, five, six, four, five")])  # edited
    turn(longer, cancel_after=4)  # stopped
    turn(longer)  # regenerated
    turn(longer[5:])  # trimmed at the front
    if small.draft is not None and mode != "lookup":
        small.draft.fails = True  # a draft decode fails once
        answer = small.ask(longer, mode, max_tokens=12)
        assert sum(step.n_drafted for step in answer.steps) > 0
    turn([*longer[5:], *small.tokens(" one, two, three, one")])


def test_a_seed_gives_the_same_text_whatever_drafts(small: Pair) -> None:
    """What is drafted, and when, is a matter of time measurements: it must not decide the text."""
    prompt = "Repeat: one two three four, one two three four, one two"
    texts = {}
    for seed in (3, 4):
        sampling = Sampling(temperature=0.9, seed=seed, xtc_probability=0.3, xtc_threshold=0.05)
        for mode in ("off", *MODES):
            small.context.clear()
            answer = small.ask(prompt, mode, sampling, 40)
            texts[seed, mode] = answer.text
            assert mode == "off" or answer.finished.stats.n_verified > 0
    assert len({text for (seed, _), text in texts.items() if seed == 3}) == 1
    assert len(set(texts.values())) == 2


def test_without_a_seed_texts_differ(small: Pair) -> None:
    texts = set()
    for number in range(2):
        small.context.clear()
        request = Sampling(temperature=1.5, top_k=0, min_p=0.0, top_p=1.0)
        texts.add(small.ask("Once upon a time", "off", request, 24, rng=number).text)
    assert len(texts) == 2


def test_a_draft_that_is_the_target_is_accepted_when_sampling(small: Pair) -> None:
    """p and q are the same distributions: all but nothing is rejected."""
    small.context.clear()
    answer = small.ask("The capital of France is", "draft", Sampling(temperature=0.8, seed=2), 40)
    stats = answer.finished.stats
    assert stats.n_verified > 15
    assert stats.n_accepted >= 0.9 * stats.n_verified


FAST = [
    "flat", "enum-mixed", "tuple", "integer-range", "number-exclusive", "unicode-keys",
    "unicode-enum", "nullable", "one-of", "recursive", "dates",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["off", *MODES])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_schema_runs_validate(small: Pair, mode: str, temperature: float) -> None:
    n_drafted = n_complete = 0
    for case in SCHEMAS:
        if case["id"] not in FAST:
            continue
        sampling = Sampling(
            temperature=temperature, seed=11, grammar=from_json_schema(json.dumps(case["schema"]))
        )
        small.context.clear()
        answer = small.ask(f"{case['prompt']}\n", mode, sampling, 90)
        n_drafted += answer.finished.stats.n_drafted
        if answer.finished.detail == "end of text":
            n_complete += 1
            assert valid(json.loads(answer.text), case["schema"]), (case["id"], answer.text)
        else:
            assert answer.finished.reason == "length"
    assert n_complete >= len(FAST) - 2
    assert n_drafted > 0 or mode in ("off", "lookup")


@pytest.fixture(scope="module")
def gemma(model_file) -> Iterator[Pair]:  # type: ignore[no-untyped-def]
    pair = Pair(model_file("gemma-3-270m"), None, n_ctx=1024, n_batch=128)
    yield pair
    pair.close()


def test_beyond_a_sliding_window_with_rejections(gemma: Pair) -> None:
    """F04: past 1.5 times the window, drafts are rejected again and again, nothing is lost."""
    window = gemma.model.n_swa
    assert window > 0
    text = "".join(f"Item {i}: the value is {i * i % 97}.\n" for i in range(400))
    prompt = gemma.tokens(text)[: int(1.5 * window) + 20]
    plain = gemma.ask(prompt, "off", max_tokens=40)
    answer = gemma.ask(prompt, "lookup", max_tokens=40)
    stats = answer.finished.stats
    assert stats.n_verified > stats.n_accepted > 0
    assert gemma.engine.broken == ""
    gemma.assert_same_or_near_tie(prompt, plain.tokens, answer.tokens)


def test_a_removal_that_the_window_has_forgotten_is_refused(gemma: Pair) -> None:
    """llama.cpp says yes to it and is wrong."""
    window = gemma.model.n_swa
    tokens = gemma.tokens("a b c d e f g " * 400)[: window + 400]
    gemma.context.clear()
    for start in range(0, len(tokens), 128):
        gemma.context.decode(tokens[start : start + 128], 0)
    assert gemma.context.rollback(len(tokens) - 10)
    assert not gemma.context.rollback(20)
    assert len(gemma.context.tokens) == len(tokens) - 10


def test_a_greedy_answer_is_the_same_whatever_is_left_in_the_cache(small: Pair) -> None:
    """Exact mode reads a prompt in the same pieces each time."""
    small.engine.reuses_cache = False
    texts = {small.ask(PARAGRAPH, mode, GREEDY, 16).text for mode in ("off", *MODES, "off")}
    small.engine.reuses_cache = True
    assert len(texts) == 1
