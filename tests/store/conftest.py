from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_store import FakeHub, fake_hub


@pytest.fixture(autouse=True)
def _own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here sees or touches the caches, tokens and settings of the person who runs it."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "LLAMA_", "OLLAMA_")) or name.lower().endswith(
            "_proxy"
        ):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "own"))


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as server:
        yield server
