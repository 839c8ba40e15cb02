"""``localspec check`` and ``localspec show`` as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers_gguf import (
    CONTROL,
    UNUSED,
    byte_metadata,
    byte_vocab,
    llama_metadata,
    write_gguf,
    write_tiny_llama,
)

from localspec.__main__ import main


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def vocab(path: Path, *, padding: int = 0, **changes: tuple[str, int]) -> Path:
    tokens, types = byte_vocab(["one", "two"])
    for place, (text, kind) in changes.items():
        tokens[int(place[1:])], types[int(place[1:])] = text, kind
    tokens += [f"[PAD{n}]" for n in range(padding)]
    types += [UNUSED] * padding
    return write_gguf(path, llama_metadata() | byte_metadata(), tokens=tokens, token_types=types)


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_same_vocabulary(tmp_path, capsys):
    one, two = vocab(tmp_path / "a.gguf"), vocab(tmp_path / "b.gguf")
    assert run(capsys, "check", one, two) == (0, "same: Both have the same 260 tokens.\n", "")


def test_near_counts_as_usable(tmp_path, capsys):
    one = vocab(tmp_path / "a.gguf", padding=128)
    two = vocab(tmp_path / "b.gguf")
    code, out, err = run(capsys, "check", one, two)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        "near: The same tokens, but the target has 128 padding rows more at the end; what differs "
        "is never drafted."
    )
    assert lines[1].split() == ["Id", "Target", "Draft"]
    assert lines[2].split() == ["260", "[PAD0]", "-"]
    assert lines[-1] == "... and 120 more"


def test_different_exits_with_1_and_names_the_first_token(tmp_path, capsys):
    one, two = vocab(tmp_path / "a.gguf"), vocab(tmp_path / "b.gguf", t259=("\x1b[2Jzwei", 1))
    code, out, err = run(capsys, "check", one, two)
    assert (code, err) == (1, "")
    assert out.startswith('different: Their vocabularies differ: token 259 is "two" in the target')
    assert "\x1b" not in out


def test_check_as_json(tmp_path, capsys):
    one = vocab(tmp_path / "a.gguf", t256=("<|x|>", CONTROL))
    two = vocab(tmp_path / "b.gguf", t256=("<|y|>", CONTROL))
    code, out, err = run(capsys, "check", one, two, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["verdict"] == "near"
    assert data["usable"] is True
    assert data["differences"] == [{"id": 256, "target": "<|x|>", "draft": "<|y|>"}]
    assert data["n_never_proposed"] == 1
    assert (data["target"], data["draft"]) == (str(one), str(two))


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<!doctype html><html>" + b"x" * 2000, "is a web page, not a model file."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3000\n",
            "is a Git LFS pointer, not the model file itself (which has 2.93 KiB).",
        ),
        (b"", "is empty."),
    ],
)
def test_a_file_that_is_no_model_is_named_as_target_and_as_draft(
    tmp_path, capsys, role, content, says
):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(content)
    good = vocab(tmp_path / "good.gguf")
    pair = (bad, good) if role == "target" else (good, bad)
    code, out, err = run(capsys, "check", *pair)  # F30
    assert (code, out) == (1, "")
    assert err.startswith(f"localspec: {bad} {says}")


def test_a_model_cut_in_its_weights_is_named(tmp_path, capsys):
    model = write_tiny_llama(tmp_path / "m.gguf")
    data = model.read_bytes()
    model.write_bytes(data[: len(data) * 6 // 10])
    code, out, err = run(capsys, "show", model)
    assert (code, out) == (1, "")
    assert f"is cut: it has {len(data) * 6 // 10} bytes" in err
    assert f"of {len(data)} " in err


def test_a_missing_file_and_a_missing_draft(tmp_path, capsys):
    one = vocab(tmp_path / "a.gguf")
    assert run(capsys, "check", one, tmp_path / "no.gguf")[0] == 1
    code, _, err = run(capsys, "check", one)
    assert code == 2
    assert "is not a pair of two models" in err


def test_offline_a_pair_of_the_catalog_gets_the_catalog_s_answer(capsys):
    code, out, err = run(capsys, "check", "qwen2.5-coder-1.5b", "--json")
    data = json.loads(out)
    assert (code, data["source"], data["usable"]) == (0, "catalog", True)
    assert "This is what the catalog says" in err


def test_show_names_what_the_header_says(tmp_path, capsys):
    model = write_tiny_llama(tmp_path / "m.gguf")
    code, out, err = run(capsys, "show", model)
    assert (code, err) == (0, "")
    facts = {line[:16].strip(): line[18:] for line in out.splitlines()}
    assert facts["Architecture"] == "llama"
    assert facts["Layers"] == "2 of width 64, 4 heads, 2 for keys and values"
    assert facts["Vocabulary"] == "258 tokens"
    assert facts["Special tokens"] == "bos 257 <|start|>, eos 256 <|end|>"
    assert facts["Licence"] == "not stated"
    assert facts["Chat template"] == "no"


def test_show_as_json_lists_capabilities(tmp_path, capsys):
    meta = {
        "gemma3.block_count": 6,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.sliding_window": 512,
        "general.license": "gemma",
        "tokenizer.chat_template": "{{ messages }}\x1b[2J",
    }
    model = write_gguf(tmp_path / "g.gguf", meta, architecture="gemma3", tokens=["a", "b"])
    code, out, _ = run(capsys, "show", model, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["capabilities"] == ["sliding window of 512 tokens in 5 of 6 layers"]
    assert (data["licence"], data["has_chat_template"], data["n_vocab"]) == ("gemma", True, 2)
    code, out, _ = run(capsys, "show", model, "--template")
    assert (code, out) == (0, "{{ messages }}[2J\n")


def test_show_without_a_template_says_so(tmp_path, capsys):
    code, out, err = run(capsys, "show", write_tiny_llama(tmp_path / "m.gguf"), "--template")
    assert (code, out) == (2, "")
    assert "has no chat template" in err
