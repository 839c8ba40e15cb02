"""Tiny models with random weights for each kind of memory that llama.cpp has.

A few hundred kB each, float32, so that a batch and single tokens agree to the last few bits. Shapes
and tensor names follow llama.cpp's loaders (src/models/*.cpp).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from helpers_gguf import byte_metadata, byte_vocab, write_gguf

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

# The sizes of all models here, and whether matrices are quantised to Q8_0. A test may set others.
QUANTISED = False
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

    def ffn(self, at: str, n_embd: int = 0) -> Tensors:
        n_embd = n_embd or N_EMBD
        return {
            f"{at}ffn_gate.weight": self.matrix(N_FF, n_embd),
            f"{at}ffn_up.weight": self.matrix(N_FF, n_embd),
            f"{at}ffn_down.weight": self.matrix(n_embd, N_FF),
        }


def ones(n: int = 0) -> Array:
    return np.ones(n or N_EMBD, np.float32)


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
        {name: _quantised(value) for name, value in tensors.items()} if QUANTISED else tensors,
        architecture=architecture,
        tokens=tokens,
        token_types=types,
        merges=["! !"],
    )


def _quantised(value: Array) -> Any:
    """Matrices whose rows are whole blocks; small ones are read as float32 by some graphs."""
    if value.ndim != 2 or value.shape[1] % 32:
        return value
    return gguf.quants.quantize(value, gguf.GGMLQuantizationType.Q8_0)


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


def write_mamba(
    path: Path, *, seed: int = 0, n_layer: int = 2, n_vocab: int = 0, noise: float | None = None
) -> Path:
    """All layers recurrent; llama.cpp keeps no snapshots for it (n_rs_seq is clamped to 0).

    ``noise``, here and below: see ``counting``; None for a model that does not count.
    """
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
    tensors = _counting(tensors, n_layer, n_vocab, noise)
    return write_model(path, "mamba", metadata, tensors, n_vocab=n_vocab)


def write_lfm2(path: Path, *, seed: int = 0, n_vocab: int = 0, noise: float | None = None) -> Path:
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
    tensors = _counting(tensors, len(heads_kv), n_vocab, noise)
    return write_model(path, "lfm2", metadata, tensors, n_vocab=n_vocab)


def write_gemma3(
    path: Path,
    *,
    window: int = 32,
    seed: int = 0,
    n_vocab: int = 0,
    noise: float | None = None,
) -> Path:
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
        if noise is not None:  # what a layer adds is normalised last: here it is scaled
            after = ("post_attention_norm", "post_ffw_norm")
            tensors |= {f"{at}{name}.weight": noise * ones() for name in after}
    tensors = _counting(tensors, n_layer, n_vocab, None if noise is None else 1.0)
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


# -- models that their MTP heads know ------------------------------------------------------------


def wheel(n_cycle: int, n_vocab: int) -> tuple[Array, Array]:
    """Embeddings of a text that counts: token k + 1 follows token k, the last is followed by 0.

    Each embedding is the one before, turned: ``e[k + 1] = R e[k]``, so that one matrix leads from
    a token's embedding to the next one's. Returns the embeddings [n_vocab, n_embd] and R. Tokens
    from ``n_cycle`` on (ends) point nowhere.
    """
    rng = np.random.default_rng(5)
    n_embd, half = N_EMBD, N_EMBD // 2
    speeds = rng.choice(np.arange(1, n_cycle // 2), half, replace=n_cycle // 2 <= half)
    angles = 2 * np.pi * np.outer(np.arange(n_cycle), speeds) / n_cycle
    table = np.zeros((n_vocab, n_embd), np.float32)
    table[:n_cycle, :half], table[:n_cycle, half:] = np.cos(angles), np.sin(angles)
    turn = 2 * np.pi * speeds / n_cycle
    matrix = np.block(
        [
            [np.diag(np.cos(turn)), -np.diag(np.sin(turn))],
            [np.diag(np.sin(turn)), np.diag(np.cos(turn))],
        ]
    )
    return 2**0.5 * table, matrix.astype(np.float32)


def counting(
    tensors: Tensors,
    n_layer: int,
    n_heads_mtp: int,
    *,
    n_vocab: int,
    noise: float,
    by_state: float = 1.0,
    by_token: float = 1.0,
    gain: float = 0.25,
) -> Tensors:
    """``tensors`` changed so that the model counts, and its heads know it.

    What the layers add is scaled by ``noise``: they make the model stray from counting, the more
    the larger it is. A head reads the last token (``by_token``) and the state before it
    (``by_state``); with ``by_token`` 0 it is right only if it gets the right state.
    """
    table, turn = wheel(n_vocab - 2, n_vocab)
    changed = dict(tensors)
    changed["token_embd.weight"] = table
    follows = np.zeros_like(table)
    follows[1 : n_vocab - 2], follows[0] = table[: n_vocab - 3], table[n_vocab - 3]
    changed["output.weight"] = gain * follows
    for name, value in tensors.items():
        if name.endswith(_LAST):
            is_head = int(name.split(".")[1]) >= n_layer
            changed[name] = (0.0 if is_head else noise) * value
    for head in range(n_heads_mtp):
        both = np.hstack([by_token * np.eye(N_EMBD, dtype=np.float32), by_state * turn])
        changed[f"blk.{n_layer + head}.nextn.eh_proj.weight"] = both.astype(np.float32)
    return changed


_LAST = ("ssm_out.weight", "attn_output.weight", "ffn_down.weight", "shortconv.out_proj.weight")


def _counting(tensors: Tensors, n_layer: int, n_vocab: int, noise: float | None) -> Tensors:
    if noise is None:
        return tensors
    return counting(tensors, n_layer, 0, n_vocab=size_of(n_vocab), noise=noise)


def write_counting_qwen35(
    path: Path,
    *,
    noise: float = 0.3,
    n_vocab: int = 0,
    heads: str = "inside",
    seed: int = 0,
    **how: float,
) -> Path:
    """A hybrid whose MTP head is right most of the time. ``heads``: "inside" its file, "none", or
    "only" (the file of heads that goes with it)."""
    size, n_layer = size_of(n_vocab), 4
    tensors = counting(
        qwen35_tensors(seed, n_layer, 1, size), n_layer, 1, n_vocab=size, noise=noise, **how
    )
    if heads == "none":
        tensors = {k: v for k, v in tensors.items() if not k.startswith(f"blk.{n_layer}.")}
        return write_model(path, "qwen35", qwen35_metadata(n_layer, 0), tensors, n_vocab=n_vocab)
    if heads == "only":
        keep = ("token_embd", "output", f"blk.{n_layer}.")
        tensors = {k: v for k, v in tensors.items() if k.startswith(keep)}
    return write_model(path, "qwen35", qwen35_metadata(n_layer, 1), tensors, n_vocab=n_vocab)


def write_counting_step35(
    path: Path,
    *,
    n_heads_mtp: int = 2,
    noise: float = 1.0,
    n_vocab: int = 0,
    seed: int = 0,
    n_layer: int = 2,
) -> Path:
    """Sliding-window attention with several heads, each for one token further."""
    weights = Weights(seed)
    n_all = n_layer + n_heads_mtp
    metadata = base(n_all) | {
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.sliding_window": 64,
        "attention.sliding_window_pattern": [layer % 2 == 0 for layer in range(n_all)],
        "rope.dimension_count": HEAD,
        "expert_feed_forward_length": 32,
        "nextn_predict_layers": n_heads_mtp,
    }
    size = size_of(n_vocab)
    tensors: Tensors = weights.ends(size) | {"output_norm.weight": ones()}
    for layer in range(n_all):
        at = f"blk.{layer}."
        tensors |= {f"{at}attn_norm.weight": ones(), f"{at}ffn_norm.weight": ones()}
        tensors |= _attention(weights, at, N_EMBD) | weights.ffn(at)
        if layer >= n_layer:
            tensors |= {f"{at}nextn.{norm}.weight": ones() for norm in ("enorm", "hnorm")}
    tensors = counting(tensors, n_layer, n_heads_mtp, n_vocab=size, noise=noise)
    return write_model(path, "step35", metadata, tensors, n_vocab=n_vocab)


GEMMA4_WINDOWS = [True, True, True, False]


def write_counting_gemma4(
    path: Path, *, noise: float = 1.0, n_vocab: int = 0, seed: int = 0, window: int = 64
) -> Path:
    """Gemma 4's type: three layers with a sliding window, then one without."""
    n_layer, weights, size = len(GEMMA4_WINDOWS), Weights(seed), size_of(n_vocab)
    metadata = base(n_layer) | {
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": GEMMA4_WINDOWS,
        "embedding_length_per_layer_input": 0,
        "rope.dimension_count": HEAD,
        "rope.dimension_count_swa": HEAD,
    }
    tensors: Tensors = weights.ends(size) | {
        "output_norm.weight": ones(),
        "rope_freqs.weight": ones(HEAD // 2),
    }
    for layer in range(n_layer):
        at = f"blk.{layer}."
        names = ("attn_norm", "ffn_norm")
        tensors |= {f"{at}{name}.weight": ones() for name in names}
        # What a layer adds is normalised last: here it is scaled.
        after = ("post_attention_norm", "post_ffw_norm")
        tensors |= {f"{at}{name}.weight": noise * ones() for name in after}
        tensors |= _attention(weights, at, N_EMBD) | weights.ffn(at)
    tensors = counting(tensors, n_layer, 0, n_vocab=size, noise=1.0)
    return write_model(path, "gemma4", metadata, tensors, n_vocab=n_vocab)


def write_counting_assistant(
    path: Path, *, n_vocab: int = 0, seed: int = 0, noise: float = 0.0, window: int = 64
) -> Path:
    """The heads of ``write_counting_gemma4``: a narrow model that reads the target's cache."""
    weights, size, n_embd, n_layer = Weights(seed), size_of(n_vocab), N_EMBD // 2, 2
    metadata = base(n_layer) | {
        "embedding_length": n_embd,
        "embedding_length_out": N_EMBD,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": [True, False],
        "rope.dimension_count": HEAD,
        "rope.dimension_count_swa": HEAD,
        "nextn_predict_layers": n_layer,
    }
    table, turn = wheel(size - 2, size)
    # Half of the planes that the embeddings turn in are enough to tell the tokens apart.
    planes = [*range(0, n_embd // 2), *range(N_EMBD // 2, N_EMBD // 2 + n_embd // 2)]
    pick = np.eye(N_EMBD, dtype=np.float32)[planes]
    narrow = np.zeros((size, n_embd), np.float32)
    narrow[1 : size - 2], narrow[0] = table[: size - 3] @ pick.T, table[size - 3] @ pick.T
    tensors: Tensors = {
        "token_embd.weight": narrow,
        "output_norm.weight": ones(n_embd),
        "rope_freqs.weight": ones(HEAD // 2),
        "nextn.pre_projection.weight": np.hstack([pick / 8, 0.5 * pick @ turn]).astype(np.float32),
        "nextn.post_projection.weight": np.ascontiguousarray(pick.T),
    }
    for layer in range(n_layer):
        at = f"blk.{layer}."
        tensors |= {f"{at}{name}.weight": ones(n_embd) for name in ("attn_norm", "ffn_norm")}
        after = ("post_attention_norm", "post_ffw_norm")
        tensors |= {f"{at}{name}.weight": noise * ones(n_embd) for name in after}
        tensors |= weights.ffn(at, n_embd) | {
            f"{at}attn_q.weight": weights.matrix(N_HEAD * HEAD, n_embd),
            f"{at}attn_output.weight": weights.matrix(n_embd, N_HEAD * HEAD),
            f"{at}attn_q_norm.weight": ones(HEAD),
            f"{at}layer_output_scale.weight": ones(1),
        }
    return write_model(path, "gemma4-assistant", metadata, tensors, n_vocab=n_vocab)
