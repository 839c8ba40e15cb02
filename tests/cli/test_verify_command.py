"""``localspec verify``: its table, JSON and exit codes, over a scripted result."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from localspec import opening, verification
from localspec.__main__ import main
from localspec.verification import GreedyResult, SampledResult, Verification

SAME = GreedyResult(1, "lookup", 48, 20, None, None)
TIE = GreedyResult(1, "lookup", 48, 20, 11, 0.08)
FORK = GreedyResult(1, "lookup", 48, 20, 11, 2.5)
FITS = SampledResult("lookup", 256, 90, 0.4, None)
MISFIT = SampledResult("lookup", 256, 90, 1e-9, 1e-7)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    asked: list[Any] = []

    def use(*results: Any) -> list[Any]:
        found = Verification(
            [r for r in results if isinstance(r, GreedyResult)],
            [r for r in results if isinstance(r, SampledResult)],
            {2: 0.0, 4: 0.31},
        )
        status = SimpleNamespace(
            model="target", draft="draft", n_threads=2, reason="asked for", exactness="not checked",
            mode="draft",
        )  # fmt: skip
        session = SimpleNamespace(status=status, close=lambda: asked.append("closed"))

        def open_session(config: Any, *_: Any) -> Any:
            asked.append(config)
            return session

        monkeypatch.setattr(opening, "open_session", open_session)
        monkeypatch.setattr(verification, "modes_of", lambda _: ["lookup"])
        monkeypatch.setattr(
            verification, "Verifying", lambda *_: SimpleNamespace(run=lambda _modes: found)
        )
        return asked

    return use


@pytest.mark.parametrize(
    ("results", "code", "says"),
    [
        ((SAME, FITS), 0, "identical to plain decoding"),
        ((TIE, FITS), 0, "nearly equal (gap at most 0.08"),
        ((FORK, FITS), 1, "VIOLATION: 1 results"),
        ((SAME, MISFIT), 1, "VIOLATION: 1 results"),
    ],
)
def test_the_verdict_is_the_exit_code(
    scripted: Any, capsys: pytest.CaptureFixture[str], results: Any, code: int, says: str
) -> None:
    asked = scripted(*results)
    assert main(["verify", "some-pair"]) == code
    out = capsys.readouterr().out
    assert says in out
    assert "2: none, 4: 0.31" in out
    assert asked[0].model == "some-pair"
    assert not asked[0].history
    assert asked[-1] == "closed"


def test_json_is_one_object(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(FORK, FITS)
    assert main(["verify", "--json", "-q"]) == 1
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert captured.err == ""
    assert value["n_violations"] == 1
    assert value["greedy"][0]["first_difference"] == 11
    assert value["greedy"][0]["violation"] is True
    assert value["sampled"][0]["p_value"] == 0.4


def test_the_model_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "a", "-m", "b"]) == 2
    assert "once" in capsys.readouterr().err
