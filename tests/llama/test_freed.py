"""Memory is given back when a session is closed, whatever Python still holds."""

from __future__ import annotations

import gc
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from helpers_gguf import write_tiny_llama

from localspec import opening
from localspec.config import Config
from localspec.files import NoProgress

N_TIMES = 8


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_a_closed_session_gives_its_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that stays in use after a model is closed: a few changes of model fill the machine."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    target = write_tiny_llama(tmp_path / "target.gguf", n_embd=256, n_layer=6)
    config = Config(model=str(target), n_ctx=4096, history=False, learn=False, mode="lookup")
    kept = []  # whoever still holds a closed session must not hold its memory

    def once() -> int:
        session = opening.open_session(config, NoProgress())
        with closing(session):
            plan = session.status.plan
            assert plan is not None
            kept.append(session)
            return sum(part.n_bytes for part in plan.parts if part.what in ("weights", "KV cache"))

    needed = once()
    before = resident()
    for _ in range(N_TIMES):
        once()
    assert needed > 10_000_000
    assert resident() - before < needed, f"after {N_TIMES} times not even one may be left"
