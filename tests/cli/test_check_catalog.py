"""``localspec check`` on the pairs that articles recommend, where no file of them can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.__main__ import main

RECOMMENDED = {
    "llama-3.1-405b": "same",
    "llama-3.1-70b+8b": "same",
    "llama-3-70b": "same",
    "qwen2.5-72b": "near",
    "qwen2.5-72b+7b": "same",
    "gemma-2-27b": "near",
    "mixtral-8x22b+8x7b": "different",
    "deepseek-v3+v2-lite": "different",
    "mistral-large+7b": "different",
}


@pytest.mark.parametrize(("pair", "verdict"), RECOMMENDED.items())
def test_the_catalogs_verdict_and_that_nobody_checked_it(
    pair: str,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert main(["check", "--offline", pair]) == (1 if verdict == "different" else 0)
    out, err = capsys.readouterr()
    assert out.startswith(f"{verdict}: ")
    assert "what the catalog says; it was never checked" in err


def test_two_models_of_which_the_catalog_says_nothing_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert main(["check", "--offline", "qwen3-8b-q4_k_m", "smollm2-135m"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "offline" in err or "downloaded" in err
