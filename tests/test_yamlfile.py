"""Strict YAML: every complaint names file and line; hostile files end quickly."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from localspec import yamlfile
from localspec.errors import ConfigError
from localspec.nodes import Mapping, Scalar, Sequence
from localspec.yamlfile import load


def message(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, "config.yaml")
    return caught.value.message


def test_values_keep_their_text_and_line() -> None:
    node = load("threads: 08\n\nlist:\n  - off\n  - 'on'\n", "config.yaml")
    assert isinstance(node, Mapping)
    assert node.entries["threads"] == Scalar("08", "config.yaml", 1)
    items = node.entries["list"]
    assert isinstance(items, Sequence)
    assert items.items == (
        Scalar("off", "config.yaml", 4),
        Scalar("on", "config.yaml", 5, quoted=True),
    )
    assert node.lines == {"threads": 1, "list": 3}
    assert node.entries["threads"].where == "config.yaml, line 1"


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null_is_text"])
def test_an_empty_document_is_an_empty_mapping(text: str) -> None:
    node = load(text)
    if text == "null_is_text":
        assert node == Scalar("null_is_text", "settings", 1)
    else:
        assert isinstance(node, Mapping)
        assert node.entries == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", 'config.yaml, line 3: "a" is set twice (first in line 1)'),
        ("a: &x 1\n", "config.yaml, line 1: anchors and aliases (&name, *name) are not allowed"),
        ("a: *x\n", "config.yaml, line 1: anchors and aliases (&name, *name) are not allowed"),
        ("\na: !!python/name:os.system x\n", "config.yaml, line 2: tags ("),
        ("a: 1\n---\nb: 2\n", "config.yaml, line 2: a second document begins (---)"),
        ("? [a, b]\n: 1\n", "config.yaml, line 1: the name of a setting must be plain text"),
        ("a: 1\nb: [1, 2\n", "config.yaml, line 3: not valid YAML: "),
        ("a: 1\n\tb: 2\n", "config.yaml, line 2: not valid YAML: "),
        ("a: 1\nb: \x07\n", "config.yaml, line 2: a character that YAML does not allow"),
        ("[" * 100 + "]" * 100, "config.yaml, line 1: nested more than 32 deep"),
        ("x" * (yamlfile.MAX_BYTES + 1), "config.yaml is larger than 4 MiB"),
    ],
)
def test_what_is_refused_and_where(text: str, expected: str) -> None:
    assert message(text).startswith(expected)


def test_a_bomb_of_values_ends_early() -> None:
    assert message("[" + "1," * 200_001 + "1]").endswith("more than 200000 values")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    node = load(path)
    assert isinstance(node, Mapping)
    assert list(node.entries) == ["a"]
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"c\.yaml, line 2: not UTF-8 text"):
        load(path, "c.yaml")
    path.write_bytes(b"#" * (yamlfile.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        load(path)
    with pytest.raises(ConfigError, match=r"cannot read c\.yaml: No such file"):
        load(tmp_path / "none.yaml", "c.yaml")
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path)


def test_the_python_parser_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yamlfile.yaml, "CSafeLoader", raising=False)
    assert message("a: 1\nb: \x07\n") == "config.yaml, line 2: a character that YAML does not allow"
    assert message("a: 1\nb: [1, 2\n").startswith("config.yaml, line 3: not valid YAML: ")
    assert message("[" * 100 + "]" * 100) == "config.yaml, line 1: nested more than 32 deep"


def test_whatever_a_file_holds_it_is_read_or_refused_in_words() -> None:
    """Anything but a ConfigError would end in a traceback."""
    chance = random.Random(5)
    whole = (Path(__file__).parent.parent / "profiles" / "cpu.yaml").read_text("utf-8")
    signs = "{}[]:,-?&*!|>'\"%@`#\n\t \\\x00\x85\ud800\U0001f600<<~0e_"
    for _ in range(400):
        text = list(whole[chance.randrange(len(whole)) :][:200])
        for _ in range(chance.randrange(1, 8)):
            text[chance.randrange(len(text))] = chance.choice(signs)
        with contextlib.suppress(ConfigError):
            load("".join(text))
