"""Which file ``repo:quant`` means, and which files belong together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import DownloadError, ModelNotFoundError, UsageError
from localspec.store import choose, local_model, quant_tag
from localspec.store.names import (
    check_file_name,
    check_repo,
    check_revision,
    group_models,
    is_side_file,
    shard_name,
)

REPO = "someone/Some-GGUF"


def split(stem: str, count: int) -> list[str]:
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("x-IQ4_XS.gguf", "IQ4_XS"),
        ("x-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("x.i1-Q4_K_M.gguf", "I1-Q4_K_M"),
        ("BF16/model-00001-of-00002.gguf", "BF16"),
        ("Q8_0/x-Q8_0-00001-of-00002.gguf", "Q8_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Q2-thoughts.gguf", "Q2"),
        ("plain.gguf", ""),
        ("FAQ4_K_Manual.gguf", ""),
    ],
)
def test_quant_tag(name: str, tag: str) -> None:
    assert quant_tag(name) == tag


def test_quantisation_matches_whole() -> None:
    names = [f"m-{q}.gguf" for q in ("IQ4_K_M", "Q4_K_S", "Q4_K_M", "Q4_K", "Q4_K_L")]
    for quant in ("Q4_K_M", "q4_k_m"):
        assert choose(REPO, names, quant).names == ("m-Q4_K_M.gguf",)
    with pytest.raises(ModelNotFoundError, match="Q5_K_M") as error:
        choose(REPO, names, "Q5_K_M")
    assert f"{REPO}:Q4_K_S" in error.value.hint


def test_flavour_is_not_taken_for_the_plain_one() -> None:
    names = ["m-UD-Q4_K_XL.gguf", "m-Q4_K_XL.gguf", "m.i1-Q6_K.gguf"]
    assert choose(REPO, names, "Q4_K_XL").names == ("m-Q4_K_XL.gguf",)
    assert choose(REPO, names, "UD-Q4_K_XL").names == ("m-UD-Q4_K_XL.gguf",)
    assert choose(REPO, names, "Q6_K").names == ("m.i1-Q6_K.gguf",)  # there is no other


def test_ambiguous_tag_lists_the_choices() -> None:
    names = ["base-Q8_0.gguf", "chat-Q8_0.gguf"]
    with pytest.raises(UsageError, match="fits 2 models") as error:
        choose(REPO, names, "Q8_0")
    assert f"{REPO}:base-Q8_0.gguf" in error.value.hint
    assert choose(REPO, names, "chat-Q8_0.gguf").names == ("chat-Q8_0.gguf",)
    with pytest.raises(UsageError, match="fits 2 models"):
        choose(REPO, names, None)


def test_without_a_quantisation_the_usual_one() -> None:
    names = ["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-IQ4_K_M.gguf"]
    assert choose(REPO, names, None).names == ("m-Q4_K_M.gguf",)
    assert choose(REPO, ["only-F16.gguf", "README.md"], None).names == ("only-F16.gguf",)
    with pytest.raises(UsageError, match="several models"):
        choose(REPO, ["m-F16.gguf", "m-Q2_K.gguf"], None)
    with pytest.raises(ModelNotFoundError, match="no GGUF"):
        choose(REPO, ["model.safetensors", "mmproj-F16.gguf"], None)


@pytest.mark.parametrize(
    "name",
    [
        "mmproj-F16.gguf",
        "model-mmproj-Q8_0.gguf",
        "imatrix.gguf",
        "imatrix_unsloth.gguf",
        "eagle3-gpt-oss-Q8_0.gguf",
        "mtp-Qwen3.5-Q4_K_M.gguf",
        "sub/dflash-x-Q4_K_M.gguf",
        "x-DSpark-Q4_K_M.gguf",
    ],
)
def test_side_files_are_never_a_model(name: str) -> None:
    assert is_side_file(name)
    assert group_models([name]) == []


def test_models_with_such_words_in_their_names_are_models() -> None:
    for name in ("Qwen3.5-9B-MTP-Q4_K_M.gguf", "beagle-7b-Q4_K_M.gguf", "eaglet-Q8_0.gguf"):
        assert not is_side_file(name)


def test_all_parts_in_order() -> None:
    q4, q8 = split("Q4_K_M/m-Q4_K_M", 3), split("Q8_0/m-Q8_0", 12)
    names = [*reversed(q8), *reversed(q4), "mmproj-F16.gguf"]
    assert choose(REPO, names, "Q4_K_M").names == tuple(q4)
    assert choose(REPO, names, "Q8_0").names == tuple(q8)
    assert choose(REPO, names, q8[4]).names == tuple(q8)  # a later part names the whole


def test_missing_part_is_named() -> None:
    names = split("m-Q4_K_M", 3)
    with pytest.raises(ModelNotFoundError, match=r"2 of 3 parts.*m-Q4_K_M-00002-of-00003") as error:
        choose(REPO, [names[0], names[2]], "Q4_K_M")
    assert "Nothing was downloaded" in error.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "m-00001-of-00001.gguf",
        "m-1-of-3.gguf",
        "m-00004-of-00003.gguf",
        "m-00000-of-00003.gguf",
        "m-00001-of-99999.gguf",
        "m-00001-of-00003.txt",
    ],
)
def test_names_that_only_look_split(name: str) -> None:
    assert shard_name(name) is None


def test_one_of_one_is_an_ordinary_model() -> None:
    names = ["m-Q4_K_M-00001-of-00001.gguf"]
    assert choose(REPO, names, "Q4_K_M").names == tuple(names)


def test_path_to_a_later_part_means_the_whole(tmp_path: Path) -> None:
    names = split("m-Q4_K_M", 3)
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF" + name.encode())
    model = local_model(tmp_path / names[1])
    assert model.path == tmp_path / names[0]
    assert [shard.name for shard in model.shards] == names
    assert model.n_bytes == sum((tmp_path / name).stat().st_size for name in names)
    (tmp_path / names[2]).unlink()
    with pytest.raises(ModelNotFoundError, match=r"00003-of-00003\.gguf is not beside it"):
        local_model(tmp_path / names[0])


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="directory"):
        local_model(tmp_path)
    with pytest.raises(ModelNotFoundError, match="no file"):
        local_model(tmp_path / "x.gguf")


@pytest.mark.parametrize("repo", ["", "a", "a/b/c", "../x", "a/..", "-a/b", "a/b c", "a/b--c"])
def test_names_that_are_no_repository(repo: str) -> None:
    with pytest.raises(UsageError):
        check_repo(repo)


@pytest.mark.parametrize("revision", ["..", "a/../b", "/a", "a//b", "a b", "-x"])
def test_revisions_that_would_leave_their_directory(revision: str) -> None:
    with pytest.raises(UsageError):
        check_revision(revision)


@given(st.text(max_size=40))
def test_a_checked_name_stays_inside(name: str) -> None:
    try:
        checked = check_file_name(name)
    except DownloadError:
        return
    root = Path("/root/of/all")
    assert root in (root / checked).parents
    assert ".." not in Path(checked).parts
