"""Which prompts are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.benchmark import choose, load
from localspec.benchmark.prompts import QUICK
from localspec.errors import ConfigError, UsageError


def test_the_shipped_prompts_are_those_of_the_repository() -> None:
    prompts = load()
    assert len(prompts) == 16
    assert len({p.kind for p in prompts}) >= 8
    assert set(QUICK) <= {p.id for p in prompts}
    edit = next(p for p in prompts if p.id == "edit-type-hints")
    assert "def load_records(path):\n    records = []" in edit.prompt


def test_quick_is_one_of_each_of_several_kinds() -> None:
    quick = choose(load(), None)
    assert [p.id for p in quick] == [p.id for p in load() if p.id in QUICK]
    assert len({p.kind for p in quick}) == len(quick) == 6


def test_ids_kinds_and_all() -> None:
    prompts = load()
    assert [p.id for p in choose(prompts, "creative-poem, translate")] == [
        "translate-fr", "translate-ja", "creative-poem",
    ]  # fmt: skip
    assert choose(prompts, "all") == prompts


@pytest.mark.parametrize(
    ("wanted", "words"), [("edits", 'no prompt and no kind of work "edits"'), (",", "no prompt")]
)
def test_unknown_names_get_a_sentence(wanted: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(load(), wanted)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b", "expected a list of prompts"),
        ("[]", "expected a list of prompts"),
        ("- {id: a, kind: b}", '"prompt" is missing'),
        ("- {id: a, kind: b, prompt: ' '}", "is empty"),
        ("- {id: a, kind: b, prompt: x}\n- {id: a, kind: b, prompt: y}", "two prompts"),
        ("- {id: a, kind: b, prompt: x, extra: 1}", "extra"),
    ],
)
def test_a_bad_file_of_prompts_gets_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load(path)


def test_prompts_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("- {id: a, kind: b, prompt: Hello}", encoding="utf-8")
    assert [p.prompt for p in choose(load(path), None)] == ["Hello"]
