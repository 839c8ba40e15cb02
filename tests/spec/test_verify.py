"""The rejection rule gives the target's own distribution, whatever the drafter does.

Each case draws at least 20,000 times with a fixed seed and compares counts by a chi-square test:
every position of a block of three, the token after it, and every two neighbours. Three plausible
wrong rules are applied in the same harness and must fail it: accepting a token if it is the
target's best, forgetting to take q out of the replacement's distribution, and a temperature on one
side only.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chisquare

from localspec.spec.drafter import Dist, Draft, Row, Sampler
from localspec.spec.fakes import FakeSampler
from localspec.spec.verify import Verdict, Verifier, draw

N_DRAWS = 20_000
N_VOCAB = 6
Probs = npt.NDArray[np.float64]


@cache
def _logits(prefix: tuple[int, ...]) -> Row:
    row = np.random.default_rng([7, *prefix]).normal(0, 1.5, N_VOCAB).astype(np.float32)
    row.flags.writeable = False
    return row


def logits(prefix: Sequence[int]) -> Row:
    """A target whose opinion depends on everything before."""
    return _logits(tuple(prefix))


def softmax(row: Row, temperature: float = 1.0) -> Probs:
    scaled = row.astype(np.float64) / temperature
    probs = np.exp(scaled - scaled.max())
    return np.asarray(probs / probs.sum())


def dense(probs: Probs) -> Dist:
    return Dist(np.arange(len(probs), dtype=np.int32), probs)


# -- drafters ---------------------------------------------------------------------------------


def good(prefix: Sequence[int]) -> Probs:
    return softmax(logits(prefix), 1.3)


def adversarial(prefix: Sequence[int]) -> Probs:
    """Most sure of what the target likes least."""
    return softmax(-3 * logits(prefix))


def blind(prefix: Sequence[int]) -> Probs:
    """No probability at all where the target has most."""
    probs = np.ones(N_VOCAB)
    probs[int(logits(prefix).argmax())] = 0.0
    return probs / probs.sum()


def foreign(prefix: Sequence[int]) -> Probs:
    """Half of its mass on ids that the target does not have (they can be drawn)."""
    return np.concatenate([softmax(logits(prefix)) / 2, [0.25, 0.25]])


@cache
def drafted(
    drafter: Callable[[Sequence[int]], Probs], prefix: tuple[int, ...]
) -> tuple[Dist, list[float]]:
    """The draft's distribution and its running sums: a draw is then one look into a short list."""
    probs = drafter(prefix)
    return dense(probs), [float(edge) for edge in probs.cumsum()[:-1]]


class Remembering(FakeSampler):
    """The same distribution for the same row is worked out once."""

    known: dict[tuple[float, int], Dist] = {}  # noqa: RUF012 - a cache

    def distribution(self, row: Row) -> Dist:
        key = (self.temperature, id(row))
        if key not in self.known:
            self.known[key] = super().distribution(row)
        return self.known[key]


Rule = Callable[[Verifier, Sequence[int], Draft, Sampler], Verdict]


def right(verifier: Verifier, prefix: Sequence[int], draft: Draft, sampler: Sampler) -> Verdict:
    def row(index: int) -> Row:
        return logits([*prefix, *draft.tokens[:index]])

    return verifier.verify(row, draft, sampler, lambda _: False)


def block(
    rng: np.random.Generator, drafter: Callable[[Sequence[int]], Probs] | None, rule: Rule, n: int
) -> list[int]:
    """At least ``n`` tokens, drafted in threes by ``drafter`` (None: the wrong point mass)."""
    tokens: list[int] = []
    verifier = Verifier(N_VOCAB, rng)
    while len(tokens) < n:
        draft = Draft(dists=None if drafter is None else [])
        for _ in range(min(3, n - len(tokens))):
            prefix = [*tokens, *draft.tokens]
            if drafter is None:
                draft.tokens.append(int(logits(prefix).argmin()))
            else:
                dist, edges = drafted(drafter, tuple(prefix))
                assert draft.dists is not None
                draft.dists.append(dist)
                draft.tokens.append(bisect(edges, rng.random()))
        tokens += rule(verifier, tokens, draft, Remembering(1.0)).tokens
    return tokens[:n]


def p_value(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Chi-square of the counts against the expected shares; rare outcomes are put together."""
    total = sum(counts.values())
    often = [key for key, share in expected.items() if share * total >= 10]
    observed = [counts[key] for key in often]
    wanted = [expected[key] * total for key in often]
    rest = total - sum(wanted)
    if rest >= 10:
        observed.append(total - sum(observed))
        wanted.append(rest)
    else:
        scale = sum(observed) / sum(wanted)
        wanted = [value * scale for value in wanted]
    return float(chisquare(observed, wanted).pvalue)


def truth(n: int, keep: Sequence[int]) -> dict[tuple[int, ...], float]:
    """Exact joint distribution of the tokens at positions ``keep`` of a text of ``n``."""
    shares: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n):
        shares = {
            (*prefix, token): share * p
            for prefix, share in shares.items()
            for token, p in enumerate(softmax(logits(prefix)))
        }
    result: dict[tuple[int, ...], float] = {}
    for text, share in shares.items():
        key = tuple(text[i] for i in keep)
        result[key] = result.get(key, 0.0) + share
    return result


DRAFTERS = {
    "good": good, "adversarial": adversarial, "blind": blind, "foreign": foreign, "wrong": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, list[list[int]]]:
    """Texts of four tokens from each drafter: one block of three and the token after it."""
    found = {}
    for number, (name, drafter) in enumerate(DRAFTERS.items()):
        rng = np.random.default_rng([number, 4])
        found[name] = [block(rng, drafter, right, 4) for _ in range(N_DRAWS)]
    return found


@pytest.mark.parametrize("keep", [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_every_position_and_pair_has_the_targets_distribution(
    texts: dict[str, list[list[int]]], name: str, keep: tuple[int, ...]
) -> None:
    counts = Counter(tuple(text[i] for i in keep) for text in texts[name])
    assert p_value(counts, truth(4, keep)) > 0.01


# -- wrong rules ------------------------------------------------------------------------------


def accept_if_best(
    verifier: Verifier, prefix: Sequence[int], draft: Draft, sampler: Sampler
) -> Verdict:
    tokens: list[int] = []
    for token in draft.tokens:
        row = logits([*prefix, *tokens])
        if token != int(row.argmax()):
            return Verdict([*tokens, verifier.pick(row, sampler)], len(tokens))
        tokens.append(token)
    return Verdict([*tokens, verifier.pick(logits([*prefix, *tokens]), sampler)], len(tokens))


class _NoResidual(Verifier):
    def _residual(self, p: Dist, q: Dist | None, token: int) -> Dist:
        return p


def forget_the_residual(
    verifier: Verifier, prefix: Sequence[int], draft: Draft, sampler: Sampler
) -> Verdict:
    return right(_NoResidual(N_VOCAB, verifier._rng), prefix, draft, sampler)


def temperature_on_one_side(
    verifier: Verifier, prefix: Sequence[int], draft: Draft, sampler: Sampler
) -> Verdict:
    assert draft.dists is not None
    # q as if drawn at temperature 1, though the drafter drew at 1.3.
    cold = [dense(softmax(logits([*prefix, *draft.tokens[:i]]))) for i in range(len(draft.tokens))]
    return right(verifier, prefix, Draft(draft.tokens, [], cold), sampler)


@pytest.mark.parametrize("rule", [accept_if_best, forget_the_residual, temperature_on_one_side])
def test_a_wrong_rule_is_noticed(rule: Rule) -> None:
    rng = np.random.default_rng(3)
    texts = [block(rng, good, rule, 2) for _ in range(N_DRAWS // 2)]
    worst = min(
        p_value(Counter(tuple(t[i] for i in keep) for t in texts), truth(2, keep))
        for keep in [(0,), (1,), (0, 1)]
    )
    assert worst < 1e-4


# -- details ----------------------------------------------------------------------------------


def test_the_sampler_sees_exactly_what_stands() -> None:
    sampler = FakeSampler(1.0)
    draft = Draft([2, 3], [1.0, 1.0])
    rows = [np.array([-50, -50, 0, -50, -50, -50], np.float32)] * 2
    verdict = Verifier(N_VOCAB, np.random.default_rng(0)).verify(
        lambda i: rows[i], draft, sampler, lambda _: False
    )
    assert verdict == Verdict([2, 2], 1)
    assert sampler.accepted == [2, 2]


def test_nothing_is_asked_past_an_end_token() -> None:
    asked: list[int] = []

    def row(index: int) -> Row:
        asked.append(index)
        return np.array([0, 0, 9, 0, 0, 0], np.float32)

    verdict = Verifier(N_VOCAB, np.random.default_rng(0)).verify(
        row, Draft([2, 2, 2], [1.0] * 3), FakeSampler(), lambda token: token == 2
    )
    assert verdict == Verdict([2], 1)
    assert asked == [0]


def test_when_draft_and_target_agree_everything_is_accepted() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        draft = Draft(dists=[])
        for _ in range(3):
            dist = dense(softmax(logits(draft.tokens)))
            assert draft.dists is not None
            draft.dists.append(dist)
            draft.tokens.append(draw(dist, rng))
        verdict = right(Verifier(N_VOCAB, rng), [], draft, FakeSampler(1.0))
        assert verdict.n_accepted == 3
        assert verdict.tokens[:3] == draft.tokens
