"""Numbers over a chat: totals and the moving window."""

from __future__ import annotations

from localspec.spec.events import Step
from localspec.spec.stats import Stats, Totals, Window


def step(n_verified: int, n_accepted: int) -> Step:
    return Step((1,), ("x",), n_verified, n_verified, n_accepted, "draft", 0.0, 0.1)


def test_totals_add_answers_and_saved_ones() -> None:
    totals = Totals()
    assert totals.acceptance_rate is None
    stats = Stats(n_tokens=11, n_verified=8, n_accepted=4, generate_s=0.4, baseline_step_s=0.1)
    totals.add(stats)
    assert (totals.n_answers, totals.n_tokens, totals.acceptance_rate) == (1, 11, 0.5)
    assert totals.saved_s is not None
    assert abs(totals.saved_s - (11 * 0.1 - 0.4)) < 1e-9
    totals.add(Stats(n_tokens=1))
    assert totals.saved_s is not None
    totals.add_saved({"n_tokens": 5, "n_verified": 2, "n_accepted": 2, "saved_s": -0.7})
    assert (totals.n_tokens, totals.n_accepted) == (17, 6)
    assert abs(totals.saved_s) < 1e-9
    totals.add_saved({"n_tokens": "x", "n_verified": None, "saved_s": float("nan")})
    assert (totals.n_answers, totals.n_tokens) == (4, 17)
    assert totals.plus(stats).n_tokens == 28
    assert totals.n_tokens == 17


def test_the_window_forgets_and_ignores_steps_without_a_draft() -> None:
    window = Window(4)
    assert window.acceptance_rate is None
    assert window.series(8) == []
    for accepted in (0, 4, 4, 2, 2):
        window.add(step(4, accepted))
    window.add(step(0, 0))
    assert window.n_steps == 4
    assert window.acceptance_rate == 12 / 16
    assert window.series(2) == [1.0, 0.5]
    assert window.series(3) == [1.0, 0.5]
    assert window.series(10) == [1.0, 1.0, 0.5, 0.5]


def test_prompt_speed() -> None:
    assert Stats(n_prompt=100, n_reused=40, prompt_s=2.0).prompt_tokens_per_s == 30.0
    assert Stats(n_prompt=40, n_reused=40, prompt_s=2.0).prompt_tokens_per_s is None
