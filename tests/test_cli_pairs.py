from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_gguf import byte_metadata, byte_vocab, write_gguf, write_tiny_llama
from helpers_machines import FakeDevice, cores, cuda, linux

from localspec import hardware, paths
from localspec.__main__ import main
from localspec.terminal import size

Setter = Callable[..., None]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Setter:
    """Sets the machine that the command finds; at first one of 24 GiB without a GPU."""
    detect = hardware.detect

    def become(available_gib: float, *devices: FakeDevice) -> None:
        probe = linux(tmp_path / "machine", 24, available_gib, cores(4))
        for module in ("hardware", "opening"):
            monkeypatch.setattr(f"localspec.{module}.detect", lambda _: detect(devices, probe))

    become(22)
    for name in ("LOCALSPEC_MODEL_DIRS", "LOCALSPEC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    for name in ("HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    return become


def test_the_table_shows_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["Pair", "Download", "Memory", "Speed", "Gain", "Match", "Remarks"]
    row = lines[1].split()
    assert row[:3] + row[4:8] == [
        "qwen2.5-coder-1.5b", "1.50", "GiB", "GiB", "fast", "small", "same*",
    ]  # fmt: skip
    assert main(["plan", "--offline", "qwen2.5-coder-1.5b", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    needed = [device["needed_bytes"] for device in plan["devices"]]
    assert row[3] == size(needed[0]).split()[0], "the list and the plan say the same"
    assert "mixtral" not in out
    assert '"localspec run" takes qwen2.5-coder-1.5b unless you name another.' in err
    assert "more cannot be used here; --all says why." in err
    granite = next(line for line in lines if line.startswith("granite-3.3-8b"))
    assert re.match(r"granite-3.3-8b +\? +~8\.\d\d GiB ", granite)


def test_all_shows_the_rest_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", "--all"]) == 0
    out = capsys.readouterr().out
    usable, rest = out.split("\n\n")
    assert len(usable.splitlines()) + len(rest.splitlines()) == 70 + 2
    mixtral = next(line for line in rest.splitlines() if line.startswith("mixtral"))
    assert "Different tokenizers: the instruct 8x22B has 32768 tokens" in mixtral


def test_a_narrow_terminal_keeps_names_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["pairs"]) == 0
    out = capsys.readouterr().out
    assert "Remarks" not in out
    assert any(line.startswith("mistral-small-3.1-24b ") for line in out.splitlines())
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in out.splitlines()) <= 80


def test_json(capsys: pytest.CaptureFixture[str], machine: Setter) -> None:
    machine(20, cuda(0, "RTX 4060", 7.3, 8))
    assert main(["pairs", "--all", "--json", "-c", "4096"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["default"] == "qwen2.5-coder-7b"  # the profile for CUDA says so
    assert found["n_ctx"] == 4096
    assert [device["kind"] for device in found["budget"]] == ["cpu", "cuda"]
    pairs = {pair["id"]: pair for pair in found["pairs"]}
    assert len(pairs) == 70
    assert pairs["qwen2.5-coder-1.5b"]["checked"] is True
    assert pairs["qwen2.5-coder-1.5b"]["download_bytes"] == 1608720832
    assert pairs["qwen2.5-coder-1.5b"]["where"] == "gpu"
    assert pairs["qwen2.5-coder-1.5b"]["memory_class_gib"] == 4
    assert pairs["qwen2.5-coder-14b"]["guessed"] == {
        "qwen2.5-coder-14b-q4_k_m": ["gated", "sha256"],
        "qwen2.5-coder-0.5b-q4_k_m": ["gated"],
    }
    assert pairs["llama-3.1-405b"]["usable"] is False


def test_nothing_fits(capsys: pytest.CaptureFixture[str], machine: Setter) -> None:
    machine(0.5)
    assert main(["pairs"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "No pair of the catalog fits" in err


def test_drafts_for_a_catalog_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", "--for", "llama-3.1-70b"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split()[0] for line in out.splitlines()]
    assert rows == ["Draft", "llama-3.2-1b-q4_k_m", "llama-3.1-8b-q4_k_m"]
    assert "is not on this computer" in err


def test_a_recommended_pair_that_does_not_match_is_explained_without_network(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["pairs", "--for", "mixtral-8x22b"]) == 0
    out, err = capsys.readouterr()
    row = out.splitlines()[1]
    assert row.split()[:2] == ["mixtral-8x7b-q4_k_m", "no"]
    assert "Catalog: Different tokenizers: the instruct 8x22B has 32768 tokens" in row
    assert "No draft model for mixtral-8x22b-q4_k_m is known or here." in err


def test_drafts_for_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    target = write_tiny_llama(models / "target.gguf", n_embd=128, n_layer=4)
    write_tiny_llama(models / "draft.gguf", seed=1)
    write_tiny_llama(models / "mmproj-draft.gguf", seed=2)
    tokens, types = byte_vocab()
    tokens[7] = "other"
    write_gguf(
        models / "other.gguf",
        {**byte_metadata(), "llama.block_count": 1},
        {},
        tokens=tokens,
        token_types=types,
    )
    (models / "broken.gguf").write_bytes(b"<!doctype html><html>")
    monkeypatch.setenv("LOCALSPEC_MODEL_DIRS", str(models))
    assert main(["pairs", "--for", str(target), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target_present"] is True
    drafts = {Path(draft["name"]).name: draft for draft in found["drafts"]}
    assert set(drafts) == {"draft.gguf", "other.gguf", "broken.gguf"}
    assert drafts["draft.gguf"]["accepted"]
    assert drafts["draft.gguf"]["match"] == "same"
    assert drafts["draft.gguf"]["path"] == str(models / "draft.gguf")
    assert drafts["other.gguf"]["reason"] == "It has a vocabulary, but no weights."
    assert "web page" in drafts["broken.gguf"]["reason"]
    assert not drafts["broken.gguf"]["accepted"]


def test_no_draft_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", "--for", "qwen3-4b-2507"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "No draft model for qwen3-4b-2507-q4_k_m is known or here." in err


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pairs", "--for", "llama-3.1-70"]) == 1
    err = capsys.readouterr().err
    assert 'localspec: the catalog has no pair or model called "llama-3.1-70"' in err
    assert "Did you mean llama-3.1-70b" in err


# -- catalog check -------------------------------------------------------------------------------


def test_catalog_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "check"]) == 0
    assert capsys.readouterr().out == (
        "97 models (85 with values marked as guesses) and 70 pairs; no faults, no doubts.\n"
    )


def test_catalog_check_of_a_bad_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("models:\n  a: {repo: a/b, file: c.gguf, bites: 3}\n  b: {repo: 5}\n")
    assert main(["catalog", "check", str(own)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f'{own}, line 2: "bites" is not a setting',
        '  Did you mean "bytes"?',
        f'{own}, line 3: "5" is not of the form owner/name',
    ]
    assert lines[-1].endswith("2 faults, no doubts.")
    assert main(["catalog", "check", str(own), "--json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 2


def test_catalog_check_of_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "check", "nowhere.yaml"]) == 2
    assert "cannot read nowhere.yaml" in capsys.readouterr().out


def test_a_broken_catalog_of_the_user_stops_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths.user_catalog_file().parent.mkdir(parents=True)
    paths.user_catalog_file().write_text("pairs:\n  p: {target: x, match: same, reason: r}\n")
    assert main(["pairs"]) == 2
    assert 'models.yaml, line 2: "draft" is missing' in capsys.readouterr().err
