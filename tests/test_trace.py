"""The record of steps: what a line says, who may read it, and what happens when it cannot go on."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec import opening
from localspec.__main__ import main
from localspec.cli import chat
from localspec.config import Config
from localspec.errors import UsageError
from localspec.files import NoProgress
from localspec.session import Status
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Event, Step
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary, says
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.lookup import Lookup
from localspec.trace import Trace

STATUS = Status("target", None, "lookup", "asked for", "cpu", 256, 2)
PROMPT = [9, 9]
ANSWER = [*[1, 2, 3, 4] * 6, 0]


def events() -> list[Event]:
    target = FakeDecoder(10, says(10, [*PROMPT, *ANSWER]), n_ctx=256)
    vocabulary = FakeVocabulary([b"x"] * 10, [0])
    engine = Engine(target, vocabulary, [Lookup()], FixedPacer("lookup", 4))
    return list(engine.generate(Request(PROMPT, FakeSampler(), np.random.default_rng(1))))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def recorded(path: Path) -> list[dict[str, Any]]:
    with Trace(path) as trace:
        trace.begin(PROMPT, STATUS, 0.0, 7)
        for event in events():
            trace.add(event)
    return lines(path)


def test_one_line_per_step_tells_everything(tmp_path: Path) -> None:
    found = recorded(tmp_path / "t.jsonl")
    assert [line["type"] for line in (found[0], found[-1])] == ["answer", "finished"]
    assert found[0]["prompt"] == PROMPT
    assert (found[0]["mode"], found[0]["seed"]) == ("lookup", 7)
    steps = found[1:-1]
    assert all(line["type"] == "step" for line in steps)
    assert [line["step"] for line in steps] == list(range(len(steps)))
    assert [token for line in steps for token in line["tokens"]] == ANSWER
    assert sum(line["emitted"] for line in steps) == found[-1]["n_tokens"]
    drafted = [line for line in steps if line["drafter"] == "lookup"]
    assert drafted
    for line in drafted:
        assert line["reason"] == "lookup, fixed length 4"
        assert line["width"] >= line["verified"] + 1 > 1
        assert line["evidence"] > 0
        assert line["verify_s"] > 0
        assert line["accepted"] <= line["verified"] <= line["drafted"]


def test_every_step_but_the_first_says_what_the_pacer_learned_from() -> None:
    steps = [event for event in events() if isinstance(event, Step)]
    assert steps[0].measured is None
    for step in steps[1:]:
        assert step.measured is not None
        assert step.measured.n_emitted == len(step.tokens)
        assert step.measured.verify_s == step.verify_s


@pytest.mark.skipif(os.name != "posix", reason="permissions are a POSIX matter")
def test_only_the_owner_may_read_it_even_if_the_file_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old\n")
    path.chmod(0o644)
    recorded(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "old" not in path.read_text()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trace cannot be written to"):
        Trace(tmp_path / "no" / "such" / "t.jsonl")
    with pytest.raises(UsageError, match="trace cannot be written to"):
        Trace(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_ends_the_record_and_not_the_answer() -> None:
    with Trace(Path("/dev/full")) as trace:
        trace.begin(PROMPT, STATUS, 0.0, 7)
        for event in events():
            trace.add(event)
        trace.add(events()[-1])
    assert "ends early: No space left on device" in trace.failure


def test_run_opens_the_trace_before_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "open_session", lambda *_: pytest.fail("the model was loaded"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["run", "x", "--trace", str(tmp_path / "no" / "t")]) == 2
    assert "trace cannot be written" in capsys.readouterr().err


def test_a_chat_gives_the_record_to_every_model_that_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "open_session", lambda *_: SimpleNamespace(trace=None))
    with Trace(tmp_path / "t.jsonl") as trace:
        for _ in range(2):  # /reload opens another one
            session = chat._Opener(trace, None)(Config(), NoProgress(), lambda: False)
            assert session.trace is trace
