"""``localspec bench`` from the outside: streams, table, JSON, picture, Ctrl-C, nonsense."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers_bench import CostlySession

from localspec import opening
from localspec.__main__ import main
from localspec.config import Config

Capture = pytest.CaptureFixture[str]
Scripted = Callable[..., CostlySession]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The next ``bench`` measures this session. Its clock is not the one that the bench looks at:
    rounds are named in each test."""

    def build(**how: Any) -> CostlySession:
        session = CostlySession(**how)

        def open_session(config: Config, *_: Any) -> CostlySession:
            session.config = config
            return session

        monkeypatch.setattr(opening, "open_session", open_session)
        return session

    return build


def bench(*args: str) -> int:
    return main(["bench", "--prompts", "edit-rename,creative-poem", "--rounds", "2", *args])


def test_the_table_is_on_stdout_and_the_rest_on_stderr(scripted: Scripted, capsys: Capture) -> None:
    session = scripted(modes=("lookup", "draft"))
    assert bench("-n", "24") == 0
    out, err = capsys.readouterr()
    assert "big <&> one.gguf with small.gguf" in out
    rows = [
        line.split() for line in out.splitlines() if line.startswith(("edit", "creative", "all"))
    ]
    assert len(rows) == 3 * 4
    lookup = next(row for row in rows if row[:2] == ["all", "lookup"])
    assert lookup[2:6] == ["2.2", "2.19", "100%", "2.88"]
    draft = next(row for row in rows if row[:2] == ["all", "draft"])
    assert draft[4] == "0%"
    assert "a quiet machine" in out
    assert "of 16" in err
    assert session.closed


def test_nothing_is_remembered_between_rounds(scripted: Scripted) -> None:
    session = scripted()
    bench("-n", "8", "--modes", "auto", "-q")
    assert session.config is not None
    assert not session.config.history
    assert session.n_cleared >= session.n_asked


def test_json_is_one_object(scripted: Scripted, capsys: Capture) -> None:
    scripted(modes=("lookup", "draft"))
    assert bench("-n", "8", "--json", "--temp", "0.5") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["modes"] == ["off", "lookup", "draft", "auto"]
    assert (value["temperature"], value["n_tokens"], value["n_threads"]) == (0.5, 8, 2)
    assert len(value["runs"]) == 16
    assert value["noise"]["level"] == "quiet"
    assert value["cost_by_width"]["1"] == 1.0


def test_a_mode_that_the_pair_has_not(scripted: Scripted, capsys: Capture) -> None:
    scripted(modes=("lookup",))
    assert bench("-n", "8") == 0
    out, err = capsys.readouterr()
    assert "without draft: no draft model" in err
    assert " draft " not in out.split("WORK")[1]
    assert bench("-n", "8", "--modes", "draft") == 2
    assert "--modes draft is not possible: no draft model" in capsys.readouterr().err


def test_the_picture(scripted: Scripted, capsys: Capture, tmp_path: Path) -> None:
    scripted(modes=("lookup", "draft"))
    path = tmp_path / "b.svg"
    assert bench("-n", "24", "--svg", str(path)) == 0
    root = ElementTree.parse(path).getroot()
    assert "big <&> one.gguf" in str(root[0].text)
    assert str(path) in capsys.readouterr().err


def test_ctrl_c_prints_what_there_is(scripted: Scripted, capsys: Capture) -> None:
    session = scripted()
    ask = session.ask

    def ask_and_press(*args: Any, **how: Any) -> Any:
        for event in ask(*args, **how):
            if session.n_asked == 8:
                signal.raise_signal(signal.SIGINT)
            yield event

    session.ask = ask_and_press  # type: ignore[method-assign]
    assert bench("-n", "24") == 130
    out, err = capsys.readouterr()
    assert "stopped after 6 answers" in err
    assert "creative" in out
    assert session.closed


def test_an_error_in_the_middle_prints_what_there_is_and_the_error(
    scripted: Scripted, capsys: Capture
) -> None:
    session = scripted()
    session.fail_at = 6
    assert bench("-n", "24") == 1
    out, err = capsys.readouterr()
    assert "edit" in out
    assert "could not decode 1 tokens" in err
    assert "Traceback" not in err
    assert session.closed


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--prompts", "nothing"], 'no prompt and no kind of work "nothing"'),
        (["--prompts", ""], "names no prompt"),
        (["--modes", "fast"], 'no mode "fast"'),
        (["--modes", ","], "names no mode"),
        (["--rounds", "0"], "at least 1"),
        (["-n", "x"], "is not a whole number"),
        (["--temp", "-1"], "out of range"),
        (["--svg", "/no/such/dir/b.svg"], "is in a directory that does not exist"),
        (["--svg", "/"], "is a directory"),
        (["--prompts-file", "/no/such/file.yaml"], "cannot read /no/such/file.yaml"),
        (["a", "--model", "b"], "two models are named"),
        (["--mode", "draft"], "measures every mode"),
    ],
)
def test_nonsense_costs_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, args: list[str], words: str
) -> None:
    monkeypatch.setattr(opening, "open_session", lambda *_: pytest.fail("the model was loaded"))
    assert main(["bench", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
