"""Sampler settings: what the user asks for, with llama.cpp's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of the sampler chain, applied in llama.cpp's order: logit bias, grammar, penalties,
    DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature.

    Neutral values switch a part off: top_k 0, top_p 1, min_p 0, typical_p 1, penalties 1/0/0,
    dry_multiplier 0, xtc_probability 0, top_n_sigma <= 0, dynatemp_range 0, mirostat 0.
    ``temperature`` 0 takes the best token after logit bias, grammar, penalties and DRY.
    ``penalty_last_n``: how many tokens back penalties look; 0 = off, -1 = the whole context.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: dict[int, float] = field(default_factory=dict)
    grammar: str = ""
    """GBNF text; empty for none."""
    seed: int | None = None
    """None: a fresh one for each answer."""
