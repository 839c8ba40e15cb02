"""The shape of a model as far as memory goes: what each layer weighs and what it caches.

Made from a header, or from the few numbers that a catalog has. The rules are those of llama.cpp:
``llama-hparams.cpp`` (sizes), ``llama-model.cpp`` (which memory an architecture gets) and
``models/*.cpp`` (which layers have a sliding window or a recurrent state).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localspec.header import Header, Tensor, Value
from localspec.nextn import heads_of

# Layers in a period, of which the last (or, with True, the first) has full attention.
_SWA_PERIOD: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone-moe": (4, False),
    "exaone4": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "llama4": (4, False),
    "mellum": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}
_SWA_DEFAULT = {"gemma2": 4096, "exaone4": 4096, "smallthinker": 4096, "exaone-moe": 128}
_RECURRENT_PERIOD = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "minimax-01": 8}
_ALL_RECURRENT = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"}
_KV_FROM_START = {"gemma3n": 20}
_LLAMA4_WINDOW = 8192
_F32 = 4
_BLOCK = re.compile(r"blk\.(\d{1,4})\.")
_REPACK_ROWS = 8  # rows that llama.cpp interleaves when it repacks


def repacked_types(features: Collection[str]) -> frozenset[str]:
    """Which tensor types llama.cpp keeps a second, rearranged copy of on a CPU with ``features``.

    Feature names are those of Linux (``avx2``, ``avx512f``, ``asimddp``) or llama.cpp
    (``AVX2``, ``DOTPROD``). Source: ggml-cpu/repack.cpp, ggml_repack_get_optimal_repack_type.
    """
    names = {name.lower() for name in features}
    found: set[str] = set()
    if "avx2" in names:
        found |= {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}
    if names & {"avx512", "avx512f"}:
        found.add("Q2_K")
    if names & {"asimddp", "dotprod", "i8mm", "matmul_int8"}:
        found |= {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"}
    if "amx_int8" in names:  # ggml-cpu/amx/common.h, qtype_has_amx_kernels
        found |= {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Layer:
    """``weight_bytes`` of which ``repacked_bytes`` would be copied on a CPU; ``k_width`` and
    ``v_width``: values that one cell of the cache holds (0: this layer caches nothing); ``window``
    tokens it sees (0: all); ``state_bytes``: recurrent state of one sequence."""

    weight_bytes: int
    repacked_bytes: int = 0
    k_width: int = 0
    v_width: int = 0
    window: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of a model that a memory plan needs. Bytes and counts.

    ``input``, ``output``: the weights before and behind the layers. ``tied``: the output is a
    second use of the input embedding, so that off the CPU it needs a copy of its own. ``n_ff``:
    inner width of a feed-forward block for one token, over all experts that are used;
    ``n_ff_extra``: what the experts' results take besides. ``estimated``: made from rough numbers
    instead of a header. ``is_heads``: MTP heads, which hold the target's hidden states;
    ``is_inside``: of the target's own file, so that they share its vocabulary.
    """

    layers: tuple[Layer, ...]
    input: Layer
    output: Layer
    tied: bool
    n_embd: int
    n_head: int
    n_embd_head: int
    n_ff: int
    n_ff_extra: int
    n_vocab: int
    n_merges: int
    n_ctx_train: int
    estimated: bool = False
    is_heads: bool = False
    is_inside: bool = False

    @property
    def weight_bytes(self) -> int:
        """All weights, once."""
        whole = (self.input, *self.layers, self.output)
        return sum(layer.weight_bytes for layer in whole) - (
            self.output_copy_bytes if self.tied else 0
        )

    @property
    def output_copy_bytes(self) -> int:
        """What a tied output weighs where it cannot share the input's memory."""
        return self.input.weight_bytes if self.tied else 0

    @property
    def has_state(self) -> bool:
        """Some layer is recurrent: its state cannot be rolled back by cutting it off."""
        return any(layer.state_bytes for layer in self.layers)

    def scaled_to(self, n_bytes: int) -> Shape:
        """The same model with ``n_bytes`` of weights: for a split model of which only the first
        part's header is known, so that most of its tensors are not."""
        named = self.input.weight_bytes + (self.output.weight_bytes - self.output_copy_bytes)
        share = max(0, n_bytes - named) // max(1, len(self.layers))
        layers = tuple(
            replace(
                layer,
                weight_bytes=share,
                repacked_bytes=_scaled(layer.repacked_bytes, layer.weight_bytes, share),
            )
            for layer in self.layers
        )
        return replace(self, layers=layers, estimated=True)

    @classmethod
    def of(cls, header: Header, repacked: Collection[str] = ()) -> Shape:
        """From a whole header (of all parts of a split model, joined)."""
        return _from_header(header, frozenset(repacked))

    @classmethod
    def of_heads(cls, header: Header, repacked: Collection[str] = ()) -> Shape | None:
        """The MTP heads in a file, without what they share with the target; None: it has none."""
        return _heads(header, frozenset(repacked))

    @classmethod
    def of_numbers(
        cls, numbers: Mapping[str, Any], n_bytes: int, *, repacks: bool = False
    ) -> Shape | None:
        """From a catalog's numbers and the size of the file; None when they do not suffice.

        The weights are spread evenly over the layers. ``repacks``: this CPU keeps rearranged
        copies.
        """
        return _from_numbers(numbers, n_bytes, repacks=repacks)


def _scaled(part: int, whole: int, new_whole: int) -> int:
    return part * new_whole // whole if whole else 0


# -- from a header -------------------------------------------------------------------------------


def _from_header(header: Header, repacked: frozenset[str]) -> Shape:
    n_layer = header.n_layer
    sums = [[0, 0] for _ in range(n_layer)]
    inputs, outputs = [0, 0], [0, 0]
    names = {tensor.name for tensor in header.tensors}
    tied = "output.weight" not in names
    for tensor in header.tensors:
        found = _BLOCK.match(tensor.name)
        if found:
            number = int(found[1])
            if number < n_layer:  # what is behind them (MTP heads) is not loaded
                _add(sums[number], tensor, repacked)
        elif tensor.name.startswith(("token_embd", "per_layer_token_embd", "position_embd")):
            inputs[0] += tensor.n_bytes
            if tied and tensor.name == "token_embd.weight":
                outputs[1] += _repacked_bytes(tensor, repacked)
        else:
            _add(outputs, tensor, repacked)
    caches = _caches(header)
    layers = tuple(
        replace(cache, weight_bytes=weight, repacked_bytes=copy)
        for cache, (weight, copy) in zip(caches, sums, strict=True)
    )
    return Shape(
        layers=layers,
        input=Layer(inputs[0]),
        output=Layer(outputs[0] + (inputs[0] if tied else 0), outputs[1]),
        tied=tied,
        n_embd=header.n_embd,
        n_head=max(header.n_head, default=0),
        n_embd_head=header.n_embd_head_k,
        n_ff=_n_ff(header),
        n_ff_extra=header.n_expert_used * header.n_embd,
        n_vocab=header.n_vocab,
        n_merges=_count(header, "tokenizer.ggml.merges"),
        n_ctx_train=header.n_ctx_train,
    )


def _heads(header: Header, repacked: frozenset[str]) -> Shape | None:
    found = heads_of(header)
    if found is None:
        return None
    if found.kind == "shared":
        # Its layers are all heads to llama.cpp; they read the target's cache.
        whole = _from_header(replace(header, metadata=_without_heads(header)), repacked)
        layers = tuple(replace(layer, k_width=0, v_width=0) for layer in whole.layers)
        return replace(whole, layers=layers, is_heads=True)
    whole = _from_header(header, repacked)
    sums = {number: [0, 0] for number in range(header.n_layer, header.n_layer_all)}
    for tensor in header.tensors:
        block = _BLOCK.match(tensor.name)
        if block and int(block[1]) in sums:
            _add(sums[int(block[1])], tensor, repacked)
    keys, values = header.n_embd_head_k, 0 if header.is_mla else header.n_embd_head_v
    n_head_kv, windows = header.n_head_kv, _listed_windows(header)
    layers = tuple(
        Layer(
            weight,
            copy,
            k_width=n_head_kv[at] * keys,
            v_width=n_head_kv[at] * values,
            window=windows[at],
        )
        for at, (weight, copy) in sums.items()
    )
    if found.kind == "apart":
        return replace(whole, layers=layers, is_heads=True)
    nothing = Layer(0)
    return replace(
        whole, layers=layers, input=nothing, output=nothing, is_heads=True, is_inside=True
    )


def _listed_windows(header: Header) -> list[int]:
    """The window of each layer, heads included; only a list in the file says it of heads."""
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    flags = list(pattern) if isinstance(pattern, tuple) else []
    flags += [False] * (header.n_layer_all - len(flags))
    return [header.n_swa if flag else 0 for flag in flags]


def _without_heads(header: Header) -> dict[str, Value]:
    name = f"{header.architecture}.nextn_predict_layers"
    return {key: value for key, value in header.metadata.items() if key != name}


def _add(sums: list[int], tensor: Tensor, repacked: frozenset[str]) -> None:
    sums[0] += tensor.n_bytes
    sums[1] += _repacked_bytes(tensor, repacked)


def _repacked_bytes(tensor: Tensor, repacked: frozenset[str]) -> int:
    if tensor.type.name not in repacked or not 2 <= len(tensor.shape) <= 3:
        return 0
    return tensor.n_bytes if tensor.shape[1] % _REPACK_ROWS == 0 else 0


def _count(header: Header, key: str) -> int:
    if key in header.arrays:
        return header.arrays[key].count
    value = header.metadata.get(key)
    return len(value) if isinstance(value, tuple) else 0


def _n_ff(header: Header) -> int:
    dense = max(header.per_layer("feed_forward_length"), default=0)
    expert = header.number("expert_feed_forward_length", dense if header.n_expert else 0)
    shared = header.number("expert_shared_feed_forward_length")
    used = header.n_expert_used * expert + shared
    lead = header.number("leading_dense_block_count")
    if not header.n_expert:
        return dense
    return max(used, dense) if lead else used or dense


def _caches(header: Header) -> list[Layer]:
    """Per layer what is cached, without weights."""
    recurrent, attention = _layer_kinds(header)
    windows = _windows(header)
    owners = _KV_FROM_START.get(header.architecture)
    if owners is None:
        owners = header.n_layer_all - header.number("attention.shared_kv_layers")
    state, n_head_kv = _state_bytes(header), header.n_head_kv
    full = header.n_embd_head_k, header.n_embd_head_v
    swa = (
        header.number("attention.key_length_swa") or full[0],
        header.number("attention.value_length_swa") or full[1],
    )
    result = []
    for number in range(header.n_layer):
        heads = n_head_kv[number] if attention[number] and number < owners else 0
        key, value = swa if windows[number] else full
        result.append(
            Layer(
                weight_bytes=0,
                k_width=heads * key,
                v_width=0 if header.is_mla else heads * value,
                window=windows[number],
                state_bytes=state if recurrent[number] else 0,
            )
        )
    return result


def _windows(header: Header) -> list[int]:
    """Tokens that each layer sees; 0: all."""
    n = header.n_layer
    window = header.n_swa or _SWA_DEFAULT.get(header.architecture, 0)
    if header.architecture == "llama4":
        window = _LLAMA4_WINDOW
    if not window:
        return [0] * n
    name = f"{header.architecture}.attention.sliding_window_pattern"
    pattern = header.metadata.get(name)
    if isinstance(pattern, tuple):
        flags = [bool(flag) for flag in pattern[:n]] + [False] * (n - len(pattern))
        return [window if flag else 0 for flag in flags]
    if header.architecture not in _SWA_PERIOD and not isinstance(pattern, int):
        return [0] * n  # llama.cpp gives such architectures (phi3, qwen2) full caches
    period, full_first = _SWA_PERIOD.get(header.architecture, (0, False))
    if isinstance(pattern, int):
        period = pattern
    full_at = 0 if full_first else period - 1
    return [0 if period and layer % period == full_at else window for layer in range(n)]


def _layer_kinds(header: Header) -> tuple[list[bool], list[bool]]:
    """Which layers are recurrent, and which have attention (Falcon-H1's are both)."""
    n, name = header.n_layer, header.architecture
    if name in _ALL_RECURRENT:
        return [True] * n, [False] * n
    if name == "falcon-h1":
        return [True] * n, [True] * n
    listed = header.metadata.get(f"{name}.attention.recurrent_layers")
    if isinstance(listed, tuple):
        recurrent = [bool(flag) for flag in listed[:n]] + [False] * (n - len(listed))
    elif name in _RECURRENT_PERIOD:
        period = header.number("full_attention_interval", _RECURRENT_PERIOD[name]) or 1
        recurrent = [(layer + 1) % period != 0 for layer in range(n)]
    elif header.is_recurrent:
        n_ff = header.per_layer("feed_forward_length")
        # Nemotron-H has layers that are neither: only a feed-forward block.
        plain = [name.startswith("nemotron_h") and n_ff[layer] > 0 for layer in range(n)]
        n_head_kv = header.n_head_kv
        recurrent = [n_head_kv[layer] == 0 and not plain[layer] for layer in range(n)]
        return recurrent, [not (recurrent[layer] or plain[layer]) for layer in range(n)]
    else:
        return [False] * n, [True] * n
    return recurrent, [not flag for flag in recurrent]


def _state_bytes(header: Header) -> int:
    """Recurrent state of one layer and sequence (llama-hparams.cpp: n_embd_r, n_embd_s)."""
    number, n_embd = header.number, header.n_embd
    heads = max(header.n_head, default=0)
    if wkv := number("wkv.head_size"):
        return (number("token_shift_count", 2) * n_embd + n_embd * wkv) * _F32
    if cache := number("shortconv.l_cache"):
        return n_embd * (cache - 1) * _F32
    kernel = number("ssm.conv_kernel")
    if kda := number("kda.head_dim"):
        row = 3 * (kernel - 1 if kernel else 3) * heads * kda
        return (row + kda * kda * heads) * _F32
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    row = max(kernel - 1, 0) * (inner + 2 * number("ssm.group_count") * state)
    return (row + state * inner) * _F32


# -- from a catalog's numbers --------------------------------------------------------------------


def _from_numbers(numbers: Mapping[str, Any], n_bytes: int, *, repacks: bool) -> Shape | None:
    def get(name: str, default: int = 0) -> int:
        value = numbers.get(name)
        return value if isinstance(value, int) and value >= 0 else default

    n_layer, n_embd, n_vocab = get("n_layer"), get("n_embd"), get("n_vocab")
    if not 0 < n_layer <= 4096 or not n_embd or not n_vocab:
        return None
    rank = get("kv_lora_rank")
    key, value = get("n_embd_head_k"), get("n_embd_head_v")
    if rank:
        full = swa = (rank + get("qk_rope_head_dim"), 0)
    else:
        wide, heads = get("n_embd_head_full"), get("n_head_kv")
        full_heads = get("n_head_kv_full", heads)
        full = (full_heads * (wide or key), full_heads * (wide or value))
        swa = (heads * key, heads * value)
    n_swa, n_recurrent = get("n_layer_swa"), get("n_layer_recurrent")
    n_full = get("n_layer_full", n_layer - n_swa - n_recurrent)
    embedding = min(n_vocab * n_embd * 17 // 16, n_bytes // 2)  # as if 8 bits per weight
    share = (n_bytes - embedding) // n_layer
    state_values = get("linear_v_heads") * get("linear_head_dim") ** 2
    conv = (
        (get("linear_conv") - 1)
        * get("linear_head_dim")
        * (get("linear_v_heads") + 2 * get("linear_k_heads"))
    )
    state = (state_values + max(conv, 0)) * _F32 if n_recurrent else 0
    base = Layer(share, share * 3 // 4 if repacks else 0)
    kinds = (
        [replace(base, k_width=full[0], v_width=full[1])] * n_full
        + [replace(base, k_width=swa[0], v_width=swa[1], window=get("n_swa"))] * n_swa
        + [replace(base, state_bytes=state or 1)] * n_recurrent
    )
    kinds = (kinds + [base] * n_layer)[:n_layer]
    owners = get("n_layer_kv", n_layer)
    layers = [
        layer if number < owners else replace(layer, k_width=0, v_width=0)
        for number, layer in enumerate(kinds)
    ]
    used = get("n_expert_used")
    return Shape(
        layers=tuple(layers),
        input=Layer(embedding),
        output=Layer(0),
        tied=False,
        n_embd=n_embd,
        n_head=get("n_head"),
        n_embd_head=key,
        n_ff=6 * n_embd,  # the widest that is usual
        n_ff_extra=used * n_embd,
        n_vocab=n_vocab,
        n_merges=n_vocab,
        n_ctx_train=get("n_ctx_train"),
        estimated=True,
    )
