"""Every part of memory that a model takes, with its bytes and its device.

The rules were read in llama.cpp (named at each function) and checked against its own log of buffer
sizes; ``bench/memory_table.py`` repeats that check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from localspec.budget import DeviceKind, DeviceMemory
from localspec.ggml_types import BY_NAME
from localspec.memory.compute import compute_bytes, input_bytes
from localspec.memory.layers import Layer
from localspec.memory.settings import Settings, kv_cells
from localspec.memory.shape import Shape

__all__ = ["MIB", "Part", "Role", "Settings", "kv_cells", "placement", "plan_memory"]

Role = Literal["target", "draft", "both"]

MIB = 1 << 20
_F32 = 4
_INDEX_BYTES_PER_TOKEN = 320  # dictionary entries and chains of the lookup index
# What llama.cpp keeps per token text and per merge (maps and strings), measured on vocabularies of
# 49k, 152k and 262k tokens, and what a loaded model costs besides.
_TOKEN_BYTES, _MERGE_BYTES, _MODEL_BYTES = 165, 157, 1.5 * MIB
# What the driver and its kernels take on a device once it is used. Rough: it depends on the driver.
_DRIVER_BYTES: dict[DeviceKind, int] = {
    "cuda": 400 * MIB,
    "rocm": 400 * MIB,
    "sycl": 300 * MIB,
    "vulkan": 150 * MIB,
    "metal": 64 * MIB,
    "other": 150 * MIB,
}
# Beside these devices llama.cpp leaves the CPU's share in the file's own order, so that large
# batches can be sent over (llama-model.cpp: make_cpu_buft_list puts their host buffers first).
_NO_REPACKING_BESIDE = {"cuda", "rocm", "sycl", "vulkan"}
_RESERVE_BYTES = 64 * MIB
_RESERVE_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Part:
    """``n_bytes`` of ``device`` for one purpose. ``evictable_bytes`` of them are file pages that
    are read once while loading and that the system may drop afterwards without loss."""

    what: str
    role: Role
    device: str
    n_bytes: int
    evictable_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """What must be there all the time."""
        return self.n_bytes - self.evictable_bytes


def plan_memory(
    target: Shape,
    settings: Settings,
    devices: Sequence[DeviceMemory],
    draft: Shape | None = None,
    draft_settings: Settings | None = None,
    *,
    lookup: bool = True,
) -> tuple[Part, ...]:
    """All parts for a target and perhaps a draft, on ``devices`` (the CPU first).

    The draft's context is never longer than the target's. Raises ValueError for a draft without
    settings.
    """
    rows = settings.n_rows if lookup or draft is not None else 1
    parts = [*_model_parts("target", target, settings, devices, rows)]
    if draft is not None:
        if draft_settings is None:
            raise ValueError("a draft needs settings")
        if draft.has_state:
            # A second sequence keeps the state from before the draft (llama/rollback.py).
            draft_settings = replace(draft_settings, n_rs_seq=1)
        parts += _model_parts("draft", draft, draft_settings, devices, 1)
    cpu = devices[0].name
    if lookup:
        n_bytes = settings.n_ctx * _INDEX_BYTES_PER_TOKEN
        parts.append(Part("lookup index", "both", cpu, n_bytes))
    used = {part.device for part in parts if part.n_bytes}
    for device in devices:
        if device.kind != "cpu" and device.name in used:
            parts.append(Part("driver", "both", device.name, _DRIVER_BYTES[device.kind]))
    for device in devices:
        if device.name in used:
            total = sum(part.n_bytes for part in parts if part.device == device.name)
            n_bytes = _RESERVE_BYTES + int(total * _RESERVE_SHARE)
            parts.append(Part("reserve", "both", device.name, n_bytes))
    return tuple(part for part in parts if part.n_bytes)


def placement(shape: Shape, n_gpu_layers: int, devices: Sequence[DeviceMemory]) -> list[int]:
    """Index into ``devices`` for each layer and, last, the output (llama-model.cpp: load_tensors).

    With several accelerators each gets layers in proportion to its free memory.
    """
    n = len(shape.layers) + 1
    n_gpu = min(max(n_gpu_layers, 0), n) if len(devices) > 1 else 0
    result = [0] * (n - n_gpu)
    free = [max(device.n_bytes_free, 1) for device in devices[1:]]
    limits = [sum(free[: place + 1]) / sum(free) for place in range(len(free))]
    for layer in range(n_gpu):
        share = layer / n_gpu
        result.append(1 + next(place for place, limit in enumerate(limits) if share < limit))
    return result


# -- one model -----------------------------------------------------------------------------------


def _model_parts(
    role: Role, shape: Shape, settings: Settings, devices: Sequence[DeviceMemory], rows: int
) -> list[Part]:
    where = placement(shape, settings.n_gpu_layers, devices)
    cpu = devices[0].name
    parts = _weights(role, shape, where, devices)
    if not shape.is_inside:
        table = shape.n_vocab * _TOKEN_BYTES + shape.n_merges * _MERGE_BYTES + _MODEL_BYTES
        parts.append(Part("vocabulary", role, cpu, int(table)))
    if shape.is_heads:
        # Of each token of a batch: the target's output (llama-context.cpp: output_reserve), those
        # that wait, and the heads' batch; the last two take a draft besides (llama/mtp.py).
        n_states = 3 * settings.n_batch + 2 * settings.n_rows + 1
        n_bytes = n_states * (shape.n_embd_state or shape.n_embd) * _F32
        parts.append(Part("hidden states", role, cpu, n_bytes))
    parts += _caches(role, shape, settings, where, devices)
    # Recurrent states that are put aside: the end of the prompt (the target's only), and one from
    # before the tokens that are being tried.
    n_saved = 2 if role == "target" else 1
    state_bytes = sum(layer.state_bytes for layer in shape.layers)
    parts.append(Part("saved states", role, cpu, n_saved * state_bytes))
    for index in sorted({0, *where}):
        on_cpu = index == 0
        if on_cpu and where.count(0) == 0:
            # The graph runs elsewhere; its inputs are prepared here.
            n_bytes = input_bytes(shape, settings)
        else:
            n_bytes = compute_bytes(shape, settings, rows if on_cpu else settings.n_rows)
        parts.append(Part("compute buffers", role, devices[index].name, n_bytes))
    parts.append(Part("logits", role, cpu, rows * shape.n_vocab * _F32))
    return parts


def _weights(
    role: Role, shape: Shape, where: Sequence[int], devices: Sequence[DeviceMemory]
) -> list[Part]:
    on_device: Counter[int] = Counter()
    mapped, copies = shape.input.weight_bytes, 0
    pieces: list[Layer] = [*shape.layers, shape.output]
    for place, index in zip(pieces, where, strict=True):
        if index:
            on_device[index] += place.weight_bytes
        else:
            mapped += place.weight_bytes
            copies += place.repacked_bytes
    if any(device.kind in _NO_REPACKING_BESIDE for device in devices):
        copies = 0
    if where[-1] == 0:
        mapped -= shape.output_copy_bytes  # the output reads the input's pages
    elif devices[where[-1]].kind == "metal":
        on_device[where[-1]] -= shape.output_copy_bytes  # Metal, too: it uses the mapped file
    parts = [
        Part("weights", role, devices[0].name, mapped, evictable_bytes=min(copies, mapped)),
        Part("rearranged weights", role, devices[0].name, copies),
    ]
    return parts + [
        Part("weights", role, devices[index].name, n_bytes)
        for index, n_bytes in sorted(on_device.items())
    ]


def _caches(
    role: Role,
    shape: Shape,
    settings: Settings,
    where: Sequence[int],
    devices: Sequence[DeviceMemory],
) -> list[Part]:
    """Keys and values (llama-kv-cache.cpp) and recurrent states (llama-memory-recurrent.cpp)."""
    keys: Counter[int] = Counter()
    states: Counter[int] = Counter()
    for layer, index in zip(shape.layers, where[:-1], strict=True):
        place = index if settings.offload_kqv else 0
        cells = kv_cells(settings.n_ctx, layer.window, settings)
        keys[place] += _row_bytes(settings.type_k, layer.k_width) * cells
        keys[place] += _row_bytes(settings.type_v, layer.v_width) * cells
        states[place] += layer.state_bytes * (1 + settings.n_rs_seq)
    return [
        Part(what, role, devices[index].name, n_bytes)
        for what, counter in (("KV cache", keys), ("recurrent state", states))
        for index, n_bytes in sorted(counter.items())
        if n_bytes
    ]


def _row_bytes(type_name: str, width: int) -> int:
    kind = BY_NAME[type_name.upper()]
    return -(-width // kind.n_block) * kind.n_bytes
