"""Ways to keep the state of a context's memory, and to put it back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import llama_cpp

SEQUENCE, SPARE = 0, 1
MAX_SAVED_BYTES = 1 << 30
"""A state larger than this is not saved: the copy would cost more than it can bring."""
_PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: what cannot be cut, without the attention part


class Memory(Protocol):
    """What a policy needs of its context."""

    handle: Any
    memory: Any
    n_batch: int

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens in memory."""

    def decode_again(self, tokens: Sequence[int], position: int) -> None:
        """Put ``tokens`` back at ``position``, where the memory ends now. Raises DecodeError."""


class Keeper(Protocol):
    """One way to save the state of the whole memory and to put it back."""

    name: str

    def save(self) -> bool:
        """Keep the state as it is now, in place of an earlier one. False: it could not."""

    def restore(self, n_tokens: int) -> bool:
        """Put the kept state of ``n_tokens`` tokens back; it stays kept. False: it could not."""

    def drop(self) -> None:
        """Forget what is kept."""


class Snapshot:
    """The recurrent state as bytes in main memory; attention is cut back instead."""

    name = "snapshot"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._buffer: Any = None
        self._n_bytes = 0

    def save(self) -> bool:
        handle = self._memory.handle
        n_bytes = int(llama_cpp.llama_state_seq_get_size_ext(handle, SEQUENCE, _PARTIAL))
        if not 0 < n_bytes <= MAX_SAVED_BYTES:
            return False
        if self._buffer is None or len(self._buffer) < n_bytes:
            self._buffer = (ctypes.c_uint8 * n_bytes)()
        written = llama_cpp.llama_state_seq_get_data_ext(
            handle, self._buffer, n_bytes, SEQUENCE, _PARTIAL
        )
        self._n_bytes = n_bytes if int(written) == n_bytes else 0
        return self._n_bytes > 0

    def restore(self, n_tokens: int) -> bool:
        read = llama_cpp.llama_state_seq_set_data_ext(
            self._memory.handle, self._buffer, self._n_bytes, SEQUENCE, _PARTIAL
        )
        if int(read) != self._n_bytes:
            return False
        return bool(llama_cpp.llama_memory_seq_rm(self._memory.memory, SEQUENCE, n_tokens, -1))

    def drop(self) -> None:
        self._n_bytes = 0


class SpareSequence:
    """A second sequence that shares the state until the first one writes on (copy on write).

    Needs a context with two sequences and one cache for both (``kv_unified``).
    """

    name = "spare sequence"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def save(self) -> bool:
        self.drop()
        llama_cpp.llama_memory_seq_cp(self._memory.memory, SEQUENCE, SPARE, -1, -1)
        return True

    def restore(self, n_tokens: int) -> bool:
        memory = self._memory.memory
        llama_cpp.llama_memory_seq_rm(memory, SEQUENCE, -1, -1)
        llama_cpp.llama_memory_seq_cp(memory, SPARE, SEQUENCE, -1, -1)
        return int(llama_cpp.llama_memory_seq_pos_max(memory, SEQUENCE)) == n_tokens - 1

    def drop(self) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory.memory, SPARE, -1, -1)
