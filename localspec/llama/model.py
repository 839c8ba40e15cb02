"""A loaded GGUF model and its vocabulary."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.errors import AllocationError, ModelLoadError
from localspec.llama import logs

LOAD_PROGRESS = Callable[[float], bool]
"""Gets the loaded share (0..1); returning False stops the load."""

_NO_MEMORY = re.compile(r"alloc|out of memory|insufficient memory", re.IGNORECASE)
_NULL = -1  # LLAMA_TOKEN_NULL


class Model:
    """The weights of one model; free them with ``close()`` after its contexts.

    Raises ModelLoadError when llama.cpp refuses the file; the sentence carries llama.cpp's own
    reason. The caller has checked the file (``gguf.read_header``): llama.cpp trusts it.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int = 0,
        repack: bool = True,
        load_mtp: bool = False,
        vocab_only: bool = False,
        progress: LOAD_PROGRESS | None = None,
    ) -> None:
        self.path = path
        self.log = logs.install()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = repack
        params.load_mtp = load_mtp
        params.vocab_only = vocab_only
        if progress is not None:
            callback = llama_cpp.llama_progress_callback(
                lambda share, _data: bool(progress(float(share)))
            )
            params.progress_callback = callback
        self.log.take_errors()
        self.handle: Any = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            reason = self.log.take_errors() or "llama.cpp gave no reason"
            kind = AllocationError if _NO_MEMORY.search(reason) else ModelLoadError
            raise kind(
                f"llama.cpp could not load {path}: {reason}",
                hint=f"llama.cpp's own messages are in {self.log.path}",
            )
        self._vocab: Any = llama_cpp.llama_model_get_vocab(self.handle)
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(llama_cpp.llama_model_n_ctx_train(self.handle))
        self.n_swa = int(llama_cpp.llama_model_n_swa(self.handle))
        self.has_mtp = load_mtp
        """Whether MTP heads in the file were loaded."""
        self.n_bytes = int(llama_cpp.llama_model_size(self.handle))
        self.is_recurrent = bool(llama_cpp.llama_model_is_recurrent(self.handle))
        self.is_hybrid = bool(llama_cpp.llama_model_is_hybrid(self.handle))
        self._pieces: dict[int, bytes] = {}

    @property
    def vocab(self) -> Any:
        """The native vocabulary, for samplers."""
        return self._vocab

    @property
    def bos(self) -> int | None:
        """Id of the beginning-of-sequence token, None where there is none."""
        token = int(llama_cpp.llama_vocab_bos(self._vocab))
        return None if token == _NULL else token

    @property
    def eos(self) -> int | None:
        """Id of the end-of-sequence token, None where there is none."""
        token = int(llama_cpp.llama_vocab_eos(self._vocab))
        return None if token == _NULL else token

    @property
    def add_bos(self) -> bool:
        """Whether a text must begin with the BOS token."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    @property
    def chat_template(self) -> str | None:
        """The Jinja template inside the file; None if it has none."""
        text = llama_cpp.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8", "replace") if text else None

    @property
    def architecture(self) -> str:
        """``general.architecture``; empty if the file does not say."""
        return self._meta("general.architecture")

    def _meta(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(256)
        n = llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if n >= 0 else ""

    @property
    def description(self) -> str:
        """llama.cpp's short description, such as ``qwen2 1.5B Q4_K - Medium``."""
        buffer = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def text_of(self, token: int | None) -> str:
        """The token's text as it stands in the vocabulary (``<s>``); empty for None."""
        if token is None:
            return ""
        return str((llama_cpp.llama_vocab_get_text(self._vocab, token) or b"").decode("utf-8"))

    def is_end(self, token: int) -> bool:
        """Whether the token ends an answer (any of the model's end-of-generation tokens)."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    def piece(self, token: int) -> bytes:
        """The bytes that the token stands for; empty for control tokens."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._piece(token)
        return known

    def _piece(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            return b""
        buffer = ctypes.create_string_buffer(64)
        size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, -size, 0, False)
        return buffer.raw[: max(size, 0)]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of ``text``. ``add_special``: with BOS (and EOS) where the model wants them;
        ``parse_special``: texts such as ``<|im_end|>`` become the control token."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        for _ in range(2):
            ids = (llama_cpp.llama_token * room)()
            n = llama_cpp.llama_tokenize(
                self._vocab, data, len(data), ids, room, add_special, parse_special
            )
            if n >= 0:
                return list(ids[:n])
            room = -n
        raise ModelLoadError(f"llama.cpp could not tokenize a text of {len(data)} bytes")

    def close(self) -> None:
        """Free the weights. Safe to repeat; contexts must be closed before."""
        if self.handle:
            llama_cpp.llama_model_free(self.handle)
            self.handle = None
