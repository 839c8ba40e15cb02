"""How one model will be loaded, and what follows from that for its caches."""

from __future__ import annotations

from dataclasses import dataclass

_CELL_PADDING = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """How one model will be loaded.

    ``n_rows``: most rows of logits in one decode. ``n_gpu_layers``: layers on accelerators, counted
    from the last; one more than the model has puts the output there too. ``n_rs_seq``: extra copies
    of a recurrent state, for rolling back.
    """

    n_ctx: int
    n_batch: int = 512
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: bool = True
    swa_full: bool = False
    n_rows: int = 64
    n_gpu_layers: int = 0
    n_rs_seq: int = 0
    offload_kqv: bool = True

    @property
    def n_pass(self) -> int:
        """Tokens of one pass through the graph (llama-context.cpp: sched_reserve)."""
        return min(self.n_ubatch, self.n_batch, self.n_ctx)


def kv_cells(n_ctx: int, window: int, settings: Settings) -> int:
    """Cells of a layer's cache (llama-context.cpp; llama-kv-cache-iswa.cpp for windows)."""
    full = _padded(n_ctx)
    if not window or settings.swa_full:
        return full
    return _padded(min(full, window + min(settings.n_ubatch, settings.n_batch)))


def _padded(cells: int) -> int:
    return -(-cells // _CELL_PADDING) * _CELL_PADDING
