"""The picture: well-formed, without anything that runs, and drawn where the numbers are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from localspec.benchmark import Summary, svg
from localspec.benchmark.costs import between
from localspec.benchmark.summary import Noise, Row
from localspec.config import Mode

SVG = "{http://www.w3.org/2000/svg}"


def row(kind: str, mode: Mode, ratio: float | None) -> Row:
    return Row(kind, mode, 1, 1, 10.0, ratio, 0.5, 2.0, (0.5,), 0.1, 1.0, 1, None)


def summary(*rows: Row, curve: dict[int, float] | None = None) -> Summary:
    chosen = {4: 0.75, 6: 0.25}
    return Summary(rows, rows, Noise(0.02, 0.01), curve or {1: 1.0, 4: 1.5, 8: 4.0}, chosen)


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def test_bars_are_as_high_as_the_ratios_say() -> None:
    root = parse(svg(summary(row("edit", "lookup", 1.5), row("edit", "auto", 0.75)), "T"))
    bars = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert len(heights) == 2
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2)
    assert "edit, lookup: 1.50 × plain" in str(bars[0].findtext(f"{SVG}title"))


def test_the_curve_has_its_points_and_marks_the_chosen_widths() -> None:
    root = parse(svg(summary(row("edit", "auto", 1.0)), "T"))
    line = root.find(f"{SVG}polyline")
    assert line is not None
    points = [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    assert len(points) == 3
    marks = [c for c in root.iter(f"{SVG}circle") if c.attrib["fill"] != "#222"]
    assert len(marks) == 2
    assert float(marks[0].attrib["cx"]) == points[1][0]
    assert float(marks[0].attrib["cy"]) == points[1][1]
    assert float(marks[0].attrib["r"]) > float(marks[1].attrib["r"])


def test_names_are_text_and_never_markup() -> None:
    evil = '<script>alert(1)</script>&"\x00\x1b]0;x\ud800\ufffe'
    text = svg(summary(row(evil, "auto", 1.2)), evil, evil)
    root = parse(text.encode("utf-8").decode("utf-8"))
    names = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert names <= {"svg", "title", "rect", "text", "line", "polyline", "circle"}
    for element in root.iter():
        assert not any(name.startswith("on") or "href" in name for name in element.attrib)
    assert "<script>alert(1)</script>" in str(root.findtext(f"{SVG}title"))


@pytest.mark.parametrize(
    "rows",
    [(), (row("edit", "off", None),), tuple(row(f"k{i}", "draft", 9.0) for i in range(12))],
)
def test_little_or_much_to_draw(rows: tuple[Row, ...]) -> None:
    for curve in ({}, {1: 1.0}, {1: 1.0, 64: 40.0}):
        found = Summary(rows, rows, Noise(None, None), curve, {})
        root = parse(svg(found, "T"))
        for bar in root.iter(f"{SVG}rect"):
            assert float(bar.attrib["height"]) >= 0


def test_between_is_linear_and_knows_its_ends() -> None:
    curve = {1: 1.0, 4: 4.0, 8: 4.0}
    assert between(curve, 2) == pytest.approx(2.0)
    assert between(curve, 4) == 4.0
    assert between(curve, 9) is None
    assert between({}, 1) is None
