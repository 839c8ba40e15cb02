"""MTP heads as the header shows them. llama.cpp ends the process over most of what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_tiny_models import (
    write_counting_assistant,
    write_counting_gemma4,
    write_counting_qwen35,
    write_counting_step35,
    write_lfm2,
    write_qwen35,
)

from localspec.gguf import read_header
from localspec.header import Header
from localspec.nextn import Heads, heads_of, holds_only_heads, mismatch


@pytest.fixture
def header(tmp_path: Path) -> Callable[..., Header]:
    return lambda write, **how: read_header(write(tmp_path / "m.gguf", **how))


def test_a_model_without_heads(header: Callable[..., Header]) -> None:
    assert heads_of(header(write_lfm2)) is None
    assert heads_of(header(write_qwen35)) is None


def test_heads_inside_a_file(header: Callable[..., Header]) -> None:
    assert heads_of(header(write_qwen35, n_heads_mtp=1)) == Heads("inside", 1)
    several = heads_of(header(write_counting_step35, n_heads_mtp=3))
    assert several == Heads("inside", 3)
    assert several.chained


def test_files_of_heads(header: Callable[..., Header]) -> None:
    only = header(write_counting_qwen35, heads="only")
    assert heads_of(only) == Heads("apart", 1)
    assert holds_only_heads(only)
    assistant = header(write_counting_assistant)
    assert heads_of(assistant) == Heads("shared", 2)
    assert holds_only_heads(assistant)
    assert not holds_only_heads(header(write_qwen35, n_heads_mtp=1))


def test_files_of_one_name_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    paths = [tmp_path / kind / "Model-Q4_K_M.gguf" for kind in ("with", "without")]
    write_counting_qwen35(paths[0])
    write_counting_qwen35(paths[1], heads="none")
    assert [heads_of(read_header(path)) is not None for path in paths] == [True, False]


def test_settings_that_promise_heads_the_file_does_not_have(header: Callable[..., Header]) -> None:
    whole = header(write_qwen35, n_heads_mtp=1)
    bare = tuple(tensor for tensor in whole.tensors if not tensor.name.startswith("blk.4."))
    assert heads_of(replace(whole, tensors=bare)) is None


@pytest.mark.parametrize("part", ["eh_proj", "enorm", "hnorm"])
def test_a_head_with_a_part_missing_is_refused(header: Callable[..., Header], part: str) -> None:
    whole = header(write_qwen35, n_heads_mtp=1)
    tensors = tuple(tensor for tensor in whole.tensors if part not in tensor.name)
    found = heads_of(replace(whole, tensors=tensors))
    assert found is not None
    assert found.unusable == f"its MTP head 1 lacks nextn.{part}.weight"


def test_several_heads_need_an_output_and_a_block(header: Callable[..., Header]) -> None:
    whole = header(write_counting_step35, n_heads_mtp=2)
    for name, reason in (
        ("output.weight", "head 1 has no output matrix"),
        ("blk.3.ffn_gate.weight", "head 2 lacks a feed-forward block"),
    ):
        tensors = tuple(tensor for tensor in whole.tensors if tensor.name != name)
        found = heads_of(replace(whole, tensors=tensors))
        assert found is not None
        assert reason in found.unusable


def test_more_heads_than_llama_cpp_runs_are_refused(header: Callable[..., Header]) -> None:
    found = heads_of(header(write_qwen35, n_heads_mtp=2))
    assert found is not None
    assert found.unusable == "it has 2 MTP heads, and one of a qwen35 model can be run"


def test_an_unknown_architecture_is_refused(header: Callable[..., Header]) -> None:
    whole = header(write_qwen35, n_heads_mtp=1)
    metadata = {key.replace("qwen35", "novel"): value for key, value in whole.metadata.items()}
    found = heads_of(replace(whole, metadata={**metadata, "general.architecture": "novel"}))
    assert found is not None
    assert found.unusable == "llama.cpp has no way to run the MTP heads of a novel model"


def test_whose_heads_they_are(tmp_path: Path) -> None:
    target = read_header(write_counting_qwen35(tmp_path / "t.gguf", heads="none"))
    heads = read_header(write_counting_qwen35(tmp_path / "h.gguf", heads="only"))
    gemma = read_header(write_counting_gemma4(tmp_path / "g.gguf"))
    assistant = read_header(write_counting_assistant(tmp_path / "a.gguf"))
    assert mismatch(target, heads) == ""
    assert mismatch(gemma, assistant) == ""
    assert mismatch(gemma, heads) == "its heads are for a qwen35 model, and the target is gemma4"
    assert "for a gemma4 model" in mismatch(target, assistant)
    assert mismatch(target, target) == "it has no MTP heads"
    other = replace(target, metadata={**target.metadata, "qwen35.block_count": 8})
    assert mismatch(other, heads) == "its heads are for a model of another size"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("embedding_length", 128, "another size"),
        ("attention.key_length", 32, "another attention"),
        ("attention.sliding_window", 128, "another attention"),
        ("attention.sliding_window_pattern", (True, True, True, True), "none in the last"),
        ("attention.head_count_kv", 3, "do not divide evenly"),
    ],
)
def test_heads_that_read_the_targets_cache_must_fit_it(
    tmp_path: Path, key: str, value: object, reason: str
) -> None:
    gemma = read_header(write_counting_gemma4(tmp_path / "g.gguf"))
    assistant = read_header(write_counting_assistant(tmp_path / "a.gguf"))
    changed = replace(gemma, metadata={**gemma.metadata, f"gemma4.{key}": value})  # type: ignore[dict-item]
    assert reason in mismatch(changed, assistant)
