"""Which setup costs belong to, and kept thread counts: anything wrong with them is harmless."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.hardware import Hardware, detect
from localspec.learned import learned_file
from localspec.tuned import Threads, load_threads, save_threads, setup_for, threads_file


@pytest.fixture
def hardware() -> Hardware:
    return detect()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x" * 10)
    return path


def test_everything_that_changes_costs_changes_the_setup(hardware: Hardware, model: Path) -> None:
    other = model.with_name("n.gguf")
    other.write_bytes(b"y")
    one = setup_for(hardware, [model], 2, ("cache=f16,f16",))
    different = [
        setup_for(hardware, [other], 2, ("cache=f16,f16",)),
        setup_for(hardware, [model, other], 2, ("cache=f16,f16",)),
        setup_for(hardware, [model], 3, ("cache=f16,f16",)),
        setup_for(hardware, [model], 2, ("cache=q8_0,q8_0",)),
        setup_for(
            replace(hardware, cpu=replace(hardware.cpu, name="another")), [model], 2,
            ("cache=f16,f16",),
        ),
    ]  # fmt: skip
    assert len({learned_file(setup) for setup in [one, *different]}) == 6
    assert one == setup_for(hardware, [model], 2, ("cache=f16,f16",))


def test_threads_come_back(hardware: Hardware, model: Path) -> None:
    assert load_threads(hardware, model) is None
    assert save_threads(hardware, model, Threads(2, 4))
    assert load_threads(hardware, model) == Threads(2, 4)
    assert save_threads(hardware, model, None)
    assert load_threads(hardware, model) is None
    assert save_threads(hardware, model, None)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"decode": 0, "batch": 1}', b'{"decode": true, "batch": 1}',
     b'{"decode": 2}', b'{"decode": 99999, "batch": 1}', b"\xff" * 10, b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_file_is_no_file(hardware: Hardware, model: Path, content: bytes) -> None:
    save_threads(hardware, model, Threads(2, 2))
    threads_file(hardware, model).write_bytes(content)
    assert load_threads(hardware, model) is None


def test_a_place_that_cannot_be_written_is_harmless(
    hardware: Hardware, model: Path, own_home: Path
) -> None:
    (own_home / "data").write_text("a file where the directory should be")
    assert not save_threads(hardware, model, Threads(2, 2))
    assert load_threads(hardware, model) is None
