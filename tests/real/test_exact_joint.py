"""Drafting with the native chain on both sides: two tokens in a row are distributed as the chain
alone would draw them, for samplers that look back, toss coins or follow the entropy.

20,000 draws each with fixed seeds; the truth comes from the independent reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers_sampling import distribution
from scipy.stats import chisquare

from localspec.llama.model import Model
from localspec.llama.sampler import Chain
from localspec.spec.drafter import Row
from localspec.spec.guess import begun, guess
from localspec.spec.sampling import Sampling
from localspec.spec.verify import Verifier

pytestmark = pytest.mark.real

N_DRAWS = 20_000
N_VOCAB = 10
"""The chain works on the first ids of the model's vocabulary: rows may be shorter than it."""
PROMPT = [3, 4, 5, 3, 4]
OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

CASES = {
    "penalties-dry": replace(
        OFF, repeat_penalty=1.4, frequency_penalty=0.3, dry_multiplier=0.9, dry_sequence_breakers=()
    ),
    "xtc-temperature": replace(OFF, temperature=0.8, xtc_probability=0.5, xtc_threshold=0.15),
    "sigma-dynamic-min-p": replace(OFF, top_n_sigma=1.8, min_p=0.05, dynatemp_range=0.5),
    "everything": replace(
        OFF, temperature=0.9, top_k=8, top_p=0.97, min_p=0.02, repeat_penalty=1.2,
        presence_penalty=0.2, xtc_probability=0.3, xtc_threshold=0.2, logit_bias={6: 0.7},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(model_file) -> Iterator[Model]:  # type: ignore[no-untyped-def]
    loaded = Model(model_file("smollm2-135m"), vocab_only=True)
    yield loaded
    loaded.close()


@cache
def row_after(answer: tuple[int, ...], whose: int) -> Row:
    """The target's logits (0), or the draft's (1): another opinion of the same kind."""
    row = np.random.default_rng([2, *answer]).normal(0, 1.2, N_VOCAB)
    row += whose * np.random.default_rng([9, *answer]).normal(0, 0.8, N_VOCAB)
    return row.astype(np.float32)


def truth(s: Sampling) -> dict[tuple[int, ...], float]:
    """Exact joint distribution of the first two tokens."""
    shares: dict[tuple[int, ...], float] = {(): 1.0}
    coins = [(False, 1 - s.xtc_probability), (True, s.xtc_probability)]
    for _ in range(2):
        longer: dict[tuple[int, ...], float] = {}
        for answer, share in shares.items():
            row, text = row_after(answer, 0), [*PROMPT, *answer]
            p = sum(
                weight * distribution(row, s, text, xtc_coin=coin)
                for coin, weight in coins
                if weight
            )
            for token in range(N_VOCAB):
                longer[(*answer, token)] = share * float(p[token])
        shares = longer
    return shares


@pytest.mark.parametrize("is_seeded", [False, True], ids=["rejection", "seeded"])
@pytest.mark.parametrize("name", CASES)
def test_two_tokens_in_a_row(model: Model, name: str, is_seeded: bool) -> None:
    """With a seed for each text, too, the texts together are distributed as the chain says."""
    settings = CASES[name]
    rng = np.random.default_rng(18)
    verifier = Verifier(N_VOCAB, rng)
    counts: Counter[tuple[int, ...]] = Counter()
    n_accepted = 0
    for number in range(N_DRAWS):
        own = replace(settings, seed=number) if is_seeded else settings
        chain = Chain(model, own, PROMPT, native_seed=number)
        drafting = chain.fork()
        draft = begun(chain)
        for _ in range(2):
            row = row_after(tuple(draft.tokens), 1)
            draft.tokens.append(guess(row, draft, drafting, rng)[0])
            drafting.accept(draft.tokens[-1])
        verdict = verifier.verify(
            lambda index, draft=draft: row_after(tuple(draft.tokens[:index]), 0),  # type: ignore[misc]
            draft, chain, lambda _: False,
        )  # fmt: skip
        tokens = verdict.tokens[:2]
        n_accepted += verdict.n_accepted
        if len(tokens) < 2:
            tokens.append(verifier.pick(row_after(tuple(tokens), 0), chain))
        counts[tuple(tokens)] += 1
    assert 0.2 * N_DRAWS < n_accepted < 1.95 * N_DRAWS  # both branches of the rule are at work
    assert p_value(counts, truth(settings)) > 0.01


def p_value(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    assert all(expected[key] > 0 for key in counts)
    often = [key for key, share in expected.items() if share * N_DRAWS >= 10]
    observed = [counts[key] for key in often]
    wanted = [expected[key] * N_DRAWS for key in often]
    observed.append(N_DRAWS - sum(observed))
    wanted.append(N_DRAWS - sum(wanted))
    if wanted[-1] < 5:
        observed, wanted = observed[:-1], wanted[:-1]
        wanted = [value * sum(observed) / sum(wanted) for value in wanted]
    return float(chisquare(observed, wanted).pvalue)
