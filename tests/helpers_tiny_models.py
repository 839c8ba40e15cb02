"""Tiny models with random weights for each kind of memory that llama.cpp has.

A few hundred kB each, float32, so that a batch and single tokens agree to the last few bits. Shapes
and tensor names follow llama.cpp's loaders (src/models/*.cpp).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from helpers_gguf import byte_metadata, byte_vocab, write_gguf

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

N_EMBD = 64
N_FF = 96
N_HEAD = 4
HEAD = 16


class Weights:
    """Draws random matrices, named as llama.cpp wants them (rows are outputs)."""

    def __init__(self, seed: int, scale: float = 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.scale = scale

    def matrix(self, rows: int, columns: int) -> Array:
        values = self.rng.standard_normal((rows, columns)) * self.scale / columns**0.5
        return values.astype(np.float32)

    def ends(self, n_vocab: int) -> Tensors:
        """Embedding and output apart: tied ones would make the model repeat its last token."""
        return {
            "token_embd.weight": self.rng.standard_normal((n_vocab, N_EMBD)).astype(np.float32),
            "output.weight": 4 * self.matrix(n_vocab, N_EMBD),
        }

    def ffn(self, at: str, n_embd: int = N_EMBD) -> Tensors:
        return {
            f"{at}ffn_gate.weight": self.matrix(N_FF, n_embd),
            f"{at}ffn_up.weight": self.matrix(N_FF, n_embd),
            f"{at}ffn_down.weight": self.matrix(n_embd, N_FF),
        }


def ones(n: int = N_EMBD) -> Array:
    return np.ones(n, np.float32)


def write_model(
    path: Path, architecture: str, metadata: dict[str, Any], tensors: Tensors, *, n_vocab: int = 0
) -> Path:
    """Write a model with the byte vocabulary; ``metadata`` keys get the architecture in front
    unless they have a dot-separated family of their own (``general.``, ``tokenizer.``)."""
    tokens, types = byte_vocab()
    own = ("general.", "tokenizer.")
    keys = {
        key if key.startswith(own) else f"{architecture}.{key}": value
        for key, value in metadata.items()
    }
    tokenizer = byte_metadata()
    if n_vocab:
        # The ends stay inside a cut vocabulary.
        tokens, types = [*tokens[: n_vocab - 2], *tokens[256:258]], [1] * (n_vocab - 2) + [3, 3]
        tokenizer = byte_metadata(n_vocab - 2, n_vocab - 1)
    return write_gguf(
        path,
        {"general.name": path.stem} | keys | tokenizer,
        tensors,
        architecture=architecture,
        tokens=tokens,
        token_types=types,
        merges=["! !"],
    )


def size_of(n_vocab: int) -> int:
    return n_vocab or len(byte_vocab()[0])


def base(n_layer: int, n_ctx: int = 4096) -> dict[str, Any]:
    return {
        "block_count": n_layer,
        "context_length": n_ctx,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEAD,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }


def write_mamba(path: Path, *, seed: int = 0, n_layer: int = 2, n_vocab: int = 0) -> Path:
    """All layers recurrent; llama.cpp keeps no snapshots for it (n_rs_seq is clamped to 0)."""
    weights, inner, state, rank = Weights(seed), 2 * N_EMBD, 8, 4
    metadata = {
        "block_count": n_layer,
        "context_length": 4096,
        "embedding_length": N_EMBD,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    tensors: Tensors = {
        **weights.ends(size_of(n_vocab)),
        "output_norm.weight": ones(),
    }
    for layer in range(n_layer):
        at = f"blk.{layer}."
        tensors |= {
            f"{at}attn_norm.weight": ones(),
            f"{at}ssm_in.weight": weights.matrix(2 * inner, N_EMBD),
            f"{at}ssm_conv1d.weight": weights.matrix(inner, 4),
            f"{at}ssm_conv1d.bias": np.zeros(inner, np.float32),
            f"{at}ssm_x.weight": weights.matrix(rank + 2 * state, inner),
            f"{at}ssm_dt.weight": weights.matrix(inner, rank),
            f"{at}ssm_dt.bias": np.full(inner, -2.0, np.float32),
            f"{at}ssm_a": -np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1)),
            f"{at}ssm_d": ones(inner),
            f"{at}ssm_out.weight": 2 * weights.matrix(N_EMBD, inner),
        }
    return write_model(path, "mamba", metadata, tensors, n_vocab=n_vocab)


def write_lfm2(path: Path, *, seed: int = 0, n_vocab: int = 0) -> Path:
    """Hybrid: two short convolutions and two attention layers; llama.cpp keeps snapshots."""
    weights = Weights(seed)
    heads_kv = [0, 2, 0, 2]
    metadata = base(len(heads_kv)) | {
        "attention.head_count_kv": heads_kv,
        "shortconv.l_cache": 3,
        "vocab_size": size_of(n_vocab),
        "rope.freq_base": 10000.0,
    }
    tensors: Tensors = {
        **weights.ends(size_of(n_vocab)),
        "token_embd_norm.weight": ones(),
    }
    for layer, heads in enumerate(heads_kv):
        at = f"blk.{layer}."
        tensors |= {f"{at}attn_norm.weight": ones(), f"{at}ffn_norm.weight": ones()}
        tensors |= weights.ffn(at)
        if heads:
            tensors |= _attention(weights, at, N_EMBD)
        else:
            tensors |= {
                f"{at}shortconv.conv.weight": weights.matrix(N_EMBD, 3),
                f"{at}shortconv.in_proj.weight": weights.matrix(3 * N_EMBD, N_EMBD),
                f"{at}shortconv.out_proj.weight": 2 * weights.matrix(N_EMBD, N_EMBD),
            }
    return write_model(path, "lfm2", metadata, tensors, n_vocab=n_vocab)


def write_gemma3(path: Path, *, window: int = 32, seed: int = 0, n_vocab: int = 0) -> Path:
    """Attention with a sliding window in five of six layers."""
    weights, n_layer = Weights(seed), 6
    metadata = base(n_layer) | {
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.sliding_window": window,
    }
    tensors: Tensors = {
        **weights.ends(size_of(n_vocab)),
        "output_norm.weight": ones(),
    }
    for layer in range(n_layer):
        at = f"blk.{layer}."
        names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        tensors |= {f"{at}{name}.weight": ones() for name in names}
        tensors |= _attention(weights, at, N_EMBD) | weights.ffn(at)
    return write_model(path, "gemma3", metadata, tensors, n_vocab=n_vocab)


def _attention(weights: Weights, at: str, n_out: int, gate: int = 1) -> Tensors:
    """Four query heads and two of keys and values, with their norms; ``gate`` 2: gated queries."""
    return {
        f"{at}attn_q.weight": weights.matrix(gate * N_HEAD * HEAD, N_EMBD),
        f"{at}attn_k.weight": weights.matrix(2 * HEAD, N_EMBD),
        f"{at}attn_v.weight": weights.matrix(2 * HEAD, N_EMBD),
        f"{at}attn_output.weight": weights.matrix(n_out, N_HEAD * HEAD),
        f"{at}attn_q_norm.weight": ones(HEAD),
        f"{at}attn_k_norm.weight": ones(HEAD),
    }


QWEN35_CYCLE = 4  # every fourth layer has attention


def qwen35_metadata(n_layer: int, n_heads_mtp: int) -> dict[str, Any]:
    """Settings of a Qwen3.5 with ``n_layer`` layers and so many MTP blocks behind them."""
    metadata = base(n_layer + n_heads_mtp) | {
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD,
        "rope.dimension_sections": [2, 3, 3, 0],
        "rope.freq_base": 10000.0,
        "full_attention_interval": QWEN35_CYCLE,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 4 * HEAD,
        "ssm.state_size": HEAD,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 2,
    }
    return metadata | ({"nextn_predict_layers": n_heads_mtp} if n_heads_mtp else {})


def qwen35_tensors(seed: int, n_layer: int, n_heads_mtp: int, n_vocab: int) -> Tensors:
    """Random weights: gated delta nets, one attention layer in four, then the MTP blocks."""
    weights = Weights(seed)
    tensors: Tensors = {
        **weights.ends(n_vocab),
        "output_norm.weight": ones(),
    }
    for layer in range(n_layer + n_heads_mtp):
        at = f"blk.{layer}."
        tensors |= {f"{at}attn_norm.weight": ones(), f"{at}post_attention_norm.weight": ones()}
        tensors |= weights.ffn(at)
        if layer >= n_layer or (layer + 1) % QWEN35_CYCLE == 0:
            tensors |= _attention(weights, at, N_EMBD, gate=2)
        else:
            keys, values = 2 * HEAD, 4 * HEAD
            tensors |= {
                f"{at}attn_qkv.weight": weights.matrix(2 * keys + values, N_EMBD),
                f"{at}attn_gate.weight": weights.matrix(values, N_EMBD),
                f"{at}ssm_conv1d.weight": weights.matrix(2 * keys + values, 4),
                f"{at}ssm_dt.bias": np.zeros(4, np.float32),
                f"{at}ssm_a": np.full(4, -0.1, np.float32),
                f"{at}ssm_beta.weight": weights.matrix(4, N_EMBD),
                f"{at}ssm_alpha.weight": weights.matrix(4, N_EMBD),
                f"{at}ssm_norm.weight": ones(HEAD),
                f"{at}ssm_out.weight": weights.matrix(N_EMBD, values),
            }
        if layer >= n_layer:
            tensors |= {
                f"{at}nextn.eh_proj.weight": weights.matrix(N_EMBD, 2 * N_EMBD),
                f"{at}nextn.enorm.weight": ones(),
                f"{at}nextn.hnorm.weight": ones(),
            }
    return tensors


def write_qwen35(
    path: Path, *, n_heads_mtp: int = 0, seed: int = 0, n_layer: int = 4, n_vocab: int = 0
) -> Path:
    """Hybrid of Qwen3.5's type; with ``n_heads_mtp`` it carries MTP blocks (llama.cpp runs one)."""
    tensors = qwen35_tensors(seed, n_layer, n_heads_mtp, size_of(n_vocab))
    return write_model(
        path, "qwen35", qwen35_metadata(n_layer, n_heads_mtp), tensors, n_vocab=n_vocab
    )
