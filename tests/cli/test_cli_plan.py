"""``localspec plan`` on machines nobody has here: the tables, the JSON, the refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_gguf import write_tiny_llama
from helpers_machines import FakeDevice, cores, cuda, linux

from localspec import hardware
from localspec.__main__ import main

Become = Callable[..., None]
PAIR = "qwen2.5-coder-1.5b"
TARGET, DRAFT = f"{PAIR}-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Become:
    detect = hardware.detect

    def become(available_gib: float, *devices: FakeDevice) -> None:
        probe = linux(tmp_path / "machine", 24, available_gib, cores(4))
        monkeypatch.setattr("localspec.opening.detect", lambda _: detect(devices, probe))

    become(22)
    for name in ("HF_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    return become


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["plan", "--offline", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, PAIR)
    assert (code, err) == (0, "")
    head, parts, devices, steps, verdict = out.strip().split("\n\n")
    assert head.splitlines() == [
        f"{TARGET} with {DRAFT}, context of 8192 tokens",
        "Profile cpu (no graphics processor that llama.cpp can use), 4 threads.",
    ]
    rows = [line.split() for line in parts.splitlines()]
    assert ["CPU", "KV", "cache", "target", "224", "MiB"] in rows
    assert ["CPU", "KV", "cache", "draft", "96.0", "MiB"] in rows
    assert devices.splitlines()[1].endswith("22.0 GiB  MemAvailable of /proc/meminfo")
    assert f"draft {DRAFT} on the CPU  chosen " in steps
    assert verdict == f"Mode draft: Draft {DRAFT} on the CPU: everything fits."


def test_json_has_every_number(capsys: pytest.CaptureFixture[str], machine: Become) -> None:
    machine(22, cuda(0, "NVIDIA A", 5.6, 5.8))
    code, out, err = plan(capsys, PAIR, "--json", "--context", "4096")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert (value["profile"], value["mode"], value["n_ctx"]) == ("cuda", "draft", 4096)
    assert (value["n_gpu_layers"], value["draft_n_gpu_layers"]) == (29, 25)
    for device in value["devices"]:
        parts = [part for part in value["parts"] if part["device"] == device["name"]]
        needed = sum(part["bytes"] - part["evictable_bytes"] for part in parts)
        assert device["needed_bytes"] == needed <= device["free_bytes"]


def test_what_does_not_fit_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, PAIR, "--memory-limit", "1GiB")
    assert code == 4
    assert [line.split()[0] for line in out.strip().splitlines()[1:]] == [
        "draft", "a", "lookup", "plain", "a",
    ]  # fmt: skip
    assert "more than the 1.00 GiB available (from --memory-limit)" in out
    assert err.startswith(f"localspec: {TARGET} does not fit into memory: it needs 1.")
    code, out, err_json = plan(capsys, PAIR, "--memory-limit", "1GiB", "--json")
    value = json.loads(out)
    assert (code, value["mode"], err_json) == (4, None, err)
    assert f"localspec: {value['reason']}" in err
    assert [step["verdict"] for step in value["steps"]] == [
        "too large", "not allowed", "too large", "too large", "not allowed",
    ]  # fmt: skip


def test_a_model_alone_says_why_it_has_no_draft(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write_tiny_llama(tmp_path / "mine.gguf")
    code, out, err = plan(capsys, str(file))
    assert (code, err) == (0, "")
    assert out.endswith("Mode lookup: Lookup: no draft model for it is known.\n")


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        ((PAIR, "-m", "qwen2.5-coder-7b"), 2,
         f"PAIR ({PAIR}) and --model (qwen2.5-coder-7b) contradict each other."),
        ((PAIR, "-c", "512", "--context", "600"), 2,
         "--context (600) and --ctx-size (512) contradict each other."),
        ((PAIR, "-ngl", "10"), 4, "10 layers on a graphics processor are asked for "
         "(from --n-gpu-layers), and llama.cpp finds none here."),
        (("nonsense",), 1, 'the catalog has no pair or model called "nonsense"'),
        ((PAIR, "--memory-limit", "much"), 2, "'much' is not a size; write it like 8GiB."),
    ],
)  # fmt: skip
def test_nonsense_is_answered_in_one_sentence(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, sentence: str
) -> None:
    found, out, err = plan(capsys, *args)
    assert (found, out) == (code, "")
    assert sentence in err.splitlines()[0]
