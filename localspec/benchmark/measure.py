"""Every mode on every prompt, in turn, so that a machine that gets slower slows all of them.

Each answer starts from cleared caches, and nothing is remembered from answer to answer but costs:
the same prompt is asked again and again, and to copy the answer of the round before would be easy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from localspec.benchmark.prompts import BenchPrompt
from localspec.chat import Message
from localspec.config import Mode
from localspec.files import Cancelled
from localspec.spec.events import Event, Finished, Step
from localspec.spec.sampling import Sampling
from localspec.spec.stats import Stats

PLAIN: Mode = "off"
MAX_ROUNDS = 3
"""Rounds when the user names no number and they fit into ``BUDGET_S``."""
BUDGET_S = 240.0
N_WARM_UP = 8
"""Tokens of a first answer that is not counted: it reads the weights from the disk."""


class Answering(Protocol):
    """What is measured (``session.Session`` is one)."""

    def ask(
        self,
        prompt: Sequence[Message] | str,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        cancelled: Cancelled = lambda: False,
    ) -> Iterator[Event]:
        """The events of one answer."""

    def set_mode(self, mode: Mode, draft_max: int | None = None) -> None:
        """Use another mode."""

    def clear(self) -> None:
        """Forget all that was read."""


@dataclass(frozen=True, slots=True)
class Run:
    """One answer. ``steps``: (drafter, width, seconds of the target's decode) of each step."""

    prompt: BenchPrompt
    mode: Mode
    round: int
    tokens: tuple[int, ...]
    stats: Stats
    steps: tuple[tuple[str, int, float], ...]
    n_bytes: int


@dataclass(slots=True)
class Results:
    """``complete``: everything that was asked for was measured. ``curve``: width -> seconds of one
    decode of the target, where that was measured."""

    prompts: Sequence[BenchPrompt]
    modes: Sequence[Mode]
    n_tokens: int
    sampling: Sampling
    runs: list[Run] = field(default_factory=list)
    curve: dict[int, float] = field(default_factory=dict)
    complete: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure. ``rounds`` None: as many as fit into ``BUDGET_S``, at most ``MAX_ROUNDS``.
    ``draft_max``: the longest draft, for all modes."""

    prompts: Sequence[BenchPrompt]
    modes: Sequence[Mode]
    n_tokens: int
    sampling: Sampling
    rounds: int | None = None
    draft_max: int | None = None


Report = Callable[[int, int, str], None]
"""``report(n_done, n_total, what comes next)``."""


def measure(
    session: Answering,
    options: Options,
    *,
    cancelled: Cancelled,
    report: Report,
    n_bytes_used: Callable[[], int],
    clock: Callable[[], float] = time.perf_counter,
    results: Results | None = None,
) -> Results:
    """Answer every prompt in every mode, round by round. When cancelled, what is whole by then is
    returned, with ``complete`` False. ``results`` is filled if it is given, so that it holds what
    was measured even if an error ends this."""
    found = results or Results(options.prompts, options.modes, options.n_tokens, options.sampling)
    started = clock()
    most = options.rounds or MAX_ROUNDS
    per_round = len(options.prompts) * len(options.modes)
    _answer(session, options, options.prompts[0], PLAIN, 0, cancelled, N_WARM_UP)
    for number in range(most):
        round_started = clock()
        for done, (prompt, mode) in enumerate(_order(options, number)):
            report(number * per_round + done, most * per_round, f"{prompt.id}, {mode}")
            run = _answer(session, options, prompt, mode, number, cancelled, options.n_tokens)
            found.seconds = clock() - started
            if run is None:
                return found
            found.runs.append(replace(run, n_bytes=n_bytes_used()))
        took = clock() - round_started
        if options.rounds is None and clock() - started + took > BUDGET_S:
            break
    found.complete = True
    return found


def _order(options: Options, number: int) -> Iterator[tuple[BenchPrompt, Mode]]:
    """Modes beside each other, another one first each time: the first after a pause is faster on
    a machine that gets hot."""
    for index, prompt in enumerate(options.prompts):
        shift = (number + index) % len(options.modes)
        for mode in [*options.modes[shift:], *options.modes[:shift]]:
            yield prompt, mode


def _answer(
    session: Answering,
    options: Options,
    prompt: BenchPrompt,
    mode: Mode,
    number: int,
    cancelled: Cancelled,
    n_tokens: int,
) -> Run | None:
    """One answer; None when it was cancelled."""
    session.clear()
    session.set_mode(mode, options.draft_max)
    tokens: list[int] = []
    steps: list[tuple[str, int, float]] = []
    # Every mode of a round draws the same way, every round another one.
    sampling = replace(options.sampling, seed=(options.sampling.seed or 0) + number)
    for event in session.ask(
        [Message("user", prompt.prompt)], sampling, max_tokens=n_tokens, cancelled=cancelled
    ):
        if isinstance(event, Step):
            tokens += event.tokens
            if event.measured is not None:
                steps.append((event.drafter, event.measured.width, event.verify_s))
        elif isinstance(event, Finished):
            if event.reason == "cancelled":
                return None
            return Run(prompt, mode, number, tuple(tokens), event.stats, tuple(steps), 0)
    return None
