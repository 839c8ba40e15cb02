"""One sequence in one llama.cpp context: the ``Decoder`` of ``localspec.spec``.

llama.cpp ends the whole process on several misuses (more rows than the batch holds, more outputs
than were announced); every such call is checked here first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import llama_cpp
import numpy as np

from localspec.errors import DecodeError, ModelLoadError
from localspec.llama.model import Model
from localspec.spec.drafter import MAX_WIDTH, Interrupted, Row

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]

# enum ggml_type
CACHE_TYPES: dict[str, int] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8,
    "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
_FLASH = {"auto": -1, "off": 0, "on": 1}
_ABORTED = 2  # llama_decode: stopped by the abort callback; finished micro-batches stay


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How to make a context. ``n_batch``: most tokens of one decode; ``n_ubatch``: of one pass
    through the graph. ``n_threads_batch`` 0 means as ``n_threads``."""

    n_ctx: int
    n_batch: int = 512
    n_ubatch: int = 512
    n_threads: int = 1
    n_threads_batch: int = 0
    type_k: CacheType = "f16"
    type_v: CacheType = "f16"
    flash_attn: Literal["auto", "on", "off"] = "auto"
    swa_full: bool = False
    offload_kqv: bool = True


class Context:
    """A context with one sequence, mirrored in ``tokens``.

    Raises ModelLoadError when llama.cpp cannot make it (mostly: no memory).
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self.model = model
        self.settings = settings
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = settings.n_ctx
        params.n_batch = settings.n_batch
        params.n_ubatch = min(settings.n_ubatch, settings.n_batch)
        params.n_seq_max = 1
        # Logits are only ever asked for the rows to verify. Saying so keeps the compute buffer from
        # holding n_ubatch x n_vocab floats (300 MB for a vocabulary of 150k).
        self._max_rows = min(MAX_WIDTH, settings.n_batch)
        params.n_outputs_max = self._max_rows
        params.n_threads = settings.n_threads
        params.n_threads_batch = settings.n_threads_batch or settings.n_threads
        params.type_k = CACHE_TYPES[settings.type_k]
        params.type_v = CACHE_TYPES[settings.type_v]
        params.flash_attn_type = _FLASH[settings.flash_attn]
        params.swa_full = settings.swa_full
        params.offload_kqv = settings.offload_kqv
        params.no_perf = True
        log = model.log
        log.take_errors()
        self.handle: Any = llama_cpp.llama_init_from_model(model.handle, params)
        if not self.handle:
            reason = log.take_errors() or "llama.cpp gave no reason"
            raise ModelLoadError(
                f"no context of {settings.n_ctx} tokens for {model.path.name}: {reason}",
                hint="A shorter --ctx-size needs less memory; `localspec plan` shows how much.",
            )
        self._memory: Any = llama_cpp.llama_get_memory(self.handle)
        self.n_ctx = int(llama_cpp.llama_n_ctx(self.handle))
        self.n_batch = int(llama_cpp.llama_n_batch(self.handle))
        self.n_vocab = model.n_vocab
        self._tokens: list[int] = []
        self._first_row = 0
        self._n_rows = 0
        self._cancelled: Callable[[], bool] | None = None
        self._make_batch()

    def _make_batch(self) -> None:
        self._batch = llama_cpp.llama_batch_init(self.n_batch, 0, 1)
        view = np.ctypeslib.as_array
        self._batch_token = view(self._batch.token, (self.n_batch,))
        self._batch_pos = view(self._batch.pos, (self.n_batch,))
        self._batch_logits = view(self._batch.logits, (self.n_batch,))
        view(self._batch.n_seq_id, (self.n_batch,))[:] = 1
        for index in range(self.n_batch):
            self._batch.seq_id[index][0] = 0
        # llama.cpp keeps the pointer: the callback object must live as long as the context.
        self._abort = llama_cpp.ggml_abort_callback(self._asked_to_stop)
        self._no_abort = llama_cpp.ggml_abort_callback()

    def _asked_to_stop(self, _data: Any) -> bool:
        return self._cancelled is not None and self._cancelled()

    def watch(self, cancelled: Callable[[], bool] | None) -> None:
        """From now on long decodes (prompt chunks) stop when ``cancelled()`` is true.

        Short ones are not watched: they take no longer than a token, and asking Python from inside
        them would cost more than it brings.
        """
        self._cancelled = cancelled

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        n = len(tokens)
        start = len(self._tokens)
        if not 0 < n <= self.n_batch or not 0 <= n_rows <= min(n, self._max_rows):
            raise DecodeError(f"cannot decode {n} tokens with {n_rows} rows at once")
        if start + n > self.n_ctx:
            raise DecodeError(f"{start + n} tokens do not fit a context of {self.n_ctx}")
        self._batch.n_tokens = n
        self._batch_token[:n] = tokens
        if int(self._batch_token[:n].min()) < 0 or int(self._batch_token[:n].max()) >= self.n_vocab:
            raise DecodeError(f"a token id is outside the vocabulary of {self.n_vocab}")
        self._batch_pos[:n] = np.arange(start, start + n, dtype=np.int32)
        self._batch_logits[:n] = 0
        if n_rows:
            self._batch_logits[n - n_rows : n] = 1
        watched = n > MAX_WIDTH and self._cancelled is not None
        if watched:
            llama_cpp.llama_set_abort_callback(self.handle, self._abort, None)
        code = int(llama_cpp.llama_decode(self.handle, self._batch))
        if watched:
            llama_cpp.llama_set_abort_callback(self.handle, self._no_abort, None)
        if code != 0:
            self._failed(code, tokens)
        self._tokens.extend(tokens)
        self._first_row, self._n_rows = n - n_rows, n_rows

    def _failed(self, code: int, tokens: Sequence[int]) -> None:
        """Make ``self._tokens`` true again after a decode that stopped half-way, and raise."""
        n_before = len(self._tokens)
        self._n_rows = 0
        n_there = int(llama_cpp.llama_memory_seq_pos_max(self._memory, 0)) + 1
        if code == _ABORTED:
            self._tokens.extend(tokens[: max(0, n_there - n_before)])
            raise Interrupted
        if n_there != n_before and not llama_cpp.llama_memory_seq_rm(self._memory, 0, n_before, -1):
            self.clear()
        reason = self.model.log.take_errors()
        raise DecodeError(
            f"llama.cpp could not decode {len(tokens)} tokens at position {n_before} "
            f"(code {code}){': ' + reason if reason else ''}"
        )

    def row(self, index: int) -> Row:
        if not 0 <= index < self._n_rows:
            raise DecodeError(f"row {index} of {self._n_rows} was not asked for")
        pointer = llama_cpp.llama_get_logits_ith(self.handle, self._first_row + index)
        if not pointer:
            raise DecodeError("llama.cpp gave no logits")
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        raw: Any = (ctypes.c_float * self.n_vocab).from_address(address or 0)
        row: Row = np.frombuffer(raw, dtype=np.float32)
        return row

    def rollback(self, n_keep: int) -> bool:
        n = len(self._tokens)
        if n_keep >= n:
            return n_keep == n
        if n_keep == 0:
            self.clear()
            return True
        if not self._window_holds(n_keep):
            return False
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, n_keep, -1):
            return False
        del self._tokens[n_keep:]
        self._n_rows = 0
        return True

    def _window_holds(self, n_keep: int) -> bool:
        """A sliding-window cache forgets what has left the window; llama.cpp says True to a
        removal that would need it back. The first position still there tells."""
        n_swa = self.model.n_swa
        if n_swa <= 0 or self.settings.swa_full:
            return True
        first = int(llama_cpp.llama_memory_seq_pos_min(self._memory, 0))
        return first <= max(0, n_keep - n_swa + 1)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)
        self._tokens.clear()
        self._n_rows = 0

    def can_roll_back(self) -> bool:
        """Tries it: decodes two tokens and removes one. Also warms the context up."""
        self.clear()
        token = self.model.bos if self.model.bos is not None else 0
        self.decode([token, token], 1)
        possible = self.rollback(1)
        self.clear()
        return possible

    def close(self) -> None:
        """Free the context. Safe to repeat."""
        if self.handle:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self.handle)
            self.handle = None
