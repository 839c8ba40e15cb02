"""What a draft is worth: pure arithmetic on costs, chances and the price of a token.

Everything is in plain target decodes. A step is worth ``price * expected tokens - cost``; plain
decoding is worth ``price - 1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

COPY_PREMIUM = 0.25
"""Share of its extra cost that a copy must earn on top: its promises are less sure."""

LOOKAHEAD = 16
"""How many drafted tokens are planned ahead; further ones would not change the next decision."""

Cost = Callable[[int], float]
"""Cost of one target decode by width."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``n`` tokens to draft, the step's ``value``, and what it is expected to emit and to cost."""

    n: int
    value: float
    tokens: float = 1.0
    cost: float = 1.0


def plan_copy(
    survival: Sequence[float],
    cost: Cost,
    price: float,
    lag_cost: float = 0.0,
) -> Plan:
    """The best length of a copy whose first i + 1 tokens are right with chance survival[i]; 0 when
    no length beats plain decoding.
    """
    best = Plan(0, price - 1)
    tokens = 1.0
    for n, chance in enumerate(survival, start=1):
        tokens += chance
        paid = cost(n + 1)
        value = (price - lag_cost) * tokens - paid - COPY_PREMIUM * max(0.0, paid - 1)
        if value > best.value:
            best = Plan(n, value, tokens, paid)
    return best


@dataclass(frozen=True, slots=True)
class Outlook:
    """What to expect of a model's next tokens: how likely the very next one is sure, and any other
    that follows a sure one (runs of sure tokens hold together), and the chances that a sure and an
    unsure one is accepted."""

    share_next: float
    share_sure: float
    chance_sure: float
    chance_unsure: float

    def tokens(self, limit: int) -> float:
        """Expected tokens of a step whose draft ends at the first unsure token or at ``limit``."""
        sure = self.share_sure * self.chance_sure
        later = sure + (1 - self.share_sure) * self.chance_unsure
        first = self.share_next * self.chance_sure
        tokens = 1 + first + (1 - self.share_next) * self.chance_unsure
        for _ in range(limit - 1):
            tokens += first * later
            first *= sure
        return tokens


@dataclass(slots=True)
class Drafted:
    """A model's draft as it grows: what it is worth to stop now, or to go on.

    Stopping means to verify the best number of tokens drafted so far, which may be none; or all of
    them where they were drawn (``whole``).
    """

    cost: Cost
    price: float
    whole: bool = False
    survival: float = 1.0
    tokens: float = 1.0
    n: int = 0
    stop_value: float = 0.0
    n_best: int = 0

    def __post_init__(self) -> None:
        self.stop_value = self.price - self.cost(1)

    def add(self, chance: float) -> None:
        """Another token was drafted, and is right with this chance if those before are."""
        self.survival *= chance
        self.tokens += self.survival
        self.n += 1
        value = self.price * self.tokens - self.cost(self.n + 1)
        if value > self.stop_value or self.whole:
            self.stop_value = value
            self.n_best = self.n

    def go_on_value(self, outlook: Outlook, decode_cost: float, limit: int) -> float:
        """The value of drafting at least one more, then going on while tokens are sure and it
        pays, up to ``limit`` tokens in all. Minus infinity when the limit is reached.

        Optimal stopping by backward induction; the first unsure token ends the draft.
        """
        steps = min(limit - self.n, LOOKAHEAD)
        if steps < 1:
            return float("-inf")
        p_sure, p_unsure, share = outlook.chance_sure, outlook.chance_unsure, outlook.share_sure
        price, survival, tokens, stop = self.price, self.survival, self.tokens, self.stop_value
        cost, whole = self.cost, self.whole
        stops, unsure = [stop], []  # after j more sure tokens; when the one after them is unsure
        for width in range(self.n + 2, self.n + steps + 2):
            paid = cost(width)
            value = price * (tokens + survival * p_unsure) - paid
            unsure.append(value if value > stop or whole else stop)
            survival *= p_sure
            tokens += survival
            value = price * tokens - paid
            if value > stop or whole:
                stop = value
            stops.append(stop)
        worth = stop
        for j in range(steps - 1, 0, -1):
            worth = share * worth + (1 - share) * unsure[j] - decode_cost
            if stops[j] > worth:
                worth = stops[j]
        share = outlook.share_next
        return share * worth + (1 - share) * unsure[0] - decode_cost
