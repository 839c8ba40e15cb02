"""What a session learns about speed reaches the next one, and its loss does no harm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_gguf import write_tiny_llama

from localspec import learned, paths
from localspec.config import Config
from localspec.hardware import detect
from localspec.llama.devices import devices
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.costs import Learned
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling
from localspec.trace import Trace
from localspec.tuned import Threads, save_threads

GREEDY = Sampling(temperature=0.0, seed=1)
TEXT = "abcabcabcabcabcabcabcabcabcabcabcabc"

Start = Callable[..., Session]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama.gguf"
    write_tiny_llama(path)
    return path


@pytest.fixture
def start(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    opened: list[Session] = []

    def build(**how: Any) -> Session:
        how.setdefault("threads", 1)
        config = Config(model=str(model), n_ctx=512, offline=True, history=False, **how)
        opened.append(open_session(config))
        return opened[-1]

    yield build
    for session in opened:
        session.close()


def answer(session: Session, n: int = 120) -> list[int]:
    tokens: list[int] = []
    for event in session.ask(TEXT, GREEDY, max_tokens=n):
        if isinstance(event, Step):
            tokens += event.tokens
    assert isinstance(event, Finished)
    return tokens


def files() -> list[Path]:
    return sorted(paths.learned_dir().glob("*.json"))


def teach(session: Session) -> Learned:
    """A session that has measured something."""
    costs = Learned(widths={1: (1.0, 9), 4: (1.5, 9)}, prompt_rate=0.1)
    assert session.teach(costs)
    return costs


def test_what_was_learned_is_there_in_the_next_session(start: Start) -> None:
    session = start()
    assert session.learned_costs() is None
    teach(session)
    session.close()
    (path,) = files()
    assert json.loads(path.read_text("utf-8"))["widths"]["4"] == [1.5, 9]
    again = start().learned_costs()
    assert again is not None
    assert {w: cost for w, (cost, _) in again.widths.items()} == {1: 1.0, 4: 1.5}


def test_an_answer_adds_to_it_and_closing_keeps_it(start: Start) -> None:
    session = start()
    teach(session)
    answer(session)
    known = session.learned_costs()
    assert known is not None
    assert known.prompt_rate != 0.1  # measured by the answer's own prompt pass and plain steps
    session.close()
    again = start().learned_costs()
    assert again is not None
    assert again.prompt_rate == pytest.approx(known.prompt_rate)


def test_how_well_copies_did_is_kept_too(start: Start) -> None:
    session = start()
    teach(session)
    answer(session)  # a tiny random model repeats itself
    known = session.learned_costs()
    assert known is not None
    right, seen = known.copied
    assert sum(seen) > 20
    session.close()
    again = start()
    kept = again._lookup.calibration.counts()
    assert kept == (pytest.approx(right), pytest.approx(seen))


def test_closing_writes_nothing_when_nothing_is_new(start: Start) -> None:
    session = start()
    session.close()
    assert files() == []
    session = start()
    teach(session)
    (path,) = files()
    before = path.stat().st_mtime_ns
    start().close()
    assert path.stat().st_mtime_ns == before


def test_other_modes_do_not_make_it_forget(start: Start) -> None:
    session = start()
    costs = teach(session)
    session.set_mode("off")
    answer(session, 10)
    session.set_mode("lookup", 4)
    answer(session, 10)
    session.set_mode("auto")
    found = session.learned_costs()
    assert found is not None
    assert found.widths[4][0] == costs.widths[4][0]


def test_no_learn_reads_and_writes_nothing(start: Start) -> None:
    session = start()
    teach(session)
    session.close()
    (path,) = files()
    before = path.read_bytes()
    session = start(learn=False)
    assert session.learned_costs() is None
    answer(session)
    session.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 99}', b"\x00" * 100])
def test_damage_is_harmless_and_mended(start: Start, damage: bytes) -> None:
    session = start()
    teach(session)
    plain = answer(session)
    session.close()
    (path,) = files()
    path.write_bytes(damage)
    session = start()
    assert session.learned_costs() is None
    assert answer(session) == plain
    teach(session)
    session.close()
    assert learned.VERSION == json.loads(path.read_text("utf-8"))["version"]


def test_deleting_everything_is_harmless(start: Start) -> None:
    session = start()
    teach(session)
    session.close()
    assert learned.forget() == 1
    assert answer(start())


def test_a_directory_that_cannot_be_written_is_harmless(start: Start, own_home: Path) -> None:
    session = start()
    (own_home / "data").mkdir(exist_ok=True)
    paths.learned_dir().write_text("in the way")
    costs = Learned(widths={1: (1.0, 9), 4: (1.5, 9)})
    assert not session.teach(costs)
    answer(session)
    session.close()


def test_other_settings_learn_apart(start: Start) -> None:
    session = start()
    teach(session)
    session.close()
    session = start(threads=2)
    assert session.learned_costs() is None
    teach(session)
    assert len(files()) == 2


def test_kept_thread_counts_are_used_unless_the_user_says_otherwise(
    start: Start, model: Path
) -> None:
    hardware = detect(devices())
    by_itself = start(threads=None, learn=False).status.n_threads
    kept = by_itself + 1  # whatever number of cores this machine has
    assert save_threads(hardware, model, Threads(kept, kept + 1))
    assert start(threads=None).status.n_threads == kept
    assert start(threads=1).status.n_threads == 1
    assert start(threads=None, learn=False).status.n_threads == by_itself


def test_the_trace_follows_a_real_session(start: Start, tmp_path: Path) -> None:
    session = start()
    with Trace(tmp_path / "t.jsonl") as trace:
        session.trace = trace
        tokens = answer(session, 40)
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    assert lines[0]["type"] == "answer"
    assert [t for line in lines if line["type"] == "step" for t in line["tokens"]] == tokens
    assert lines[-1]["n_tokens"] == len(tokens)
