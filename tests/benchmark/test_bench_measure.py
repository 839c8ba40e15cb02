"""The bench's order, its fairness, its time limit, and what is left after Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers_bench import COPY, OTHER, CostlySession

from localspec.benchmark import Options, Results, measure
from localspec.benchmark.measure import MAX_ROUNDS
from localspec.config import Mode
from localspec.errors import DecodeError
from localspec.spec.sampling import Sampling

MODES: tuple[Mode, ...] = ("off", "lookup", "draft")
GREEDY = Sampling(temperature=0.0, seed=1)


def bench(
    session: CostlySession, *, modes: Sequence[Mode] = MODES, rounds: int | None = 2, n: int = 30
) -> Results:
    reported: list[tuple[int, int, str]] = []
    results = measure(
        session,
        Options([COPY, OTHER], modes, n, GREEDY, rounds),
        cancelled=lambda: False,
        report=lambda *what: reported.append(what),
        n_bytes_used=lambda: 1000,
        clock=session.clock,
    )
    assert [done for done, _, _ in reported] == sorted(done for done, _, _ in reported)
    return results


def test_modes_take_turns_and_each_comes_first_sometimes() -> None:
    session = CostlySession(modes=MODES)
    results = bench(session, rounds=3)
    assert results.complete
    assert len(results.runs) == 3 * 2 * 3
    rounds = [results.runs[i : i + 3] for i in range(0, 18, 3)]
    for beside in rounds:
        assert len({(run.prompt.id, run.round) for run in beside}) == 1
        assert {run.mode for run in beside} == set(MODES)
    assert {beside[0].mode for beside in rounds} == set(MODES)


def test_every_answer_starts_from_a_cleared_cache_and_the_modes_of_a_round_draw_alike() -> None:
    session = CostlySession(modes=MODES)
    results = bench(session)  # the session itself asserts that its cache is empty
    assert all(run.stats.n_reused == 0 for run in results.runs)
    assert session.n_cleared == session.n_asked == 1 + 12  # one to warm up
    seeds = {seed for _, _, seed in session.asked[1:7]}
    assert len(seeds) == 1
    assert seeds != {seed for _, _, seed in session.asked[7:]}


def test_the_warm_up_is_not_counted() -> None:
    session = CostlySession()
    results = bench(session, modes=("off",), rounds=1)
    assert len(results.runs) == 2
    assert session.n_asked == 3


def test_without_a_number_it_stops_when_another_round_would_take_too_long() -> None:
    slow = CostlySession(lambda _: 2.0)  # 2 prompts x 30 tokens x 2 s = 2 minutes a round
    results = bench(slow, modes=("off",), rounds=None)
    assert max(run.round for run in results.runs) == 0
    assert results.complete
    quick = CostlySession(lambda _: 0.1)
    results = bench(quick, modes=("off",), rounds=None)
    assert max(run.round for run in results.runs) == MAX_ROUNDS - 1


def test_ctrl_c_leaves_whole_answers_only() -> None:
    session = CostlySession()
    session.stop_after = 100
    results = bench(session, modes=("off",), rounds=5)
    assert not results.complete
    assert results.runs
    assert all(len(run.tokens) == 30 for run in results.runs)


def test_an_error_in_the_middle_leaves_what_was_measured() -> None:
    session = CostlySession()
    session.fail_at = 4
    options = Options([COPY, OTHER], ("off",), 30, GREEDY, 3)
    results = Results(options.prompts, options.modes, 30, GREEDY)
    with pytest.raises(DecodeError):
        measure(
            session, options, cancelled=lambda: False, report=lambda *_: None,
            n_bytes_used=lambda: 0, clock=session.clock, results=results,
        )  # fmt: skip
    assert len(results.runs) == 2
    assert not results.complete
