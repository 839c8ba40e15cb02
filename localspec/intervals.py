"""Grammar for the decimal numbers between two bounds."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import Any

from localspec.errors import UsageError

_MANY = 10**15  # integers without a bound have at most 15 digits: exact in double precision


def integer_bounds(schema: Mapping[str, Any], where: str) -> tuple[int | None, int | None]:
    """(least, most) integer that a schema allows; None for no bound. Raises UsageError."""
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    bounds = {name: schema[name] for name in names if name in schema}
    for value in bounds.values():
        _check(value, where)
    low, high = _whole_bounds(bounds)
    if low is not None and high is not None and low > high:
        raise UsageError(f"the JSON schema at {where} allows no number at all")
    return low, high


def _whole_bounds(bounds: Mapping[str, Any]) -> tuple[int | None, int | None]:
    lows, highs = [], []
    for name, value in bounds.items():
        if name == "minimum":
            lows.append(ceil(value))
        elif name == "exclusiveMinimum":
            lows.append(floor(value) + 1)
        elif name == "maximum":
            highs.append(floor(value))
        else:
            highs.append(ceil(value) - 1)
    return max(lows, default=None), min(highs, default=None)


def _check(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _MANY:
        raise UsageError(f"the JSON schema at {where} has a bound that is no (smaller) number")


def numbers(schema: Mapping[str, Any], where: str) -> str:
    """GBNF for the decimals that a schema allows, without an exponent. Raises UsageError."""
    bounds = {
        name: schema[name]
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        if name in schema
    }
    for value in bounds.values():
        _check(value, where)
        if value != int(value):
            raise UsageError(
                f"the JSON schema at {where} bounds a number by a fraction, "
                "which a grammar cannot express",
                hint="Use whole bounds for numbers.",
            )
    # What has a fraction lies between two whole numbers, so that it does not matter to it whether
    # a bound itself belongs to the range.
    inclusive = {
        name.replace("exclusiveM", "m"): int(value) for name, value in reversed(bounds.items())
    }
    for name, value in bounds.items():
        side = max if name.endswith("inimum") else min
        plain = name.replace("exclusiveM", "m")
        inclusive[plain] = side(inclusive[plain], int(value))
    low, high = inclusive.get("minimum"), inclusive.get("maximum")
    choices = []
    if low is None or high is None or low < high:
        # n + f with n >= 0 lies between n and n + 1, -(n + f) between -n - 1 and -n.
        last = None if high is None else high - 1
        if last is None or last >= 0:
            choices.append(f"({integers(max(low or 0, 0), last)}) fraction")
        last = None if low is None else -low - 1
        if last is None or last >= 0:
            first = 0 if high is None else max(0, -high)
            choices.append(f'"-" ({integers(first, last)}) fraction')
    least, most = _whole_bounds(bounds)
    if least is None or most is None or least <= most:
        choices.insert(0, f"({integers(least, most)}) zeros?")
    if not choices:
        raise UsageError(f"the JSON schema at {where} allows no number at all")
    return " | ".join(choices)


def integers(low: int | None, high: int | None) -> str:
    """GBNF for the integers from ``low`` to ``high`` (None: no bound)."""
    low = -_MANY + 1 if low is None else low
    high = _MANY - 1 if high is None else high
    choices = []
    if low < 0:
        least = 1 if high >= 0 else -high
        choices += [f'"-" {text}' for text in _naturals(least, -low)]
    if high >= 0:
        choices += _naturals(max(low, 0), high)
    return " | ".join(choices)


def _naturals(low: int, high: int) -> list[str]:
    """Choices for the natural numbers from ``low`` to ``high``: one or more per number of
    digits."""
    choices = []
    for n in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (n - 1) if n > 1 else 0)
        last = min(high, 10**n - 1)
        if first <= last:
            choices += _same_length(str(first), str(last))
    return choices


def _same_length(low: str, high: str) -> list[str]:
    if not low:
        return [""]
    n = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(high):
        return [_digits(len(low))]
    if low[0] == high[0]:
        return [
            f"{_digit(low[0], low[0])} {rest}".strip() for rest in _same_length(low[1:], high[1:])
        ]
    choices = []
    start, end = low[0], high[0]
    if low[1:] != "0" * n:
        choices += [f'"{start}" {rest}' for rest in _same_length(low[1:], "9" * n)]
        start = chr(ord(start) + 1)
    last = []
    if high[1:] != "9" * n:
        last = [f'"{end}" {rest}' for rest in _same_length("0" * n, high[1:])]
        end = chr(ord(end) - 1)
    if start <= end:
        choices.append(f"{_digit(start, end)} {_digits(n)}".strip())
    return choices + last


def _digit(low: str, high: str) -> str:
    return f'"{low}"' if low == high else f"[{low}-{high}]"


def _digits(n: int) -> str:
    return "" if n == 0 else "[0-9]" if n == 1 else f"[0-9]{{{n}}}"
