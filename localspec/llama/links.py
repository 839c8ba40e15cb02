"""The native samplers that a ``Chain`` is made of, in llama.cpp's order; neutral ones are left out.

Where nothing is left of a part, None stands for it (an empty native chain would be asked in vain).
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp

from localspec.errors import UsageError
from localspec.llama import logs
from localspec.llama.model import Model
from localspec.spec.sampling import Sampling

_MIROSTAT_M = 100  # tokens that mirostat 1 estimates from, as in llama.cpp
_LONG_ANSWER = 16_384


def _chain(members: list[Any]) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for member in members:
        llama_cpp.llama_sampler_chain_add(chain, member)
    return chain


def history(model: Model, settings: Sampling, n_prompt: int) -> Any:
    """Bias, penalties, DRY: they change the logits of single tokens, also at temperature 0."""
    members = []
    # "The whole context" as a number: llama.cpp keeps a window of that many tokens.
    whole = max(model.n_ctx_train, n_prompt + _LONG_ANSWER)
    if settings.logit_bias:
        bias = (llama_cpp.llama_logit_bias * len(settings.logit_bias))()
        for index, (token, value) in enumerate(settings.logit_bias.items()):
            bias[index].token, bias[index].bias = token, value
        members.append(llama_cpp.llama_sampler_init_logit_bias(model.n_vocab, len(bias), bias))
    if _penalises(settings):
        span = settings.penalty_last_n
        members.append(
            llama_cpp.llama_sampler_init_penalties(
                model.n_vocab,
                whole if span < 0 else span,
                settings.repeat_penalty,
                settings.frequency_penalty,
                settings.presence_penalty,
            )
        )
    if _dry(settings):
        texts = [text.encode() for text in settings.dry_sequence_breakers]
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        span = settings.dry_penalty_last_n
        members.append(
            llama_cpp.llama_sampler_init_dry(
                model.vocab,
                settings.dry_multiplier,
                settings.dry_base,
                settings.dry_allowed_length,
                whole if span < 0 else span,
                breakers,
                len(texts),
            )
        )
    return _chain(members) if members else None


def _penalises(settings: Sampling) -> bool:
    changed = (
        settings.repeat_penalty != 1.0
        or settings.frequency_penalty != 0.0
        or settings.presence_penalty != 0.0
    )
    return changed and settings.penalty_last_n != 0


def _dry(settings: Sampling) -> bool:
    return settings.dry_multiplier > 0 and settings.dry_penalty_last_n != 0


def look_back(settings: Sampling, n_prompt: int) -> int:
    """How many prompt tokens penalties and DRY can see, at least 1."""
    spans = [settings.penalty_last_n] if _penalises(settings) else []
    if _dry(settings):
        spans.append(settings.dry_penalty_last_n)
    # Slicing with [-0:] would take everything; one token more is harmless.
    return max([1, *(n_prompt if span < 0 else span for span in spans)])


def sigma(settings: Sampling) -> Any:
    """top-n-sigma: it masks what is far below the best logit."""
    if settings.top_n_sigma <= 0 or settings.mirostat > 0:
        return None
    return llama_cpp.llama_sampler_init_top_n_sigma(settings.top_n_sigma)


def choice(model: Model, settings: Sampling, native_seed: int) -> Any:
    """Truncation and temperature; with mirostat, temperature and its own draw."""
    seed = (native_seed if settings.seed is None else settings.seed) & 0xFFFFFFFF
    if settings.mirostat > 0:
        temperature = llama_cpp.llama_sampler_init_temp(settings.temperature)
        tau, eta = settings.mirostat_tau, settings.mirostat_eta
        if settings.mirostat == 1:
            draw = llama_cpp.llama_sampler_init_mirostat(model.n_vocab, seed, tau, eta, _MIROSTAT_M)
        else:
            draw = llama_cpp.llama_sampler_init_mirostat_v2(seed, tau, eta)
        return _chain([temperature, draw])
    members = []
    if settings.top_k > 0:
        members.append(llama_cpp.llama_sampler_init_top_k(settings.top_k))
    if settings.typical_p < 1:
        members.append(llama_cpp.llama_sampler_init_typical(settings.typical_p, 1))
    if settings.top_p < 1:
        members.append(llama_cpp.llama_sampler_init_top_p(settings.top_p, 1))
    if settings.min_p > 0:
        members.append(llama_cpp.llama_sampler_init_min_p(settings.min_p, 1))
    if settings.xtc_probability > 0:
        members.append(
            llama_cpp.llama_sampler_init_xtc(
                settings.xtc_probability, settings.xtc_threshold, 1, seed
            )
        )
    if settings.dynatemp_range > 0:
        members.append(
            llama_cpp.llama_sampler_init_temp_ext(
                settings.temperature, settings.dynatemp_range, settings.dynatemp_exponent
            )
        )
    elif settings.temperature != 1:
        members.append(llama_cpp.llama_sampler_init_temp(settings.temperature))
    return _chain(members)


def grammar(model: Model, text: str) -> Any:
    """A grammar sampler. Raises UsageError for a text that llama.cpp cannot read."""
    log = logs.install()
    log.take_errors()
    link = llama_cpp.llama_sampler_init_grammar(model.vocab, text.encode(), b"root")
    if not link:
        reason = log.take_errors() or "llama.cpp gave no reason"
        raise UsageError(f"the grammar cannot be read: {reason}", hint='It needs a rule "root".')
    return link
