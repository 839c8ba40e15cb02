from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers_catalog import shipped

from localspec.drafts import OnDisk, Suggestion, drafts_for
from localspec.files import ModelFile, Shard
from localspec.ggml_types import TYPES
from localspec.header import Header, Tensor
from localspec.vocab import Match

CATALOG = shipped()
TARGET = CATALOG.model("llama-3.1-8b")
WEIGHTS = (Tensor("w", (1,), next(iter(TYPES.values())), 0, 4),)


def header(architecture: str = "llama", name: str = "same") -> Header:
    metadata = {"general.architecture": architecture, "general.name": name}
    return Header(version=3, metadata=metadata, tensors=WEIGHTS)


def compare(target: Header, draft: Header) -> Match:
    assert target.name == "target"
    verdict = draft.name
    assert verdict in ("same", "near", "different")
    return Match(verdict, f"They are {verdict}.", 10, 10)  # type: ignore[arg-type]


def on_disk(name: str, n_bytes: int, verdict: str, architecture: str = "llama") -> OnDisk:
    model = ModelFile(name, (Shard(name, n_bytes),), path=Path("/models") / name)
    return OnDisk(model, Path("/models") / name, header(architecture, verdict))


def judge(*disk: OnDisk) -> list[Suggestion]:
    return drafts_for(TARGET, header(name="target"), CATALOG, disk, compare)


def verdicts(found: list[Suggestion]) -> list[tuple[str, bool, str]]:
    return [(one.name, one.accepted, one.reason) for one in found]


def test_the_catalog_answers_without_the_file() -> None:
    found = drafts_for(CATALOG.model("qwen2.5-72b"), None, CATALOG, [], compare)
    assert [(one.name, one.accepted, one.from_catalog, one.present) for one in found] == [
        ("qwen2.5-0.5b-q4_k_m", True, True, False),
        ("qwen2.5-7b-q4_k_m", True, True, False),
    ]
    assert found[0].gain == "large"


def test_a_pair_that_does_not_match_is_rejected_with_its_reason() -> None:
    (found,) = drafts_for(CATALOG.model("mixtral-8x22b"), None, CATALOG, [], compare)
    assert not found.accepted
    assert "32768 tokens, 8x7B has 32000" in found.reason


def test_an_mtp_head_of_the_catalog_is_a_draft() -> None:
    found = drafts_for(CATALOG.model("gemma-4-31b"), None, CATALOG, [], compare)
    assert {(one.name, one.accepted) for one in found} == {
        ("gemma-4-e2b-ud-q4_k_xl", True),
        ("gemma-4-31b-mtp", True),
    }
    found = drafts_for(CATALOG.model("gemma-4-31b"), None, CATALOG, [], compare, kinds=("draft",))
    assert not next(one for one in found if one.name == "gemma-4-31b-mtp").accepted


def test_files_are_judged_by_content_not_by_name() -> None:
    found = judge(
        on_disk("other-family.gguf", 10**8, "same"),
        on_disk("llama-3.2-1b-renamed.gguf", 10**8, "different"),
        on_disk("padded.gguf", 2 * 10**8, "near"),
    )
    assert verdicts(found) == [
        ("other-family.gguf", True, "They are same."),
        ("padded.gguf", True, "They are near."),
        (
            "llama-3.2-1b-q4_k_m",
            True,
            "Both 128256 tokens with the special tokens of Llama 3.1 and later.",
        ),
        ("llama-3.2-1b-renamed.gguf", False, "They are different."),
    ]
    assert [one.match for one in found] == ["same", "near", "same", "different"]
    assert [one.present for one in found] == [True, True, False, True]


def test_a_file_that_is_here_is_compared_whatever_the_catalog_says() -> None:
    draft = replace(CATALOG.model("llama-3.2-1b"), path=None)
    found = judge(OnDisk(draft, Path("/d.gguf"), header(name="different")))
    assert verdicts(found) == [("llama-3.2-1b-q4_k_m", False, "They are different.")]
    assert not found[0].from_catalog


def test_too_large_a_model_is_no_draft() -> None:
    found = judge(on_disk("big.gguf", 4_500_000_000, "same"))
    assert verdicts(found)[-1] == (
        "big.gguf",
        False,
        "It is too large to be quicker than the target (4.19 GiB and 4.58 GiB).",
    )


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("nomic-bert", "It does not write text (nomic-bert)."),
        (
            "gemma4-assistant",
            "It holds only MTP heads: its heads are for a gemma4 model, and the target is llama.",
        ),
        ("eagle3", "It is a draft head made for one target, which localspec cannot run."),
    ],
)
def test_what_writes_no_text_is_no_draft(architecture: str, reason: str) -> None:
    found = judge(on_disk("x.gguf", 10**8, "same", architecture))
    assert verdicts(found)[-1] == ("x.gguf", False, reason)


def test_a_vocabulary_without_weights_is_no_draft() -> None:
    model = on_disk("x.gguf", 10**6, "same")
    assert model.header is not None
    found = judge(replace(model, header=replace(model.header, tensors=())))
    assert verdicts(found)[-1] == ("x.gguf", False, "It has a vocabulary, but no weights.")


def test_a_broken_file_is_rejected_with_what_is_wrong_with_it() -> None:
    whole = on_disk("x.gguf", 10**8, "same")
    broken = replace(whole, header=None, reason="x.gguf is cut.")
    assert verdicts(judge(broken))[-1] == ("x.gguf", False, "x.gguf is cut.")


def test_the_target_is_not_its_own_draft() -> None:
    path = Path("/models/t.gguf")
    target = ModelFile("t", (Shard("t.gguf", 10**9),), path=path)
    same = OnDisk(ModelFile("other-name", (), path=path), path, header(name="same"))
    assert drafts_for(target, header(name="target"), CATALOG, [same], compare) == []


def test_a_name_from_the_disk_cannot_drive_the_terminal() -> None:
    found = judge(on_disk("a\x1b[2Jb.gguf", 10**8, "same"))
    assert found[0].name == "a\N{REPLACEMENT CHARACTER}[2Jb.gguf"
