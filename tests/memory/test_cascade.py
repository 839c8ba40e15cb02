import json
from dataclasses import replace

import pytest

from localspec.budget import Budget, DeviceMemory
from localspec.errors import MemoryPlanError, PairError
from localspec.memory import Candidate, Layer, Request, Settings, Shape, choose_plan

GIB = 1 << 30
MIB = 1 << 20


def shape(n_layer: int, layer_mib: int, n_ctx_train: int = 131072) -> Shape:
    layer = Layer(layer_mib * MIB, k_width=1024, v_width=1024)
    return Shape(
        layers=(layer,) * n_layer,
        input=Layer(100 * MIB),
        output=Layer(100 * MIB),
        tied=False,
        n_embd=2048,
        n_head=16,
        n_embd_head=128,
        n_ff=8192,
        n_ff_extra=0,
        n_vocab=100_000,
        n_merges=100_000,
        n_ctx_train=n_ctx_train,
    )


TARGET = Candidate("big", shape(32, 128))  # 4.2 GiB of weights, 1 GiB of cache at 8192
DRAFT = Candidate("small", shape(16, 40))  # 0.8 GiB
TINY = Candidate("tiny", shape(4, 20))  # 0.3 GiB
REQUEST = Request(TARGET, Settings(8192), (DRAFT, TINY))


def cpu(gib: float) -> DeviceMemory:
    return DeviceMemory("CPU", "cpu", int(gib * GIB), "free memory")


def gpu(gib: float, name: str = "GPU 0") -> DeviceMemory:
    return DeviceMemory(name, "cuda", int(gib * GIB), "reported by the driver")


def metal(gib: float) -> DeviceMemory:
    return DeviceMemory(
        "Apple M1", "metal", int(gib * GIB), "Metal's working-set limit", shared_with_cpu=True
    )


def verdicts(plan) -> list[tuple[str, str]]:
    return [(step.name, step.verdict) for step in plan.steps]


# -- where things go -----------------------------------------------------------------------------


def test_everything_on_the_gpu_when_it_fits():
    plan = choose_plan(REQUEST, Budget((cpu(32), gpu(24))))
    assert (plan.mode, plan.draft) == ("draft", "small")
    assert plan.reason == "Draft small on GPU 0: everything fits."
    assert plan.settings.n_gpu_layers == 33
    assert plan.draft_settings.n_gpu_layers == 17
    assert verdicts(plan) == [
        ("draft small on GPU 0", "chosen"),
        ("draft small on the CPU", "not needed"),
        ("draft tiny on GPU 0", "not needed"),
        ("draft tiny on the CPU", "not needed"),
        ("a Q8_0 cache", "not needed"),
        ("lookup", "not needed"),
        ("plain", "not needed"),
        ("a shorter context", "not needed"),
    ]


def test_the_draft_goes_to_the_cpu_while_the_target_stays_on_the_gpu():
    plan = choose_plan(REQUEST, Budget((cpu(32), gpu(6.6))))
    assert (plan.mode, plan.draft) == ("draft", "small")
    assert plan.settings.n_gpu_layers == 33
    assert plan.draft_settings.n_gpu_layers == 0
    assert plan.reason.startswith("Draft small on the CPU: draft small on GPU 0 needs ")
    assert "more than the 6.60 GiB available (reported by the driver)." in plan.reason


def test_a_gpu_that_is_too_small_gets_as_many_layers_as_it_holds():
    plan = choose_plan(REQUEST, Budget((cpu(32), gpu(3))))
    assert 0 < plan.settings.n_gpu_layers < 33
    assert plan.needed_bytes("GPU 0") <= 3 * GIB
    # The draft keeps its place: it is read once per drafted token, a layer once per step.
    n_layers = plan.settings.n_gpu_layers
    assert plan.draft_settings.n_gpu_layers == 17
    assert plan.reason == (
        f"Draft small on GPU 0: everything fits. {n_layers} of the target's 33 layers are on "
        "GPU 0, the rest on the CPU."
    )
    one_more = replace(
        REQUEST, n_gpu_layers=n_layers + 1, drafts=(DRAFT,), draft_device="gpu", mode="draft"
    )
    with pytest.raises(MemoryPlanError, match="on GPU 0"):
        choose_plan(one_more, Budget((cpu(32), gpu(3))))


def test_two_gpus_are_used_together():
    plan = choose_plan(REQUEST, Budget((cpu(32), gpu(5), gpu(5, "GPU 1"))))
    assert (plan.mode, plan.settings.n_gpu_layers) == ("draft", 33)
    assert plan.steps[0].name == "draft small on the GPUs"
    assert plan.needed_bytes("GPU 0") > GIB
    assert plan.needed_bytes("GPU 1") > GIB


def test_memory_that_a_gpu_shares_with_the_cpu_is_counted_once():
    # 16 GB of unified memory of which 10.7 may be used by Metal: the target and the draft fit.
    plan = choose_plan(REQUEST, Budget((cpu(12), metal(10.7))))
    assert plan.settings.n_gpu_layers == 33
    # With other programs taking most of it, the working-set limit alone would have said yes.
    with pytest.raises(MemoryPlanError, match="on CPU"):
        choose_plan(replace(REQUEST, n_gpu_layers=33), Budget((cpu(5), metal(10.7))))


# -- falling back --------------------------------------------------------------------------------


def test_a_smaller_draft_comes_before_lookup():
    plan = choose_plan(REQUEST, Budget((cpu(6.8),)))
    assert (plan.mode, plan.draft) == ("draft", "tiny")
    assert plan.reason.startswith("Draft tiny on the CPU: draft small on the CPU needs ")
    assert verdicts(plan)[:2] == [
        ("draft small on the CPU", "too large"),
        ("draft tiny on the CPU", "chosen"),
    ]


def test_lookup_when_no_draft_fits_with_the_reason():
    plan = choose_plan(REQUEST, Budget((cpu(6),)))
    assert (plan.mode, plan.draft, plan.draft_settings) == ("lookup", "", None)
    assert plan.reason.startswith("Lookup: draft small on the CPU needs ")
    assert plan.reason.endswith(
        "more than the 6.00 GiB available (free memory); no smaller draft fits either."
    )
    alone = choose_plan(replace(REQUEST, drafts=(DRAFT,)), Budget((cpu(6),)))
    assert alone.reason.endswith("more than the 6.00 GiB available (free memory).")
    assert ("a Q8_0 cache", "not allowed") in verdicts(plan)


def test_a_quantised_cache_only_if_allowed():
    only_tiny = replace(REQUEST, drafts=(TINY,))
    need = choose_plan(only_tiny, Budget((cpu(64),))).needed_bytes("CPU")
    budget = Budget((cpu((need - MIB) / GIB),))
    plan = choose_plan(replace(REQUEST, allow_quantised_cache=True), budget)
    assert (plan.mode, plan.draft) == ("draft", "tiny")
    assert (plan.settings.type_k, plan.settings.type_v) == ("q8_0", "q8_0")
    assert plan.draft_settings.type_k == "q8_0"
    assert plan.reason.startswith("Draft tiny on the CPU with a Q8_0 cache: draft small")
    assert choose_plan(REQUEST, budget).mode == "lookup"


def test_values_are_not_quantised_without_flash_attention():
    settings = Settings(8192, flash_attn=False, n_ubatch=64)
    request = replace(REQUEST, settings=settings, allow_quantised_cache=True, drafts=())
    need = choose_plan(request, Budget((cpu(64),))).needed_bytes("CPU")
    plan = choose_plan(request, Budget((cpu((need - 100 * MIB) / GIB),)))
    assert (plan.settings.type_k, plan.settings.type_v) == ("q8_0", "f16")


def test_plain_decoding_when_even_the_index_and_its_rows_are_too_much():
    need = choose_plan(replace(REQUEST, mode="lookup"), Budget((cpu(64),))).needed_bytes("CPU")
    plan = choose_plan(REQUEST, Budget((cpu((need - MIB) / GIB),)))
    assert plan.mode == "plain"
    assert plan.reason.startswith("Plain decoding: draft small on the CPU needs ")


def test_a_shorter_context_only_if_allowed():
    budget = Budget((cpu(5.3),))
    with pytest.raises(MemoryPlanError):
        choose_plan(REQUEST, budget)
    plan = choose_plan(replace(REQUEST, allow_shorter_context=True), budget)
    assert plan.settings.n_ctx == 4096
    assert plan.mode == "lookup"
    assert plan.reason.startswith("Lookup and a context of 4096: draft small on the CPU needs ")


def test_no_draft_known_is_said():
    plan = choose_plan(replace(REQUEST, drafts=()), Budget((cpu(32),)))
    assert plan.reason == "Lookup: no draft is known for this target."


def test_a_draft_of_another_vocabulary_is_named_and_passed_over():
    wrong = replace(DRAFT, unusable="Their vocabularies differ: token 5 is …")
    plan = choose_plan(replace(REQUEST, drafts=(wrong, TINY)), Budget((cpu(32), gpu(24))))
    assert plan.draft == "tiny"
    assert verdicts(plan)[0] == ("draft small", "not possible")
    assert plan.reason == (
        "Draft tiny on GPU 0: draft small is not possible "
        "(Their vocabularies differ: token 5 is …)."
    )
    only = choose_plan(replace(REQUEST, drafts=(wrong,)), Budget((cpu(32),)))
    assert only.reason.startswith("Lookup: draft small is not possible (")


def test_a_step_that_could_not_be_loaded_is_passed_over_with_its_reason():
    budget = Budget((cpu(64),))
    first = choose_plan(REQUEST, budget)
    failed = {first.step: "failed to allocate the cache."}
    second = choose_plan(REQUEST, budget, failed)
    assert second.step == "draft tiny on the CPU"
    assert second.reason == (
        "Draft tiny on the CPU: draft small on the CPU could not be loaded (failed to allocate "
        "the cache)."
    )
    failed[second.step] = "failed again"
    assert choose_plan(REQUEST, budget, failed).mode == "lookup"
    only = replace(REQUEST, mode="lookup")
    with pytest.raises(MemoryPlanError, match=r"lookup could not be loaded \(no memory\)"):
        choose_plan(only, budget, {"lookup": "no memory"})


# -- explicit wishes -----------------------------------------------------------------------------


def test_what_was_asked_for_is_refused_and_never_changed():
    budget = Budget((cpu(6),))
    with pytest.raises(MemoryPlanError) as caught:
        choose_plan(replace(REQUEST, mode="draft", drafts=(DRAFT,)), budget)
    assert caught.value.message.startswith(
        "big (draft small on the CPU) does not fit into memory: it needs "
    )
    assert "more than the 6.00 GiB available (free memory)." in caught.value.message
    assert caught.value.hint.splitlines()[0] == (
        "It would fit in another mode: leave the mode on auto."
    )
    assert choose_plan(replace(REQUEST, mode="lookup"), budget).reason == "Lookup, as asked."
    assert choose_plan(replace(REQUEST, mode="plain"), budget).reason == "Plain decoding, as asked."


def test_a_draft_wanted_on_the_gpu_is_not_moved():
    request = replace(REQUEST, mode="draft", draft_device="gpu", drafts=(DRAFT,))
    with pytest.raises(MemoryPlanError, match=r"draft small on GPU 0\) does not fit"):
        choose_plan(request, Budget((cpu(32), gpu(6.6))))
    plan = choose_plan(replace(request, draft_device="cpu"), Budget((cpu(32), gpu(24))))
    assert plan.draft_settings.n_gpu_layers == 0


def test_a_wanted_draft_that_cannot_work_is_a_matter_of_the_pair():
    wrong = replace(DRAFT, unusable="Their vocabularies differ.")
    with pytest.raises(PairError) as caught:
        choose_plan(replace(REQUEST, mode="draft", drafts=(wrong,)), Budget((cpu(32),)))
    assert caught.value.message == (
        "big cannot run with a draft: draft small is not possible (Their vocabularies differ)."
    )
    with pytest.raises(PairError, match="no draft is known for it"):
        choose_plan(replace(REQUEST, mode="draft", drafts=()), Budget((cpu(32),)))


def test_a_refusal_names_the_missing_bytes_and_what_would_fit():
    request = replace(REQUEST, other_targets=(DRAFT, TARGET, TINY))
    with pytest.raises(MemoryPlanError) as caught:
        choose_plan(request, Budget((cpu(5.3),)))
    assert caught.value.exit_code == 4
    assert caught.value.message.startswith("big does not fit into memory: it needs ")
    assert " MiB more than the 5.30 GiB available (free memory)." in caught.value.message
    assert caught.value.hint.splitlines() == [
        "It would fit with a quantised cache: --allow-kv-quant.",
        "A context of 4096 tokens would fit (--ctx-size 4096).",
        "These models would fit: small, tiny.",
    ]


def test_a_refusal_without_any_way_out_says_so():
    with pytest.raises(MemoryPlanError) as caught:
        choose_plan(REQUEST, Budget((cpu(1),)))
    assert caught.value.hint.startswith("Close other programs, or choose a smaller model")


# -- the draft's context (F17) -------------------------------------------------------------------


def test_the_draft_s_context_is_the_target_s_not_what_it_was_trained_for():
    request = replace(REQUEST, settings=Settings(4096), drafts=(DRAFT,))
    plan = choose_plan(request, Budget((cpu(64),)))
    assert DRAFT.shape.n_ctx_train == 131072
    assert plan.draft_settings.n_ctx == 4096
    draft_parts = {part.what for part in plan.parts if part.role == "draft"}
    assert {"weights", "KV cache", "compute buffers", "vocabulary", "logits"} <= draft_parts
    need = plan.needed_bytes("CPU")
    enough = choose_plan(request, Budget((cpu(need / GIB),)))
    assert enough.mode == "draft", "a budget that is just enough is enough"
    assert choose_plan(request, Budget((cpu((need - 2) / GIB),))).mode == "lookup"


def test_a_draft_trained_for_less_gets_less():
    short = Candidate("short", shape(4, 20, n_ctx_train=2048))
    plan = choose_plan(replace(REQUEST, drafts=(short,)), Budget((cpu(64),)))
    assert plan.draft_settings.n_ctx == 2048


# -- as data -------------------------------------------------------------------------------------


def test_a_plan_as_json_adds_up():
    plan = choose_plan(REQUEST, Budget((cpu(32), gpu(24))))
    data = json.loads(json.dumps(plan.as_dict()))
    assert data["mode"] == "draft"
    assert data["reason"] == plan.reason
    assert sum(part["bytes"] for part in data["parts"]) == plan.n_bytes
    for device in data["devices"]:
        parts = [part for part in data["parts"] if part["device"] == device["name"]]
        total = sum(part["bytes"] - part["evictable_bytes"] for part in parts)
        assert total == device["needed_bytes"] <= device["free_bytes"]
        assert device["source"]
    assert data["steps"][0]["verdict"] == "chosen"
    assert choose_plan(replace(REQUEST, drafts=()), Budget((cpu(32),))).as_dict()["draft"] is None
