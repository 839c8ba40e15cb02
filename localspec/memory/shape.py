"""The shape of a model as far as memory goes: what each layer weighs and what it caches.

Made from a header, or from the few numbers that a catalog has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localspec.header import Header, Tensor, Value
from localspec.memory.layers import Layer, cached_layers, listed_windows
from localspec.memory.repack import repacked_bytes
from localspec.memory.work import work_of_attention
from localspec.nextn import heads_of

_F32 = 4
_BLOCK = re.compile(r"blk\.(\d{1,4})\.")


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of a model that a memory plan needs. Bytes and counts.

    ``input``, ``output``: the weights before and behind the layers. ``tied``: the output is a
    second use of the input embedding, so that off the CPU it needs a copy of its own. ``n_ff``:
    inner width of a feed-forward block for one token, over all experts that are used;
    ``n_ff_extra``: what the experts' results take besides. ``estimated``: made from rough numbers
    instead of a header. ``is_heads``: MTP heads, which hold the target's hidden states;
    ``is_inside``: of the target's own file, so that they share its vocabulary; ``is_chained``: each
    of them drafts one token; ``n_embd_state``: width of those states, if it is not ``n_embd``.
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
    is_chained: bool = False
    n_embd_state: int = 0

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
                outputs[1] += repacked_bytes(tensor, repacked)
        else:
            _add(outputs, tensor, repacked)
    caches = cached_layers(header)
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
        n_embd_state = header.number("embedding_length_out")
        return replace(whole, layers=layers, is_heads=True, n_embd_state=n_embd_state)
    whole = _from_header(header, repacked)
    sums = {number: [0, 0] for number in range(header.n_layer, header.n_layer_all)}
    for tensor in header.tensors:
        block = _BLOCK.match(tensor.name)
        if block and int(block[1]) in sums:
            _add(sums[int(block[1])], tensor, repacked)
    keys, values = header.n_embd_head_k, 0 if header.is_mla else header.n_embd_head_v
    n_head_kv, windows = header.n_head_kv, listed_windows(header)
    layers = tuple(
        Layer(
            weight,
            copy,
            k_width=n_head_kv[at] * keys,
            v_width=n_head_kv[at] * values,
            window=windows[at],
            work=work_of_attention(
                header, at, n_head_kv[at] * (keys + values), in_window=windows[at] > 0
            ),
        )
        for at, (weight, copy) in sums.items()
    )
    heads = replace(whole, layers=layers, is_heads=True, is_chained=found.chained)
    if found.kind == "apart":
        return heads
    nothing = Layer(0)
    return replace(heads, input=nothing, output=nothing, is_inside=True)


def _without_heads(header: Header) -> dict[str, Value]:
    name = f"{header.architecture}.nextn_predict_layers"
    return {key: value for key, value in header.metadata.items() if key != name}


def _add(sums: list[int], tensor: Tensor, repacked: frozenset[str]) -> None:
    sums[0] += tensor.n_bytes
    sums[1] += repacked_bytes(tensor, repacked)


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
