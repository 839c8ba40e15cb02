from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from helpers_store import FakeHub, fake_hub

from localspec import paths

_USERS_CACHE = paths.hub_cache()
_ssl_context = functools.cache(httpx2.create_ssl_context)


@pytest.fixture(autouse=True)
def _own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here sees or touches the caches, tokens and settings of the person who runs it."""
    for name in list(os.environ):
        foreign = name.startswith(("HF_", "HUGGING", "LLAMA_", "OLLAMA_", "LOCALSPEC_"))
        if foreign or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "own"))
    # Reading the list of certificates takes longer than most tests here.
    monkeypatch.setattr("httpx2.create_ssl_context", _ssl_context)


@pytest.fixture
def users_cache() -> Path:
    """The Hugging Face cache of the person who runs the tests."""
    return _USERS_CACHE


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as server:
        yield server
