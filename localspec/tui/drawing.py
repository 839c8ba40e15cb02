"""Numbers as text: gauges, bars, sparklines, and the speculation panel made of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.content import Content

from localspec.spec.events import PLAIN
from localspec.spec.stats import Stats, Totals
from localspec.terminal import label, size

if TYPE_CHECKING:
    from localspec.memory import Plan

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
DASH = "–"
_MAX_POSITIONS = 8
_TALL = 36
"""Lines that the panel takes with everything in it."""

ORIGINS = {
    # origin: (style, mark in the legend, words). Never colour alone: each has its own attribute.
    "draft": ("$accent-draft underline", "guessed by the draft model, kept"),
    "lookup": ("$accent-lookup italic underline", "copied from the text, kept"),
    "corrected": ("$accent-corrected bold reverse", "put right by the target"),
    "plain": ("", "the target's own"),
}


def origin_style(origin: str) -> str:
    """Style of text from a drafter or the target; drafters without a style of their own look like
    lookup, which they are akin to."""
    return ORIGINS.get(origin, ORIGINS["lookup"])[0]


def gauge(share: float | None, width: int) -> str:
    """``share`` of ``width`` cells filled, in eighths of a cell."""
    if share is None:
        return "░" * width
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width, "░")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` of ``values`` (0 to 1), one cell each."""
    shown = values[-width:]
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[min(top, max(0, int(value * len(_SPARKS))))] for value in shown)


def percent(share: float | None) -> str:
    """``0.714`` -> ``71 %``; a dash when nothing was measured."""
    return DASH if share is None else f"{share:.0%}"


def plan_text(plan: Plan) -> str:
    """What a plan loads, needs of what there is, device by device, and decides, a line each."""
    names = [label(name).removesuffix(".gguf") for name in (plan.target, plan.draft) if name]
    needs = [
        f"{size(n_bytes)} of {size(device.n_bytes_free)} on {label(device.name)}"
        for device in plan.budget.devices
        if (n_bytes := plan.needed_bytes(device.name))
    ]
    context = f"context of {plan.settings.n_ctx:,} tokens"
    reason = label(plan.reason).removeprefix(f"{plan.mode.capitalize()}: ")
    what = "Pair" if plan.draft else "Model"
    lines = (f"{what} {' + '.join(names)}", f"Needs {', '.join([*needs, context])}")
    return "\n".join((*lines, f"Mode {plan.mode}: {reason}"))


def seconds(value: float | None) -> str:
    """With a sign, since less than nothing may have been saved."""
    if value is None:
        return DASH
    if abs(value) < 0.05:
        return "0.0 s"
    if abs(value) < 60:
        return f"{value:+.1f} s"
    sign = "-" if value < 0 else "+"
    minutes, rest = divmod(round(abs(value)), 60)
    return f"{sign}{minutes} min {rest:02d} s"


@dataclass(slots=True)
class PanelData:
    """All that the panel shows."""

    mode: str = DASH
    reason: str = "the model is not loaded yet"
    draft_max: int | None = None
    answer: Stats | None = None
    totals: Totals = field(default_factory=Totals)
    window_rate: float | None = None
    window_series: Sequence[float] = ()
    n_window: int = 0
    last_drafter: str = ""
    last_drafted: int = 0
    last_accepted: int = 0
    last_reason: str = ""
    n_used: int = 0
    n_ctx: int = 0
    n_bytes: int | None = None
    temperature: float = 0.0
    colours: bool = False


def _rate(name: str, rate: float | None, counts: tuple[int, int], width: int) -> list[Content]:
    numbers = f"{counts[0]} of {counts[1]}" if counts[1] else "none checked"
    return [
        Content.assemble((f"{name:<13}", "$muted"), (f"{percent(rate):<5}", "bold"), numbers),
        Content.styled(gauge(rate, width), "$accent-draft"),
    ]


def panel(data: PanelData, width: int, height: int = 100) -> Content:
    """The whole panel, ``width`` cells wide; long reasons wrap. Where ``height`` is short, empty
    lines and the gauges that say least are left out."""
    is_short = height < _TALL
    stats = data.answer or Stats()
    lines: list[Content] = []

    def title(text: str) -> None:
        if lines and not is_short:
            lines.append(Content(""))
        lines.append(Content.styled(text, "bold $text-primary"))

    def row(name: str, value: str, note: str = "") -> None:
        parts = [(f"{name:<13}", "$muted"), (value, "bold")]
        lines.append(Content.assemble(*parts, (f"  {note}" if note else "", "$muted")))

    title("Mode")
    limit = f", at most {data.draft_max} tokens" if data.draft_max else ""
    lines.append(Content.styled(f"{data.mode}{limit}", "bold"))
    lines.append(Content.styled(label(data.reason), "$muted"))
    title("Acceptance")
    lines += _rate(
        "This answer", stats.acceptance_rate, (stats.n_accepted, stats.n_verified), width
    )
    whole = data.totals
    lines += _rate("This chat", whole.acceptance_rate, (whole.n_accepted, whole.n_verified), width)
    row(f"Last {data.n_window}" if data.n_window else "Last steps", percent(data.window_rate))
    lines.append(
        Content.styled(sparkline(data.window_series, width) or "░" * width, "$accent-lookup")
    )
    positions = stats.per_position[:_MAX_POSITIONS]
    if positions:
        title("Accepted by place in the draft")
        for place, rate in enumerate(positions, 1):
            bar = gauge(rate, width - 9)
            lines.append(
                Content.assemble(
                    (f"{place:>2} ", "$muted"), (bar, "$accent-draft"), f" {percent(rate):>4}"
                )
            )
    title("Speed")
    speed, plain = stats.tokens_per_s, stats.baseline_tokens_per_s
    row("Now", DASH if speed is None else f"{speed:.1f} tokens/s")
    row("Plain", "not measured yet" if plain is None else f"{plain:.1f} tokens/s")
    row("Gain", DASH if stats.gain is None else f"{stats.gain:.2f}×")
    row("Saved", seconds(stats.saved_s), f"chat {seconds(whole.saved_s)}")
    length = stats.mean_accepted_length
    row("Per step", DASH if length is None else f"{length:.2f} tokens")
    row("Last draft", last_draft(data))
    title("Use")
    share = data.n_used / data.n_ctx if data.n_ctx else None
    used = f"{data.n_used:,} of {data.n_ctx:,}" if data.n_ctx else DASH
    row("Context", used, percent(share) if data.n_ctx else "")
    if not is_short:
        lines.append(Content.styled(gauge(share, width), "$muted"))
    row("Memory", DASH if data.n_bytes is None else size(data.n_bytes))
    if data.colours:
        title("Colours of words")
        lines += legend()
    return Content("\n").join(lines)


def last_draft(data: PanelData) -> str:
    """Who drafted last, and what came of it."""
    if not data.last_drafter:
        return DASH
    if data.last_drafter == PLAIN:
        return "none this step"
    return f"{label(data.last_drafter)}, {data.last_accepted} of {data.last_drafted} kept"


def legend() -> list[Content]:
    """What the looks of coloured words mean."""
    return [
        Content.assemble(("word", style), f"  {meaning}") for style, meaning in ORIGINS.values()
    ]


def status_line(data: PanelData, width: int) -> Content:
    """The panel on one line; what matters least is left out where there is no room."""
    stats = data.answer or Stats()
    rate = stats.acceptance_rate
    parts = [f"{data.mode}", f"accepted {percent(rate)} {gauge(rate, 6)}"]
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tok/s")
    if stats.gain is not None:
        parts.append(f"{stats.gain:.2f}× plain")
    if data.n_ctx:
        parts.append(f"ctx {data.n_used / data.n_ctx:.0%}")
    if stats.mean_accepted_length is not None:
        parts.append(f"{stats.mean_accepted_length:.1f} per step")
    parts.append(f"saved {seconds(data.totals.saved_s)}")
    parts.append(label(data.reason))
    text = parts[0]
    for part in parts[1:]:
        if Content(f"{text} · {part}").cell_length > width and part is not parts[-1]:
            break
        text += f" · {part}"
    return Content(text).truncate(width, ellipsis=True)


def answer_line(stats: Stats) -> str:
    """The numbers of one answer, for the line below it."""
    parts = [f"{stats.n_tokens} token{'s' * (stats.n_tokens != 1)}"]
    if stats.tokens_per_s is not None:
        parts.append(f"{stats.tokens_per_s:.1f} tokens/s")
    parts.append(f"accepted {percent(stats.acceptance_rate)}")
    if stats.gain is not None:
        parts.append(f"{stats.gain:.2f}× plain")
    return " · ".join(parts)
