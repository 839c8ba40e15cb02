"""Draws that a seed decides: distributed as they should be, and the same whatever was drafted.

Chi-square tests on 20,000 draws with fixed seeds.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from localspec.spec.drafter import Dist, Draft, Row
from localspec.spec.fakes import FakeSampler
from localspec.spec.guess import begun, guess
from localspec.spec.race import Race
from localspec.spec.verify import Verifier

N = 20_000
N_VOCAB = 6
P = np.array([0.05, 0.4, 0.0, 0.25, 0.1, 0.2])
Q = np.array([0.15, 0.2, 0.1, 0.35, 0.0, 0.2])


def dist(probs: np.ndarray, ids: tuple[int, ...] | None = None) -> Dist:
    chosen = np.arange(len(probs)) if ids is None else np.array(ids)
    return Dist(chosen.astype(np.int32), probs.astype(np.float64))


def fits(counts: Counter[int], probs: np.ndarray) -> bool:
    total = sum(counts.values())
    assert all(probs[token] > 0 for token in counts)
    likely = [token for token in range(len(probs)) if probs[token] > 0]
    found = chisquare([counts[t] for t in likely], [probs[t] * total for t in likely])
    return bool(found.pvalue > 0.01)


def test_over_places_and_over_seeds_the_winners_follow_the_distribution() -> None:
    race, p = Race(7), dist(P)
    assert fits(Counter(race.winner(p, place) for place in range(N)), P)
    assert fits(Counter(Race(seed).winner(p, 3) for seed in range(N)), P)


def test_places_next_to_each_other_and_seeds_next_to_each_other_are_independent() -> None:
    race, p = Race(11), dist(P)
    joint = np.outer(P, P).ravel()
    winners = [race.winner(p, place) for place in range(2 * N)]
    assert fits(Counter(a * 6 + b for a, b in zip(winners[::2], winners[1::2], strict=True)), joint)
    pairs = [(Race(s).winner(p, 0), Race(s + 1).winner(p, 0)) for s in range(0, 2 * N, 2)]
    assert fits(Counter(a * 6 + b for a, b in pairs), joint)


def test_tokens_of_a_real_vocabulary_win_as_often() -> None:
    ids = (151_643, 0, 31, 99_999, 32, 65_536)
    race = Race(1)
    winners = Counter(ids.index(race.winner(dist(P, ids), place)) for place in range(N))
    assert fits(winners, P)


def test_the_order_of_the_ids_does_not_matter() -> None:
    order = np.array([4, 0, 5, 2, 1, 3])
    shuffled = Dist(order.astype(np.int32), P[order])
    race = Race(3)
    assert all(race.winner(dist(P), i) == race.winner(shuffled, i) for i in range(200))


def test_two_distributions_agree_as_often_as_the_theory_says() -> None:
    """P(same winner) is the sum over i of 1 / sum_j max(p_j / p_i, q_j / q_i)."""
    wanted = sum(
        1 / np.maximum(P / P[i], Q / Q[i]).sum() for i in range(N_VOCAB) if P[i] > 0 and Q[i] > 0
    )
    race = Race(5)
    same = sum(race.winner(dist(P), i) == race.winner(dist(Q), i) for i in range(N)) / N
    assert same == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / N) ** 0.5)
    assert same > (P * Q).sum() + 0.2  # far more often than two independent draws


def rows(prefix: list[int]) -> Row:
    return np.random.default_rng([4, *prefix]).normal(0, 1.5, N_VOCAB).astype(np.float32)


def text(seed: int, drafts: list[list[int]], n: int = 12) -> list[int]:
    """``n`` tokens with what is drafted before each step; nothing once ``drafts`` is used up."""
    verifier = Verifier(N_VOCAB, np.random.default_rng(len(drafts)))
    sampler = FakeSampler(1.0, seed)
    tokens: list[int] = []
    left = list(drafts)
    while len(tokens) < n:
        draft = Draft(left.pop(0) if left else [])
        before = list(tokens)
        tokens += verifier.verify(
            lambda i, d=draft, b=before: rows([*b, *d.tokens[:i]]),  # type: ignore[misc]
            draft, sampler, lambda _: False,
        ).tokens  # fmt: skip
    return tokens[:n]


@settings(deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.lists(st.integers(0, N_VOCAB - 1), max_size=4), max_size=8),
)
def test_the_text_is_the_same_whatever_is_drafted(seed: int, drafts: list[list[int]]) -> None:
    assert text(seed, drafts) == text(seed, [])


def test_a_draft_model_runs_the_same_race() -> None:
    """It need not know the target: with the same distributions it has the same winners."""
    sampler = FakeSampler(1.0, 9)
    drafting = sampler.fork()
    draft = begun(sampler)
    assert draft.dists is None
    for _ in range(3):
        token, confidence = guess(rows(draft.tokens), draft, drafting, np.random.default_rng(0))
        assert confidence == pytest.approx(sampler.distribution(rows(draft.tokens)).of(token))
        draft.tokens.append(token)
        drafting.accept(token)
    verdict = Verifier(N_VOCAB, np.random.default_rng(1)).verify(
        lambda i: rows(draft.tokens[:i]), draft, sampler, lambda _: False
    )
    assert verdict.n_accepted == 3
