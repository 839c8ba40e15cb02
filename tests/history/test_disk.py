"""What a directory of the index holds after any sequence of adding and forgetting."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from helpers_history import VOCABULARY, is_part, owned_by_nobody, stored, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.history.disk import DiskIndex
from localspec.history.ring import Ring, size_bytes
from localspec.provenance import RUNS, Source

SMALL = (1024,)


def opened(directory: Path, capacities: tuple[int, ...] = SMALL) -> DiskIndex:
    return DiskIndex(directory, VOCABULARY, capacities=capacities)


def ids(tokens: list[int]) -> npt.NDArray[np.uint32]:
    return np.array(tokens, np.uint32)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(1, 400), st.integers(0, 8)),
        st.tuples(st.just("use"), st.integers(0, 5), st.integers(0, 900), st.just(0)),
        st.tuples(st.just("forget"), st.integers(0, 5), st.just(0), st.just(0)),
        st.tuples(st.just("open"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(actions=actions)
def test_every_slot_belongs_to_a_source_and_holds_what_was_added(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("index") / "v"
    disk = opened(directory)
    added: dict[str, list[list[int]]] = {}
    for what, number, n, seed in actions:
        name = f"chat{number}"
        if what == "add":
            text = text_of(seed, n)
            disk.add(Source("chat", name), ids(text))
            added.setdefault(name, []).append(text)
        elif what == "use":
            disk.learn([(n, 5)], [])
        elif what == "forget":
            disk.forget("chat", [name])
            added.pop(name, None)
            assert owned_by_nobody(directory) == 0
        else:
            disk.close()
            disk = opened(directory)
    disk.close()
    for name, texts in stored(directory).items():
        assert name in added
        assert all(any(is_part(text, whole) for whole in added[name]) for text in texts)
    assert owned_by_nobody(directory) == 0


def test_the_newest_text_is_always_there_and_the_oldest_goes(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    for seed in range(30):
        text = text_of(seed, 90, 5000)
        disk.add(Source("chat", str(seed)), ids(text))
        match = disk.find(text[:60])
        assert match is not None
        assert match.length == 32
    disk.close()
    assert set(stored(tmp_path)) == {str(seed) for seed in range(20, 30)}
    assert size_bytes(1024) == (tmp_path / "ring-0.bin").stat().st_size


def test_what_was_useful_outlives_what_was_not(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    disk.add(Source("chat", "useful"), ids(text_of(1000, 90, 5000)))
    disk.add(Source("chat", "useless"), ids(text_of(1001, 90, 5000)))
    disk.learn([(Ring.first + 10, 40)], [])
    for seed in range(18):
        disk.add(Source("chat", str(seed)), ids(text_of(seed, 90, 5000)))
    disk.close()
    left = stored(tmp_path)
    assert "useful" in left
    assert "useless" not in left
    assert left["useful"] == [text_of(1000, 90, 5000)]


def test_known_text_is_not_stored_twice(tmp_path: Path) -> None:
    disk = opened(tmp_path, (8192,))
    first = text_of(1, 300, 5000)
    assert disk.add(Source("chat", "a"), ids(first)) == 300
    assert disk.add(Source("chat", "b"), ids(first)) == 0
    longer = [*first, *text_of(2, 100, 5000)]
    assert disk.add(Source("chat", "a"), ids(longer)) == 116
    tail = longer[290:310]
    match = disk.find(tail)
    disk.close()
    assert match is not None
    assert (match.length, match.token) == (20, longer[310])


def test_a_text_longer_than_the_index_leaves_its_end(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    text = text_of(1, 5000, 50_000)
    disk.add(RUNS, ids(text))
    match = disk.find(text[4900:4950])
    disk.close()
    assert match is not None
    assert match.token == text[4950]
    assert owned_by_nobody(tmp_path) == 0


def test_it_grows_when_it_is_full_and_keeps_everything(tmp_path: Path) -> None:
    disk = opened(tmp_path, (1024, 4096))
    other = opened(tmp_path, (1024, 4096))
    texts = [text_of(seed, 120, 5000) for seed in range(20)]
    for number, text in enumerate(texts):
        disk.add(Source("chat", str(number)), ids(text))
    assert disk.ring.capacity == 4096
    assert [path.name for path in tmp_path.glob("ring-*")] == ["ring-1.bin"]
    other.refresh()
    for text in texts:
        for index in (disk, other):
            match = index.find(text[:100])
            assert match is not None
            assert match.token == text[100]
    disk.close()
    other.close()
    assert stored(tmp_path) == {str(number): [text] for number, text in enumerate(texts)}


def test_it_does_not_grow_where_there_is_no_room(tmp_path: Path) -> None:
    disk = DiskIndex(
        tmp_path, VOCABULARY, capacities=(1024, 4096), room_for=lambda n: n <= size_bytes(1024)
    )
    for seed in range(15):
        disk.add(RUNS, ids(text_of(seed, 150, 5000)))
    assert disk.ring.capacity == 1024
    disk.close()


def test_forgotten_text_is_on_no_page_of_the_disk(tmp_path: Path) -> None:
    disk = opened(tmp_path, (8192,))
    secret = [40_000 + i for i in range(60)]
    disk.add(Source("chat", "named-secret"), ids([*text_of(1), *secret]))
    disk.add(Source("chat", "other"), ids(text_of(2)))
    marks = [np.array([token + 1 for token in secret[i : i + 2]], np.uint32).tobytes()
             for i in range(0, 60, 2)]  # fmt: skip
    whole = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert all(mark in whole for mark in marks)
    assert disk.forget("chat", ["named-secret"]) == 260
    whole = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(mark in whole for mark in marks)
    assert b"named-secret" not in whole
    assert disk.find(text_of(2)[:60]) is not None
    disk.close()


def test_a_failure_in_the_middle_leaves_the_text_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = opened(tmp_path)
    disk.add(Source("chat", "a"), ids(text_of(1)))

    def fail(_doc: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk._db, "add_doc", fail)
        with pytest.raises(OSError, match="No space"):
            disk.add(Source("chat", "b"), ids(text_of(2, 200, 9000)))
    assert owned_by_nobody(tmp_path) == 0
    assert set(stored(tmp_path)) == {"a"}
    assert disk.add(Source("chat", "b"), ids(text_of(2, 200, 9000))) > 0
    disk.close()


def test_a_long_random_life_in_a_small_index(tmp_path: Path) -> None:
    rng = random.Random(3)
    disk = opened(tmp_path, (2048,))
    for step in range(400):
        text = text_of(rng.randrange(60), rng.randrange(5, 300), 3000)
        disk.add(Source("file", f"f{rng.randrange(12)}"), ids(text))
        if step % 9 == 0:
            disk.learn([(rng.randrange(32, 2000), 7)], [])
        if step % 37 == 0:
            disk.forget("file", [f"f{rng.randrange(12)}"])
    disk.close()
    n_stored = sum(len(text) for texts in stored(tmp_path).values() for text in texts)
    assert 1000 < n_stored <= 2048
    assert owned_by_nobody(tmp_path) == 0
