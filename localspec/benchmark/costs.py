"""What decodes cost on this machine, measured on purpose: by width, by prompt length.

What counts is the median of a few passes, for that is what an answer will pay: the least is luck.
The passes go over all widths in turn, with a plain decode before each of the others. Costs are
compared with the plain decodes of the same pass: a machine that is slower for a while is slower for
both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from localspec.files import Cancelled
from localspec.spec.drafter import Decoder

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Dense where kernels take rows in groups of four and eight, then the multiples."""
N_PASSES = 3
BUDGET_S = 8.0
"""After so long no further pass begins; the first is always whole."""


def cost_by_width(
    decoder: Decoder,
    prefix: Sequence[int],
    widths: Sequence[int] = WIDTHS,
    *,
    n_rows: int | None = None,
    n_passes: int = N_PASSES,
    budget_s: float = BUDGET_S,
    cancelled: Cancelled = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """width -> median seconds of a decode of so many tokens after ``prefix``, reading the best
    token of ``n_rows`` rows (None: of all, as verification does).

    Widths that do not fit the context are left out; when cancelled, what was measured by then is
    returned. The cache is empty afterwards. Raises DecodeError.
    """
    fitting = [width for width in widths if len(prefix) + width <= decoder.n_ctx]
    in_turn = fitting
    if 1 in fitting and len(fitting) > 1:
        in_turn = [turn for width in fitting if width > 1 for turn in (1, width)]
    _read(decoder, prefix)
    # The first decode of a width may set things up that later ones do not pay for.
    for width in fitting[:2] if n_passes > 1 and not cancelled() else ():
        _one(decoder, prefix, width, n_rows or width, clock)
    plain: list[float] = []
    costs: dict[int, list[float]] = {}
    started = clock()
    for number in range(n_passes):
        if number and clock() - started > budget_s:
            break
        times: dict[int, list[float]] = {}
        for width in in_turn:
            if cancelled():
                break
            seconds = _one(decoder, prefix, width, n_rows or width, clock)
            times.setdefault(width, []).append(seconds)
        plain += times.get(1, [])
        plain_then = median(times[1]) if 1 in times else 1.0
        for width, measured in times.items():
            costs.setdefault(width, []).append(median(measured) / plain_then)
    decoder.clear()
    plain_s = median(plain) if plain else 1.0
    return {width: plain_s * median(costs[width]) for width in fitting if width in costs}


def _one(
    decoder: Decoder, prefix: Sequence[int], width: int, n_rows: int, clock: Callable[[], float]
) -> float:
    tokens = [prefix[i % len(prefix)] for i in range(width)]
    started = clock()
    decoder.decode(tokens, n_rows)
    for row in range(n_rows):
        decoder.row(row).argmax()
    seconds = clock() - started
    if not decoder.rollback(len(prefix)):
        _read(decoder, prefix)
    return seconds


def _read(decoder: Decoder, tokens: Sequence[int], n_chunk: int = 256) -> None:
    decoder.clear()
    for start in range(0, len(tokens), n_chunk):
        decoder.decode(tokens[start : start + n_chunk], 0)
    # A memory that keeps states to go back to must know that this is the place.
    decoder.rollback(len(tokens))


def between(curve: Mapping[int, float], width: int) -> float | None:
    """The curve at ``width``: linear between measured widths; None beyond them."""
    below = max((w for w in curve if w <= width), default=None)
    above = min((w for w in curve if w >= width), default=None)
    if below is None or above is None:
        return None
    if below == above:
        return curve[below]
    share = (width - below) / (above - below)
    return curve[below] + share * (curve[above] - curve[below])
