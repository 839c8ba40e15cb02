"""The buffer in which llama.cpp computes: what is alive at once in its graph.

It is made for the largest pass (llama-context.cpp: ``sched_reserve``), as large as
``ggml-alloc.c`` needs it: a value is put into the smallest hole that takes it, else at the end.
"""

from __future__ import annotations

from localspec.memory.layers import Layer
from localspec.memory.settings import Settings, kv_cells
from localspec.memory.shape import Shape

_F32, _F16 = 4, 2
_INDEX_BYTES = 32  # per token: its id, positions, and where its key and value go
_MOST_BESIDE_LOGITS = 0.1


def compute_bytes(shape: Shape, settings: Settings, rows: int) -> int:
    """Bytes of the buffer of a model or of MTP heads, with ``rows`` rows of logits.

    Three places compete: mixing tokens, a feed-forward block, and the logits. With flash attention
    off a fourth: all scores of a pass.
    """
    graph = _heads(shape, settings) if shape.is_heads else _model(shape, settings)
    widest = max(graph, _output(shape, settings, rows), _scores(shape, settings))
    return widest + settings.n_pass * _INDEX_BYTES + quantised_bytes(shape, settings)


def quantised_bytes(shape: Shape, settings: Settings) -> int:
    """What the threads quantise their inputs into, for weights that are (ggml-cpu.c:
    ggml_graph_plan). llama.cpp reports it nowhere."""
    return settings.n_pass * max(shape.n_ff, shape.n_embd) * 9 // 8


def input_bytes(shape: Shape, settings: Settings) -> int:
    """Bytes of what is prepared on the CPU for a graph that runs elsewhere."""
    return mask_bytes(shape, settings) + settings.n_pass * shape.n_embd * _F32


def mask_bytes(shape: Shape, settings: Settings) -> int:
    """The attention masks: for each kind of cache a row per token of a pass, a column per cell
    (llama-graph.cpp)."""
    # Heads without a cache of their own look into the target's.
    windows = {layer.window for layer in shape.layers if layer.k_width or shape.is_heads}
    return sum(_mask_bytes(window, settings) for window in windows)


def _mask_bytes(window: int, settings: Settings) -> int:
    cells = kv_cells(settings.n_ctx, window, settings)
    return cells * settings.n_pass * (_F16 if settings.flash_attn else _F32)


def _model(shape: Shape, settings: Settings) -> int:
    """Masks, and beside them the widest layer or feed-forward block.

    Two streams are always there: the one that layers add to, and one for inputs that are vectors
    (llama-graph.cpp: build_inp_embd). A feed-forward block holds its two inner products and the
    result of both; what is free by then are two pieces as wide as the model, which it can use if
    it is no wider.
    """
    n, wide = settings.n_pass, shape.n_embd
    holes = 0 if shape.n_ff <= wide else wide if shape.n_ff <= 2 * wide else 2 * wide
    block = n * _F32 * (3 * shape.n_ff + shape.n_ff_extra + holes)
    mixing = max((_mixing(layer, settings) for layer in shape.layers), default=0)
    return mask_bytes(shape, settings) + n * _F32 * 2 * wide + max(block, mixing)


def _mixing(layer: Layer, settings: Settings) -> int:
    n, work = settings.n_pass, layer.work
    n_bytes = n * _F32 * work.width + layer.state_bytes
    result = n * _F32 * work.result + (1 + settings.n_rs_seq) * layer.state_bytes
    if layer.state_bytes and result > n * _F32 * work.spare:
        n_bytes += result
    return n_bytes + _casts(layer, settings)


def _casts(layer: Layer, settings: Settings) -> int:
    """Flash attention reads a copy of a wide cache (llama-graph.cpp: build_attn_mha)."""
    if not settings.flash_attn:
        return 0
    cells = kv_cells(settings.n_ctx, layer.window, settings)
    pairs = ((settings.type_k, layer.k_width), (settings.type_v, layer.v_width))
    return sum(cells * width * _F16 for kind, width in pairs if kind == "f32")


def _heads(shape: Shape, settings: Settings) -> int:
    """MTP heads. They begin with a token's embedding and a hidden state, each normed, and both in
    one piece (graph_mtp in models/*.cpp; models/gemma4-assistant.cpp).

    A head that follows no other needs its mask no longer when its feed-forward block comes.
    """
    n = settings.n_pass
    begin = n * _F32 * 4 * (shape.n_embd_state or shape.n_embd)
    if shape.is_chained:
        return max(_head([layer], shape, settings, begin) for layer in shape.layers)
    return _head(list(shape.layers), shape, settings, begin)


def _head(layers: list[Layer], shape: Shape, settings: Settings, begin: int) -> int:
    n, stream = settings.n_pass, settings.n_pass * _F32 * shape.n_embd
    windows = {layer.window for layer in layers}
    masks = [_mask_bytes(window, settings) for window in windows]
    mixing = stream + max(_mixing(layer, settings) for layer in layers)
    inner = n * _F32 * shape.n_ff
    # One stream, or two where another layer follows.
    block = 3 * inner + stream * min(2, len(layers))
    hole = min(masks)  # of the kind that is done with first
    if len(layers) == 1 and block <= hole:
        block = 0
    elif inner <= hole:
        block -= inner
    return sum(masks) + max(begin, mixing, block)


def _output(shape: Shape, settings: Settings, rows: int) -> int:
    """Logits, the stream, and a hole that a mask has left in front of them."""
    logits = rows * shape.n_vocab * _F32
    hole = min(mask_bytes(shape, settings), int(_MOST_BESIDE_LOGITS * logits))
    return logits + (settings.n_pass + rows) * shape.n_embd * _F32 + hole


def _scores(shape: Shape, settings: Settings) -> int:
    """All scores of a pass, for every query head, with flash attention off."""
    if settings.flash_attn or not any(layer.k_width for layer in shape.layers):
        return 0
    cells = kv_cells(settings.n_ctx, 0, settings)
    wide = max(shape.n_embd, shape.n_head * shape.n_embd_head)
    values = shape.n_head * cells + int(5.5 * wide)
    return mask_bytes(shape, settings) + settings.n_pass * _F32 * values
