"""What ``localspec tune`` found, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

NOISY = 0.15
"""Passes that differ by more are not to be trusted."""

if TYPE_CHECKING:
    from localspec.tuning import Found


def show(found: Found, *, as_json: bool) -> None:
    """Print what was found and what it changes."""
    from localspec.cli import output

    if as_json:
        output.data(_as_dict(found))
        return
    if found.by_threads.by_count:
        rows = [
            [f"{count}", f"{1 / one:.1f}", f"{1 / many:.0f}", _mark(found, count)]
            for count, (one, many) in found.by_threads.by_count.items()
        ]
        output.table(["THREADS", "PLAIN TOKENS/S", "PROMPT TOKENS/S", ""], rows, right=[0, 1, 2])
        output.text("")
    plain = found.target.plain_s
    rows = [
        [f"{width}", f"{seconds * 1000:.1f} ms", f"{seconds / plain:.2f}"]
        for width, seconds in found.target.by_width.items()
    ]
    output.table(["WIDTH", "ONE DECODE", "× PLAIN"], rows, right=[0, 1, 2])
    output.text("")
    for line in _sentences(found):
        output.text(line)
    if len(found.together) > 1:
        output.text("")
        rows = [
            [
                one.target,
                one.draft or "–",
                str(one.n) if one.n else "–",
                f"{one.tokens_per_s:.1f}",
                "in use" if (one.target, one.draft) == found.in_use else "",
            ]
            for one in found.together
        ]
        columns = ["TARGET", "DRAFT", "LENGTH", "EXPECTED TOKENS/S", ""]
        output.table(columns, rows, right=[2, 3])
    output.text("")
    for line in _changes(found):
        output.text(line)


def _mark(found: Found, count: int) -> str:
    marks = []
    if count == found.threads.decode:
        marks.append("best for answers")
    if count == found.threads.batch:
        marks.append("best for prompts")
    return ", ".join(marks)


def _sentences(found: Found) -> list[str]:
    plain = found.target.plain_s
    lines = [f"One plain decode takes {plain * 1000:.1f} ms: {1 / plain:.1f} tokens/s."]
    if found.target.prompt_s is not None:
        lines.append(f"Prompts are read at {1 / found.target.prompt_s:.0f} tokens/s.")
    lines += [
        f"A draft decode takes {cost.next_s * 1000:.1f} ms, {cost.next_s / plain:.2f} of a plain "
        "decode."
        for cost in found.drafts.values()
    ]
    if found.accepted is not None:
        lines.append(f"Drafted tokens are accepted with chance {found.accepted:.0%} (two prompts).")
    return lines


def _changes(found: Found) -> list[str]:
    lines = []
    if found.kept:
        lines.append("Kept for the next run: these costs.")
    else:
        lines.append("The costs could not be kept; the log says why.")
    best, before = found.threads, found.threads_before
    if (best.decode, best.batch) != (before, before):
        lines.append(
            f"Threads from now on: {best.decode} for answers, {best.batch} for prompts "
            f"(until now {before})."
        )
    else:
        lines.append(f"Threads stay at {before}.")
    if found.noise > NOISY:
        lines.append(
            f"The same measurement differed by {found.noise:.0%}: other programs are at "
            "work here. Close them and tune again."
        )
    fastest = found.together[0] if found.together else None
    if fastest is not None and (fastest.target, fastest.draft) != found.in_use:
        now = next(
            (t.tokens_per_s for t in found.together if (t.target, t.draft) == found.in_use), None
        )
        gain = f", {fastest.tokens_per_s / now:.2f} times the pair in use" if now else ""
        what = f"{fastest.target} with {fastest.draft}" if fastest.draft else fastest.target
        lines.append(f"Fastest on this computer: {what}{gain}; name it with -m and -md to use it.")
        lines.append("Another quantisation of the target gives other answers; of the draft, not.")
    return lines


def _as_dict(found: Found) -> dict[str, Any]:
    plain = found.target.plain_s
    return {
        "target": found.in_use[0],
        "draft": found.in_use[1],
        "plain_s": plain,
        "cost_by_width": {str(w): s / plain for w, s in found.target.by_width.items()},
        "prompt_token_s": found.target.prompt_s,
        "drafts": {
            name: {
                "first_s": cost.first_s,
                "next_s": cost.next_s,
                "catchup_few_s": cost.few_s,
                "catchup_many_s": cost.many_s,
            }
            for name, cost in found.drafts.items()
        },
        "threads": {
            str(count): {"decode_s": one, "prompt_token_s": many}
            for count, (one, many) in found.by_threads.by_count.items()
        },
        "noise": found.noise,
        "best_threads": {"decode": found.threads.decode, "batch": found.threads.batch},
        "threads_before": found.threads_before,
        "acceptance": found.accepted,
        "together": [
            {"target": t.target, "draft": t.draft, "length": t.n, "tokens_per_s": t.tokens_per_s}
            for t in found.together
        ],
        "kept": found.kept,
    }
