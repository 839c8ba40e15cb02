"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long one example takes is the machine's business: on one that is busy or slow, 200 ms for an
# example and a second for making ten of them (the defaults) pass without anything being wrong.
settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


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
