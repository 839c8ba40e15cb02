"""Multi-token-prediction (MTP) heads, as the header of a file shows them: which there are, whether
llama.cpp can run them, and whether a file of heads belongs to a target.

llama.cpp ends the process where a head lacks what its graph expects, so all of that is checked
here, from the header, before anything is loaded. What is not listed here is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localspec.header import Header

Kind = Literal["inside", "apart", "shared"]
"""``inside`` the target's own file; ``apart``: a file with heads only, of the target's
architecture; ``shared``: a small model of its own that reads the target's cache (Gemma 4)."""

# Architectures with a graph for MTP heads (llama.cpp, src/models), and what each asserts.
_ONE_HEAD = frozenset(
    {
        "qwen35", "qwen35moe", "qwen3next", "glm4moe", "nemotron_h_moe", "cohere2moe", "hy_v3",
    }
)  # fmt: skip
# Only these hand out the hidden state of the row that is asked for when a batch has several, which
# a chain of heads needs (hy_v3 does not).
_SEVERAL_HEADS = frozenset({"step35", "mimo2"})
_ASSISTANTS = {"gemma4-assistant": "gemma4"}
_BLOCK = ("nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight")
_ALSO = {
    "qwen35moe": ("ffn_gate_inp.weight",),
    "qwen3next": ("ffn_gate_inp.weight",),
    "glm4moe": ("ffn_gate_inp.weight",),
    "cohere2moe": ("ffn_gate_inp.weight",),
    "nemotron_h_moe": ("ffn_gate_inp.weight", "nextn.shared_head_norm.weight"),
    "mimo2": ("attn_qkv.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
}
_TURNS_WHOLE_KEYS = frozenset({"hy_v3", "cohere2moe"})
_EITHER_BLOCK = frozenset({"hy_v3", "step35"})


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a file. ``n``: how many; ``unusable``: why they cannot be run, or empty."""

    kind: Kind
    n: int
    unusable: str = ""

    @property
    def chained(self) -> bool:
        """Each head drafts one token; otherwise one head drafts as many as wanted."""
        return self.n > 1 and self.kind != "shared"


def heads_of(header: Header) -> Heads | None:
    """The MTP heads in a file; None when it has none (also when its settings claim some, but the
    tensors were left out, as many conversions do)."""
    name, n = header.architecture, header.n_layer_nextn
    if name in _ASSISTANTS:
        return Heads("shared", max(1, n))
    if n == 0:
        return None
    there = {tensor.name for tensor in header.tensors}
    if not any(".nextn." in tensor for tensor in there):
        return None
    kind: Kind = "inside" if "blk.0.attn_norm.weight" in there else "apart"
    return Heads(kind, n, _unusable(header, there))


def _unusable(header: Header, there: set[str]) -> str:
    name, n = header.architecture, header.n_layer_nextn
    if name not in _ONE_HEAD and name not in _SEVERAL_HEADS:
        return f"llama.cpp has no way to run the MTP heads of a {name} model"
    if n > 1 and name in _ONE_HEAD:
        return f"it has {n} MTP heads, and one of a {name} model can be run"
    if header.n_embd_head_k != header.n_embd_head_v and name != "mimo2":
        return "its MTP heads have keys and values of different lengths"
    turned = header.number("rope.dimension_count", header.n_embd_head_k)
    if name in _TURNS_WHOLE_KEYS and turned != header.n_embd_head_k:
        return "its MTP heads turn only a part of each key"
    for head in range(n):
        block = f"blk.{header.n_layer + head}."
        for part in (*_BLOCK, *_ALSO.get(name, ())):
            if block + part not in there:
                return f"its MTP head {head + 1} lacks {part}"
        either = {f"{block}ffn_gate.weight", f"{block}ffn_gate_inp.weight"}
        if name in _EITHER_BLOCK and not either & there:
            return f"its MTP head {head + 1} lacks a feed-forward block"
        own_output = f"{block}nextn.shared_head_head.weight"
        if name in _SEVERAL_HEADS and not {"output.weight", own_output} & there:
            return f"its MTP head {head + 1} has no output matrix"
    return ""


def holds_only_heads(header: Header) -> bool:
    """Whether a file is no model of its own: without the target it can say nothing."""
    found = heads_of(header)
    return found is not None and found.kind != "inside"


def mismatch(target: Header, heads: Header) -> str:
    """Why the heads in ``heads`` do not belong to ``target``; empty when they do. The vocabularies
    are compared elsewhere."""
    found = heads_of(heads)
    if found is None:
        return "it has no MTP heads"
    if found.unusable:
        return found.unusable
    if found.kind == "inside":
        return ""
    wanted = _ASSISTANTS.get(heads.architecture, heads.architecture)
    if target.architecture != wanted:
        return f"its heads are for a {wanted} model, and the target is {target.architecture}"
    if found.kind == "shared":
        return _shared_mismatch(target, heads)
    if target.n_embd != heads.n_embd or target.n_layer != heads.n_layer:
        return "its heads are for a model of another size"
    return ""


def _shared_mismatch(target: Header, heads: Header) -> str:
    """A Gemma-4 assistant asks the target's last two layers: their keys must have its shape."""
    if heads.number("embedding_length_out") != target.n_embd:
        return "its heads are for a model of another size"
    names = ("attention.key_length", "attention.key_length_swa", "attention.sliding_window")
    if any(heads.number(name) != target.number(name) for name in names):
        return "its heads expect another attention than the target has"
    windows = target.metadata.get(f"{target.architecture}.attention.sliding_window_pattern")
    if not isinstance(windows, tuple) or len(windows) < 2 or not windows[-2] or windows[-1]:
        return "its heads expect a sliding window in the last layer but one, and none in the last"
    per_key = target.n_head_kv[-2:]
    if any(n == 0 or head % n for n in per_key for head in heads.n_head):
        return "its heads do not divide evenly among the target's keys"
    return ""
