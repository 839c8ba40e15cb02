"""Exact mode: settings in which greedy text does not depend on how many rows are decoded together.

By default the last bits of llama.cpp's logits depend on the number of rows in a decode, so that a
draft may tip the scale between two nearly equal tokens. Which settings avoid that follows from
llama.cpp's kernels, and is checked on the machine by ``llama.probe`` before it is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.header import Header
from localspec.llama.context import ContextSettings

WIDE = 8
"""Rows per decode where nothing speaks against wide ones; more would make the check long."""
WIDE_K = 7
"""From 8 rows on the K-quants' matrix products take another path."""

_PLAIN_TYPES = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}
_SPLIT_FREE_CACHES = {"bf16", "q8_0"}


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """What exact mode loads with: ``settings``, whether weights are repacked, and the most rows of
    one decode that can be expected to be exact."""

    settings: ContextSettings
    repack: bool
    max_width: int


def plan_exact(header: Header, settings: ContextSettings) -> ExactPlan:
    """``settings`` changed as little as exactness needs.

    Flash attention on: without it attention takes another path from 2 rows on. With several threads
    a cache that is not split among them. K-quants not repacked, and at most ``WIDE_K`` rows.
    """
    cache = settings.type_k
    if settings.n_threads > 1 and cache not in _SPLIT_FREE_CACHES:
        settings = replace(settings, type_k="bf16", type_v="bf16")
    types = {tensor.type.name.upper() for tensor in header.tensors}
    simple = types <= _PLAIN_TYPES
    return ExactPlan(
        settings=replace(settings, flash_attn="on"),
        repack=simple,
        max_width=WIDE if simple else WIDE_K,
    )


@dataclass(frozen=True, slots=True)
class Exactness:
    """What a probe found. ``max_width``: rows per decode up to which every logit is bit-identical
    to decoding token by token; 1 when none is. ``text``: for the status line. ``reason``: why
    nothing is drafted, where nothing may be."""

    max_width: int
    text: str
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether drafting changes no bit (up to ``max_width`` rows)."""
        return self.max_width > 1


NOT_CHECKED = "not checked"
EXACT = "exact"
PLAIN = Exactness(1, EXACT, "--exact was not checked for drafting: loaded with --mode off")
"""Plain decoding is exact as it is; what drafting would do was not looked at."""


def judge(differences: Mapping[int, float] | None) -> Exactness:
    """The verdict on what ``llama.probe.width_differences`` measured."""
    if not differences:
        text = "not known: the context is too short to compare"
        return Exactness(1, text, f"--exact: {text}")
    max_width = 1
    for width in sorted(differences):
        if differences[width] > 0:
            break
        max_width = width
    if max_width > 1:
        return Exactness(max_width, EXACT)
    text = f"rounding (max difference {max(differences.values()):.2g})"
    return Exactness(1, text, f"--exact: drafting would change the text, {text}")
