"""What this build of llama.cpp can compute on, through ggml's device registry."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import llama_cpp
from llama_cpp._ggml import libggml

from localspec.llama import logs


@dataclass(frozen=True, slots=True)
class Device:
    """One device that ggml knows. ``kind`` is the backend in lower case: cpu, cuda, metal, vulkan,
    rocm, sycl, ..."""

    name: str
    description: str
    kind: str
    is_gpu: bool
    n_bytes_free: int
    n_bytes_total: int


_CPU, _GPU, _IGPU = 0, 1, 2  # enum ggml_backend_dev_type


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(libggml, name)
    function.restype = result
    function.argtypes = list(arguments)
    return function


def devices() -> list[Device]:
    """All devices, GPUs first. A library without the registry's functions gives an empty list."""
    logs.install()
    pointer = ctypes.c_void_p
    try:
        count = _function("ggml_backend_dev_count", ctypes.c_size_t)
        get = _function("ggml_backend_dev_get", pointer, ctypes.c_size_t)
        name_of = _function("ggml_backend_dev_name", ctypes.c_char_p, pointer)
        text_of = _function("ggml_backend_dev_description", ctypes.c_char_p, pointer)
        type_of = _function("ggml_backend_dev_type", ctypes.c_int, pointer)
        registry_of = _function("ggml_backend_dev_backend_reg", pointer, pointer)
        registry_name = _function("ggml_backend_reg_name", ctypes.c_char_p, pointer)
        size = ctypes.POINTER(ctypes.c_size_t)
        memory_of = _function("ggml_backend_dev_memory", None, pointer, size, size)
    except AttributeError:
        return []
    found = []
    for index in range(count()):
        device = get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory_of(device, ctypes.byref(free), ctypes.byref(total))
        kind = (registry_name(registry_of(device)) or b"").decode("utf-8", "replace").lower()
        found.append(
            Device(
                name=(name_of(device) or b"").decode("utf-8", "replace"),
                description=(text_of(device) or b"").decode("utf-8", "replace").strip(),
                kind={"mtl": "metal", "hip": "rocm"}.get(kind, kind),
                is_gpu=type_of(device) in (_GPU, _IGPU),
                n_bytes_free=free.value,
                n_bytes_total=total.value,
            )
        )
    return sorted(found, key=lambda device: not device.is_gpu)


def supports_gpu_offload() -> bool:
    """True if this build can put layers on a GPU at all."""
    return bool(llama_cpp.llama_supports_gpu_offload())


def system_info() -> str:
    """llama.cpp's line of compiled-in features and CPU instructions in use."""
    logs.install()
    return str((llama_cpp.llama_print_system_info() or b"").decode("utf-8", "replace"))


def library_version() -> str:
    """The version of llama-cpp-python."""
    return str(llama_cpp.__version__)
