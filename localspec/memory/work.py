"""How many values a layer keeps at once while it mixes tokens, by kind of layer.

Read in llama.cpp's graphs (``models/*.cpp``), with what its allocator does to them
(``ggml-alloc.c``: a value is freed after its last use, and an element-wise operation writes over
its input). Checked against the buffer sizes that llama.cpp reports for models of several shapes
(``tests/llama/test_memory.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.header import Header


@dataclass(frozen=True, slots=True)
class Work:
    """Values per token, beside the stream that every layer adds to.

    ``width``: alive at once. ``result``: of these, what comes out together with the new recurrent
    states, in one piece; it goes where ``spare`` values per token are free again, if it fits.
    """

    width: int = 0
    result: int = 0
    spare: int = 0


NO_WORK = Work()


def work_of_attention(header: Header, layer: int, kv_width: int, *, in_window: bool) -> Work:
    """Attention with flash attention on. ``kv_width``: values of a token's key and value.

    Queries, keys and values are made from the normed input; queries and result are alive together,
    and a result no wider than the model takes the input's place. Gated queries (models/qwen35.cpp)
    come with their gates in one piece, from which the normed queries and the gates are copied.
    """
    suffix = "_swa" if in_window else ""
    key = header.number(f"attention.key_length{suffix}") or header.n_embd_head_k
    value = header.number(f"attention.value_length{suffix}") or header.n_embd_head_v
    queries, result = (header.n_head[layer] * length for length in (key, value))
    if _query_rows(header, layer) == 2 * queries:
        return Work(4 * queries + kv_width)
    beside = header.n_embd if result <= header.n_embd else header.n_embd + result
    return Work(kv_width + queries + beside)


def work_of_recurrence(header: Header) -> Work:
    """A layer with a recurrent state.

    ``models/lfm2.cpp`` (short convolution), ``models/delta-net-base.cpp`` with qwen35.cpp and
    kimi-linear.cpp, ``models/mamba-base.cpp``; others are taken for the last kind.
    """
    number, n_embd = header.number, header.n_embd
    if number("shortconv.l_cache"):
        # Three projections in one, their product, and that behind the earlier inputs.
        return Work(5 * n_embd)
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    keys = number("ssm.group_count") * state
    if kda := number("kda.head_dim"):
        inner = keys = max(header.n_head, default=0) * kda
    if kda or _has_delta_rule(header):
        # The mixed projection, then that behind the earlier ones, then the convolution's result;
        # beside them the gates. Of the first two the normed queries and keys take a part.
        mixed = inner + 2 * keys
        return Work(3 * mixed + inner, result=inner, spare=2 * mixed - 2 * keys)
    mixed = inner + 2 * keys
    # Gates and inputs in one, the convolution's result, time steps, what the scan gives.
    return Work(n_embd + 2 * inner + 3 * mixed)


def _has_delta_rule(header: Header) -> bool:
    return header.architecture.startswith(("qwen3", "qwen4"))


def _query_rows(header: Header, layer: int) -> int:
    name = f"blk.{layer}.attn_q.weight"
    shapes = (tensor.shape for tensor in header.tensors if tensor.name == name)
    return next((shape[1] for shape in shapes if len(shape) == 2), 0)
