"""Every native sampler, and combinations of them, against an independent reference: the
distribution p that verification works with is the one that the settings describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers_sampling import distribution, penalised
from helpers_schema import SCHEMAS
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import DecodeError, UsageError
from localspec.grammar import from_json_schema
from localspec.llama import sampler as sampler_module
from localspec.llama.model import Model
from localspec.llama.sampler import Chain, decided
from localspec.spec.drafter import Row
from localspec.spec.sampling import Sampling

pytestmark = pytest.mark.real

OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)
JSON = r"""
root ::= "{" ws "\"name\":" ws "\"" [a-z]+ "\"" ws "}"
ws ::= [ \n]*
"""


@pytest.fixture(scope="module")
def model(model_file) -> Iterator[Model]:  # type: ignore[no-untyped-def]
    loaded = Model(model_file("smollm2-135m"), vocab_only=True)
    yield loaded
    loaded.close()


def row_of(model: Model, seed: int, scale: float = 2.5) -> Row:
    return np.random.default_rng(seed).normal(0, scale, model.n_vocab).astype(np.float32)


def text_of(seed: int) -> list[int]:
    """A text that repeats itself, with rare and frequent tokens."""
    rng = np.random.default_rng(seed)
    part = [int(t) for t in rng.integers(300, 400, 12)]
    return [*part, *(int(t) for t in rng.integers(300, 330, 30)), *part[:9]]


def dense(model: Model, chain: Chain, row: Row) -> np.ndarray:
    dist = chain.distribution(row)
    assert len(set(dist.ids.tolist())) == len(dist.ids)
    p = np.zeros(model.n_vocab)
    p[dist.ids] = dist.probs
    return p


def assert_is(p: np.ndarray, s: Sampling, wanted: Callable[[Sampling], np.ndarray]) -> None:
    """``p`` is the wanted distribution. llama.cpp adds probabilities in single precision, so a
    candidate exactly at the edge of a truncation may fall to either side."""
    edges = [s]
    for name in ("top_p", "typical_p", "top_n_sigma"):
        value = getattr(s, name)
        edges += [replace(s, **{name: value * (1 + shift)}) for shift in (-1e-4, 1e-4)]
    errors = [float(np.abs(p - wanted(edge)).max()) for edge in edges]
    assert min(errors) < 3e-6, errors


CASES = {
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 40},
    "top-p": {"top_p": 0.5},
    "min-p": {"min_p": 0.1},
    "typical": {"typical_p": 0.6},
    "top-n-sigma": {"top_n_sigma": 3.0},
    "dynamic": {"dynatemp_range": 0.4, "temperature": 0.8, "top_k": 50},
    "dynamic-exponent": {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0, "top_k": 9},
    "repeat": {"repeat_penalty": 1.3},
    "frequency": {"frequency_penalty": 0.7, "presence_penalty": 0.4, "penalty_last_n": 20},
    "whole-context": {"repeat_penalty": 1.2, "penalty_last_n": -1},
    "dry": {"dry_multiplier": 0.9},
    "dry-short": {"dry_multiplier": 0.8, "dry_allowed_length": 4, "dry_penalty_last_n": 30},
    "bias": {"logit_bias": {310: 9.0, 311: -4.0, 312: float("-inf")}},
    "defaults": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "sigma-typical": {"top_n_sigma": 2.5, "top_k": 60, "typical_p": 0.7},
    "sigma-dynamic": {"top_n_sigma": 3.5, "top_k": 40, "dynatemp_range": 0.5},
    "everything": {
        "temperature": 0.7, "top_k": 50, "typical_p": 0.9, "top_p": 0.9, "min_p": 0.02,
        "top_n_sigma": 4.0, "repeat_penalty": 1.2, "frequency_penalty": 0.2,
        "presence_penalty": 0.1, "dry_multiplier": 0.8, "dynatemp_range": 0.3,
        "logit_bias": {305: 5.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_p_is_what_the_settings_describe(model: Model, name: str) -> None:
    s = replace(OFF, **CASES[name])  # type: ignore[arg-type]
    for seed in range(4):
        text, more = text_of(seed), [301, 302, 301]
        row = row_of(model, seed)
        row[300:340] += 6.0  # the tokens of the text compete for being kept
        chain = Chain(model, s, text)
        for token in more:
            chain.accept(token)
        p = dense(model, chain, row)
        assert_is(p, s, partial(distribution, row, text=[*text, *more]))
        # Again, and from a copy: asking must not change the answer.
        np.testing.assert_array_equal(dense(model, chain, row), p)
        np.testing.assert_array_equal(dense(model, chain.fork(), row), p)


def test_the_reference_can_tell_a_wrong_chain(model: Model) -> None:
    """The comparison above is not blind: one setting off, and it fails."""
    row, text = row_of(model, 1), text_of(1)
    row[300:340] += 6.0
    for changed in ({"temperature": 0.65}, {"repeat_penalty": 1.1}, {"top_p": 0.9}):
        s = replace(OFF, temperature=0.6)
        p = dense(model, Chain(model, replace(s, **changed), text), row)  # type: ignore[arg-type]
        assert np.abs(p - distribution(row, s, text)).max() > 1e-4


def test_dry_breakers_stop_a_repeat(model: Model) -> None:
    """The default breakers hold a newline: what repeats across it is not punished."""
    newline = model.tokenize("\n", add_special=False, parse_special=False)[0]
    s = replace(OFF, dry_multiplier=0.9)
    text = [310, 311, 312, 320, 330, 310, newline, 312]
    row = row_of(model, 5)
    np.testing.assert_allclose(
        dense(model, Chain(model, s, text), row),
        distribution(row, s, text, breakers={newline}),
        atol=1e-6,
    )


def test_greedy_takes_the_best_after_bias_penalties_and_dry(model: Model) -> None:
    s = Sampling(temperature=0.0, repeat_penalty=2.0, logit_bias={400: 1.0}, dry_multiplier=2.0)
    text = text_of(2)
    row = row_of(model, 2, 1.0)
    row[text[5]] = 6.0
    wanted = distribution(row, replace(s, temperature=1.0, top_k=0, top_p=1, min_p=0), text)
    assert Chain(model, s, text).best(row) == int(wanted.argmax()) != int(row.argmax())
    assert penalised(row.astype(np.float64), s, text)[text[5]] < 6.0


# -- XTC: a coin per position ---------------------------------------------------------------------

XTC = replace(OFF, top_k=40, xtc_probability=0.4, xtc_threshold=0.08)


def test_xtc_is_one_of_two_distributions_as_its_coin_falls(model: Model) -> None:
    row = row_of(model, 7, 0.5)
    row[[310, 311, 312]] = [7.0, 6.6, 6.3]
    plain, cut = (distribution(row, XTC, [], xtc_coin=coin) for coin in (False, True))
    assert cut[310] == cut[311] == 0 < cut[312]
    chain, n_cut = Chain(model, XTC, [1]), 0
    for _ in range(2000):
        p = dense(model, chain, row)
        was_cut = p[310] == 0
        n_cut += was_cut
        np.testing.assert_allclose(p, cut if was_cut else plain, atol=2e-6)
    assert abs(n_cut / 2000 - 0.4) < 0.04


def test_xtc_coins_follow_the_seed(model: Model) -> None:
    row = row_of(model, 7, 0.5)
    row[[310, 311, 312]] = [7.0, 6.6, 6.3]

    def coins(seed: int) -> list[bool]:
        chain = Chain(model, replace(XTC, seed=seed), [1])
        return [chain.distribution(row).of(310) == 0 for _ in range(64)]

    assert coins(5) == coins(5) != coins(6)


def test_a_copy_does_not_toss_the_originals_coins(model: Model) -> None:
    """A drafter asks its copy as often as it likes; the target's own coins stay what they were."""
    row = row_of(model, 7, 0.5)
    row[[310, 311, 312]] = [7.0, 6.6, 6.3]
    asked, left_alone = Chain(model, XTC, [1]), Chain(model, XTC, [1])
    for _ in range(64):
        fork = asked.fork()
        for _ in range(3):
            fork.distribution(row)
        assert asked.distribution(row).of(310) == left_alone.distribution(row).of(310)


# -- mirostat -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_draws_itself_and_follows_the_seed(model: Model, version: int) -> None:
    row = row_of(model, 9, 3.0)

    def tokens(seed: int) -> list[int]:
        chain = Chain(model, replace(OFF, mirostat=version, seed=seed), [1])
        found = []
        for _ in range(40):
            dist = chain.distribution(row)
            assert dist.probs.tolist() == [1.0]
            found.append(int(dist.ids[0]))
        return found

    assert tokens(1) == tokens(1) != tokens(2)
    assert len(set(tokens(1))) > 5


# -- grammar --------------------------------------------------------------------------------------


def mask_of(model: Model, chain: Chain, row: Row) -> np.ndarray:
    """Which tokens the grammar allows now, asked all at once."""
    everything = np.zeros(len(row), dtype=sampler_module._CANDIDATE)
    everything["id"] = np.arange(len(row))
    mask = np.zeros(len(row), dtype=bool)
    mask[chain._permitted(everything)["id"]] = True
    return mask


@pytest.mark.parametrize("prefix", ["", "{", '{"name":"', '{"name": "ab', '{"name":"a"', "{ \n"])
@pytest.mark.parametrize("case", ["defaults", "top-k", "min-p", "top-p", "everything"])
def test_the_grammar_masks_first_however_few_are_asked(
    model: Model, prefix: str, case: str
) -> None:
    """Looking only at the best candidates gives bit for bit what masking everything gives."""
    s = replace(OFF, **CASES[case], grammar=JSON)  # type: ignore[arg-type]
    chain = Chain(model, s, text_of(0))
    for token in model.tokenize(prefix, add_special=False, parse_special=False):
        chain.accept(token)
    told = [*text_of(0), *model.tokenize(prefix, add_special=False, parse_special=False)]
    mask = mask_of(model, chain, np.zeros(model.n_vocab))
    favourite = int(np.flatnonzero(mask)[0])
    for seed, lift in ((0, 0.0), (1, 12.0), (2, 5.0), (3, 16.0)):
        row = row_of(model, seed)
        row[favourite] += lift
        p = dense(model, chain, row)
        assert_is(p, s, partial(distribution, row, text=told, allowed=mask))
        assert not p[~mask].any()


def test_a_sure_model_is_not_asked_about_the_whole_vocabulary(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    permitted = Chain._permitted

    def counting(self: Chain, candidates: sampler_module.Candidates) -> sampler_module.Candidates:
        asked.append(len(candidates))
        return permitted(self, candidates)

    monkeypatch.setattr(Chain, "_permitted", counting)
    brace = model.tokenize("{", add_special=False, parse_special=False)[0]
    row = row_of(model, 0)
    row[brace] = 20.0
    Chain(model, Sampling(seed=1, grammar=JSON), [1]).distribution(row)
    Chain(model, Sampling(temperature=0, grammar=JSON), [1]).best(row)
    assert max(asked) <= sampler_module.N_BEST


def test_where_top_k_comes_first_the_chain_sees_few_candidates(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole vocabulary takes longer to hand over than all else that sampling does."""
    seen: list[int] = []
    apply = sampler_module._Scratch.apply

    def counting(
        self: sampler_module._Scratch, sampler: Any, array: sampler_module.Candidates
    ) -> tuple[sampler_module.Candidates, int]:
        seen.append(len(array))
        return apply(self, sampler, array)

    monkeypatch.setattr(sampler_module._Scratch, "apply", counting)
    for case, most in (
        ("defaults", 60),
        ("min-p", model.n_vocab),
        ("sigma-typical", model.n_vocab),
    ):
        seen.clear()
        s = replace(OFF, **CASES[case])  # type: ignore[arg-type]
        Chain(model, s, [1]).distribution(row_of(model, 2))
        assert most * 2 // 3 <= max(seen) <= most


def test_greedy_with_a_grammar_takes_the_best_that_it_allows(model: Model) -> None:
    chain = Chain(model, Sampling(temperature=0, grammar=JSON), [1])
    mask = mask_of(model, chain, np.zeros(model.n_vocab))
    for token in [*np.flatnonzero(mask)[:50], *np.flatnonzero(~mask)[:50]]:
        assert chain._allows(int(token)) == mask[token]
    for seed in range(20):
        row = row_of(model, seed)
        assert chain.best(row) == int(np.where(mask, row, -np.inf).argmax())


def test_a_finished_grammar_allows_only_the_end(model: Model) -> None:
    chain = Chain(model, Sampling(seed=1, grammar=JSON), [1])
    for token in model.tokenize('{"name":"bob"}', add_special=False, parse_special=False):
        chain.accept(token)
    dist = chain.distribution(row_of(model, 0))
    assert all(model.is_end(int(token)) for token in dist.ids)
    chain.accept(int(dist.ids[0]))
    assert all(model.is_end(int(token)) for token in chain.distribution(row_of(model, 1)).ids)


def test_a_token_that_does_not_fit_is_refused_and_changes_nothing(model: Model) -> None:
    """llama.cpp would end the process here."""
    chain = Chain(model, Sampling(seed=1, grammar=JSON), [1])
    for token in (model.eos, model.tokenize("x", add_special=False, parse_special=False)[0]):
        assert token is not None
        with pytest.raises(DecodeError, match="does not fit"):
            chain.accept(token)
    chain.accept(model.tokenize("{", add_special=False, parse_special=False)[0])


def test_a_grammar_that_no_token_fits_is_an_error_not_nonsense(model: Model) -> None:
    row = np.full(model.n_vocab, -np.inf, np.float32)
    row[model.tokenize("x", add_special=False, parse_special=False)[0]] = 1.0
    with pytest.raises(DecodeError, match="allows none"):
        Chain(model, Sampling(seed=1, grammar=JSON), [1]).distribution(row)
    with pytest.raises(DecodeError, match="allows none"):
        Chain(model, Sampling(temperature=0, grammar=JSON), [1]).best(row)


@pytest.mark.parametrize("case", SCHEMAS, ids=[case["id"] for case in SCHEMAS])
def test_llama_cpp_reads_every_schemas_grammar_and_takes_its_example(
    model: Model, case: dict[str, Any]
) -> None:
    grammar = from_json_schema(json.dumps(case["schema"]))
    chain = Chain(model, Sampling(temperature=0, grammar=grammar), [1])
    text = json.dumps(case["example"], ensure_ascii=False)
    assert model.eos is not None
    for token in model.tokenize(text, add_special=False, parse_special=False):
        chain.accept(token)
    chain.accept(model.eos)
    wrong = Chain(model, Sampling(temperature=0, grammar=grammar), [1])
    with pytest.raises(DecodeError):
        _tell(wrong, model.tokenize("[[{]", add_special=False, parse_special=False))


def _tell(chain: Chain, tokens: list[int]) -> None:
    for token in tokens:
        chain.accept(token)


def test_an_unreadable_grammar_is_a_sentence(model: Model) -> None:
    for text in ("root ::= (", "nonsense", 'start ::= "a"'):
        with pytest.raises(UsageError, match="grammar"):
            Chain(model, Sampling(grammar=text), [1])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=40),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.lists(st.floats(-40, 0, width=32), max_size=12),
    st.integers(0, 30),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([0.3, 0.9, 1.0]),
)
def test_decided_never_says_so_too_early(
    best: list[float], ok: list[bool], rest: list[float], top_k: int, min_p: float, top_p: float
) -> None:
    """Whatever the grammar says about the others, the kept candidates stay the same."""
    best.sort(reverse=True)
    logits = np.array(best)
    allowed = logits[np.array((ok * len(best))[: len(best)])]
    lowest = float(logits[-1])
    others = np.minimum(np.array(rest), lowest)
    s = replace(OFF, top_k=top_k, min_p=min_p, top_p=top_p)
    if not len(allowed) or not decided(allowed, lowest, len(others), s):
        return
    alone = _kept(allowed, s)
    for more in (others, others[: len(others) // 2], np.full(len(others), lowest)):
        assert _kept(np.concatenate([allowed, more]), s) == alone


def _kept(logits: np.ndarray, s: Sampling) -> int:
    n = len(logits) if s.top_k == 0 else min(len(logits), s.top_k)
    logits = np.sort(logits)[::-1][:n]
    weights = np.exp(logits - logits[0])
    if s.top_p < 1:
        n = min(n, int((np.cumsum(weights) < s.top_p * weights.sum()).sum()) + 1)
    return min(n, int((weights >= s.min_p).sum()))
