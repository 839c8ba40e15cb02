"""Does llama.cpp compute the same logits whatever the number of rows decoded together?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.llama.context import Context
from localspec.spec.drafter import Row

FAR = 264
"""From more than 256 tokens in the cache on, llama.cpp may take another path with several
threads."""
_NEAR = 16


def width_differences(
    context: Context,
    max_width: int,
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[int, float] | None:
    """For each width from 2 to ``max_width`` the largest absolute difference of a logit from the
    one that decoding token by token gives; None where the context is too short to compare.

    The same tokens are decoded one by one, then again in batches of 2, 3, ... near the start and
    beyond ``FAR`` tokens (where the context is that long). Leaves the cache empty.
    """
    tokens = _tokens(context, FAR + max_width * max_width)
    n_compared = sum(range(2, max_width + 1))
    found: dict[int, float] = {}
    for start in (_NEAR, FAR):
        if start + n_compared > context.n_ctx:
            break
        _read(context, tokens[:start])
        compared = _compare(context, tokens[start : start + n_compared], max_width, cancelled)
        for width, difference in compared.items():
            found[width] = max(found.get(width, 0.0), difference)
    context.clear()
    return found or None


def _read(context: Context, tokens: Sequence[int]) -> None:
    context.clear()
    for at in range(0, len(tokens), context.n_batch):
        context.decode(tokens[at : at + context.n_batch], 0)


def _compare(
    context: Context, tokens: Sequence[int], max_width: int, cancelled: Callable[[], bool]
) -> dict[int, float]:
    start = len(context.tokens)
    alone: list[Row] = []
    for token in tokens:
        if cancelled():
            raise KeyboardInterrupt
        context.decode([token], 1)
        alone.append(context.row(0).copy())
    if not context.rollback(start):
        # A recurrent memory does not go back that far: it reads the beginning again.
        _read(context, list(context.tokens[:start]))
    found = {}
    done = 0
    for width in range(2, max_width + 1):
        if cancelled():
            raise KeyboardInterrupt
        context.decode(tokens[done : done + width], width)
        found[width] = max(
            float(np.abs(context.row(index) - alone[done + index]).max()) for index in range(width)
        )
        done += width
    return found


def _tokens(context: Context, n: int) -> list[int]:
    """Ordinary text of ``n`` tokens that any vocabulary can say."""
    model = context.model
    text = "".join(
        f"{number}. The quick brown fox jumps over {number * number} lazy dogs; "
        f"value_{number} = compute(x, {number})\n"
        for number in range(1, 1 + n // 8)
    )
    tokens = model.tokenize(text, add_special=True, parse_special=False)
    return (tokens * (1 + n // max(1, len(tokens))))[:n]
