"""``localspec profiles``: which profile, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers_machines import CPU_DEVICE, cores, cuda, linux

from localspec.__main__ import main
from localspec.hardware import Probe, machine
from localspec.llama import devices as llama_devices


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PROFILE", "THREADS", "MEMORY_LIMIT"):
        monkeypatch.delenv(f"LOCALSPEC_{name}", raising=False)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    probe = linux(tmp_path / "machine", 23.5, 20, cores(2))
    monkeypatch.setattr(machine, "here", lambda: probe)
    monkeypatch.setattr(llama_devices, "devices", lambda: [CPU_DEVICE])
    return probe


def test_the_choice_and_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[:2] == ["*", "cpu"]
    assert out[-3:] == [
        "profile  cpu: no graphics processor that llama.cpp can use",
        "threads  2: 2 physical cores",
        "pair     qwen2.5-coder-1.5b: the profile's choice from 3.00 GiB on; "
        "there is 23.5 GiB of memory",
    ]


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_devices, "devices", lambda: [cuda(0, "RTX 4090", 23, 24)])
    assert main(["profiles", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profile"] == "cuda"
    assert found["reason"] == "llama.cpp can use RTX 4090 (24.0 GiB) by CUDA"
    assert (found["pair"], found["threads"]) == ("qwen2.5-coder-14b", 2)
    assert [each["name"] for each in found["profiles"]] == ["cpu", "cuda", "metal"]
    assert found["profiles"][0]["n_ctx"] == 8192


def test_a_profile_of_the_environment_is_named_with_its_source(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config" / "profiles").mkdir(parents=True)
    file = home / "config" / "profiles" / "quiet.yaml"
    file.write_text("extends: cpu\nthreads: 1\n", "utf-8")
    monkeypatch.setenv("LOCALSPEC_PROFILE", "quiet")
    assert main(["profiles"]) == 0
    out = capsys.readouterr().out
    assert "profile  quiet: from LOCALSPEC_PROFILE" in out
    assert "threads  1: set by the user" in out
    assert str(file) in out
    assert main(["profiles", "--profile", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "from --profile"


def test_a_profile_that_cannot_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "--profile", "metal"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        'localspec: the profile "metal" (from --profile) is for metal, '
        "and llama.cpp finds no such device here"
    )


def test_settings_of_one_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "metal"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n_gpu_layers", "auto"] in rows
    assert ["from", "40.0", "GiB", "on", "qwen2.5-coder-32b"] in rows
    assert main(["profiles", "metall"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'localspec: there is no profile "metall"',
        '  Did you mean "metal"?',
    ]
    assert main(["profiles", "metal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backends"] == ["metal"]


def test_a_mistake_in_a_user_s_profile(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config" / "profiles").mkdir(parents=True)
    (home / "config" / "profiles" / "cpu.yaml").write_text("extends: cpu\n\nn_btach: 1\n", "utf-8")
    assert main(["profiles"]) == 2
    err = capsys.readouterr().err
    assert 'cpu.yaml, line 3: "n_btach" is not a setting' in err
    assert 'Did you mean "n_batch"?' in err


def test_a_pair_that_the_catalog_lacks(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config" / "profiles").mkdir(parents=True)
    text = "extends: cpu\npairs:\n  - {memory: 0, pair: qwen2.5-codr-1.5b}\n"
    (home / "config" / "profiles" / "cpu.yaml").write_text(text, "utf-8")
    assert main(["profiles"]) == 2
    sentence, hint = capsys.readouterr().err.splitlines()
    assert sentence.endswith(
        'cpu.yaml, line 3: the catalog has no pair or model called "qwen2.5-codr-1.5b"'
    )
    assert hint.startswith("  Did you mean qwen2.5-coder-1.5b")
