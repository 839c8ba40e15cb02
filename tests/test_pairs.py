from __future__ import annotations

import pytest
from helpers_catalog import GIB, budget, shipped

from localspec.budget import Budget, DeviceMemory
from localspec.catalog import Catalog, Pair
from localspec.errors import MemoryPlanError, ModelNotFoundError
from localspec.files import ModelFile, Shard
from localspec.memory import Settings, choose_plan, plan_memory
from localspec.pairs import (
    Ranked,
    by_numbers,
    default_pair,
    estimate,
    gain_class,
    memory_class,
    rank,
    read_bytes,
    request_by_numbers,
    shape_by_numbers,
    weight_bytes,
)
from localspec.terminal import size

CATALOG = shipped()


def best(found: list[Ranked], n: int) -> list[tuple[str, str, str]]:
    return [(c.pair.id, c.speed, c.where) for c in found if c.usable][:n]


def by_name(found: list[Ranked], name: str) -> Ranked:
    return next(candidate for candidate in found if candidate.pair.id == name)


# -- memory --------------------------------------------------------------------------------------


def cached(name: str, n_ctx: int) -> int:
    """Bytes of keys and values by the memory plan, from the catalog's numbers."""
    shape = shape_by_numbers(CATALOG.model(name))
    assert shape is not None
    parts = plan_memory(shape, Settings(n_ctx, n_batch=256, n_ubatch=256), budget(99).devices)
    return sum(part.n_bytes for part in parts if part.what == "KV cache")


@pytest.mark.parametrize(
    ("name", "at_8k"),
    [
        ("qwen2.5-coder-1.5b", 28672 * 8192),  # full attention
        ("gemma-3-270m", 3072 * 8192 + 15 * 1024 * (512 + 256)),  # 15 of 18 layers see 512 tokens
        ("gemma-4-12b", 16384 * 8192 + 40 * 8192 * (1024 + 256)),  # wider layers, fewer heads
        ("gemma-4-e2b", 6144 * 8192 + 12 * 1024 * (512 + 256)),  # 15 of 35 layers own a cache
        ("qwen3.5-27b", 65536 * 8192),  # 48 of 64 layers are recurrent
        ("gpt-oss-20b", 24576 * 8192 + 12 * 2048 * 512),  # 128 tokens and a batch, rounded up
    ],
)
def test_what_is_cached(name: str, at_8k: int) -> None:
    assert cached(name, 8192) == at_8k


def test_a_window_longer_than_the_context_is_not_filled() -> None:
    assert cached("gemma-3-270m", 256) == (3072 + 15 * 1024) * 256


def test_without_numbers_nothing_is_promised() -> None:
    model = ModelFile("x", (Shard("x.gguf", 100),))
    assert estimate(model, None) is None
    assert estimate(CATALOG.model("qwen3-4b"), model) is None
    assert weight_bytes(ModelFile("y", ())) is None


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("qwen2.5-coder-1.5b", 4),
        ("smollm2-360m", 2),
        ("gemma-3-1b", 2),
        ("llama-3.1-8b", 12),
        ("qwen2.5-72b", 64),
        ("qwen3.5-122b-a10b", 96),
        ("llama-3.1-405b", 512),
    ],
)
def test_the_smallest_computer_for_a_pair(name: str, gib: int) -> None:
    assert memory_class(CATALOG.pair(name)) == gib


@pytest.mark.parametrize("name", ["qwen2.5-coder-1.5b", "gemma-3-12b+270m", "gemma-4-12b+mtp"])
def test_a_pair_fits_exactly_when_the_plan_says_so(name: str) -> None:
    """The choice of a pair and the plan of it must not disagree about one byte."""
    pair = CATALOG.pair(name)
    need = estimate(pair.target, pair.draft)
    request = request_by_numbers(pair.target, pair.draft)
    assert need is not None
    assert request is not None
    enough, short = (Budget((DeviceMemory("CPU", "cpu", need - n, "test"),)) for n in (0, 1))
    plan = choose_plan(request, enough)
    assert (plan.mode, sum(part.needed_bytes for part in plan.parts)) == ("draft", need)
    with pytest.raises(MemoryPlanError):
        choose_plan(request, short)
    fits = by_name(rank(CATALOG, enough), name)
    assert (fits.usable, fits.need_bytes, fits.where) == (True, need, "cpu")
    too_large = by_name(rank(CATALOG, short), name)
    assert (too_large.usable, too_large.need_bytes) == (False, need)


def test_on_a_card_what_counts_is_where_the_parts_go() -> None:
    """Bytes that would fit into card and memory together may still have no place: layers go as a
    whole, and each device needs buffers of its own."""
    pair = CATALOG.pair("qwen2.5-coder-7b")
    for gib in (3.0, 4.0, 5.0, 6.0, 7.3):
        machine = budget(3, "cuda", gib)
        found = by_name(rank(CATALOG, machine), pair.id)
        request = request_by_numbers(pair.target, pair.draft)
        assert request is not None
        try:
            plan = choose_plan(request, machine)
        except MemoryPlanError:
            assert not found.usable
        else:
            assert found.usable
            assert found.where == ("gpu" if plan.settings.n_gpu_layers == 29 else "gpu and cpu")


def test_what_a_token_reads_of_a_mixture_of_experts() -> None:
    assert read_bytes(CATALOG.model("qwen3-30b-a3b")) == pytest.approx(1.98e9)
    assert read_bytes(CATALOG.model("qwen3-4b")) == 2497280256


def test_gain_follows_the_sizes() -> None:
    def gain(name: str) -> str:
        pair = CATALOG.pair(name)
        return gain_class(pair.target, pair.draft)

    assert gain("qwen2.5-coder-32b") == "large"
    assert gain("qwen3-8b") == "some"
    assert gain("qwen2.5-coder-1.5b") == "small"
    assert gain("qwen3-1.7b") == "none"
    assert gain("qwen3.6-27b+mtp") == "unknown"


# -- machines ------------------------------------------------------------------------------------


def test_2_gb_laptop() -> None:
    found = rank(CATALOG, budget(1.7))
    assert best(found, 9) == [("gemma-3-1b", "fast", "cpu"), ("smollm2-360m", "fast", "cpu")]


def test_8_gb_laptop() -> None:
    found = rank(CATALOG, budget(6.5))
    assert best(found, 3) == [
        ("qwen3-4b", "good", "cpu"),
        ("gemma-3-4b", "good", "cpu"),
        ("llama-3.2-3b", "good", "cpu"),
    ]
    llama = by_name(found, "llama-3.1-8b")
    assert not llama.usable
    assert llama.need_bytes is not None
    assert llama.why == f"It needs {size(llama.need_bytes)} of memory and 6.50 GiB can be used."


def test_16_gb_unified_memory_is_limited_by_the_working_set() -> None:
    found = rank(CATALOG, budget(13, "metal", 10.6))
    assert best(found, 3) == [
        ("qwen3-14b", "good", "gpu and cpu"),  # all but a layer within the working set
        ("qwen2.5-14b", "good", "gpu"),
        ("qwen2.5-coder-14b", "good", "gpu"),
    ]
    assert not by_name(found, "qwen3-32b").usable  # both budgets are the same memory


def test_24_gb_cpu() -> None:
    found = rank(CATALOG, budget(22))
    assert best(found, 1) == [("qwen3-4b", "good", "cpu")]
    assert by_name(found, "qwen2.5-coder-14b").speed == "slow"
    assert by_name(found, "gemma-3-27b").speed == "very slow"
    assert not by_name(found, "qwen2.5-72b").usable


def test_64_gb_cpu_prefers_what_is_quick_enough() -> None:
    found = rank(CATALOG, budget(58))
    assert by_name(found, "llama-3.3-70b").usable
    names = [candidate.pair.id for candidate in found]
    assert names.index("qwen3-4b") < names.index("qwen3-14b") < names.index("llama-3.3-70b")


def test_128_gb_unified() -> None:
    found = rank(CATALOG, budget(115, "metal", 96))
    assert best(found, 2) == [("qwen3-14b", "good", "gpu"), ("qwen2.5-14b", "good", "gpu")]
    assert by_name(found, "qwen3.5-122b-a10b").usable
    assert not by_name(found, "llama-3.1-405b").usable


def test_cuda_8_gb_with_32_gb_ram() -> None:
    found = rank(CATALOG, budget(28, "cuda", 7.3))
    assert by_name(found, "qwen2.5-coder-7b").where == "gpu"
    assert by_name(found, "qwen2.5-coder-7b").speed == "fast"
    split = by_name(found, "qwen2.5-coder-32b")
    assert (split.usable, split.where, split.speed) == (True, "gpu and cpu", "very slow")
    assert split.need_bytes is not None
    assert split.why == f"It fits partly on the GPU ({size(split.need_bytes)})."
    assert not by_name(found, "qwen2.5-72b").usable


def test_unusable_pairs_come_last_with_a_reason() -> None:
    found = rank(CATALOG, budget(500))
    usable = [candidate.usable for candidate in found]
    assert usable == sorted(usable, reverse=True)
    mixtral = by_name(found, "mixtral-8x22b+8x7b")
    assert not mixtral.usable
    assert "32768" in mixtral.why
    assert by_name(found, "gemma-4-12b+mtp").usable
    without = by_name(rank(CATALOG, budget(500), kinds=("draft",)), "gemma-4-12b+mtp")
    assert not without.usable
    assert without.why == "Its kind of draft cannot be run here; the target alone can."
    assert len(found) == len(CATALOG.pairs)


def test_the_callers_estimate_counts() -> None:
    found = rank(CATALOG, budget(22), judge=lambda *_: None)
    assert not any(candidate.usable for candidate in found)
    assert by_name(found, "qwen3-4b").why == "Its size is not known before it is asked for."


def test_a_longer_context_needs_more() -> None:
    machine = budget(6.5)
    for n_ctx, fits in ((8192, True), (32768, False)):
        found = rank(CATALOG, machine, judge=by_numbers(machine, n_ctx))
        assert by_name(found, "qwen3-4b").usable == fits


def test_download_leaves_out_what_is_here() -> None:
    found = rank(CATALOG, budget(22), present={"qwen2.5-coder-0.5b-q4_k_m"})
    pair = by_name(found, "qwen2.5-coder-1.5b")
    assert pair.download_bytes == 1117320768
    assert not pair.present
    assert by_name(found, "granite-3.3-8b").download_bytes is None  # its size is not known


# -- the default ---------------------------------------------------------------------------------


def chosen(machine: Budget, *arguments: object, **more: object) -> str | None:
    found = default_pair(CATALOG, machine, *arguments, **more)  # type: ignore[arg-type]
    return found.pair.id if found else None


def test_the_profiles_choice_is_taken() -> None:
    assert chosen(budget(22), ["qwen2.5-coder-1.5b"]) == "qwen2.5-coder-1.5b"


def test_without_a_profiles_choice_the_best_that_fits() -> None:
    assert chosen(budget(22)) == "qwen3-4b"
    assert chosen(budget(1.7), ["qwen2.5-coder-1.5b"]) == "gemma-3-1b"
    assert chosen(budget(0.5)) is None


def test_a_profile_may_name_a_model_that_runs_alone() -> None:
    found = default_pair(CATALOG, budget(1.3), ["qwen2.5-coder-0.5b"])
    assert found is not None
    assert found.pair.target.id == "qwen2.5-coder-0.5b-q4_k_m"
    assert found.pair.draft is None
    assert found.need_bytes == estimate(found.pair.target, None)


def test_a_profile_that_names_what_is_not_there() -> None:
    with pytest.raises(ModelNotFoundError, match="qwen9"):
        chosen(budget(22), ["qwen9"])


def test_present_pairs_go_first() -> None:
    here = {"smollm2-360m-q4_k_m", "smollm2-135m-q4_1"}
    assert chosen(budget(22), ["qwen2.5-coder-1.5b"], here) == "smollm2-360m"
    both = here | {"qwen2.5-coder-1.5b-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m"}
    assert chosen(budget(22), ["qwen2.5-coder-1.5b"], both) == "qwen2.5-coder-1.5b"
    half = {"smollm2-360m-q4_k_m"}
    assert chosen(budget(22), ["qwen2.5-coder-1.5b"], half) == "qwen2.5-coder-1.5b"


def test_offline_only_what_is_here() -> None:
    here = {"gemma-3-1b-q4_k_m", "gemma-3-270m-it-q4_0"}
    assert chosen(budget(22), (), here, can_get=lambda _: False) == "gemma-3-1b"
    assert chosen(budget(22), (), (), can_get=lambda _: False) is None


def test_only_the_package_index() -> None:
    def mirrored(file: ModelFile) -> bool:
        return all(shard.mirror for shard in file.shards)

    assert chosen(budget(22), (), (), can_get=mirrored) == "qwen2.5-coder-1.5b"


def make(name: str, n_bytes: int, **fields: object) -> ModelFile:
    numbers = {
        "n_layer": 1, "n_head_kv": 1, "n_embd_head_k": 64, "n_embd_head_v": 64,
        "n_embd": 64, "n_vocab": 1000,
    }  # fmt: skip
    return ModelFile(name, (Shard("f.gguf", n_bytes),), repo="a/b", numbers=numbers, **fields)  # type: ignore[arg-type]


def test_what_asks_for_consent_or_may_not_match_is_never_downloaded_unasked() -> None:
    small = make("small", 2 * 10**8)
    gated = Pair("gated", make("t1", 2 * GIB, gated="yes"), small, advice="recommended")
    doubtful = Pair("doubtful", make("t2", 2 * GIB), small, advice="measure")
    sizeless = Pair("sizeless", make("t3", 0), small)
    known = Catalog({}, [gated, doubtful, sizeless])
    assert default_pair(known, budget(22)) is None
    found = default_pair(known, budget(22), (), {"t1", "small"})
    assert found is not None
    assert found.pair.id == "gated"
