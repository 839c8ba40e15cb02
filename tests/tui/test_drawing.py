"""Gauges, bars, the panel and its line."""

from __future__ import annotations

import pytest

from localspec.spec.stats import Stats, Totals
from localspec.tui.drawing import (
    ORIGINS,
    PanelData,
    answer_line,
    gauge,
    panel,
    percent,
    seconds,
    sparkline,
    status_line,
)  # fmt: skip


def stats() -> Stats:
    return Stats(
        n_tokens=31, n_steps=10, n_drafted=40, n_verified=40, n_accepted=20, generate_s=1.0,
        baseline_step_s=0.05, verified_at=[10, 10, 10, 10], accepted_at=[9, 6, 3, 2], _n_first=1,
    )  # fmt: skip


def data() -> PanelData:
    totals = Totals()
    totals.add(stats())
    return PanelData(
        mode="draft", reason="asked for", answer=stats(), totals=totals, window_rate=0.5,
        window_series=[0.0, 0.5, 1.0], n_window=10, last_drafter="lookup", last_drafted=4,
        last_accepted=2, n_used=1024, n_ctx=4096, n_bytes=2 << 30,
    )  # fmt: skip


def test_gauges_and_sparklines() -> None:
    assert gauge(0.5, 4) == "██░░"
    assert gauge(0.0, 4) == "░░░░"
    assert gauge(1.2, 4) == "████"
    assert gauge(1 / 16, 2) == "▏░"
    assert gauge(None, 3) == "░░░"
    assert sparkline([0.0, 0.5, 1.0, 0.9], 3) == "▅██"
    assert (percent(None), percent(0.714)) == ("–", "71%")
    assert [seconds(s) for s in (None, 1.25, -3.0, 0.01, 75.0)] == [
        "–", "+1.2 s", "-3.0 s", "0.0 s", "+1 min 15 s",
    ]  # fmt: skip


def test_the_panel_has_every_number() -> None:
    text = panel(data(), 34).plain
    for part in (
        "asked for", "This answer  50%  20 of 40", "This chat    50%  20 of 40", "Last 10      50%",
        " 1 ██████████████████████▌░░  90%", " 4 █████░", "Now          30.0 tokens/s",
        "Plain        20.0 tokens/s", "Gain         1.50×", "Saved        +0.5 s  chat +0.5 s",
        "Per step     3.00 tokens", "Last draft   lookup, 2 of 4 kept",
        "Context      1,024 of 4,096  25%", "Memory       2.00 GiB",
    ):  # fmt: skip
        assert part in text, part
    assert all(len(line) <= 36 for line in text.splitlines())


def test_nothing_measured_is_a_dash_not_a_zero() -> None:
    text = panel(PanelData(), 34).plain
    assert "This answer  –" in text
    assert "Gain         –" in text
    assert "0%" not in text
    assert "accepted –" in status_line(PanelData(), 80).plain
    assert "accepted –" in answer_line(Stats(n_tokens=1))


@pytest.mark.parametrize("width", [20, 56, 76, 200])
def test_the_line_fits_and_names_the_mode_first(width: int) -> None:
    line = status_line(data(), width)
    assert line.cell_length <= width
    assert line.plain.startswith("draft")
    if width == 200:
        assert "asked for" in line.plain
        assert "1.50× plain" in line.plain


def test_no_origin_is_told_by_colour_alone() -> None:
    looks = [style.partition(" ")[2] for style, _ in ORIGINS.values()]
    assert len(set(looks)) == len(looks)
