"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """localspec's own directories are fresh for each test; the user's are never touched.

    The Hugging Face cache stays the user's: model files are large, and shared on purpose.
    """
    home = tmp_path_factory.mktemp("localspec-home")
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    for name in ("LOCALSPEC_PROFILE", "LOCALSPEC_MODE", "LOCALSPEC_MODEL", "LOCALSPEC_DRAFT"):
        monkeypatch.delenv(name, raising=False)
    return home
