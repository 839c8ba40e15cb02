"""Measuring on purpose: what decodes cost, which thread counts are fastest, and which of several
quantisations go best together. ``localspec tune`` shows it and keeps it for the next run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from localspec.benchmark.costs import N_PASSES, between, cost_by_width
from localspec.drafts import OnDisk
from localspec.files import Cancelled
from localspec.header import Header
from localspec.spec.costs import Learned
from localspec.spec.drafter import Decoder
from localspec.spec.stats import Stats
from localspec.tuned import Threads

N_PROMPT = 128
"""Tokens of the decode that stands for a prompt pass, and most tokens before each measured one."""
N_FEW = 16
"""Tokens that stand for the few that a draft missed in a step or two."""
N_BEFORE = 16
"""Tokens before each decode that is measured for a thread count: with one thread, to read more
would take seconds each time."""
TRUSTED = N_PASSES
"""Measurements that a value counts for in the pacer: it is the median of about so many."""
THREADS_GAIN = 1.05
"""Other thread counts must be so much faster to be kept: less is noise."""
MAX_THREAD_COUNTS = 8
MAX_FIXED = 16
"""Longest draft considered when pairs of files are compared."""


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Seconds. ``by_width``: one decode of the target by width, all rows read. ``prompt_s``: one
    prompt token of a long prompt."""

    by_width: Mapping[int, float]
    prompt_s: float | None

    @property
    def plain_s(self) -> float:
        """One plain decode."""
        return self.by_width[1]


@dataclass(frozen=True, slots=True)
class DraftModelCosts:
    """Seconds of a draft model: the first decode of a step, each further one, and one missed token
    when these are few or many."""

    first_s: float
    next_s: float
    few_s: float
    many_s: float


def target_costs(
    decoder: Decoder,
    prefix: Sequence[int],
    *,
    cancelled: Cancelled = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
    **limits: float,
) -> ModelCosts | None:
    """What the target costs; None when cancelled. ``limits``: those of ``cost_by_width``."""
    widths = cost_by_width(decoder, prefix, cancelled=cancelled, clock=clock, **limits)  # type: ignore[arg-type]
    prompt = _rowless(decoder, prefix, N_PROMPT, cancelled, clock)
    if cancelled() or 1 not in widths:
        return None
    return ModelCosts(widths, prompt)


def drift(
    decoder: Decoder,
    prefix: Sequence[int],
    before_s: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """By how much one plain decode now differs from ``before_s``, as a share."""
    now = cost_by_width(decoder, prefix, (1,), clock=clock).get(1, before_s)
    return max(now, before_s) / min(now, before_s) - 1


def draft_costs(
    decoder: Decoder,
    prefix: Sequence[int],
    *,
    cancelled: Cancelled = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> DraftModelCosts | None:
    """What a draft model costs; None when cancelled."""
    narrow = cost_by_width(
        decoder, prefix, (1, 2), n_rows=1, n_passes=5, cancelled=cancelled, clock=clock
    )
    few = _rowless(decoder, prefix, N_FEW, cancelled, clock)
    many = _rowless(decoder, prefix, N_PROMPT, cancelled, clock)
    if cancelled() or 1 not in narrow or few is None:
        return None
    # A step begins with one token, or with two after a draft that was accepted whole.
    first = (narrow[1] + narrow.get(2, narrow[1])) / 2
    return DraftModelCosts(first, narrow[1], few, few if many is None else many)


def _rowless(
    decoder: Decoder,
    prefix: Sequence[int],
    n: int,
    cancelled: Cancelled,
    clock: Callable[[], float],
) -> float | None:
    """Seconds per token of a decode of ``n`` with one row, None if that does not fit."""
    found = cost_by_width(decoder, prefix, (n,), n_rows=1, cancelled=cancelled, clock=clock)
    return found[n] / n if n in found else None


def as_learned(
    target: ModelCosts, drafts: Mapping[str, DraftModelCosts], before: Learned | None = None
) -> Learned:
    """In the pacer's units, plain decodes. ``before``: what earlier runs know about acceptance
    and what came of it, which measuring costs says nothing about."""
    one, known = target.plain_s, before or Learned()
    return Learned(
        widths={width: (s / one, TRUSTED) for width, s in target.by_width.items()},
        drafts={
            name: tuple(
                (s / one, TRUSTED) for s in (cost.first_s, cost.next_s, cost.few_s, cost.many_s)
            )
            for name, cost in drafts.items()
        },
        trust=dict(known.trust),
        copied=known.copied,
        paid=dict(known.paid),
        prompt_rate=None if target.prompt_s is None else min(1.0, target.prompt_s / one),
    )


# -- threads --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadCosts:
    """``by_count``: threads -> least seconds of (one plain decode, one prompt token). ``noise``:
    by how much the passes differed, as a share."""

    by_count: dict[int, tuple[float, float]] = field(default_factory=dict)
    noise: float = 0.0


def thread_counts(n_logical: int, current: int) -> list[int]:
    """Counts worth trying: all up to ``MAX_THREAD_COUNTS``, then evenly spread ones; ``current``
    is among them."""
    if n_logical <= MAX_THREAD_COUNTS:
        found = set(range(1, n_logical + 1))
    else:
        found = {round(n_logical * i / MAX_THREAD_COUNTS) for i in range(1, MAX_THREAD_COUNTS + 1)}
    return sorted(found | {current})


def cost_by_threads(
    decoder: Decoder,
    set_threads: Callable[[int, int], None],
    counts: Sequence[int],
    prefix: Sequence[int],
    *,
    n_passes: int = 3,
    cancelled: Cancelled = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> ThreadCosts:
    """Only whole passes count. The caller sets the threads to use afterwards."""
    prefix = prefix[:N_BEFORE]
    found: dict[int, tuple[float, float]] = {}
    plain_times: dict[int, list[float]] = {}
    for _ in range(n_passes):
        measured: dict[int, tuple[float, float]] = {}
        for count in counts:
            set_threads(count, count)
            plain = cost_by_width(
                decoder, prefix, (1,), n_passes=3, cancelled=cancelled, clock=clock
            )
            prompt = cost_by_width(
                decoder, prefix, (N_PROMPT,), n_rows=1, n_passes=1, cancelled=cancelled, clock=clock
            )
            if cancelled():
                return ThreadCosts(found, 0.0)
            measured[count] = (plain[1], prompt.get(N_PROMPT, plain[1] * N_PROMPT) / N_PROMPT)
        for count, (one, many) in measured.items():
            before = found.get(count, (one, many))
            found[count] = (min(one, before[0]), min(many, before[1]))
            plain_times.setdefault(count, []).append(one)
    return ThreadCosts(found, median(max(t) / min(t) - 1 for t in plain_times.values()))


def best_threads(costs: ThreadCosts, current: int) -> Threads:
    """The fastest counts, the smaller of equals; ``current`` where nothing is faster by more than
    the machine's noise."""
    return Threads(_fastest(costs, current, 0), _fastest(costs, current, 1))


def _fastest(costs: ThreadCosts, current: int, which: int) -> int:
    found = costs.by_count
    if current not in found:
        return current
    best = min(sorted(found), key=lambda count: found[count][which])
    gain = found[current][which] / found[best][which]
    return best if gain > THREADS_GAIN + costs.noise else current


# -- which files together -------------------------------------------------------------------------


def siblings(header: Header, on_disk: Iterable[OnDisk]) -> list[OnDisk]:
    """Models on the disk that are the same but for their quantisation: architecture, name, size of
    every layer and vocabulary agree."""
    return [found for found in on_disk if found.header and _shape(found.header) == _shape(header)]


def _shape(header: Header) -> tuple[str, str, int, int, int]:
    return (
        header.architecture,
        header.name.lower(),
        header.n_layer_all,
        header.n_embd,
        header.n_vocab,
    )


def acceptance(answers: Iterable[Stats]) -> float | None:
    """The chance that a drafted token is accepted if those before it were: accepted tokens over
    accepted and first wrong ones. None when nothing was verified."""
    n_accepted = n_wrong = 0
    for stats in answers:
        n_accepted += stats.n_accepted
        # Steps that verified a token at position i less those that accepted it, without those that
        # had failed before.
        reached = stats.verified_at[:1] + stats.accepted_at[:-1]
        for verified, came, accepted in zip(
            stats.verified_at, reached, stats.accepted_at, strict=True
        ):
            n_wrong += max(0, min(verified, came) - accepted)
    total = n_accepted + n_wrong
    return n_accepted / total if total else None


@dataclass(frozen=True, slots=True)
class Together:
    """A target and a draft (None: plain): ``n`` drafted tokens per step are best, and give
    ``tokens_per_s``."""

    target: str
    draft: str | None
    n: int
    tokens_per_s: float


@dataclass(slots=True)
class Files:
    """Costs of the files that could be used: name -> costs."""

    targets: dict[str, ModelCosts] = field(default_factory=dict)
    drafts: dict[str, float] = field(default_factory=dict)
    """Seconds of one draft decode."""


def compare(files: Files, accepted: float) -> list[Together]:
    """Every target plain and with every draft, the fastest first, if drafted tokens are accepted
    with chance ``accepted``, whatever the quantisation.

    Expected tokens of a step with n drafted ones: sum of accepted**i for i = 0 .. n (Leviathan et
    al. 2023, equation 1).
    """
    found = []
    for target, costs in files.targets.items():
        found.append(Together(target, None, 0, 1 / costs.plain_s))
        for draft, draft_s in files.drafts.items():
            speeds = [
                (sum(accepted**i for i in range(n + 1)) / (n * draft_s + verify_s), n)
                for n in range(1, MAX_FIXED + 1)
                if (verify_s := between(costs.by_width, n + 1)) is not None
            ]
            if speeds:
                speed, n = max(speeds)
                found.append(Together(target, draft, n, speed))
    return sorted(found, key=lambda one: -one.tokens_per_s)


# -- all together ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """All that ``localspec tune`` measured. ``by_threads``: empty
    when the thread count was given. ``in_use``: names of the target's and the draft's files.
    ``noise``: by how much the same measurements differed, as a share. ``kept``: the costs are
    there for the next run."""

    target: ModelCosts
    drafts: dict[str, DraftModelCosts]
    by_threads: ThreadCosts
    threads: Threads
    threads_before: int
    noise: float
    accepted: float | None = None
    together: tuple[Together, ...] = ()
    in_use: tuple[str, str | None] = ("", None)
    kept: bool = False
