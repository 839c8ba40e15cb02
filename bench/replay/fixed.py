"""Fixed settings, of which the best is picked in hindsight, and the llama.cpp-like defaults.

Which tokens a fixed setting drafts does not depend on the machine, so each setting walks through a
trace once and leaves the decodes it needed; a curve then gives them a price.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bench.replay.curves import Curve
from bench.replay.traces import Trace

MODEL_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 11, 15)
MODEL_STOPS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
COPY_LENGTHS = (1, 2, 3, 5, 7, 11, 15, 23, 31, 63)
COPY_MATCHES = (1, 2, 3, 4, 6, 10)
MIXED_COPIES = (3, 7, 11, 15, 31)
MIXED_MATCHES = (2, 3, 5, 8)
MIXED_MODELS = (2, 3, 5, 8, 15)
MIXED_STOPS = (0.0, 0.5, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Setting:
    """Copy ``copy`` tokens at a match of ``match`` or more, else draft ``model`` tokens and stop
    after one under probability ``stop``. 0 tokens: not used."""

    model: int = 0
    stop: float = 0.0
    copy: int = 0
    match: int = 1


PLAIN = Setting()
LLAMA_DRAFT = Setting(model=3)
EIGHT_STOPPING = Setting(model=8, stop=0.75)
COPY_TEN = Setting(copy=10, match=3)
NGRAM_MOD = Setting(copy=63, match=24)


def settings() -> list[Setting]:
    """The 624 fixed settings (plain among them) that the best is picked from."""
    models = [Setting(model=n, stop=p) for n in MODEL_LENGTHS for p in MODEL_STOPS]
    copies = [Setting(copy=n, match=m) for n in COPY_LENGTHS for m in COPY_MATCHES]
    mixed = [
        Setting(n, p, c, m)
        for c in MIXED_COPIES
        for m in MIXED_MATCHES
        for n in MIXED_MODELS
        for p in MIXED_STOPS
    ]
    return [PLAIN, *models, *copies, *mixed]


@dataclass
class Work:
    """The decodes of one answer, by width."""

    target: Counter[int] = field(default_factory=Counter)
    drafting: Counter[int] = field(default_factory=Counter)
    n_drafts: int = 0

    def cost(self, curve: Curve) -> float:
        """In plain decodes."""
        return (
            sum(n * curve.target(width) for width, n in self.target.items())
            + sum(n * curve.drafting(width) for width, n in self.drafting.items())
            + self.n_drafts * curve.draft_fixed
        )


def walk(trace: Trace, setting: Setting) -> Work:
    """What ``setting`` decodes on this answer, the draft's prompt pass included."""
    work = Work()
    at, cached = 1, -len(trace.prompt)  # of the draft's cache, counted from the answer's start
    while at < len(trace.out):
        offer, n_copied_right = trace.copies[at]
        if setting.copy and offer is not None and offer.evidence >= setting.match:
            work.target[setting.copy + 1] += 1
            at += min(setting.copy, n_copied_right) + 1
        elif setting.model:
            n_right, n = trace.runs[at], 0
            while n < setting.model:
                _, confidence = trace.drafted(at, min(n, n_right), max(0, n - n_right))
                n += 1
                if confidence < setting.stop:
                    break
            work.drafting[at - cached] += 1
            work.drafting[1] += n - 1
            work.n_drafts += 1
            # As in llama.cpp, a token under the threshold is not verified.
            n_verified = n - 1 if confidence < setting.stop else n
            work.target[n_verified + 1] += 1
            cached = at + min(n_right, n - 1)
            at += min(n_right, n_verified) + 1
            cached = min(cached, at)
        else:
            work.target[1] += 1
            at += 1
    return work
