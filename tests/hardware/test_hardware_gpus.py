"""F39: a CPU-only build on a GPU machine is noticed, once, with the command for this shell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers_machines import CPU_DEVICE, GIB, commands, cores, cuda, linux, mac, write

from localspec.hardware import Gpu, Probe, detect, gpus
from localspec.hardware.gpus import detect_gpus, install_command

SMI = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits"
INSTALL = (
    "-m pip install --force-reinstall --no-cache-dir --no-deps "
    "--no-binary llama-cpp-python llama-cpp-python==1.2.3"
)


@pytest.fixture(autouse=True)
def _version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.metadata, "version", lambda _: "1.2.3")


def nvidia(root: Path, **facts: object) -> Probe:
    card = "/proc/driver/nvidia/gpus/0000:01:00.0/information"
    files = cores(8, smt=2) | {card: "Model: \t NVIDIA GeForce RTX 4060\nIRQ: 1\n"}
    return linux(root, 16, 12, files, **facts)


def test_nvidia_on_linux_gets_one_warning_and_its_command(tmp_path: Path) -> None:
    probe = nvidia(tmp_path, run=commands({SMI: "NVIDIA GeForce RTX 4060, 8188\n"}))
    hardware = detect([CPU_DEVICE], probe, python="/venv/bin/python")
    assert hardware.gpus == (Gpu("NVIDIA GeForce RTX 4060", "nvidia", 8188 * 2**20, "nvidia-smi"),)
    assert hardware.warning is not None
    assert hardware.warning.message == (
        "NVIDIA GeForce RTX 4060 is not used: llama-cpp-python was built for the CPU only"
    )
    assert hardware.warning.hint == (
        f"env CMAKE_ARGS=-DGGML_CUDA=on /venv/bin/python {INSTALL}\n"
        "It needs a C++ compiler and NVIDIA's CUDA toolkit."
    )
    # The plan counts the computer's memory, not the card's.
    assert [device.kind for device in hardware.budget().devices] == ["cpu"]


def test_the_driver_alone_is_enough(tmp_path: Path) -> None:
    found = detect_gpus(nvidia(tmp_path))
    assert [(gpu.name, gpu.n_bytes) for gpu in found] == [("NVIDIA GeForce RTX 4060", None)]


def test_two_cards_give_one_warning(tmp_path: Path) -> None:
    probe = nvidia(tmp_path, run=commands({SMI: "RTX A, 8188\nRTX B, 24564\n[N/A], x\n"}))
    warning = detect([], probe).warning
    assert warning is not None
    assert warning.message.startswith("RTX A, RTX B are not used: ")


def test_a_build_that_can_use_them_gives_no_warning_and_asks_nothing(tmp_path: Path) -> None:
    def must_not_run(argv: object) -> str:
        raise AssertionError(argv)

    hardware = detect([cuda(0, "RTX", 7, 8), CPU_DEVICE], nvidia(tmp_path, run=must_not_run))
    assert hardware.warning is None
    assert [device.name for device in hardware.devices] == ["CUDA0"]


def test_no_card_no_warning(tmp_path: Path) -> None:
    probe = linux(tmp_path, 16, 8, cores(2), run=commands({SMI: "RTX, 8188\n"}))
    assert detect([], probe).warning is None  # no driver: nothing is asked


def test_wsl_asks_the_windows_driver(tmp_path: Path) -> None:
    smi = SMI.replace("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", 1)
    files = cores(4) | {"/dev/dxg": ""}
    probe = linux(tmp_path, 16, 8, files, run=commands({smi: "RTX 3060, 12288\n"}))
    assert [gpu.name for gpu in detect_gpus(probe)] == ["RTX 3060"]


@pytest.mark.parametrize(
    ("files", "expected", "option"),
    [
        (
            {"device/vendor": "0x1002\n", "device/mem_info_vram_total": f"{16 * GIB}\n"},
            [Gpu("AMD GPU", "amd", 16 * GIB, "/sys/class/drm/card0")],
            "VULKAN",
        ),
        (
            {"device/vendor": "0x1002\n", "device/mem_info_vram_total": f"{GIB // 2}\n"},
            [],
            "",
        ),
        ({"device/vendor": "0x8086\n"}, [], ""),
        (
            {"device/vendor": "0x8086\n", "lmem_total_bytes": f"{8 * GIB}\n"},
            [Gpu("Intel GPU", "intel", 8 * GIB, "/sys/class/drm/card0")],
            "VULKAN",
        ),
    ],
)
def test_cards_the_kernel_knows(
    tmp_path: Path, files: dict[str, str], expected: list[Gpu], option: str
) -> None:
    folder = {f"/sys/class/drm/card0/{name}": text for name, text in files.items()}
    folder["/sys/class/drm/card0-HDMI-A-1/status"] = "connected\n"
    hardware = detect([], linux(tmp_path, 16, 8, cores(4) | folder))
    assert list(hardware.gpus) == expected
    assert (hardware.warning is not None) == bool(option)
    if hardware.warning:
        assert f"-DGGML_{option}=on" in hardware.warning.hint


def test_amd_with_rocm_installed(tmp_path: Path) -> None:
    card = "/sys/class/drm/card1"
    files = {
        f"{card}/device/vendor": "0x1002",
        f"{card}/device/mem_info_vram_total": f"{20 * GIB}",
        f"{card}/device/product_name": "Radeon RX 7900 XT\n",
        "/opt/rocm/version": "6\n",
    }
    warning = detect([], linux(tmp_path, 32, 8, cores(8) | files)).warning
    assert warning is not None
    assert warning.message.startswith("Radeon RX 7900 XT is not used")
    assert "-DGGML_HIP=on" in warning.hint


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        (
            "powershell",
            f"$env:CMAKE_ARGS = '-DGGML_CUDA=on'; & 'C:\\My Py\\python.exe' {INSTALL}",
        ),
        ("pwsh", f"$env:CMAKE_ARGS = '-DGGML_CUDA=on'; & 'C:\\My Py\\python.exe' {INSTALL}"),
        ("", f"$env:CMAKE_ARGS = '-DGGML_CUDA=on'; & 'C:\\My Py\\python.exe' {INSTALL}"),
        ("cmd", f'set "CMAKE_ARGS=-DGGML_CUDA=on" && "C:\\My Py\\python.exe" {INSTALL}'),
        ("bash", f"env CMAKE_ARGS=-DGGML_CUDA=on 'C:\\My Py\\python.exe' {INSTALL}"),
    ],
)
def test_windows_shells(shell: str, expected: str) -> None:
    run = commands({SMI: "NVIDIA GeForce RTX 4060 Laptop GPU, 8188\n"})
    probe = Probe("Windows", "AMD64", shell=shell, run=run, n_logical=16, n_physical=8)
    warning = detect([], probe, python="C:\\My Py\\python.exe").warning
    assert warning is not None
    assert warning.hint.splitlines()[0] == expected


def test_a_cpu_only_build_on_apple_silicon(tmp_path: Path) -> None:
    warning = detect([], mac(tmp_path, 16, 8, 4, 4, "Apple M2"), python="/p").warning
    assert warning is not None
    assert warning.message.startswith("Apple M2 GPU is not used: llama-cpp-python was built")
    assert warning.hint.splitlines()[0] == f"env CMAKE_ARGS=-DGGML_METAL=on /p {INSTALL}"


def test_an_intel_python_on_apple_silicon(tmp_path: Path) -> None:
    probe = mac(tmp_path, 16, 8, 4, 4, "Apple M2")
    outputs = {"/usr/sbin/sysctl -n sysctl.proc_translated": "1\n"}
    probe = replace(probe, architecture="x86_64", run=commands(outputs))
    warning = detect([], probe).warning
    assert warning is not None
    assert warning.message == (
        "Apple GPU is not used: this Python is an Intel program running under Rosetta"
    )
    assert "arm64" in warning.hint


def test_an_intel_mac_has_nothing_to_warn_about(tmp_path: Path) -> None:
    assert detect([], Probe("Darwin", "x86_64", root=tmp_path)).warning is None


def test_without_an_installed_version_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise gpus.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(gpus.metadata, "version", missing)
    assert install_command("-DX=on", Probe("Linux"), "/p").endswith(" llama-cpp-python")


def test_strange_files_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"/sys/class/drm/card0/device/vendor": "0x1002", "/sys/class/drm/version": "x"})
    vram = tmp_path / "sys/class/drm/card0/device/mem_info_vram_total"
    vram.write_bytes(b"\xff" * 10)
    assert detect_gpus(Probe("Linux", root=tmp_path)) == ()
