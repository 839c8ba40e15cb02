"""One sequence in one llama.cpp context: the ``Decoder`` of ``localspec.spec``.

llama.cpp ends the whole process on several misuses (more rows than the batch holds, more outputs
than were announced); every such call is checked here first.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import llama_cpp
import numpy as np

from localspec.errors import AllocationError, DecodeError
from localspec.llama import ext, rollback
from localspec.llama.model import Model
from localspec.spec.drafter import MAX_WIDTH, Interrupted, Row

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]

# enum ggml_type
CACHE_TYPES: dict[str, int] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8,
    "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
FLASH = {"auto": -1, "off": 0, "on": 1}
_ABORTED = 2  # llama_decode: stopped by the abort callback; finished micro-batches stay
_LONG_PROMPT = 16
"""From so many tokens on a prompt's end is kept where that takes a decode of its own."""
_SAME = 0.5  # of the logits' spread: several times what batches of different sizes differ by


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How to make a context. ``n_batch``: most tokens of one decode; ``n_ubatch``: of one pass
    through the graph. ``n_threads_batch`` 0 means as ``n_threads``. ``n_rs_seq``: recurrent states
    to keep for taking tokens back, where the architecture can. ``drafts``: the context is a draft
    model's, its drafted tokens are decoded one by one."""

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
    n_rs_seq: int = 0
    drafts: bool = False


class Listener(Protocol):
    """Something that follows what a context decodes."""

    def decoded(self, tokens: Sequence[int], start: int) -> None:
        """``tokens`` were decoded at position ``start``; their rows can be read now."""

    def rolled_back(self, n_keep: int) -> None:
        """Only the first ``n_keep`` tokens are left."""


class Context:
    """A context with one sequence, mirrored in ``tokens``.

    Raises AllocationError when llama.cpp cannot make it (mostly: no memory).
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self.model = model
        self.settings = settings
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = settings.n_ctx
        params.n_batch = settings.n_batch
        params.n_ubatch = min(settings.n_ubatch, settings.n_batch)
        is_recurrent = model.is_recurrent or model.is_hybrid
        n_sequences = rollback.n_sequences(model.architecture, is_recurrent, settings.drafts)
        params.n_seq_max = n_sequences
        params.kv_unified = n_sequences > 1
        # The last 1 + n_rs_seq tokens of a batch must fit into one pass through the graph.
        params.n_rs_seq = 0 if settings.drafts else min(settings.n_rs_seq, params.n_ubatch - 1)
        # Logits are only ever asked for the rows to verify. Saying so keeps the compute buffer from
        # holding n_ubatch x n_vocab floats (300 MB for a vocabulary of 150k).
        self._max_rows = min(MAX_WIDTH, settings.n_batch)
        params.n_outputs_max = self._max_rows
        params.n_threads = settings.n_threads
        params.n_threads_batch = settings.n_threads_batch or settings.n_threads
        params.type_k = CACHE_TYPES[settings.type_k]
        params.type_v = CACHE_TYPES[settings.type_v]
        params.flash_attn_type = FLASH[settings.flash_attn]
        params.swa_full = settings.swa_full
        params.offload_kqv = settings.offload_kqv
        params.no_perf = True
        log = model.log
        log.take_errors()
        self.handle: Any = llama_cpp.llama_init_from_model(model.handle, params)
        if not self.handle:
            reason = log.take_errors() or "llama.cpp gave no reason"
            raise AllocationError(
                f"no context of {settings.n_ctx} tokens for {model.path.name}: {reason}",
                hint="A shorter --ctx-size needs less memory; `localspec plan` shows how much.",
            )
        self.memory: Any = llama_cpp.llama_get_memory(self.handle)
        self.n_ctx = int(llama_cpp.llama_n_ctx(self.handle))
        self.n_batch = int(llama_cpp.llama_n_batch(self.handle))
        self.n_vocab = model.n_vocab
        self._tokens: list[int] = []
        self._first_row = 0
        self._n_rows = 0
        self._cancelled: Callable[[], bool] | None = None
        self.listener: Listener | None = None
        self.policy = rollback.choose(
            self,
            is_recurrent=is_recurrent,
            n_swa=0 if settings.swa_full else model.n_swa,
            n_rs_seq=ext.n_rs_seq(self.handle),
            n_seq_max=n_sequences,
            token_by_token=settings.drafts,
        )
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
        if min(tokens) < 0 or max(tokens) >= self.n_vocab:
            raise DecodeError(f"a token id is outside the vocabulary of {self.n_vocab}")
        if self.policy.keeps_prompt_end and n_rows == 1 and n >= _LONG_PROMPT:
            self._decode(tokens[:-1], 0, start)
            self.policy.prompt_ends()
            tokens, n, start = tokens[-1:], 1, start + n - 1
        self._decode(tokens, n_rows, start)

    def _decode(self, tokens: Sequence[int], n_rows: int, start: int) -> None:
        n = len(tokens)
        self.policy.before(n, n_rows)
        code = self._run(tokens, n_rows, start, watched=n > MAX_WIDTH)
        if code != 0:
            self._failed(code, tokens)
        self._tokens.extend(tokens)
        self._first_row, self._n_rows = n - n_rows, n_rows
        self.policy.after(n)
        if self.listener is not None:
            self.listener.decoded(tokens, start)

    def decode_again(self, tokens: Sequence[int], position: int) -> None:
        """For the rollback policy: ``tokens`` return to ``position``, where the memory ends."""
        code = self._run(tokens, 0, position, watched=False)
        if code != 0:
            raise DecodeError(f"llama.cpp could not decode {len(tokens)} tokens again ({code})")

    def _run(self, tokens: Sequence[int], n_rows: int, start: int, *, watched: bool) -> int:
        """llama_decode; returns its code. The arguments were checked."""
        n = len(tokens)
        self._batch.n_tokens = n
        self._batch_token[:n] = tokens
        self._batch_pos[:n] = np.arange(start, start + n, dtype=np.int32)
        self._batch_logits[:n] = 0
        if n_rows:
            self._batch_logits[n - n_rows : n] = 1
        watched = watched and self._cancelled is not None
        if watched:
            llama_cpp.llama_set_abort_callback(self.handle, self._abort, None)
        code = int(llama_cpp.llama_decode(self.handle, self._batch))
        if watched:
            llama_cpp.llama_set_abort_callback(self.handle, self._no_abort, None)
        return code

    def _failed(self, code: int, tokens: Sequence[int]) -> None:
        """Make ``self._tokens`` true again after a decode that stopped half-way, and raise."""
        n_before = len(self._tokens)
        self._n_rows = 0
        if not self.policy.keeps_partial:
            # A recurrent state cannot be taken back to where the decode began.
            self.clear()
        n_there = int(llama_cpp.llama_memory_seq_pos_max(self.memory, 0)) + 1
        if code == _ABORTED:
            self._tokens.extend(tokens[: max(0, n_there - n_before)])
            raise Interrupted
        if n_there > n_before and not llama_cpp.llama_memory_seq_rm(self.memory, 0, n_before, -1):
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
        if n_keep > n:
            return False
        if n_keep == 0:
            self.clear()
            return True
        if n_keep < n:
            if not self.policy.rollback(n_keep):
                if int(llama_cpp.llama_memory_seq_pos_max(self.memory, 0)) < 0:
                    self.clear()
                return False
            del self._tokens[n_keep:]
            self._n_rows = 0
            if self.listener is not None:
                self.listener.rolled_back(n_keep)
        self.policy.stands(n_keep)
        return True

    def n_to_read_again(self, n_keep: int) -> int:
        """How many tokens are decoded again if the first ``n_keep`` are to be kept, by ``rollback``
        or, where that is not possible, by the caller."""
        if not 0 < n_keep < len(self._tokens):
            return 0
        return self.policy.n_to_read_again(n_keep)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self.memory, False)
        self._tokens.clear()
        self._n_rows = 0
        self.policy.cleared()
        if self.listener is not None:
            self.listener.rolled_back(0)

    def can_roll_back(self) -> bool:
        """Tries it, and compares what the model says afterwards with what it says without. Also
        warms the context up. False: ``policy.reason`` says why."""
        first = self.model.bos if self.model.bos is not None else 0
        if not self.policy.can:
            return False
        if self.policy.keeps_partial:
            self.clear()
            self.decode([first, first], 1)
            works = self.rollback(1)
        else:
            kept, tried = [first, first], [(first + n) % self.n_vocab for n in (1, 2, 3)]
            try:
                expected = self._try(kept, tried, [])
                works = self.policy.settle(
                    lambda: _same(self._try(kept, tried, tried[:2]), expected), time.perf_counter
                )
            except DecodeError:
                works = False
        if not works:
            self.policy = rollback.Refuses(self, "its memory gives back another state")
        self.clear()
        return works

    def _try(
        self, kept: Sequence[int], tried: Sequence[int], rejected: Sequence[int]
    ) -> Row | None:
        """The row after ``kept`` and ``tried``, with ``rejected`` tried and taken back between;
        None if that could not be taken back."""
        self.clear()
        self.decode(kept, 1)
        self.rollback(len(kept))
        n_keep = len(kept) + 1
        if self.settings.drafts:
            for token in [tried[0], *rejected]:
                self.decode([token], 1)
        else:
            self.decode([tried[0], *rejected], len(rejected) + 1)
        if not self.rollback(n_keep):
            return None
        self.decode(tried[1:], 1)
        return self.row(0).copy()

    def set_threads(self, decode: int, batch: int) -> None:
        """CPU threads from now on, for single tokens and for batches."""
        llama_cpp.llama_set_n_threads(self.handle, decode, batch)

    def close(self) -> None:
        """Free the context. Safe to repeat."""
        if self.handle:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self.handle)
            self.handle = None


def _same(row: Row | None, expected: Row | None) -> bool:
    """Equal but for rounding; a stale state is off by far more."""
    if row is None or expected is None:
        return False
    return bool(np.abs(row - expected).max() <= max(1e-3, _SAME * float(expected.std())))
