"""``localspec tune`` on tiny models: what it shows and keeps, and that stopping keeps nothing."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers_gguf import write_tiny_llama

from localspec import paths, tuning
from localspec.__main__ import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target, a draft, and nothing else on the disk."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    monkeypatch.setattr(paths, "lm_studio_dirs", lambda: [])
    write_tiny_llama(tmp_path / "target.gguf", n_layer=3)
    write_tiny_llama(tmp_path / "draft.gguf", n_layer=1)
    return tmp_path


def tune(home: Path, *args: str) -> int:
    pair = [str(home / "target.gguf"), "--draft", str(home / "draft.gguf")]
    return main(["tune", *pair, "--offline", "-q", *args])


def kept() -> list[Any]:
    return [json.loads(path.read_text("utf-8")) for path in paths.learned_dir().glob("*.json")]


def test_costs_are_shown_and_kept(home: Path, capsys: Capture) -> None:
    assert tune(home, "-t", "1") == 0
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "WIDTH" in out
    assert "One plain decode takes" in out
    assert "A draft decode takes" in out
    assert "Drafted tokens are accepted with chance" in out
    assert "Kept for the next run: these costs." in out
    (found,) = kept()
    assert len(found["widths"]) >= 10
    assert len(found["drafts"]["draft"]) == 4
    assert found["setup"]["n_threads"] == 1
    assert found["prompt_rate"] is not None


def test_json(home: Path, capsys: Capture) -> None:
    assert tune(home, "-t", "1", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["cost_by_width"]["1"] == 1.0
    assert value["kept"] is True
    assert value["threads"] == {}  # the user named the count
    assert value["drafts"]["draft"]["next_s"] > 0
    assert 0 <= value["acceptance"] <= 1


def test_thread_counts_are_tried_and_the_fastest_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    costs = tuning.ThreadCosts({1: (1.0, 1.0), 2: (0.5, 0.4), 3: (0.8, 0.3)}, 0.2)
    monkeypatch.setattr(tuning, "drift", lambda *_: 0.01)
    monkeypatch.setattr(tuning, "cost_by_threads", lambda *_, **__: costs)
    # More threads than free cores make tiny models crawl, and what they cost is not the point here.
    flat = tuning.ModelCosts({1: 1.0, 2: 1.1}, 0.1)
    monkeypatch.setattr(tuning, "target_costs", lambda *_, **__: flat)
    monkeypatch.setattr(tuning, "draft_costs", lambda *_, **__: tuning.DraftModelCosts(1, 1, 1, 1))
    monkeypatch.setattr(tuning, "acceptance", lambda _: None)
    monkeypatch.setattr("localspec.cli.tune.N_ANSWER", 1)
    monkeypatch.setattr(tuning, "thread_counts", lambda *_: [1, 2, 3])
    monkeypatch.setattr("localspec.hardware.cpu._auto_threads", lambda *_: (1, "one core"))
    assert tune(home) == 0
    out = capsys.readouterr().out
    assert "Threads from now on: 2 for answers, 3 for prompts (until now 1)." in out
    assert "The same measurement differed by 20%" in out
    assert {"decode": 2, "batch": 3} in kept()
    costs_kept = next(value for value in kept() if "widths" in value)
    assert costs_kept["setup"]["n_threads"] == 2


def test_other_quantisations_are_found_and_compared(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    more = home / "more"
    more.mkdir()
    shutil.copy(home / "target.gguf", more / "target-other.gguf")
    write_tiny_llama(more / "unrelated.gguf", n_layer=2)
    (more / "broken.gguf").write_bytes(b"GGUF broken")
    monkeypatch.setenv("LOCALSPEC_MODEL_DIRS", str(more))
    assert tune(home, "-t", "1", "--json") == 0
    together = json.loads(capsys.readouterr().out)["together"]
    assert {one["target"] for one in together} == {"target.gguf", "target-other.gguf"}
    speeds = [one["tokens_per_s"] for one in together]
    assert speeds == sorted(speeds, reverse=True)
    assert tune(home, "-t", "1", "--json", "--no-files") == 0
    assert json.loads(capsys.readouterr().out)["together"] == []


def test_stopping_keeps_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    measure = tuning.target_costs

    def press(*args: Any, **how: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return measure(*args, **how)

    monkeypatch.setattr(tuning, "target_costs", press)
    assert tune(home, "-t", "1") == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing was changed" in err
    assert kept() == []


def test_learning_that_is_off_is_said_before_any_work(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert tune(home, "--no-learn") == 2
    assert "--no-learn makes no sense" in capsys.readouterr().err
    monkeypatch.setenv("LOCALSPEC_LEARN", "off")
    assert tune(home) == 2
    assert "learn is off (from LOCALSPEC_LEARN)" in capsys.readouterr().err
    assert main(["tune", "a", "-m", "b"]) == 2
