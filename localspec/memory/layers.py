"""One layer of a model, and what each layer caches by architecture.

The rules are those of llama.cpp: ``llama-hparams.cpp`` (sizes), ``llama-model.cpp`` (which memory
an architecture gets) and ``models/*.cpp`` (which layers have a sliding window or a recurrent
state).
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.header import Header
from localspec.memory.work import NO_WORK, Work, work_of_attention, work_of_recurrence

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


@dataclass(frozen=True, slots=True)
class Layer:
    """``weight_bytes`` of which ``repacked_bytes`` would be copied on a CPU; ``k_width`` and
    ``v_width``: values that one cell of the cache holds (0: this layer caches nothing); ``window``
    tokens it sees (0: all); ``state_bytes``: recurrent state of one sequence; ``work``: what is
    alive while it mixes tokens."""

    weight_bytes: int
    repacked_bytes: int = 0
    k_width: int = 0
    v_width: int = 0
    window: int = 0
    state_bytes: int = 0
    work: Work = NO_WORK


def cached_layers(header: Header) -> list[Layer]:
    """Per layer what is cached, without weights: keys, values, recurrent state."""
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
        k_width, v_width = heads * key, 0 if header.is_mla else heads * value
        work = NO_WORK
        if recurrent[number]:
            work = work_of_recurrence(header)
        elif attention[number]:
            in_window = windows[number] > 0
            work = work_of_attention(header, number, k_width + v_width, in_window=in_window)
        result.append(
            Layer(
                weight_bytes=0,
                k_width=k_width,
                v_width=v_width,
                window=windows[number],
                state_bytes=state if recurrent[number] else 0,
                work=work,
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


def listed_windows(header: Header) -> list[int]:
    """The window of each layer, heads included; only a list in the file says it of heads."""
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    flags = list(pattern) if isinstance(pattern, tuple) else []
    flags += [False] * (header.n_layer_all - len(flags))
    return [header.n_swa if flag else 0 for flag in flags]
