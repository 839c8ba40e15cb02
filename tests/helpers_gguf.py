"""Makes small GGUF files: headers for planning and vocabularies, or whole models that load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    *,
    architecture: str = "llama",
    tokens: Sequence[str | bytes] | None = None,
    token_types: Sequence[int] | None = None,
    merges: Sequence[str] | None = None,
    scores: Sequence[float] | None = None,
    alignment: int | None = None,
) -> Path:
    """Write a GGUF. Keys of ``metadata`` are whole (``llama.block_count``); ints become uint32.

    ``tensors`` are written as they are (float32 or float16, NumPy's order of dimensions); bytes
    are blocks of Q8_0.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in (metadata or {}).items():
        _add(writer, key, value)
    if tokens is not None:
        writer.add_token_list(list(tokens))
        writer.add_token_types(list(token_types or [NORMAL] * len(tokens)))
    if merges is not None:
        writer.add_token_merges(list(merges))
    if scores is not None:
        writer.add_token_scores(list(scores))
    for name, data in (tensors or {}).items():
        raw = gguf.GGMLQuantizationType.Q8_0 if data.dtype == np.uint8 else None
        writer.add_tensor(name, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def byte_vocab(extra: Sequence[str] = ()) -> tuple[list[str], list[int]]:
    """A byte-level BPE vocabulary that can spell everything: 256 bytes, then ``<|end|>``,
    ``<|start|>``, then ``extra`` ordinary tokens. Use with ``byte_metadata``."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in keep]
    spelling = {byte: chr(byte) for byte in keep}
    spelling |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    tokens = [spelling[byte] for byte in range(256)] + ["<|end|>", "<|start|>", *extra]
    types = [NORMAL] * 256 + [CONTROL, CONTROL] + [NORMAL] * len(extra)
    return tokens, types


def byte_metadata(eos: int = 256, bos: int = 257) -> dict[str, Any]:
    """The tokenizer settings that go with ``byte_vocab``."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": eos,
        "tokenizer.ggml.add_bos_token": False,
    }


def llama_metadata(
    *,
    n_layer: int = 2,
    n_embd: int = 64,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_ff: int = 128,
    n_ctx: int = 512,
) -> dict[str, Any]:
    """The settings of a tiny Llama."""
    return {
        "general.name": "tiny",
        "llama.block_count": n_layer,
        "llama.context_length": n_ctx,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_head,
        "llama.attention.head_count_kv": n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": n_embd // n_head,
    }


def llama_tensors(
    n_vocab: int,
    *,
    n_layer: int = 2,
    n_embd: int = 64,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_ff: int = 128,
    seed: int = 0,
    scale: float = 0.5,
) -> dict[str, np.ndarray]:
    """Random weights of a tiny Llama (tied embeddings), float32; they load in llama.cpp."""
    rng = np.random.default_rng(seed)
    kv = n_embd // n_head * n_head_kv

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * scale / columns**0.5).astype(np.float32)

    ones = np.ones(n_embd, np.float32)
    tensors = {
        "token_embd.weight": rng.standard_normal((n_vocab, n_embd)).astype(np.float32),
        "output_norm.weight": ones,
    }
    for layer in range(n_layer):
        at = f"blk.{layer}."
        tensors |= {
            f"{at}attn_norm.weight": ones,
            f"{at}attn_q.weight": matrix(n_embd, n_embd),
            f"{at}attn_k.weight": matrix(kv, n_embd),
            f"{at}attn_v.weight": matrix(kv, n_embd),
            f"{at}attn_output.weight": matrix(n_embd, n_embd),
            f"{at}ffn_norm.weight": ones,
            f"{at}ffn_gate.weight": matrix(n_ff, n_embd),
            f"{at}ffn_up.weight": matrix(n_ff, n_embd),
            f"{at}ffn_down.weight": matrix(n_embd, n_ff),
        }
    return tensors


def write_tiny_llama(path: Path, *, n_padding: int = 0, seed: int = 0, **shape: int) -> Path:
    """A whole tiny Llama that loads: bytes as vocabulary, ``n_padding`` unused rows at the end."""
    tokens, types = byte_vocab()
    tokens += [f"[PAD{len(tokens) + n}]" for n in range(n_padding)]
    types += [UNUSED] * n_padding
    sizes = {key: value for key, value in shape.items() if key != "n_ctx"}
    return write_gguf(
        path,
        llama_metadata(**shape) | byte_metadata(),
        llama_tensors(len(tokens), seed=seed, **sizes),
        tokens=tokens,
        token_types=types,
        merges=["! !"],
    )
