"""The result as a picture: one SVG file that any browser opens, without scripts or fonts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from localspec.benchmark.costs import between
from localspec.benchmark.summary import Summary
from localspec.config import Mode

WIDTH, HEIGHT = 1080, 470
COLOURS: dict[Mode, str] = {
    "off": "#8a8a8a",
    "lookup": "#e69f00",
    "draft": "#0072b2",
    "auto": "#009e73",
}
"""Told apart by colour-blind readers, too (Okabe and Ito)."""
NAMES: dict[Mode, str] = {"off": "plain", "lookup": "lookup", "draft": "draft", "auto": "auto"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Box:
    """Where a chart lies, and the values at its upper ends."""

    left: float
    top: float
    width: float
    height: float
    most_x: float
    most_y: float

    def x(self, value: float) -> float:
        return self.left + self.width * value / self.most_x

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - min(value, self.most_y) / self.most_y)


def svg(summary: Summary, title: str, subtitle: str = "") -> str:
    """An SVG document: speed over plain by kind of work, and the cost of a decode by its width with
    the widths that auto mode chose."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" font-size="12" '
        'fill="#222">',
        f"<title>{_text(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _label(24, 30, title, size=17, weight="bold"),
        _label(24, 50, subtitle, fill="#555"),
        *_bars(summary),
        *_curve(summary),
        _label(24, HEIGHT - 12, summary.noise.sentence, fill="#555"),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _bars(summary: Summary) -> list[str]:
    modes = [m for m in COLOURS if m != "off" and any(r.mode == m for r in summary.rows)]
    ratios = [r.ratio for r in summary.rows if r.ratio is not None]
    most = _round_up(max([1.2, *ratios]) * 1.05)
    kinds = summary.kinds
    box = _Box(60, 100, 560, 290, max(1, len(kinds)), most)
    parts = [_label(24, 82, "Speed over plain decoding, by kind of work", weight="bold")]
    parts += _scale(box, "×")
    room = box.width / max(1, len(kinds))
    bar = min(26.0, room * 0.8 / max(1, len(modes)))
    for index, kind in enumerate(kinds):
        start = box.left + room * (index + 0.5) - bar * len(modes) / 2
        for place, mode in enumerate(modes):
            row = summary.row(kind, mode)
            if row is None or row.ratio is None:
                continue
            x, y = start + place * bar, box.y(row.ratio)
            hint = f"{kind}, {NAMES[mode]}: {row.ratio:.2f} × plain"
            if row.tokens_per_s:
                hint += f", {row.tokens_per_s:.1f} tokens/s"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 1:.1f}" '
                f'height="{box.y(0) - y:.1f}" fill="{COLOURS[mode]}">'
                f"<title>{_text(hint)}</title></rect>"
            )
            parts.append(_label(x + bar / 2, y - 3, f"{row.ratio:.2f}", size=9, anchor="middle"))
        parts.append(
            _label(box.left + room * (index + 0.5), box.y(0) + 16, kind, size=11, anchor="middle")
        )
    parts.append(_line(box.left, box.y(1), box.left + box.width, box.y(1), "#222", dash="5 3"))
    parts += _legend(box.left, box.y(0) + 36, modes)
    return parts


def _curve(summary: Summary) -> list[str]:
    curve = summary.curve
    heading = _label(664, 82, "Cost of one decode by its width, in plain decodes", weight="bold")
    if len(curve) < 2:
        return [heading, _label(664, 110, "not measured", fill="#555")]
    box = _Box(700, 100, 350, 290, max(curve), _round_up(max(curve.values()) * 1.05))
    points = " ".join(f"{box.x(w):.1f},{box.y(cost):.1f}" for w, cost in curve.items())
    parts = [heading, *_scale(box, "")]
    # Where a decode of n tokens costs as much as n decodes.
    end = min(box.most_x, box.most_y)
    parts.append(_line(box.x(1), box.y(1), box.x(end), box.y(end), "#aaa", dash="3 3"))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#222" stroke-width="1.5"/>')
    for width, cost in curve.items():
        parts.append(
            f'<circle cx="{box.x(width):.1f}" cy="{box.y(cost):.1f}" r="2.5" fill="#222">'
            f"<title>{width} tokens: {cost:.2f}</title></circle>"
        )
        parts.append(_label(box.x(width), box.y(0) + 16, str(width), size=9, anchor="middle"))
    for width, share in summary.chosen.items():
        at = between(curve, width)
        if at is None:
            continue
        parts.append(
            f'<circle cx="{box.x(width):.1f}" cy="{box.y(at):.1f}" r="{4 + 14 * share**0.5:.1f}" '
            f'fill="{COLOURS["auto"]}" fill-opacity="0.35" stroke="{COLOURS["auto"]}">'
            f"<title>width {width}: {share:.0%} of the steps that drafted</title></circle>"
        )
    below = box.y(0) + 36
    if summary.chosen:
        text = "circles: widths that auto mode chose, larger when chosen more often"
    else:
        text = "auto mode drafted nothing here"
    parts.append(_label(box.left, below, text, size=11, fill="#555"))
    parts.append(_label(box.left, below + 16, "dashed: no gain", size=11, fill="#555"))
    return parts


def _scale(box: _Box, unit: str) -> list[str]:
    step = next(s for s in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 1e9) if box.most_y / s <= 9)
    parts = []
    for n in range(int(box.most_y / step) + 1):
        value = n * step
        y = box.y(value)
        parts.append(_line(box.left, y, box.left + box.width, y, "#e4e4e4"))
        parts.append(_label(box.left - 6, y + 4, f"{value:g}{unit}", size=10, anchor="end"))
    return parts


def _legend(x: float, y: float, modes: Sequence[Mode]) -> list[str]:
    parts = []
    for index, mode in enumerate(modes):
        left = x + index * 90
        parts.append(
            f'<rect x="{left}" y="{y - 9:.1f}" width="10" height="10" fill="{COLOURS[mode]}"/>'
        )
        parts.append(_label(left + 15, y, NAMES[mode]))
    parts.append(_label(x + len(modes) * 90, y, "dashed: plain decoding", fill="#555"))
    return parts


def _label(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    fill: str = "#222",
) -> str:
    if not text:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill}">{_text(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'
    )


def _text(text: str) -> str:
    """Safe inside an element: markup escaped, and nothing that XML does not allow."""
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _round_up(value: float) -> float:
    step = 0.25 if value < 3 else 1.0 if value < 12 else 5.0
    return step * -(-value // step)
