"""The table's numbers against figures worked out by hand."""

from __future__ import annotations

import json

import pytest
from helpers_bench import COPY, OTHER, CostlySession

from localspec.benchmark import Options, Results, as_dict, measure, summarise
from localspec.benchmark.summary import ALL, Noise
from localspec.config import Mode
from localspec.spec.sampling import Sampling

MODES: tuple[Mode, ...] = ("off", "lookup", "draft", "auto")


def bench(session: CostlySession, rounds: int = 2, modes: tuple[Mode, ...] = MODES) -> Results:
    options = Options([COPY, OTHER], modes, 24, Sampling(temperature=0.0, seed=1), rounds)
    return measure(
        session, options, cancelled=lambda: False, report=lambda *_: None,
        n_bytes_used=lambda: 5000, clock=session.clock,
    )  # fmt: skip


def test_speed_ratio_acceptance_and_lengths() -> None:
    summary = summarise(bench(CostlySession(modes=MODES)))
    assert summary.kinds == ["edit", "creative", ALL]
    plain, lookup, draft = (summary.row("edit", mode) for mode in MODES[:3])
    assert plain is not None
    assert lookup is not None
    assert draft is not None
    assert plain.tokens_per_s == pytest.approx(1.0)
    assert plain.ratio == pytest.approx(1.0)
    assert plain.acceptance_rate is None
    assert plain.mean_accepted_length == pytest.approx(1.0)
    # 23 tokens after the first: 3 plain steps, then 5 steps of 4 at 1.5 s each.
    assert lookup.tokens_per_s == pytest.approx(23 / (3 + 5 * 1.5))
    assert lookup.ratio == pytest.approx(23 / 10.5)
    assert lookup.acceptance_rate == 1.0
    assert lookup.mean_accepted_length == pytest.approx(23 / 8)
    assert lookup.per_position == (1.0, 1.0, 1.0)
    # 3 plain steps, then steps that emit one token for 1.5 s: a loss, and shown as one.
    assert draft.ratio is not None
    assert draft.ratio < 0.75
    assert draft.acceptance_rate == 0.0
    assert draft.per_position == (0.0, 0.0, 0.0)
    assert lookup.same_text == draft.same_text == 1.0
    assert lookup.n_bytes == 5000
    assert lookup.first_token_s == pytest.approx(1.5)  # the prompt has four tokens
    assert lookup.first_token_ratio == pytest.approx(1.0)


def test_the_row_over_all_is_the_geometric_mean_over_prompts() -> None:
    results = bench(CostlySession(modes=MODES))
    summary = summarise(results)
    rows = [row for row in summary.by_prompt if row.mode == "lookup"]
    assert [row.kind for row in rows] == [COPY.id, OTHER.id]
    every = summary.row(ALL, "lookup")
    assert every is not None
    assert rows[0].ratio is not None
    assert rows[1].ratio is not None
    assert every.ratio == pytest.approx((rows[0].ratio * rows[1].ratio) ** 0.5)
    assert every.n_prompts == 2


def test_a_machine_that_gets_slower_slows_every_mode_alike() -> None:
    steady = summarise(bench(CostlySession(modes=MODES), 3)).row(ALL, "lookup")
    hot = CostlySession(modes=MODES)
    hot.slower = 1.01
    drifting = summarise(bench(hot, 3)).row(ALL, "lookup")
    assert steady is not None
    assert drifting is not None
    assert drifting.ratio == pytest.approx(steady.ratio, rel=0.03)


def test_noise_is_the_spread_of_plain_runs() -> None:
    quiet = summarise(bench(CostlySession())).noise
    assert quiet.spread == pytest.approx(0.0)
    assert quiet.level == "quiet"
    hot = CostlySession()
    hot.slower = 1.1
    noisy = summarise(bench(hot, modes=("off",))).noise
    assert noisy.spread is not None
    assert noisy.spread > 0.15
    assert noisy.level in ("noisy", "very noisy")


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Noise(0.02, 0.3), "a quiet machine"),
        (Noise(0.12, 0.0), "smaller differences between modes mean nothing"),
        (Noise(0.5, 0.0), "too noisy to trust"),
        (Noise(None, 0.02), "one round"),
        (Noise(None, 0.4), "too noisy to trust"),
        (Noise(None, None), "nothing can be said"),
    ],
)
def test_noise_in_words(noise: Noise, words: str) -> None:
    assert words in noise.sentence


def test_costs_and_chosen_widths() -> None:
    results = bench(CostlySession(modes=MODES))
    results.curve = {1: 0.5, 2: 0.6, 4: 1.0}
    summary = summarise(results)
    assert summary.curve == {1: 1.0, 2: 1.2, 4: 2.0}
    assert summary.chosen == {4: 1.0}


def test_nothing_measured_is_an_empty_summary() -> None:
    summary = summarise(Results([COPY], MODES, 10, Sampling()))
    assert summary.rows == ()
    assert summary.noise.level == "unknown"


def test_json_holds_every_run_and_is_strict() -> None:
    results = bench(CostlySession(modes=MODES))
    value = as_dict(results, summarise(results), {"model": "m"})
    back = json.loads(json.dumps(value, allow_nan=False))
    assert back["model"] == "m"
    assert back["complete"] is True
    assert len(back["runs"]) == 16
    assert {row["mode"] for row in back["rows"]} == set(MODES)
    assert {
        "tokens_per_s", "ratio", "acceptance_rate", "mean_accepted_length", "per_position",
        "first_token_s", "n_bytes",
    } <= back["rows"][0].keys()  # fmt: skip
