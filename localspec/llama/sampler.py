"""llama.cpp's own sampler chain, asked for a distribution instead of a token.

The chain is the native one, in llama.cpp's order, without its last link (the draw). What is left
after truncation is a short list of candidates; its softmax is the distribution p that verification
needs. The draw itself is ours, because the rejection rule needs p.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError
from localspec.llama import logs
from localspec.llama.model import Model
from localspec.spec.drafter import Dist, Row
from localspec.spec.sampling import Sampling

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Chain:
    """The ``Sampler`` of ``localspec.spec`` over a native chain.

    ``prompt``: the tokens before the answer; penalties look back into them, a grammar does not.
    Raises UsageError for a grammar that llama.cpp cannot read.
    """

    def __init__(self, model: Model, settings: Sampling, prompt: Sequence[int]) -> None:
        self.settings = settings
        self.greedy = settings.temperature <= 0
        self._model = model
        self._scratch = _Candidates(model.n_vocab)
        self._handle = self._build(prompt)
        self._bare = self.greedy and int(llama_cpp.llama_sampler_chain_n(self._handle)) == 0

    def _build(self, prompt: Sequence[int]) -> Any:
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for link in _history_links(self._model, self.settings):
            llama_cpp.llama_sampler_chain_add(chain, link)
        if int(llama_cpp.llama_sampler_chain_n(chain)):
            for token in prompt[-_look_back(self.settings, len(prompt)) :]:
                llama_cpp.llama_sampler_accept(chain, token)
        # The grammar comes after the prompt was accepted: it describes the answer only.
        if self.settings.grammar:
            llama_cpp.llama_sampler_chain_add(chain, _grammar(self._model, self.settings.grammar))
        if not self.greedy:
            for link in _choice_links(self.settings):
                llama_cpp.llama_sampler_chain_add(chain, link)
        return chain

    def best(self, row: Row) -> int:
        if self._bare:
            return int(row.argmax())
        left = self._scratch.apply(self._handle, row)
        return int(left["id"][int(left["logit"].argmax())])

    def distribution(self, row: Row) -> Dist:
        left = self._scratch.apply(self._handle, row)
        logits = left["logit"].astype(np.float64)
        probs = np.exp(logits - logits.max())
        probs /= probs.sum()
        return Dist(left["id"].copy(), probs)

    def accept(self, token: int) -> None:
        if not self._bare:
            llama_cpp.llama_sampler_accept(self._handle, token)

    def fork(self) -> Chain:
        copy = Chain.__new__(Chain)
        copy.settings, copy.greedy = self.settings, self.greedy
        copy._model, copy._bare, copy._scratch = self._model, self._bare, self._scratch
        copy._handle = llama_cpp.llama_sampler_clone(self._handle)
        return copy

    def close(self) -> None:
        """Free the native chain. Safe to repeat."""
        if self._handle:
            llama_cpp.llama_sampler_free(self._handle)
            self._handle = None

    def __del__(self) -> None:
        # Forks live as long as one draft; freeing them by hand would clutter the drafter.
        if getattr(self, "_handle", None) is not None:
            self.close()


class _Candidates:
    """The array that native samplers work on, allocated once per vocabulary size."""

    def __init__(self, n_vocab: int) -> None:
        self._array = np.zeros(n_vocab, dtype=_CANDIDATE)
        self._ids = np.arange(n_vocab, dtype=np.int32)

    def apply(self, chain: Any, row: Row) -> npt.NDArray[Any]:
        """Candidates left after the chain, as a structured view [k] valid until the next call."""
        n = len(row)
        if n > len(self._array):
            self.__init__(n)  # type: ignore[misc]
        array = self._array[:n]
        array["id"] = self._ids[:n]
        array["logit"] = row
        array["p"] = 0.0
        native = llama_cpp.llama_token_data_array(
            data=ctypes.cast(array.ctypes.data, llama_cpp.llama_token_data_p),
            size=n,
            selected=-1,
            sorted=False,
        )
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(native))
        # Samplers may point `data` elsewhere; it stays theirs until the chain is used again.
        address = ctypes.cast(native.data, ctypes.c_void_p).value or 0
        raw = (ctypes.c_char * (native.size * _CANDIDATE.itemsize)).from_address(address)
        return np.frombuffer(raw, dtype=_CANDIDATE, count=native.size)


def _look_back(settings: Sampling, n_prompt: int) -> int:
    """How many prompt tokens penalties and DRY can see."""
    spans = [settings.penalty_last_n] if _penalises(settings) else []
    if settings.dry_multiplier > 0:
        spans.append(settings.dry_penalty_last_n)
    reach = [n_prompt if span < 0 else span for span in spans]
    # Slicing with [-0:] would take everything; one token more is harmless.
    return max([1, *reach])


def _penalises(settings: Sampling) -> bool:
    changed = (
        settings.repeat_penalty != 1.0
        or settings.frequency_penalty != 0.0
        or settings.presence_penalty != 0.0
    )
    return changed and settings.penalty_last_n != 0


def _history_links(model: Model, settings: Sampling) -> list[Any]:
    """Links that look at earlier tokens, and the bias: also in force at temperature 0."""
    links = []
    if settings.logit_bias:
        bias = (llama_cpp.llama_logit_bias * len(settings.logit_bias))()
        for index, (token, value) in enumerate(settings.logit_bias.items()):
            bias[index].token, bias[index].bias = token, value
        links.append(llama_cpp.llama_sampler_init_logit_bias(model.n_vocab, len(bias), bias))
    if _penalises(settings):
        span = settings.penalty_last_n
        links.append(
            llama_cpp.llama_sampler_init_penalties(
                model.n_vocab,
                model.n_ctx_train if span < 0 else span,
                settings.repeat_penalty,
                settings.frequency_penalty,
                settings.presence_penalty,
            )
        )
    if settings.dry_multiplier > 0:
        texts = [text.encode() for text in settings.dry_sequence_breakers]
        breakers = (ctypes.c_char_p * len(texts))(*texts)
        span = settings.dry_penalty_last_n
        links.append(
            llama_cpp.llama_sampler_init_dry(
                model.vocab,
                settings.dry_multiplier,
                settings.dry_base,
                settings.dry_allowed_length,
                model.n_ctx_train if span < 0 else span,
                breakers,
                len(texts),
            )
        )
    return links


def _choice_links(settings: Sampling) -> list[Any]:
    """Truncation and temperature, in llama.cpp's order; neutral ones are left out."""
    links = []
    if settings.top_n_sigma > 0:
        links.append(llama_cpp.llama_sampler_init_top_n_sigma(settings.top_n_sigma))
    if settings.top_k > 0:
        links.append(llama_cpp.llama_sampler_init_top_k(settings.top_k))
    if settings.typical_p < 1:
        links.append(llama_cpp.llama_sampler_init_typical(settings.typical_p, 1))
    if settings.top_p < 1:
        links.append(llama_cpp.llama_sampler_init_top_p(settings.top_p, 1))
    if settings.min_p > 0:
        links.append(llama_cpp.llama_sampler_init_min_p(settings.min_p, 1))
    if settings.xtc_probability > 0:
        links.append(
            llama_cpp.llama_sampler_init_xtc(
                settings.xtc_probability, settings.xtc_threshold, 1, settings.seed or 0
            )
        )
    if settings.dynatemp_range > 0:
        links.append(
            llama_cpp.llama_sampler_init_temp_ext(
                settings.temperature, settings.dynatemp_range, settings.dynatemp_exponent
            )
        )
    elif settings.temperature != 1:
        links.append(llama_cpp.llama_sampler_init_temp(settings.temperature))
    return links


def _grammar(model: Model, text: str) -> Any:
    log = logs.install()
    log.take_errors()
    link = llama_cpp.llama_sampler_init_grammar(model.vocab, text.encode(), b"root")
    if not link:
        reason = log.take_errors() or "llama.cpp gave no reason"
        raise UsageError(f"the grammar cannot be read: {reason}", hint='It needs a rule "root".')
    return link
