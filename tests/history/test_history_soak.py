"""A small run of the soak, so that it keeps working; times are its business, not a test's."""

from __future__ import annotations

from pathlib import Path

from bench.soak_history import MAX_MEMORY_BYTES, soak
from localspec.history.index import LIMIT_BYTES


def test_size_and_memory_stay_within_the_bounds(tmp_path: Path) -> None:
    result = soak(tmp_path, 100_000)
    assert result.n_tokens == 100_000
    assert 50_000 < result.n_held <= 110_000
    assert result.disk_bytes < LIMIT_BYTES
    assert result.memory_bytes < MAX_MEMORY_BYTES
    assert result.hit_rate > 0.45
