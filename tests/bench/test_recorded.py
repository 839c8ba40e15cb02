"""A trace of a run can be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_trace

from bench.replay import recorded


def test_a_trace_becomes_an_answer_with_its_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    test_trace.recorded(path)
    (one,) = recorded.load(path)
    assert one.trace.prompt == test_trace.PROMPT
    assert one.trace.out == test_trace.ANSWER
    assert one.curve.target(1) == 1.0
    assert one.curve.target(5) >= one.curve.target(2) >= 1.0
    assert one.speedup is not None
    recorded.show(path)
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[:3] == ["answer", "1", str(len(test_trace.ANSWER))]
    assert float(line[5]) >= float(line[4])  # hindsight is never worse


@pytest.mark.parametrize("text", ["[]", "{}", '{"type": "step"}', "no json", '{"type": "answer"}'])
def test_what_is_no_trace_gets_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match="is not a trace"):
        recorded.load(path)
