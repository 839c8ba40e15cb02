"""``localspec plan`` on machines nobody has here: the tables, the JSON, the refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_gguf import byte_metadata, byte_vocab, write_gguf, write_tiny_llama
from helpers_machines import GIB, MIB, FakeDevice, container_v2, cores, cuda, linux

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
    assert ["CPU", "KV", "cache", "target", "224", "MiB", "224", "MiB"] in rows
    assert ["CPU", "KV", "cache", "draft", "96.0", "MiB", "96.0", "MiB"] in rows
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


def test_a_smaller_draft_is_a_step_with_its_verdict(
    capsys: pytest.CaptureFixture[str], machine: Become
) -> None:
    pair = "qwen2.5-coder-32b+3b"
    names = [f"draft qwen2.5-coder-{size}-q4_k_m on the CPU" for size in ("3b", "1.5b", "0.5b")]
    machine(60)
    code, out, _ = online(capsys, pair)
    assert code == 0
    assert [line.split()[-2:] for line in out.splitlines() if "coder-1.5b" in line] == [
        ["not", "needed"]
    ]
    first = json.loads(online(capsys, pair, "--json")[1])["devices"][0]["needed_bytes"]
    machine((first - 1) / 2**30)
    code, out, err = online(capsys, pair)
    assert (code, err) == (0, "")
    rows = [line for line in out.splitlines() if line.startswith("draft ")]
    assert [tuple(re.split(r" {2,}", row)[:2]) for row in rows] == [
        (names[0], "too large"), (names[1], "chosen"), (names[2], "not needed"),
    ]  # fmt: skip
    assert f"Mode draft: Draft {names[1].removeprefix('draft ')}: {names[0]} needs " in out
    value = json.loads(online(capsys, pair, "--json")[1])
    assert value["draft"] == "qwen2.5-coder-1.5b-q4_k_m"
    assert value["draft_match"] == "its vocabulary is compared when it is here"
    assert [(step["name"], step["verdict"]) for step in value["steps"][:3]] == [
        (names[0], "too large"), (names[1], "chosen"), (names[2], "not needed"),
    ]  # fmt: skip


def online(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """As if the files could be downloaded; only headers would be asked for, and nobody answers."""
    code = main(["plan", "--source", "mirror", *args])
    out, err = capsys.readouterr()
    return code, out, err


HTML = b"<!doctype html><html>" + b"x" * 2000
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3000\n"


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HTML, "is a web page, not a model file."),
        (POINTER, "is a Git LFS pointer, not the model file itself"),
        (b"", "is empty."),
        (None, "is cut: it has "),
    ],
    ids=["web page", "pointer", "empty", "cut"],
)
def test_of_a_file_that_is_no_whole_model_nothing_is_estimated(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    role: str,
    content: bytes | None,
    says: str,
) -> None:
    """F30: what was saved under a model's name is no model, or only its beginning."""
    good = write_tiny_llama(tmp_path / "good.gguf")
    bad = tmp_path / "bad.gguf"
    data = good.read_bytes()
    bad.write_bytes(data[: len(data) * 6 // 10] if content is None else content)
    args = [str(bad)] if role == "target" else [str(good), "-md", str(bad)]
    code, out, err = plan(capsys, *args)
    assert (code, out) == (1, "")
    assert err.startswith(f"localspec: {bad} {says}")
    assert len(err.splitlines()) == 2, "the sentence and what to do"


def test_a_cpu_only_build_counts_the_computer_s_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F39: there is a card, and this build cannot use it: layers asked for there are no silent
    wish, and its memory is not counted."""
    card = {"/proc/driver/nvidia/gpus/0/information": "Model: RTX 4060\n"}
    probe = linux(tmp_path / "pc", 16, 8, cores(4) | card)
    found = hardware.detect([], probe)
    monkeypatch.setattr("localspec.opening.detect", lambda _: found)
    code, out, err = plan(capsys, PAIR, "--json")
    value = json.loads(out)
    assert (code, value["profile"], value["n_gpu_layers"]) == (0, "cpu", 0)
    assert [device["name"] for device in value["devices"]] == ["CPU"]
    code, out, err = plan(capsys, PAIR, "-ngl", "all")
    assert (code, out) == (4, "")
    sentence, hint = err.split("\n", maxsplit=1)
    assert sentence == (
        "localspec: all layers on a graphics processor are asked for (from --n-gpu-layers), and "
        "llama.cpp finds none here."
    )
    assert "CMAKE_ARGS=-DGGML_CUDA=on" in hint


def test_in_a_container_its_limits_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F18: 2 GiB and 2 CPUs on a large host; the host's numbers would end in a kill."""
    files = container_v2(str(2 * GIB), 512 * MIB, 256 * MIB, "200000 100000")
    found = hardware.detect([], linux(tmp_path / "pod", 256, 200, cores(64, smt=2) | files))
    monkeypatch.setattr("localspec.opening.detect", lambda _: found)
    code, out, _ = plan(capsys, "qwen2.5-coder-0.5b", "--json")
    value = json.loads(out)
    assert (code, value["n_threads"], value["mode"]) == (0, 2, "lookup")
    assert value["devices"][0]["free_bytes"] == 2 * GIB - 256 * MIB
    assert value["devices"][0]["source"] == "memory.max of this container, minus what is in use"
    code, _, err = plan(capsys, "qwen2.5-coder-7b")
    assert code == 4
    assert "more than the 1.75 GiB available (memory.max of this container" in err


def own_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "own"))
    folder = tmp_path / "own" / "config" / "profiles"
    folder.mkdir(parents=True)
    (folder / "cpu.yaml").write_text(f"extends: cpu\n{text}", "utf-8")


def test_a_pair_of_a_profile_may_have_a_context_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_profile(monkeypatch, tmp_path, f"pairs:\n  - {{memory: 0, pair: {PAIR}, n_ctx: 3072}}\n")
    value = json.loads(online(capsys, "--json")[1])
    assert (value["target"], value["n_ctx"]) == (TARGET, 3072)
    assert value["choice"] == (
        "No model is named: the profile's smallest choice; there is 24.0 GiB of memory."
    )
    assert json.loads(online(capsys, "--json", "-c", "512")[1])["n_ctx"] == 512
    assert json.loads(online(capsys, PAIR, "--json")[1])["n_ctx"] == 8192


def test_another_model_than_the_profile_s_is_explained(
    capsys: pytest.CaptureFixture[str],
    machine: Become,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    machine(1.4)
    own_profile(monkeypatch, tmp_path, f"pairs:\n  - {{memory: 0, pair: {PAIR}, n_ctx: 3072}}\n")
    code, out, _ = online(capsys)
    assert code == 0
    choice = out.splitlines()[1]
    assert choice.startswith(f"The profile's choice, {PAIR}, does not fit (it needs ")
    assert choice.endswith(" instead.")
    assert "context of 8192 tokens" in out.splitlines()[0], "that context was for its own pair"


def test_how_much_of_the_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes of parts add up to more than is needed where pages of a file may be dropped."""
    _, out, _ = plan(capsys, PAIR)
    _, parts, *_ = out.split("\n\n")
    head, *rows = parts.splitlines()
    assert head.split() == ["device", "part", "of", "size", "needed"]
    assert len(rows) == len(json.loads(plan(capsys, PAIR, "--json")[1])["parts"])


def test_a_draft_of_other_tokens_is_refused_in_words_and_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """F02: as far as headers tell, before anything is loaded."""
    target = write_tiny_llama(tmp_path / "target.gguf")
    tokens, types = byte_vocab()
    tokens[70] = "other"
    draft = write_gguf(
        tmp_path / "draft.gguf", {**byte_metadata(), "llama.block_count": 1},
        tokens=tokens, token_types=types,
    )  # fmt: skip
    code, out, err = plan(capsys, str(target), "-md", str(draft), "--json")
    assert code == 5
    value = json.loads(out)
    assert (value["mode"], value["steps"]) == (None, [])
    assert value["reason"] == (
        "target.gguf cannot run with a draft: draft draft.gguf is not possible (Their vocabularies "
        'differ: token 70 is "F" in the target and "other" in the draft).'
    )
    assert f"localspec: {value['reason']}" in err
