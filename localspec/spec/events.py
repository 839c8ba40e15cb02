"""What the engine hands out while it answers.

Text and counts travel together, one ``Step`` per draft-verify round, so that what is on the screen
and what the numbers say cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from localspec.spec.stats import PLAIN_NAME, Stats

if TYPE_CHECKING:
    # It comes with numpy, which those who only show events can do without.
    from localspec.spec.drafter import Measured

FinishReason = Literal["stop", "length", "cancelled"]

PLAIN = PLAIN_NAME
"""The drafter's name in a step in which nothing was drafted."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of the prompt pass: ``n_done`` of ``n_total`` tokens are in the target's cache."""

    n_done: int
    n_total: int
    n_reused: int
    """How many of them were there before this answer (prefix reuse)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One round: ``n_drafted`` tokens guessed, ``n_verified`` of them checked in one target decode,
    ``n_accepted`` kept, then one token of the target's own (the bonus or the correction).

    ``tokens`` are the tokens emitted by the round, cut at the end of the answer; the first
    ``n_accepted`` were drafted. ``n_verified`` counts the draft tokens whose rows were decoded,
    those after the cut left out.
    """

    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    """For each token the text that it made showable; its own may be held back for a while."""
    n_drafted: int
    n_verified: int
    n_accepted: int
    drafter: str
    """``PLAIN`` or the drafter's name."""
    draft_s: float
    verify_s: float
    reason: str = ""
    """Why the pacer chose this."""
    is_first: bool = False
    """The first token comes from the prompt pass: no decode of its own, not counted as a step."""
    measured: Measured | None = None
    """What the pacer learned from, for the trace: costs in their parts, width, match length."""

    @property
    def text(self) -> str:
        """What is to be shown now."""
        return "".join(self.texts)


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of an answer. ``text`` is what was held back until now (an unfinished stop
    string or character)."""

    reason: FinishReason
    stats: Stats
    text: str = ""
    detail: str = ""
    """What ended it: ``end of text``, ``stop string``, ``max tokens``, ``context full``,
    ``cancelled``."""


Event = Prefill | Step | Finished
