"""MTP heads in a file, as every command that looks at one tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers_tiny_models import write_counting_qwen35

from localspec.__main__ import main
from localspec.llama import ext


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of the same name, one of them with a head; and the head alone."""
    home = tmp_path_factory.mktemp("heads")
    write_counting_qwen35(home / "with" / "count.gguf")
    write_counting_qwen35(home / "without" / "count.gguf", heads="none")
    write_counting_qwen35(home / "heads.gguf", heads="only")
    return home


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("LOCALSPEC_OFFLINE", "1")


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments] + ["--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("with/count.gguf", "1 layer that predicts further tokens (MTP; can draft for it)"),
        ("without/count.gguf", None),
        ("heads.gguf", "only 1 layer that predicts further tokens (MTP; draft for another model)"),
    ],
)
def test_show_says_which_heads_a_file_has(
    home: Path, capsys: pytest.CaptureFixture[str], name: str, wanted: str | None
) -> None:
    assert main(["show", str(home / name)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert ("MTP" in text) == (wanted is not None)
    assert wanted is None or wanted in text


def test_pairs_offers_a_file_with_heads_as_its_own_pair(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pairs", "--for", str(home / "with" / "count.gguf")]) == 0
    assert "Its file has 1 MTP head: no draft model is needed." in capsys.readouterr().out
    main(["pairs", "--for", str(home / "without" / "count.gguf")])
    assert "MTP" not in capsys.readouterr().out


def test_plan_counts_the_memory_of_the_heads(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def parts(name: str) -> dict[tuple[str, str], int]:
        found = said(capsys, "plan", "--model", home / name / "count.gguf")
        return {(part["what"], part["role"]): part["bytes"] for part in found["parts"]}

    with_heads, without = parts("with"), parts("without")
    own = {what for what, role in with_heads if role == "draft"}
    assert own == {"weights", "hidden states", "KV cache", "compute buffers", "logits"}
    assert not [what for what, role in without if role == "draft"]
    assert with_heads["weights", "target"] == without["weights", "target"]


@pytest.mark.parametrize("reason", ["", "this version lacks something"])
def test_doctor_says_whether_this_library_can_run_heads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason:
        monkeypatch.setattr(ext, "load", lambda: (None, reason))
    main(["doctor"])
    line = next(line for line in capsys.readouterr().out.splitlines() if "MTP heads" in line)
    assert (f"no: {reason}" if reason else "can be run") in line
