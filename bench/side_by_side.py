"""Several answers at once, some tokens of each by turns, so that a noisy machine slows all alike.

Two plain answers one after the other differ by up to 10 % on a shared machine; by turns it was up
to 4 %. Everyone counts only the time of its own turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from localspec.benchmark import BenchPrompt
from localspec.chat import Message
from localspec.config import Mode
from localspec.session import Session
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling

TURN = 16
"""Tokens of one turn, at least. The first of them are slower if the turn before was that of another
process, so that fewer would tell less."""
SETTLE_S = 0.006
"""Pause between turns: the threads of the one before spin for some milliseconds before they sleep.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to give."""

    prompt: BenchPrompt
    tokens: list[int]
    n: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Answered:
    """How fast: tokens per second after the first, seconds until the first, and the gain over plain
    decoding that the program itself measured in this answer."""

    speed: float
    first_token_s: float | None = None
    gain: float | None = None


Answering = Generator[None, None, Answered | None]
"""An answer while it is given. After its first token, and then after every ``TURN`` or so, it hands
over. It returns None if it was too short to tell its speed."""
Contender = Callable[[Task], Answering]


def session_answers(session: Session, mode: Mode, seeded: bool = False) -> Contender:
    """localspec in one mode. The session is for this contender alone."""

    def answer(task: Task) -> Answering:
        session.set_mode(mode)
        session.clear()
        sampling = Sampling(temperature=task.temperature, seed=task.seed if seeded else None)
        given, told = 0, 1 - TURN
        asked = [Message("user", task.prompt.prompt)]
        for event in session.ask(asked, sampling, max_tokens=task.n):
            if isinstance(event, Step):
                given += len(event.tokens)
                if given >= told + TURN:
                    told = given
                    yield
            elif isinstance(event, Finished) and event.stats.tokens_per_s is not None:
                stats = event.stats
                return Answered(stats.tokens_per_s, stats.first_token_s, stats.gain)
        return None

    return answer


def side_by_side(answers: Sequence[Answering]) -> list[Answered | None]:
    """How fast each was. They take turns in the order given, until all have ended."""
    found: list[Answered | None] = [None] * len(answers)
    left = list(range(len(answers)))
    while left:
        for i in tuple(left):
            if len(left) > 1:
                time.sleep(SETTLE_S)
            try:
                next(answers[i])
            except StopIteration as ended:
                found[i] = ended.value
                left.remove(i)
    return found
