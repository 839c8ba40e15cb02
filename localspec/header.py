"""What a GGUF header says: plain data with names for the numbers that the rest of localspec needs.

``gguf`` makes these objects; nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from localspec.ggml_types import GgmlType

_MAX_LAYERS = 512  # llama-hparams.h: LLAMA_MAX_LAYERS
_MAX_NUMBER = 1 << 40  # no dimension of a model comes near

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]


class TokenType(IntEnum):
    """What ``tokenizer.ggml.token_type`` says about a token (``llama.h``: llama_token_type)."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Tokens:
    """The texts of a vocabulary in one buffer, as the file stores them.

    ``raw``: for each token a length of eight bytes and its text. ``starts`` int64 [n + 1]: where
    each of these begins; the last entry is the end.
    """

    __slots__ = ("raw", "starts")

    def __init__(self, raw: bytes, starts: npt.NDArray[np.int64]) -> None:
        self.raw = raw
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.raw[int(self.starts[index]) + 8 : int(self.starts[index + 1])]

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))


def _sane(value: Value | None, default: int) -> int:
    return int(value) if isinstance(value, int) and 0 <= value <= _MAX_NUMBER else default


NO_TOKENS = Tokens(b"", np.zeros(1, np.int64))


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: ``shape[0]`` is the row length; ``offset`` counts from the header's
    ``data_offset``."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class BigArray:
    """An array too long to keep: the name of its element type and how many there are."""

    type: str
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A GGUF header. ``file_bytes``: length of the file it came from, where known (of all parts of
    a split model, once they are joined). ``needed_bytes``: the least length of the whole file."""

    version: int
    metadata: Mapping[str, Value]
    arrays: Mapping[str, BigArray] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    tokens: Tokens = NO_TOKENS
    token_types: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    alignment: int = 32
    data_offset: int = 0
    file_bytes: int | None = None
    needed_bytes: int = 0

    # -- access ------------------------------------------------------------------------------

    def text(self, key: str, default: str = "") -> str:
        """The string under ``key``; the default when it is missing or not a string."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else default

    def integer(self, key: str) -> int | None:
        """The integer under ``key``; None when it is missing or not an integer."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, key: str) -> bool | None:
        """The boolean under ``key``; None when it is missing or not a boolean."""
        value = self.metadata.get(key)
        return value if isinstance(value, bool) else None

    def number(self, name: str, default: int = 0) -> int:
        """``<architecture>.<name>``; of a per-layer array the largest entry.

        The default when it is missing or cannot be meant (negative, or beyond 2**40).
        """
        value = self.metadata.get(f"{self.architecture}.{name}")
        if isinstance(value, tuple):
            return max((_sane(v, default) for v in value), default=default)
        return _sane(value, default)

    def per_layer(self, name: str, default: int = 0) -> tuple[int, ...]:
        """``<architecture>.<name>`` for each of ``n_layer_all`` layers; one number counts for all.

        An array that is too short is filled up with its last entry.
        """
        value = self.metadata.get(f"{self.architecture}.{name}")
        n = self.n_layer_all
        if isinstance(value, tuple):
            numbers = [_sane(v, default) for v in value[:n]]
            return tuple(numbers + [numbers[-1] if numbers else default] * (n - len(numbers)))
        return (_sane(value, default),) * n

    # -- the model ---------------------------------------------------------------------------

    @property
    def architecture(self) -> str:
        """``general.architecture``, for example ``qwen2``."""
        return self.text("general.architecture")

    @property
    def name(self) -> str:
        """The name its maker gave it; may be empty."""
        return self.text("general.name")

    @property
    def licence(self) -> str:
        """``general.license``; may be empty."""
        return self.text("general.license")

    @property
    def n_layer_all(self) -> int:
        """Layers in the file, the ones that predict further tokens (MTP) included."""
        return min(self.number("block_count"), _MAX_LAYERS)

    @property
    def n_layer_nextn(self) -> int:
        """Trailing layers that predict further tokens (MTP heads)."""
        return min(self.number("nextn_predict_layers"), self.n_layer_all)

    @property
    def n_layer(self) -> int:
        """Layers that every token passes."""
        return self.n_layer_all - self.n_layer_nextn

    @property
    def n_embd(self) -> int:
        """Width of the model."""
        return self.number("embedding_length")

    @property
    def n_ctx_train(self) -> int:
        """Longest context the model was trained for, in tokens."""
        return self.number("context_length")

    @property
    def n_head(self) -> tuple[int, ...]:
        """Query heads of each layer."""
        return self.per_layer("attention.head_count")

    @property
    def n_head_kv(self) -> tuple[int, ...]:
        """Key and value heads of each layer."""
        if f"{self.architecture}.attention.head_count_kv" in self.metadata:
            return self.per_layer("attention.head_count_kv")
        return self.n_head

    @property
    def n_embd_head_k(self) -> int:
        """Length of one key."""
        heads = max(self.n_head, default=0)
        return self.number("attention.key_length", self.n_embd // heads if heads else 0)

    @property
    def n_embd_head_v(self) -> int:
        """Length of one value."""
        heads = max(self.n_head, default=0)
        return self.number("attention.value_length", self.n_embd // heads if heads else 0)

    @property
    def n_swa(self) -> int:
        """Tokens that a sliding-window layer sees; 0 when there is no such layer."""
        return self.number("attention.sliding_window")

    @property
    def n_expert(self) -> int:
        """Experts per layer; 0 for a dense model."""
        return self.number("expert_count")

    @property
    def n_expert_used(self) -> int:
        """Experts that each token passes."""
        return self.number("expert_used_count")

    @property
    def is_mla(self) -> bool:
        """Keys and values are kept compressed (multi-head latent attention)."""
        return self.number("attention.key_length_mla") > 0

    @property
    def is_recurrent(self) -> bool:
        """At least one layer keeps a state instead of keys and values."""
        names = ("ssm.state_size", "wkv.head_size", "shortconv.l_cache", "kda.head_dim")
        return any(self.number(name) > 0 for name in names)

    @property
    def split_count(self) -> int:
        """Number of files the model is split into."""
        return max(1, self.integer("split.count") or 1)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.n_bytes for tensor in self.tensors)

    # -- the vocabulary ----------------------------------------------------------------------

    @property
    def n_vocab(self) -> int:
        """Rows of the vocabulary, padding included."""
        if len(self.tokens):
            return len(self.tokens)
        for tensor in self.tensors:
            if tensor.name == "token_embd.weight" and len(tensor.shape) > 1:
                return tensor.shape[1]
        return self.number("vocab_size")

    @property
    def tokenizer_model(self) -> str:
        """``gpt2``, ``llama``, …"""
        return self.text("tokenizer.ggml.model")

    @property
    def tokenizer_pre(self) -> str:
        """How text is split before it becomes tokens."""
        return self.text("tokenizer.ggml.pre")

    @property
    def chat_template(self) -> str:
        """The Jinja template; empty for a model that has none."""
        return self.text("tokenizer.chat_template")

    def special(self, role: str) -> int | None:
        """The id of ``bos``, ``eos``, ``eot``, … as the file or llama.cpp's default has it."""
        file_says = self.integer(f"tokenizer.ggml.{role}_token_id")
        default = _DEFAULT_IDS.get(self.tokenizer_model, {}).get(role)
        found = default if file_says is None else file_says
        return found if found is not None and 0 <= found < self.n_vocab else None

    @property
    def add_bos(self) -> bool:
        """Does the tokenizer put a BOS token first? (llama-vocab.cpp: the same defaults)"""
        if self.tokenizer_model == "gemma4":
            return True
        file_says = self.flag("tokenizer.ggml.add_bos_token")
        if file_says is not None:
            return file_says
        return self.tokenizer_model in _BOS_MODELS or self.tokenizer_pre in _BOS_PRE

    @property
    def add_eos(self) -> bool:
        """Does the tokenizer put an EOS token last?"""
        file_says = self.flag("tokenizer.ggml.add_eos_token")
        return self.tokenizer_model == "t5" if file_says is None else file_says

    def type_of(self, token: int) -> int:
        """The token's type; NORMAL where the file does not say."""
        if 0 <= token < len(self.token_types):
            return int(self.token_types[token])
        return int(TokenType.NORMAL)


# llama-vocab.cpp, load(): what holds when the file is silent.
_DEFAULT_IDS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2},
    "gpt2": {"bos": 11, "eos": 11},
    "hybriddna": {"bos": 11, "eos": 11},
    "whitespace": {"bos": 11, "eos": 11},
    "bert": {"bos": 101},
    "t5": {"eos": 1},
    "plamo2": {"bos": 1, "eos": 2},
}
_BOS_MODELS = {"llama", "bert"}
_BOS_PRE = {
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "chameleon",
}
