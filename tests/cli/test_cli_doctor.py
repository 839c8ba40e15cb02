"""``localspec doctor``: what is right, what is wrong, and what to do about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_machines import CPU_DEVICE, GIB, container_v2, cores, cuda, linux

from localspec import hardware
from localspec.__main__ import main
from localspec.errors import AccessError, HubUnreachableError
from localspec.hardware import machine
from localspec.llama import devices as llama_devices
from localspec.store import hub

SYSTEM_INFO = "CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 0 | LLAMAFILE = 1 | REPACK = 1 | "


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OFFLINE", "PROFILE", "THREADS", "MEMORY_LIMIT", "MODEL_DIRS"):
        monkeypatch.delenv(f"LOCALSPEC_{name}", raising=False)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "home"


def use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], devices: list[Any]
) -> None:
    """Let the machine be what ``files`` say, and the build what ``devices`` say."""
    probe = linux(tmp_path / "machine", 23.5, 20, files)
    monkeypatch.setattr(machine, "here", lambda: probe)
    monkeypatch.setattr(hardware, "here", lambda: probe)
    monkeypatch.setattr(llama_devices, "devices", lambda: devices)
    monkeypatch.setattr(llama_devices, "system_info", lambda: SYSTEM_INFO)
    gpu = any(device.is_gpu for device in devices)
    monkeypatch.setattr(llama_devices, "supports_gpu_offload", lambda: gpu)


def doctor(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert main(["doctor", "--json", *args]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_healthy_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    assert main(["doctor", "--offline"]) == 0
    out = capsys.readouterr().out
    facts = {line[:19].strip(): line[19:].strip() for line in out.splitlines()}
    assert facts["GPU support"] == "no, built for the CPU only"
    assert facts["CPU instructions"] == "SSE3 AVX2"
    assert facts["other features"] == "LLAMAFILE REPACK"
    assert facts["threads"] == "2: 2 physical cores"
    assert facts["memory on CPU"] == "20.0 GiB, MemAvailable of /proc/meminfo"
    assert facts["models"] == str(tmp_path / "hub")
    assert facts["Hugging Face Hub"] == "not asked, offline mode is on (from --offline)"
    assert out.endswith("Nothing to complain about.\n")


def test_json_names_every_number_s_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cores(8, smt=2) | container_v2(str(2 * GIB), GIB, GIB // 2, "150000 100000")
    use(monkeypatch, tmp_path, files, [CPU_DEVICE])
    monkeypatch.setenv("LOCALSPEC_MEMORY_LIMIT", "1GiB")
    found = doctor(capsys, "--offline")
    assert found["threads"] == {
        "n": 1,
        "reason": "a CPU quota of 1.5 CPUs (cpu.max of this container)",
    }
    assert found["memory"]["limits"] == [
        {
            "bytes": 2 * GIB,
            "free_bytes": 3 * GIB // 2,
            "source": "memory.max of this container, minus what is in use",
        }
    ]
    assert found["budget"] == [
        {
            "device": "CPU",
            "kind": "cpu",
            "free_bytes": GIB,
            "source": "from LOCALSPEC_MEMORY_LIMIT",
            "shared_with_cpu": False,
        }
    ]
    assert found["settings"]["values"]["memory_limit"] == {
        "value": GIB,
        "source": "from LOCALSPEC_MEMORY_LIMIT",
    }
    assert found["pair"]["name"] == "qwen2.5-coder-0.5b"
    assert (found["warnings"], found["problems"]) == ([], [])


def test_a_cpu_only_build_on_a_gpu_machine_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = "/proc/driver/nvidia/gpus/0/information"
    use(monkeypatch, tmp_path, cores(8) | {card: "Model: RTX 4060\n"}, [CPU_DEVICE])
    found = doctor(capsys, "--offline")
    assert found["llama_cpp"]["gpu_offload"] is False
    assert [each["name"] for each in found["unused_gpus"]] == ["RTX 4060"]
    assert len(found["warnings"]) == 1
    assert found["warnings"][0]["message"] == (
        "RTX 4060 is not used: llama-cpp-python was built for the CPU only"
    )
    assert found["warnings"][0]["hint"].startswith("env CMAKE_ARGS=-DGGML_CUDA=on ")
    assert main(["doctor", "--offline"]) == 0
    assert capsys.readouterr().out.count("GGML_CUDA") == 1


def test_a_gpu_build_is_shown_with_its_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(8), [cuda(0, "RTX 4090", 22, 24), CPU_DEVICE])
    assert main(["doctor", "--offline"]) == 0
    out = capsys.readouterr().out
    assert "device CUDA0       RTX 4090, 22.0 GiB free of 24.0 GiB" in out
    assert "memory on CUDA0    22.0 GiB, free memory of CUDA0, from llama.cpp" in out


def test_instructions_that_the_build_leaves_unused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = {"/proc/cpuinfo": "model name : X\nflags : avx2 avx512f\n"}
    use(monkeypatch, tmp_path, cores(2) | info, [CPU_DEVICE])
    (warning,) = doctor(capsys, "--offline")["warnings"]
    assert warning["message"].startswith("this CPU has AVX512, which this build")
    assert "-DGGML_NATIVE=on" in warning["hint"]


def test_a_library_that_does_not_load_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])

    def broken() -> str:
        raise OSError("libllama.so: cannot open shared object file")

    monkeypatch.setattr(llama_devices, "system_info", broken)
    found = doctor(capsys, "--offline", code=1)
    assert found["problems"][0]["message"] == "llama-cpp-python cannot be loaded"
    assert "libllama.so" in found["llama_cpp"]["error"]
    assert found["threads"]["n"] == 2  # the rest was looked at all the same


def test_wrong_settings_are_a_problem_and_hide_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    (home / "config" / "profiles").mkdir(parents=True)
    (home / "config" / "config.yaml").write_text("threds: 2\n", "utf-8")
    (home / "config" / "profiles" / "cpu.yaml").write_text("nonsense: 1\n", "utf-8")
    monkeypatch.setenv("LOCALSPEC_SEEED", "1")
    found = doctor(capsys, "--offline", code=1)
    assert [each["message"].rpartition("/")[2] for each in found["problems"]] == [
        'config.yaml, line 1: "threds" is not a setting',
        'cpu.yaml, line 1: "nonsense" is not a setting',
    ]
    assert found["models"]["writable"] is True


def test_a_profile_that_names_no_pair_of_the_catalog_is_a_problem(
    tmp_path: Path,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    (home / "config" / "profiles").mkdir(parents=True)
    text = "extends: cpu\npairs:\n  - {memory: 0, pair: qwen2.5-codr-1.5b}\n"
    (home / "config" / "profiles" / "cpu.yaml").write_text(text, "utf-8")
    found = doctor(capsys, "--offline", code=1)
    assert [problem["message"].partition("cpu.yaml")[2] for problem in found["problems"]] == [
        ', line 3: the catalog has no pair or model called "qwen2.5-codr-1.5b"'
    ]


def test_a_place_for_models_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    (tmp_path / "file").write_text("x", "utf-8")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    monkeypatch.setenv("LOCALSPEC_MODEL_DIRS", str(tmp_path / "none"))
    found = doctor(capsys, "--offline", code=1)
    assert found["problems"] == [
        {
            "message": f"models cannot be stored: {tmp_path / 'file'} is not a directory that "
            "you may write to",
            "hint": "Set HF_HUB_CACHE to one that is.",
        }
    ]
    assert found["warnings"][0]["message"] == (
        f"there is no directory {tmp_path / 'none'} (model_dirs, from LOCALSPEC_MODEL_DIRS)"
    )


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (HubUnreachableError("the Hub does not answer.", hint="Check the network."), "unreachable"),
        (AccessError("the token is refused.", hint="Log in again."), "refused"),
        (None, "ok"),
    ],
)
def test_the_hub(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    state: str,
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    asked = []

    def head(_: object, repo: str, revision: str, name: str) -> None:
        asked.append((repo, revision, name))
        if error is not None:
            raise error

    monkeypatch.setattr(hub.Hub, "head", head)
    found = doctor(capsys)
    assert asked == [
        (
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "main",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        )
    ]
    assert found["hub"]["state"] == state
    assert len(found["warnings"]) == (state != "ok")


def test_a_wrong_endpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tmp_path, cores(2), [CPU_DEVICE])
    monkeypatch.setenv("HF_ENDPOINT", "not an address")
    found = doctor(capsys)
    assert found["hub"]["state"] == "refused"
    assert "HF_ENDPOINT" in found["warnings"][0]["message"]


def test_the_real_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor(capsys, "--offline")
    assert found["llama_cpp"]["version"]
    assert found["python"]["executable"] == sys.executable
    assert found["budget"][0]["free_bytes"] > 0
