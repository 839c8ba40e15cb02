"""A target's MTP heads in a llama.cpp context of their own, linked to the target's.

Position ``i`` of that context holds token ``i`` together with the target's hidden state after
token ``i - 1``. Both come from the target, which tells (as its listener) what it decodes. The call
sequence is that of llama.cpp's own driver (common/speculative.cpp).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import DecodeError, ModelLoadError
from localspec.llama import ext as ext_mod
from localspec.llama.context import CACHE_TYPES, FLASH, Context
from localspec.llama.model import Model
from localspec.nextn import Heads as HeadsFound
from localspec.spec.drafter import MAX_WIDTH, Row

_CONTEXT_TYPE_MTP = 1
_SEQUENCE = 0
Hidden = npt.NDArray[np.float32]
"""Hidden states, shape [n, n_embd]."""


class MtpHeads:
    """The ``Heads`` of ``localspec.spec.mtp_drafter``.

    ``target``: the context to follow; its model, for heads inside the target's file, must have been
    loaded with them. ``model``: the file of heads, where they are not in the target's. ``found``:
    what the header says (``nextn.heads_of``); heads that are not usable are refused.

    With it ``close`` closes that file, too. Raises ModelLoadError with the reason.
    """

    def __init__(self, target: Context, found: HeadsFound, model: Model | None = None) -> None:
        ext, reason = ext_mod.load()
        self._own_model = model
        model = model or target.model
        reason = reason or found.unusable or _not_runnable(target, model, found)
        if ext is None or reason:
            raise ModelLoadError(f"the MTP heads cannot be used: {reason}")
        self._ext = ext
        self._target = target
        self._found = found
        self._shared = found.kind == "shared"
        self._n_heads = found.n if found.chained else 1
        self.max_draft = found.n if found.chained else MAX_WIDTH - 1
        self._n_embd = int(llama_cpp.llama_model_n_embd_out(target.model.handle))
        self._open(model)
        self._n_vocab = model.n_vocab
        self._batch = _Batch(self._n_batch + MAX_WIDTH, self._n_embd)
        self._n_cached = 0  # positions that the heads have read
        self._waiting: list[int] = []  # tokens at the positions after that
        # Hidden states before the first waiting token, and after each of them.
        self._hidden = np.zeros((self._n_batch + MAX_WIDTH + 1, self._n_embd), np.float32)
        self._drafted: list[tuple[int, Hidden]] = []
        self._output = 0  # batch index of the row with logits
        self.following = False
        self.follow()

    def _open(self, model: Model) -> None:
        settings = self._target.settings
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self._target.n_ctx
        params.n_batch = self._target.n_batch
        params.n_ubatch = min(settings.n_ubatch, self._target.n_batch)
        params.n_seq_max = 1
        params.n_outputs_max = 1
        params.n_threads = settings.n_threads
        params.n_threads_batch = settings.n_threads_batch or settings.n_threads
        params.type_k = CACHE_TYPES[settings.type_k]
        params.type_v = CACHE_TYPES[settings.type_v]
        params.flash_attn_type = FLASH[settings.flash_attn]
        params.swa_full = settings.swa_full
        params.offload_kqv = settings.offload_kqv
        params.no_perf = True
        params.ctx_type = _CONTEXT_TYPE_MTP
        params.ctx_other = self._target.handle
        model.log.take_errors()
        self.handle: Any = llama_cpp.llama_init_from_model(model.handle, params)
        if not self.handle:
            reason = model.log.take_errors() or "llama.cpp gave no reason"
            raise ModelLoadError(f"no context for the MTP heads: {reason}")
        self._memory: Any = llama_cpp.llama_get_memory(self.handle)
        self.n_ctx = int(llama_cpp.llama_n_ctx(self.handle))
        self._n_batch = int(llama_cpp.llama_n_batch(self.handle))
        self._ext.set_embeddings_nextn(self.handle, True, True)

    # -- following the target ---------------------------------------------------------------------

    def follow(self) -> None:
        """Follow the target from here on (again)."""
        if not self.following:
            self._ext.set_embeddings_nextn(self._target.handle, True, False)
            self._target.listener = self
            self.following = True
            self._restart(len(self._target.tokens))

    def rest(self) -> None:
        """Stop following: the target then decodes as it would without heads."""
        if self.following:
            self._ext.set_embeddings_nextn(self._target.handle, False, False)
            self._target.listener = None
            self.following = False

    def decoded(self, tokens: Sequence[int], start: int) -> None:
        n = len(tokens)
        if start != self.n_known:
            self._restart(start)
        pointer = self._ext.get_embeddings_nextn(self._target.handle)
        if not pointer:
            self._restart(start + n)
            return
        if len(self._waiting) + n > self._n_batch:
            try:
                self.read(0)
            except DecodeError:
                self._restart(start)
        rows = np.ctypeslib.as_array(pointer, (n, self._n_embd))
        at = len(self._waiting)
        self._hidden[at + 1 : at + n + 1] = rows
        self._waiting.extend(tokens)

    def rolled_back(self, n_keep: int) -> None:
        if n_keep >= self._n_cached and n_keep > 0:
            del self._waiting[n_keep - self._n_cached :]
            return
        self._waiting.clear()
        cut = n_keep > 0 and not self._shared
        if not cut or not llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, n_keep, -1):
            self._restart(n_keep)
            return
        self._n_cached = n_keep
        self._hidden[0] = 0  # what came before was not kept; one row of the cache is less exact

    def _restart(self, n_known: int) -> None:
        """Go on from ``n_known`` with nothing read before it."""
        if not self._shared:
            llama_cpp.llama_memory_clear(self._memory, False)
        self._n_cached = n_known
        self._waiting.clear()
        self._hidden[0] = 0

    @property
    def n_known(self) -> int:
        return self._n_cached + len(self._waiting) if self.following else -1

    @property
    def n_waiting(self) -> int:
        return 0 if self._shared else len(self._waiting)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, n_left: int) -> int:
        n_read = 0
        while len(self._waiting) > n_left:
            n = min(len(self._waiting) - n_left, self._n_batch)
            if not self._shared:
                self._decode_all_heads(self._waiting[:n], self._hidden[:n])
            self._advance(n)
            n_read += n
        return n_read

    def _advance(self, n: int) -> None:
        """The first ``n`` waiting tokens were read."""
        n_left = len(self._waiting) - n
        self._hidden[: n_left + 1] = self._hidden[n : n + n_left + 1].copy()
        del self._waiting[:n]
        self._n_cached += n

    def _decode_all_heads(self, tokens: Sequence[int], hidden: Hidden) -> None:
        for head in range(self._n_heads):
            self._select(head, self._n_cached)
            self._decode(tokens, hidden, self._n_cached, with_logits=False)
        self._select(0, None)

    def _select(self, head: int, n_keep: int | None) -> None:
        """The next decode runs ``head``; with several, each must fill positions afresh."""
        if self._n_heads > 1:
            if n_keep is not None:
                llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, n_keep, -1)
            self._ext.set_nextn_layer_offset(self.handle, head)

    def _decode(
        self, tokens: Sequence[int], hidden: Hidden, position: int, *, with_logits: bool
    ) -> None:
        if not 0 < len(tokens) <= self._n_batch or position + len(tokens) > self.n_ctx:
            raise DecodeError(f"{len(tokens)} tokens are too many for the MTP heads at once")
        batch = self._batch.fill(tokens, hidden, position, with_logits=with_logits)
        code = int(llama_cpp.llama_decode(self.handle, batch))
        if code != 0:
            raise DecodeError(f"llama.cpp could not run the MTP heads (code {code})")
        self._output = len(tokens) - 1

    # -- drafting ---------------------------------------------------------------------------------

    def start(self, token: int) -> Row:
        if not 0 <= token < self._n_vocab or self.n_known >= self.n_ctx:
            raise DecodeError("the MTP heads cannot go on from here")
        # Apart from what waits: of a batch with one row of logits several graphs hand out the
        # hidden state of its first token, not of that row.
        self.read(0)
        self._drafted = [(token, self._hidden[0].copy())]
        self._select(0, self._n_cached)
        self._decode([token], self._hidden[:1], self._n_cached, with_logits=True)
        return self._row()

    def extend(self, token: int) -> Row:
        pointer = self._ext.get_embeddings_nextn_ith(self.handle, self._output)
        at, place = self._n_cached, len(self._drafted)
        if not pointer or place >= self.max_draft or at + place >= self.n_ctx:
            raise DecodeError("the MTP heads cannot draft further")
        hidden = np.ctypeslib.as_array(pointer, (self._n_embd,)).copy()
        self._drafted.append((token, hidden))
        if self._n_heads > 1:
            # Another head has a cache of its own: it reads the whole draft.
            self._select(place, at)
            tokens = [token for token, _ in self._drafted]
            self._decode(tokens, np.stack([h for _, h in self._drafted]), at, with_logits=True)
        else:
            # With the target's cache for their own, the heads stay at its end.
            position = at if self._shared else at + place
            self._decode([token], hidden[None, :], position, with_logits=True)
        return self._row()

    def stop(self) -> None:
        self._drafted = []
        self._select(0, None)
        if not self._shared:
            llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, self._n_cached, -1)

    def reset(self) -> None:
        n_known = self.n_known
        last = self._hidden[len(self._waiting)].copy()
        self._select(0, None)
        self._restart(n_known)
        self._hidden[0] = last

    def _row(self) -> Row:
        pointer = llama_cpp.llama_get_logits_ith(self.handle, self._output)
        if not pointer:
            raise DecodeError("llama.cpp gave no logits of the MTP heads")
        row: Row = np.ctypeslib.as_array(pointer, (self._n_vocab,))
        return row

    def set_threads(self, decode: int, batch: int) -> None:
        """CPU threads from now on, as for the target's context."""
        llama_cpp.llama_set_n_threads(self.handle, decode, batch)

    def close(self) -> None:
        """Free the context, and the file of heads; before the target's. Safe to repeat."""
        if self.handle:
            self.rest()
            llama_cpp.llama_free(self.handle)
            self.handle = None
            if self._own_model is not None:
                self._own_model.close()


def _not_runnable(target: Context, model: Model, found: HeadsFound) -> str:
    """Why llama.cpp would end the process, or refuse, if it were asked to run these heads."""
    if found.kind == "inside" and not target.model.has_mtp:
        return "the model was loaded without them"
    if int(llama_cpp.llama_model_n_layer_nextn(model.handle)) < 1:
        return "llama.cpp finds none in the file"
    if found.kind == "apart" and not model.has_mtp:
        return "they were not loaded"
    if model.n_vocab != target.n_vocab:
        return f"they have a vocabulary of {model.n_vocab} tokens, the target of {target.n_vocab}"
    widths = [int(llama_cpp.llama_model_n_embd_out(m.handle)) for m in (model, target.model)]
    if widths[0] != widths[1]:
        return f"they read states of {widths[0]} numbers, and the target has {widths[1]}"
    return ""


class _Batch:
    """A llama_batch with tokens and hidden states, over memory of our own."""

    def __init__(self, capacity: int, n_embd: int) -> None:
        self._token = np.zeros(capacity, np.int32)
        self._embd = np.zeros((capacity, n_embd), np.float32)
        self._pos = np.zeros(capacity, np.int32)
        self._n_seq_id = np.ones(capacity, np.int32)
        self._logits = np.zeros(capacity, np.int8)
        self._sequence = (ctypes.c_int32 * 1)(_SEQUENCE)
        row = ctypes.cast(self._sequence, ctypes.POINTER(ctypes.c_int32))
        self._seq_id = (ctypes.POINTER(ctypes.c_int32) * capacity)(*([row] * capacity))

    def fill(
        self, tokens: Sequence[int], hidden: Hidden, position: int, *, with_logits: bool
    ) -> Any:
        n = len(tokens)
        self._token[:n] = tokens
        self._embd[:n] = hidden
        self._pos[:n] = np.arange(position, position + n, dtype=np.int32)
        self._logits[:n] = 0
        self._logits[n - 1] = with_logits
        batch = llama_cpp.llama_batch()
        batch.n_tokens = n
        for name, array, kind in (
            ("token", self._token, ctypes.c_int32),
            ("embd", self._embd, ctypes.c_float),
            ("pos", self._pos, ctypes.c_int32),
            ("n_seq_id", self._n_seq_id, ctypes.c_int32),
            ("logits", self._logits, ctypes.c_int8),
        ):
            setattr(batch, name, array.ctypes.data_as(ctypes.POINTER(kind)))
        batch.seq_id = self._seq_id
        return batch
