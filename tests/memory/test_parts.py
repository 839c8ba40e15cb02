"""Sizes are compared with what llama.cpp itself printed for these models (its log lines "KV buffer
size", "model buffer size", "compute buffer size"), read once and kept here as numbers."""

from dataclasses import replace

import pytest

from localspec.budget import DeviceMemory
from localspec.memory import Layer, Part, Settings, Shape, kv_cells, plan_memory
from localspec.memory.parts import MIB, placement

CPU = DeviceMemory("CPU", "cpu", 8 << 30, "free memory")
GPU = DeviceMemory("GPU 0", "cuda", 8 << 30, "reported by the driver")
GPU1 = DeviceMemory("GPU 1", "cuda", 4 << 30, "reported by the driver")


def shape(
    n_layer: int,
    width: int,
    *,
    n_embd: int,
    n_ff: int,
    n_head: int,
    n_vocab: int,
    windows: tuple[int, ...] = (),
    head: int = 64,
    weight: int = 1000,
    repacked: int = 0,
) -> Shape:
    windows = windows or (0,) * n_layer
    layers = tuple(
        Layer(weight, repacked, k_width=width, v_width=width, window=window) for window in windows
    )
    return Shape(
        layers=layers,
        input=Layer(5000),
        output=Layer(6000),
        tied=True,
        n_embd=n_embd,
        n_head=n_head,
        n_embd_head=head,
        n_ff=n_ff,
        n_ff_extra=0,
        n_vocab=n_vocab,
        n_merges=n_vocab,
        n_ctx_train=32768,
    )


SMOL = shape(30, 192, n_embd=576, n_ff=1536, n_head=9, n_vocab=49152)
QWEN_05 = shape(24, 128, n_embd=896, n_ff=4864, n_head=14, n_vocab=151936)
QWEN_15 = shape(28, 256, n_embd=1536, n_ff=8960, n_head=12, n_vocab=151936, head=128)
GEMMA = shape(
    18,
    256,
    n_embd=640,
    n_ff=2048,
    n_head=4,
    n_vocab=262144,
    head=256,
    windows=((512,) * 5 + (0,)) * 3,
)


def part(parts: tuple[Part, ...], what: str, role: str = "target", device: str = "CPU") -> int:
    found = [p.n_bytes for p in parts if (p.what, p.role, p.device) == (what, role, device)]
    assert len(found) == 1, (what, role, device, parts)
    return found[0]


@pytest.mark.parametrize(
    ("model", "n_ctx", "cache", "mib"),
    [
        (SMOL, 2048, "f16", 45.00),
        (SMOL, 32768, "f16", 720.00),
        (SMOL, 8192, "q8_0", 95.625),
        (QWEN_05, 2048, "f16", 24.00),
        (QWEN_05, 32768, "q8_0", 204.00),
        (QWEN_15, 8192, "f16", 224.00),
        (QWEN_15, 32768, "q8_0", 476.00),
        (GEMMA, 2048, "f16", 6.00 + 15.00),
        (GEMMA, 32768, "f16", 96.00 + 15.00),
        (GEMMA, 8192, "q8_0", 12.75 + 7.96875),
    ],
)
def test_caches_are_exactly_llama_cpp_s(model, n_ctx, cache, mib):
    parts = plan_memory(model, Settings(n_ctx, type_k=cache, type_v=cache), [CPU])
    assert part(parts, "KV cache") == mib * MIB


@pytest.mark.parametrize(
    ("model", "n_ctx", "n_rows", "flash_attn", "mib"),
    [
        (SMOL, 2048, 64, True, 15.51),
        (SMOL, 32768, 33, True, 45.51),
        (QWEN_05, 2048, 33, True, 37.51),
        (QWEN_05, 2048, 64, True, 41.03),
        (QWEN_05, 2048, 512, True, 300.25),
        (QWEN_05, 32768, 64, True, 67.51),
        (QWEN_15, 2048, 64, True, 66.51),
        (QWEN_15, 32768, 64, True, 96.51),
        (GEMMA, 2048, 64, True, 65.41),
        (GEMMA, 8192, 33, True, 35.19),
        (GEMMA, 32768, 33, True, 50.77),
        (SMOL, 2048, 64, False, 46.38),
        (SMOL, 8192, 64, False, 166.38),
        (QWEN_05, 8192, 64, False, 249.26),
        (QWEN_15, 2048, 64, False, 68.01),
        (QWEN_15, 8192, 64, False, 224.01),
        (GEMMA, 8192, 64, False, 91.76),
    ],
)
def test_compute_buffers_are_close_to_llama_cpp_s(model, n_ctx, n_rows, flash_attn, mib):
    settings = Settings(n_ctx, n_rows=n_rows, flash_attn=flash_attn)
    ours = part(plan_memory(model, settings, [CPU]), "compute buffers")
    work = 512 * max(model.n_ff, model.n_embd) * 9 // 8  # not in llama.cpp's number
    assert 0.97 * mib * MIB < ours - work < 1.10 * mib * MIB


def test_window_caches_are_padded_and_never_larger_than_the_context():
    settings = Settings(8192)
    assert kv_cells(8192, 512, settings) == 1024
    assert kv_cells(8192, 4096, settings) == 4608
    assert kv_cells(300, 512, settings) == 512
    assert kv_cells(8000, 0, settings) == 8192
    assert kv_cells(8192, 512, Settings(8192, swa_full=True)) == 8192
    assert kv_cells(8192, 512, Settings(8192, n_ubatch=64)) == 768


def test_logits_are_counted_for_the_verified_rows_only():
    """The binding's own class would hold context times vocabulary: 19.9 GB here (F16)."""
    large = shape(24, 128, n_embd=896, n_ff=4864, n_head=14, n_vocab=151936)
    small = shape(24, 128, n_embd=896, n_ff=4864, n_head=14, n_vocab=32000)
    parts = plan_memory(large, Settings(32768), [CPU])
    assert part(parts, "logits") == 64 * 151936 * 4
    assert part(plan_memory(small, Settings(32768), [CPU]), "logits") == 64 * 32000 * 4
    assert sum(p.n_bytes for p in parts) < 1_000_000_000
    plain = plan_memory(large, Settings(32768), [CPU], lookup=False)
    assert part(plain, "logits") == 151936 * 4
    assert not [p for p in plain if p.what == "lookup index"]


def test_repacked_weights_are_a_second_copy_whose_file_pages_may_go():
    model = shape(2, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100, weight=1000, repacked=600)
    parts = plan_memory(model, Settings(512), [CPU])
    mapped = next(p for p in parts if p.what == "weights")
    assert mapped.n_bytes == 5000 + 2 * 1000 + 6000 - 5000
    assert part(parts, "rearranged weights") == 1200
    assert mapped.evictable_bytes == 1200
    assert mapped.needed_bytes == mapped.n_bytes - 1200


def test_copies_of_a_recurrent_state_are_counted():
    model = shape(2, 0, n_embd=64, n_ff=64, n_head=1, n_vocab=100)
    layers = tuple(Layer(10, state_bytes=500) for _ in range(2))
    model = replace(model, layers=layers)
    assert part(plan_memory(model, Settings(512), [CPU]), "recurrent state") == 1000
    assert part(plan_memory(model, Settings(512, n_rs_seq=3), [CPU]), "recurrent state") == 4000


# -- devices -------------------------------------------------------------------------------------


def test_layers_go_to_the_gpu_from_the_last_and_the_output_first():
    model = shape(4, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100)
    assert placement(model, 0, [CPU, GPU]) == [0, 0, 0, 0, 0]
    assert placement(model, 1, [CPU, GPU]) == [0, 0, 0, 0, 1]
    assert placement(model, 3, [CPU, GPU]) == [0, 0, 1, 1, 1]
    assert placement(model, 99, [CPU, GPU]) == [1, 1, 1, 1, 1]
    assert placement(model, 99, [CPU]) == [0, 0, 0, 0, 0]


def test_two_gpus_share_layers_by_free_memory():
    model = shape(8, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100)
    assert placement(model, 9, [CPU, GPU, GPU1]) == [1] * 6 + [2] * 3


def test_weights_and_caches_follow_their_layers():
    model = shape(4, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100, repacked=600)
    parts = plan_memory(model, Settings(512, n_gpu_layers=3), [CPU, GPU])
    assert part(parts, "weights", device="GPU 0") == 2 * 1000 + 6000
    assert part(parts, "weights") == 5000 + 2 * 1000
    assert part(parts, "KV cache") == part(parts, "KV cache", device="GPU 0")
    assert part(parts, "driver", "both", "GPU 0") > 0
    kept = plan_memory(model, Settings(512, n_gpu_layers=3, offload_kqv=False), [CPU, GPU])
    assert part(kept, "KV cache") == 2 * part(parts, "KV cache")


def test_weights_are_not_rearranged_beside_a_gpu_with_host_buffers():
    model = shape(4, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100, repacked=600)
    metal = DeviceMemory("Apple M1", "metal", 8 << 30, "working-set limit", shared_with_cpu=True)
    beside_cuda = plan_memory(model, Settings(512, n_gpu_layers=3), [CPU, GPU])
    assert not [p for p in beside_cuda if p.what == "rearranged weights"]
    beside_metal = plan_memory(model, Settings(512, n_gpu_layers=3), [CPU, metal])
    assert part(beside_metal, "rearranged weights") == 1200


def test_a_tied_output_needs_a_copy_on_a_gpu_but_not_on_metal():
    model = shape(1, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100)
    metal = DeviceMemory("Apple M1", "metal", 8 << 30, "working-set limit", shared_with_cpu=True)
    on_cuda = plan_memory(model, Settings(512, n_gpu_layers=9), [CPU, GPU])
    assert part(on_cuda, "weights", device="GPU 0") == 1000 + 6000
    on_metal = plan_memory(model, Settings(512, n_gpu_layers=9), [CPU, metal])
    assert part(on_metal, "weights", device="Apple M1") == 1000 + 6000 - 5000
    assert part(on_metal, "weights") == part(on_cuda, "weights") == 5000


def test_each_used_device_has_a_reserve():
    model = shape(4, 64, n_embd=64, n_ff=64, n_head=1, n_vocab=100)
    alone = plan_memory(model, Settings(512), [CPU, GPU])
    assert {p.device for p in alone} == {"CPU"}
    both = plan_memory(model, Settings(512, n_gpu_layers=9), [CPU, GPU])
    assert {p.device for p in both if p.what == "reserve"} == {"CPU", "GPU 0"}


def test_a_recurrent_draft_keeps_the_state_from_before_its_draft():
    layers = tuple(Layer(10, state_bytes=500) for _ in range(2))
    draft = replace(shape(2, 0, n_embd=64, n_ff=64, n_head=1, n_vocab=100), layers=layers)
    parts = plan_memory(QWEN_15, Settings(512), [CPU], draft, Settings(512))
    assert part(parts, "recurrent state", "draft") == 2 * 1000


def test_a_draft_needs_settings_and_has_parts_of_its_own():
    with pytest.raises(ValueError, match="needs settings"):
        plan_memory(QWEN_15, Settings(2048), [CPU], QWEN_05)
    parts = plan_memory(QWEN_15, Settings(2048), [CPU], QWEN_05, Settings(1024))
    assert part(parts, "KV cache", "draft") == 12 * MIB
    assert part(parts, "KV cache") == 56 * MIB
    assert part(parts, "logits", "draft") == 151936 * 4
