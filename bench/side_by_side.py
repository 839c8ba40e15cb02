"""Several answers at once, a step of each in turn, so that a noisy machine slows them alike.

Two answers one after the other differ by up to 10 % on a shared machine though both are plain; a
tenth of a second apart they do not. A session counts only the time it works itself, so that its
figures need no correction for having waited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.peers import Answered, Task
from localspec.chat import Message
from localspec.config import Mode
from localspec.session import Session
from localspec.spec.events import Event, Finished, Step
from localspec.spec.sampling import Sampling


def answering(session: Session, mode: Mode, task: Task, seeded: bool = False) -> Iterator[Event]:
    """An answer of ``session`` in ``mode`` to the prompt of ``task``, read from its start."""
    session.set_mode(mode)
    session.clear()
    sampling = Sampling(temperature=task.temperature, seed=task.seed if seeded else None)
    return session.ask([Message("user", task.prompt.prompt)], sampling, max_tokens=task.n)


def side_by_side(answers: Sequence[Iterator[Event]]) -> list[Answered | None]:
    """How fast each was; None: too short to tell. Each reads its prompt without a break; then the
    one that has given the fewest tokens goes on, until all have ended."""
    tokens = [0] * len(answers)
    found: list[Answered | None] = [None] * len(answers)
    left = set(range(len(answers)))
    while left:
        i = min(left, key=lambda i: (tokens[i], i))
        for event in answers[i]:
            if isinstance(event, Step):
                tokens[i] += len(event.tokens)
                break
            if isinstance(event, Finished):
                left.remove(i)
                stats = event.stats
                if stats.tokens_per_s is not None:
                    found[i] = Answered(stats.tokens_per_s, stats.first_token_s, stats.gain)
    return found
