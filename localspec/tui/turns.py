"""The conversation as data: turns, their texts, where each word came from, their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.messages import Message
from localspec.sessions_types import SavedTurn
from localspec.spec.events import Finished, Prefill, Step
from localspec.spec.stats import Stats, Totals, Window

State = Literal["waiting", "reading", "writing", "complete", "stopped", "failed"]
RUNNING: tuple[State, ...] = ("waiting", "reading", "writing")

PLAIN = "plain"
CORRECTED = "corrected"
"""Origin of the target's own token after a rejected one; ``PLAIN``: nothing was drafted there (or
all was accepted); else the drafter's name."""

_ids = itertools.count(1)


@dataclass(slots=True)
class Run:
    """Neighbouring text of one origin."""

    origin: str
    text: str


@dataclass(slots=True)
class Turn:
    """A question or an answer. ``id`` is ours, ``saved_id`` that of the database."""

    role: Literal["user", "assistant"]
    state: State = "complete"
    runs: list[Run] = field(default_factory=list)
    id: int = field(default_factory=lambda: next(_ids))
    saved_id: int | None = None
    stats: Stats | None = None
    prefill: Prefill | None = None
    reading_s: float = 0.0
    """How long the prompt pass has been going on."""
    reading_since: float = 0.0
    is_stopping: bool = False
    is_thinking: bool = False
    """The prompt ended with an opening thinking tag, so the text begins in the middle of it."""
    seed: int | None = None
    error: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(run.text for run in self.runs)

    @property
    def is_running(self) -> bool:
        """An answer that is not over."""
        return self.state in RUNNING

    def add(self, step: Step) -> list[Run]:
        """Take the text of a step; returns the runs that it adds."""
        is_corrected = step.n_verified > step.n_accepted
        added: list[Run] = []
        for place, text in enumerate(step.texts):
            if place < step.n_accepted:
                origin = step.drafter
            else:
                origin = CORRECTED if is_corrected else PLAIN
            added += self.add_text(text, origin)
        return added

    def add_text(self, text: str, origin: str = PLAIN) -> list[Run]:
        """Append ``text``; returns what is new as runs."""
        if not text:
            return []
        if self.runs and self.runs[-1].origin == origin:
            self.runs[-1].text += text
        else:
            self.runs.append(Run(origin, text))
        return [Run(origin, text)]


def question(text: str) -> Turn:
    """A user's turn."""
    turn = Turn("user")
    turn.add_text(text)
    return turn


class Conversation:
    """The turns of one chat, and the numbers over them."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.turns: list[Turn] = []
        self.n_dropped = 0
        """How many messages at the front had no room in the last prompt."""
        self.totals = Totals()
        """Over all answers that are complete, deleted ones too: it is about this chat's time."""
        self.window = Window()

    def restore(self, saved: Sequence[SavedTurn]) -> None:
        """Take over the turns of a saved chat; a partial answer counts as stopped."""
        for old in saved:
            if old.role not in ("user", "assistant"):
                continue
            turn = Turn("user" if old.role == "user" else "assistant", saved_id=old.id)
            turn.state = "complete" if old.state == "complete" else "stopped"
            turn.add_text(old.content)
            turn.numbers = dict(old.numbers)
            if turn.numbers:
                self.totals.add_saved(turn.numbers)
            self.turns.append(turn)

    @property
    def prompt_rate(self) -> float | None:
        """Prompt tokens per second in the newest answer that says so."""
        for turn in reversed(self.turns):
            stats = Stats(
                n_prompt=int(_number(turn.numbers.get("n_prompt"))),
                n_reused=int(_number(turn.numbers.get("n_reused"))),
                prompt_s=_number(turn.numbers.get("prompt_s")),
            )
            if stats.prompt_tokens_per_s:
                return stats.prompt_tokens_per_s
        return None

    def messages(self, *, until: Turn | None = None) -> tuple[Message, ...]:
        """What the model is given: the system text and all turns before ``until``."""
        found = [Message("system", self.system)] if self.system else []
        for turn in self.turns:
            if turn is until:
                break
            if turn.text or turn.role == "user":
                found.append(Message(turn.role, turn.text))
        return tuple(found)

    @property
    def last_answer(self) -> Turn | None:
        """The newest answer, running or not."""
        return next((turn for turn in reversed(self.turns) if turn.role == "assistant"), None)

    def find(self, turn_id: int) -> Turn | None:
        """The turn with our number ``turn_id``, None when it was deleted."""
        return next((turn for turn in self.turns if turn.id == turn_id), None)

    def cut(self, turn: Turn) -> list[Turn]:
        """Remove ``turn`` and all after it; returns them."""
        place = self.turns.index(turn)
        gone = self.turns[place:]
        del self.turns[place:]
        return gone

    def question_of(self, answer: Turn) -> Turn | None:
        """The user's turn before ``answer``."""
        place = self.turns.index(answer)
        return next((t for t in reversed(self.turns[:place]) if t.role == "user"), None)

    # -- the running answer -----------------------------------------------------------------------

    def count_prompt(self, turn: Turn) -> None:
        """The prompt pass of ``turn`` is over."""
        if turn.prefill is not None:
            turn.stats = Stats(
                n_prompt=turn.prefill.n_total,
                n_reused=turn.prefill.n_reused,
                prompt_s=turn.reading_s,
            )

    def step(self, turn: Turn, step: Step, seconds: float, baseline: float | None) -> list[Run]:
        """Count a step of ``turn`` and take its text; returns the runs that are new."""
        stats = turn.stats or Stats()
        turn.stats = stats
        stats.add(step)
        if not step.is_first:
            stats.generate_s += seconds
        stats.compare(step, baseline)
        self.window.add(step)
        turn.state = "writing"
        return turn.add(step)

    def finish(self, turn: Turn, finished: Finished) -> list[Run]:
        """The answer is over; returns the text that was held back until now."""
        turn.stats = finished.stats
        turn.state = "stopped" if finished.reason == "cancelled" else "complete"
        turn.detail = finished.detail
        self.totals.add(finished.stats)
        return turn.add_text(finished.text)

    def fail(self, turn: Turn, error: str) -> None:
        """The answer ended in an error; what there is of it stays."""
        turn.state, turn.error = "failed", error
        if turn.stats is not None:
            self.totals.add(turn.stats)


def _number(value: Any) -> float:
    """A number from a saved chat, 0 for anything else."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) else 0.0
