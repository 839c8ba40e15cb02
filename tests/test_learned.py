"""What was learned is a cache: it comes back as it was, and no damage to it does any harm."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import learned as kept
from localspec import paths
from localspec.learned import Setup, file_identity, forget, learned_file, load, save
from localspec.spec.costs import Learned
from localspec.spec.pacer import AutoPacer

SETUP = Setup("a CPU with 2 cores", ("target.gguf:100", "draft.gguf:40"), "cpu", 2)
LEARNED = Learned(
    widths={1: (1.0, 1), 4: (1.7, 12), 16: (3.9, 3)},
    drafts={"draft": ((0.2, 5), (0.19, 5), (0.1, 2), (0.05, 1))},
    trust={"draft": (30.5, 31.25)},
    prompt_rate=0.2,
    copied=((1.0, 0.5), (2.0, 3.0)),
    paid={"draft": (20.5, 11.0)},
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def test_comes_back_as_it_was() -> None:
    assert load(SETUP) is None
    assert save(SETUP, LEARNED)
    assert load(SETUP) == LEARNED


def test_a_file_from_before_copies_and_readings_were_counted_is_read() -> None:
    save(SETUP, LEARNED)
    content = json.loads(learned_file(SETUP).read_text("utf-8"))
    del content["copied"], content["paid"]
    learned_file(SETUP).write_text(json.dumps(content), "utf-8")
    assert load(SETUP) == replace(LEARNED, copied=(), paid={})


def test_every_part_of_the_setup_matters() -> None:
    save(SETUP, LEARNED)
    for other in (
        Setup("another CPU", SETUP.files, "cpu", 2),
        Setup(SETUP.machine, ("target.gguf:100",), "cpu", 2),
        Setup(SETUP.machine, SETUP.files, "cuda", 2),
        Setup(SETUP.machine, SETUP.files, "cpu", 4),
    ):
        assert load(other) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 0},
        {"version": None},
        {"widths": {"4": [float("nan"), 1]}},
        {"copied": [[float("inf")], [1.0]]},
        {"copied": [["1"], [1.0]]},
        {"copied": 7},
        {"paid": {"draft": [1.0]}},
        {"paid": {"draft": [-1.0, 1.0]}},
        {"paid": {str(i): [1.0, 1.0] for i in range(17)}},
        {"widths": {"4": [-1.0, 1]}},
        {"widths": {"4": [1.0, True]}},
        {"widths": {"4": [1e300, 1]}},
        {"widths": {"9999": [1.0, 1]}},
        {"widths": {"x": [1.0, 1]}},
        {"widths": [1, 2]},
        {"drafts": {"draft": [[0.1, 1]]}},
        {"drafts": {"draft": [[0.0, 1]] * 4}},
        {"drafts": {str(n): [[0.1, 1]] * 4 for n in range(100)}},
        {"trust": {"draft": [1.0]}},
        {"trust": {"draft": ["1", "2"]}},
        {"prompt_rate": "fast"},
        {"setup": {"machine": "another"}},
    ],
)
def test_damaged_content_is_ignored(damage: dict[str, object]) -> None:
    save(SETUP, LEARNED)
    path = learned_file(SETUP)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    assert load(SETUP) is None


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_harmless(content: bytes) -> None:
    path = paths.make_private_dir(paths.learned_dir()) / learned_file(SETUP).name
    path.write_bytes(content)
    assert load(SETUP) is None


def test_a_cut_or_huge_or_deep_file_is_ignored() -> None:
    save(SETUP, LEARNED)
    path = learned_file(SETUP)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole + b" " * kept.MAX_BYTES, b"[" * 100_000):
        path.write_bytes(content)
        assert load(SETUP) is None


def test_saving_replaces_the_whole_file_and_leaves_nothing_beside_it() -> None:
    save(SETUP, LEARNED)
    save(SETUP, Learned())
    assert load(SETUP) == Learned()
    assert [p.name for p in paths.learned_dir().iterdir()] == [learned_file(SETUP).name]


def test_a_place_that_cannot_be_written_is_no_error(home: Path) -> None:
    (home / "data").write_text("a file where the directory should be")
    assert not save(SETUP, LEARNED)
    assert load(SETUP) is None


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such file modes")
def test_only_the_owner_can_read_it() -> None:
    save(SETUP, LEARNED)
    assert learned_file(SETUP).stat().st_mode & 0o077 == 0


def test_forget_removes_all() -> None:
    save(SETUP, LEARNED)
    assert forget() == 1
    assert load(SETUP) is None
    assert forget() == 0


def test_a_pacer_starts_from_what_another_learned() -> None:
    assert AutoPacer({"draft": 0.5}, LEARNED).learned().drafts == LEARNED.drafts
    assert AutoPacer({"draft": 0.5}, LEARNED).learned().trust == LEARNED.trust


def test_identity_tells_sizes_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    assert file_identity(path) == "model.gguf:0"
    path.write_bytes(b"12345")
    assert file_identity(path) == "model.gguf:5"
