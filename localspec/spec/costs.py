"""What steps cost, learned while they run.

Costs are relative: one plain decode of the target is 1, so that a slower or busier machine moves
all figures together. ``scale_s`` says what 1 is in seconds at the moment.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

RECENT = 11
"""Times whose median is the scale: enough to ignore a stall, few enough to follow the context."""
MIN_WEIGHT = 0.05
"""A new measurement never counts for less, so that estimates follow a machine that changes."""
CLIP_LOW, CLIP_HIGH = 1 / 1.6, 1.3
"""A measurement moves an estimate as if it lay within these factors of it: noise only adds time, so
a surprisingly cheap step tells more than a surprisingly dear one."""
MAX_WIDTH = 64
"""Wider decodes are never asked for."""
FIRST_WIDTH = 4
"""The widest decode that may be tried before anything was measured."""
CHEAP = 1.5
"""Wider decodes may be tried at once where the prompt rate promises that they cost no more."""
GROWTH = 2
"""Else no decode is wider than so many times the widest one measured: slow start."""
POOL_N = 20
NARROW = 4
RETRY_PER_DECODE = 1 / 512
RETRY_MOST = 0.5
"""A narrow width not measured for long is made to look cheaper, slowly and up to this share divided
by the number of measurements: one bad measurement is never final, many are believed."""
AGEING = 16
"""Ages matter so little that they are looked at only once in so many decodes."""
DOUBT = 0.1
"""With each run in which it was not measured, so much of what a draft decode costs more than was
guessed is forgotten."""
FEW = 32
"""Up to so many missed tokens a draft model reads at the price of few: decodes of some rows."""
FIRST_READS = (8, 16)
"""A draft model that never read anything reads so many tokens first, then so many: what it costs is
a guess that may be far off, above all where it has not the processor to itself, and there a short
piece may look cheaper than it is."""
SLOPE = 2.0
"""How steeply cost is guessed to rise at first. Measured machines lie at 2 to 3; hope is cheaper
than fear, because what is tried is measured and what is not tried stays unknown."""
SURPRISE = 2 / 3
"""The first measurement, if dearer than guessed, counts to this power: it may be a stall."""
STALL = 2.0
"""A decode so many times dearer than its rows one by one says nothing about costs; nor does a first
draft so many times dearer than guessed: it is the first to read all of the draft's weights."""
MIN_PREFILLED = 8
"""Fewer prompt tokens say nothing about the prompt rate."""
HOPELESS = 0.7
"""Where a token of the prompt pass takes this much of a plain decode, wide decodes cannot pay."""
DEFAULT_PROMPT_RATE = 0.35
"""Time per prompt token over one plain decode, while unknown: rather dear (a CPU)."""
_ROWS = tuple(math.pow(max(0, width - 1), 0.6) for width in range(MAX_WIDTH + 1))


class Baseline:
    """Seconds of one plain decode, measured in this run: the median of the last few."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        """One plain decode took ``seconds``."""
        if seconds > 0:
            self._recent.append(seconds)

    @property
    def step_s(self) -> float | None:
        """The median in seconds; None before the first plain decode."""
        return median(self._recent) if self._recent else None


@dataclass(slots=True)
class Estimate:
    """A running mean that noise moves little: ``value`` after ``n`` measurements (0: a guess)."""

    value: float
    n: int = 0

    def add(self, value: float) -> None:
        """One more measurement."""
        if self.n == 0:
            ratio = value / self.value if self.value > 0 else 1.0
            self.value = self.value * ratio**SURPRISE if ratio > 1 else value
        else:
            clipped = min(max(value, self.value * CLIP_LOW), self.value * CLIP_HIGH)
            weight = min(1.0, max(MIN_WEIGHT, 1 / (self.n + 0.5)))
            self.value += weight * (clipped - self.value)
        self.n += 1

    def average(self, value: float) -> None:
        """One more measurement, which tells as much as each before."""
        self.n += 1
        self.value += (value - self.value) / self.n


@dataclass(slots=True)
class DraftCosts:
    """What a model drafter costs, in plain target decodes: the first decode of a step, each
    further one, and each token that it must catch up, when these are few or many. ``guessed``: what
    a decode was taken to cost before any was measured."""

    first: Estimate
    next: Estimate
    lag_few: Estimate
    lag_many: Estimate
    guessed: float
    _idle: int = 0
    _measured: bool = False
    _doubted: bool = False

    @classmethod
    def guess(cls, ratio: float) -> DraftCosts:
        """Before anything was measured: ``ratio`` is one draft decode over one target decode."""
        costs = cls(Estimate(ratio), Estimate(ratio), Estimate(ratio), Estimate(ratio), ratio)
        costs.guess_lag(DEFAULT_PROMPT_RATE)
        return costs

    def guess_lag(self, prompt_rate: float) -> None:
        """The draft's prompt rate is taken to be like the target's, until it is measured."""
        if self.lag_many.n == 0:
            self.lag_many.value = self.next.value * prompt_rate
        if self.lag_few.n == 0:
            self.lag_few.value = self.next.value * min(1.0, 2 * prompt_rate)

    def catch_up(self, n_tokens: int) -> float:
        """The cost of reading ``n_tokens`` missed tokens."""
        few = min(n_tokens, FEW)
        dear = few * self.lag_few.value
        return max(dear, n_tokens * self.lag_many.value)

    def idle(self) -> None:
        """A step without this drafter."""
        self._idle += 1

    @property
    def hope(self) -> float:
        """The share of the estimates that may be true now: as with narrow widths of the target, a
        draft that looked dearer than it was guessed and was not measured for long is made to look
        cheaper, though not cheaper than guessed, so that one bad measurement is never final."""
        if self.first.value <= self.guessed:
            return 1.0
        fading = 1 - min(RETRY_MOST / max(1, self.first.n), self._idle * RETRY_PER_DECODE)
        return max(fading, self.guessed / self.first.value)

    def kept(self) -> tuple[tuple[float, int], ...]:
        """The four estimates, as in ``Learned``. Only a draft that is used is measured: a few
        measurements on cold weights or a busy machine would else keep it unused for ever."""
        doubt = 0.0 if self._measured else DOUBT
        decodes = tuple(
            (e.value - doubt * max(0.0, e.value - self.guessed), e.n)
            for e in (self.first, self.next)
        )
        return decodes + tuple((e.value, e.n) for e in (self.lag_few, self.lag_many))

    @property
    def piece_to_try(self) -> int:
        """How many tokens to read to see what reading takes; 0 where that is known."""
        n_before = self.lag_few.n + self.lag_many.n
        return FIRST_READS[n_before] if n_before < len(FIRST_READS) else 0

    @property
    def is_trial(self) -> bool:
        """Whether a draft now is to find out what a draft costs."""
        return self.first.n == 0 or self.hope < 0.9

    def learn(self, draft: float, n_decodes: int, catchup: float, n_catchup: int) -> None:
        """One step's draft decodes and catching up, in plain target decodes."""
        self._idle = 0
        if n_catchup > 0 and catchup > 0:
            self._learn_lag(catchup / n_catchup, few=n_catchup <= FEW)
        if draft <= 0:
            return
        self._measured = True
        expected = self.first.value + (n_decodes - 1) * self.next.value
        if self.first.n == 0 and draft > STALL * expected and not self._doubted:
            self._doubted = True
            return
        if n_decodes == 1:
            self.first.add(draft)
        elif n_decodes > 1:
            # The sum is known, not its parts: both are moved by the same factor.
            factor = draft / expected
            self.first.add(self.first.value * factor)
            self.next.add(self.next.value * factor)

    def _learn_lag(self, cost: float, few: bool) -> None:
        """A token took ``cost`` to read. Where that is dearer at first than it was taken to be, so
        is what else is still a guess, likely."""
        lag = self.lag_few if few else self.lag_many
        is_first, before = self.piece_to_try > 0, lag.value
        if lag.n == 1 and cost > before:
            # Where other programs are at work, a short piece slips past them and a longer does not.
            lag.average(cost)
        else:
            lag.add(cost)
        if is_first and lag.value > before > 0:
            for other in (self.lag_few, self.lag_many, self.first, self.next):
                if other.n == 0:
                    other.value *= lag.value / before


@dataclass(slots=True)
class Learned:
    """What is worth keeping from run to run; plain data, which ``localspec.learned`` stores.

    ``widths``: width -> (cost relative to width 1, measurements). ``drafts``: model drafter ->
    (first, next, few, many: the four of ``DraftCosts``), each as (cost, measurements). ``trust``:
    model drafter -> (accepted, claimed) tokens, weighted. ``prompt_rate``: time per prompt token
    over one plain decode. ``copied``: by kind of copied token, how many were right and how many
    there were (``Calibration.counts`` of lookup). ``paid``: model drafter -> (returned, invested)
    plain decodes, as in ``TrackRecord``.
    """

    widths: dict[int, tuple[float, int]] = field(default_factory=dict)
    drafts: dict[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    trust: dict[str, tuple[float, float]] = field(default_factory=dict)
    prompt_rate: float | None = None
    copied: tuple[tuple[float, ...], ...] = ()
    paid: dict[str, tuple[float, float]] = field(default_factory=dict)


class TargetCosts:
    """What a target decode costs by width: measured where it was measured, guessed elsewhere."""

    def __init__(self, learned: Learned | None = None) -> None:
        self._widths = {1: Estimate(1.0, 1)}
        self._seen_at = {1: 0}
        self._stalled: set[int] = set()
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._n_decodes = 0
        self._table: list[float] = []
        self._guesses: tuple[float, list[float]] = (0.0, [])
        self.prompt_rate = DEFAULT_PROMPT_RATE
        self._known_rate: float | None = None
        if learned is not None:
            for width, (value, n) in learned.widths.items():
                if 1 < width <= MAX_WIDTH and not (n <= 2 and _is_stall(width, value)):
                    # Trusted, but moved by a few measurements: the machine may have changed.
                    self._widths[width] = Estimate(value, min(n, 8))
                    self._seen_at[width] = 0
            self._known_rate = learned.prompt_rate
            if learned.prompt_rate is not None:
                self.prompt_rate = learned.prompt_rate

    @property
    def scale_s(self) -> float | None:
        """Seconds of one plain decode at the moment; None before the first decode."""
        return median(self._recent) if self._recent else None

    @property
    def widest(self) -> int:
        """The widest width that was measured."""
        return max(self._widths)

    def tried(self, width: int) -> bool:
        """Whether a decode about so wide, or a wider one, was measured."""
        return self.widest >= width - 2

    @property
    def may_pay(self) -> bool:
        """Nothing wider was measured yet, and the prompt pass was fast enough for hope."""
        return self.widest == 1 and self.prompt_rate < HOPELESS

    @property
    def reach(self) -> int:
        """The widest decode that may be tried: twice what was measured (slow start), or what the
        prompt rate alone says to be cheap."""
        width = max(FIRST_WIDTH, int(GROWTH * self.widest))
        guessed = self._guessed()
        while width < MAX_WIDTH and guessed[width + 1] <= CHEAP:
            width += 1
        return width

    def measured(self) -> dict[int, tuple[float, int]]:
        """width -> (cost relative to width 1, number of measurements), as in ``Learned``."""
        return {width: (e.value, e.n) for width, e in self._widths.items()}

    def guess_scale(self, n_tokens: int, seconds: float) -> None:
        """Before the first decode: what a plain one will take, from the prompt pass and from what
        an earlier run knew of the prompt rate."""
        if not self._recent and self._known_rate and n_tokens >= MIN_PREFILLED:
            self._recent.append(seconds / n_tokens / self._known_rate)

    def prefilled(self, n_tokens: int, seconds: float, plain_s: float) -> None:
        """The prompt pass: what a token costs in a very wide decode, if a plain one takes
        ``plain_s``."""
        if n_tokens >= MIN_PREFILLED and plain_s > 0:
            self.prompt_rate = min(1.0, seconds / n_tokens / plain_s)
            self._table.clear()

    def learn(self, width: int, seconds: float) -> None:
        """One decode of ``width`` tokens took ``seconds``.

        At first, much more than that many plain decodes would take is not believed: the machine
        slept, or worked for somebody else. The second time it is.
        """
        if seconds <= 0 or not 1 <= width <= MAX_WIDTH:
            return
        self._n_decodes += 1
        scale = self.scale_s
        if width == 1:
            self._recent.append(seconds)
        elif scale is not None:
            if width not in self._widths:
                if _is_stall(width, seconds / scale) and width not in self._stalled:
                    self._stalled.add(width)
                    return
                self._widths[width] = Estimate(self(width))
            self._widths[width].add(seconds / scale)
            self._recent.append(seconds / self._widths[width].value)
        self._seen_at[width] = self._n_decodes
        if width > 1 or self._n_decodes % AGEING == 0:
            self._table.clear()

    def __call__(self, width: int) -> float:
        """Cost of one decode of ``width`` tokens, in plain decodes."""
        if not self._table:
            self._table = self._tabulate()
        return self._table[width if width < MAX_WIDTH else MAX_WIDTH]

    def _tabulate(self) -> list[float]:
        """Linear between the measured widths; beyond them the shape of the prior."""
        known = self._monotone()
        table = [0.0] * (MAX_WIDTH + 1)
        for (low, at_low), (high, at_high) in pairwise(known):
            slope = (at_high - at_low) / (high - low)
            for width in range(low, high):
                table[width] = at_low + slope * (width - low)
        last, at_last = known[-1]
        guessed = self._guessed()
        factor = at_last / guessed[last]
        table[last:] = [factor * cost for cost in guessed[last:]]
        return table

    def _monotone(self) -> list[tuple[int, float]]:
        """The estimates, made never to fall with width by pooling neighbours that do (isotonic
        regression by pooling adjacent violators): more rows do not make a decode cheaper."""
        pools: list[tuple[float, float, list[int]]] = []  # value, weight, widths
        for width in sorted(self._widths):
            weight = float(min(max(1, self._widths[width].n), POOL_N))
            pool = (self._now(width), math.inf if width == 1 else weight, [width])
            while pools and pools[-1][0] > pool[0]:
                pool = _pooled(pools.pop(), pool)
            pools.append(pool)
        return [(width, value) for value, _, widths in pools for width in widths]

    def _now(self, width: int) -> float:
        value = self._widths[width].value
        if not 1 < width <= NARROW:
            return value
        age = self._n_decodes - self._seen_at[width]
        most = RETRY_MOST / max(1, self._widths[width].n)
        return max(1.0, value * (1 - min(most, age * RETRY_PER_DECODE)))

    def _guessed(self) -> list[float]:
        """By width, a guess from the prompt rate: rows cost something at once, then as in a prompt
        pass."""
        rate, costs = self._guesses
        if rate != self.prompt_rate or not costs:
            rate = self.prompt_rate
            costs = [
                min(width, max(1 + SLOPE * rate * rows, rate * width))
                for width, rows in enumerate(_ROWS)
            ]
            self._guesses = (rate, costs)
        return costs


def _is_stall(width: int, cost: float) -> bool:
    return cost > STALL * width


def _pooled(
    low: tuple[float, float, list[int]], high: tuple[float, float, list[int]]
) -> tuple[float, float, list[int]]:
    value = low[0]
    if low[1] < math.inf:  # plain decoding is the unit, it does not move
        value = (low[0] * low[1] + high[0] * high[1]) / (low[1] + high[1])
    return value, low[1] + high[1], low[2] + high[2]
