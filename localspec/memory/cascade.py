"""The cascade when memory is short: best expected speed first, each step with its reason.

Draft on the GPU; draft on the CPU while the target stays on the GPU; a smaller draft; a quantised
cache (if allowed); lookup; plain; all of these again with a shorter context (if allowed); refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.budget import Budget
from localspec.errors import LocalspecError, MemoryPlanError, PairError
from localspec.memory.options import Option, gpu_name, options
from localspec.memory.parts import Part, Settings, plan_memory
from localspec.memory.plan import (
    Candidate,
    Plan,
    Request,
    Shortfall,
    Step,
    needed_bytes,
    shortfall,
)
from localspec.memory.shape import Shape
from localspec.terminal import label, size

_N_HINTS = 3
_PASSED_OVER = ("too large", "not possible", "failed")


@dataclass(frozen=True, slots=True)
class _Attempt:
    parts: tuple[Part, ...]
    settings: Settings
    draft_settings: Settings | None
    lack: Shortfall | None


def choose_plan(request: Request, budget: Budget, failed: Mapping[str, str] | None = None) -> Plan:
    """The first step of the cascade that fits ``budget``.

    ``failed``: steps that fitted on paper but could not be loaded (``Plan.step``), with the reason
    of each; they are passed over.

    Raises MemoryPlanError when none does, naming the missing bytes and what would fit; PairError
    when a draft is demanded and none of them goes with the target.
    """
    steps, chosen, last = _search(request, budget, failed)
    if chosen is None:
        raise _refusal(request, budget, steps, last)
    return _plan(request, budget, steps, *chosen)


def first_fit(request: Request, budget: Budget) -> Plan | Shortfall:
    """What ``choose_plan`` finds, or what the last step of the cascade lacks: the quick answer, for
    comparing many requests. Raises PairError when no draft of the request can be used."""
    steps, chosen, last = _search(request, budget, None)
    if chosen is not None:
        return _plan(request, budget, steps, *chosen)
    if last is None:
        raise _refusal(request, budget, steps, last)
    return last[1]


def _search(
    request: Request, budget: Budget, failed: Mapping[str, str] | None
) -> tuple[list[Step], tuple[Option, _Attempt] | None, tuple[Option, Shortfall] | None]:
    """Every step with its verdict, the chosen one, and the last that was too large."""
    steps: list[Step] = []
    chosen: tuple[Option, _Attempt] | None = None
    last: tuple[Option, Shortfall] | None = None
    for option in options(request, budget):
        name = option.name(budget)
        if chosen is not None:
            if option.settings.n_ctx == chosen[0].settings.n_ctx:
                steps.append(Step(name, "not needed"))
        elif option.unseen:
            continue
        elif option.forbidden:
            steps.append(Step(name, "not allowed", option.forbidden))
        elif option.draft is not None and option.draft.unusable:
            steps.append(Step(name, "not possible", option.draft.unusable))
        elif failed and name in failed:
            steps.append(Step(name, "failed", failed[name]))
        else:
            attempt = _try(option, request, budget)
            if attempt.lack is None:
                chosen = option, attempt
                steps.append(Step(name, "chosen", _fits(attempt, budget, option.draft)))
            else:
                last = option, attempt.lack
                steps.append(Step(name, "too large", _lacks(attempt.lack)))
    return steps, chosen, last


def _plan(
    request: Request, budget: Budget, steps: Sequence[Step], option: Option, attempt: _Attempt
) -> Plan:
    return Plan(
        mode=option.mode,
        reason=_reason(option, request, steps, budget) + _split(attempt, request, budget),
        parts=attempt.parts,
        budget=budget,
        steps=tuple(steps),
        target=request.target.name,
        settings=attempt.settings,
        draft=option.draft.name if option.draft else "",
        draft_settings=attempt.draft_settings,
        draft_match=option.draft.match if option.draft else "",
    )


def _try(option: Option, request: Request, budget: Budget) -> _Attempt:
    shape, draft = request.target.shape, option.draft
    settings, lookup = option.settings, option.mode != "plain"
    draft_settings = None
    if draft is not None:
        trained = draft.shape.n_ctx_train or settings.n_ctx
        draft_settings = replace(
            settings,
            n_ctx=min(settings.n_ctx, trained),
            n_gpu_layers=len(draft.shape.layers) + 1 if option.draft_on_gpu else 0,
            n_rs_seq=0,
        )
    n_gpu_layers = request.n_gpu_layers
    if n_gpu_layers is None:
        n_gpu_layers = _layers_that_fit(request, settings, budget, lookup=lookup)
        if draft is not None and option.draft_on_gpu and n_gpu_layers <= len(shape.layers):
            # The target has layers on the CPU in any case. A few more cost one reading per step,
            # a draft model there one reading per drafted token: the draft goes first.
            n_gpu_layers = _layers_that_fit(
                request, settings, budget, draft.shape, draft_settings, lookup=lookup
            )
    settings = replace(settings, n_gpu_layers=n_gpu_layers)
    parts = plan_memory(
        shape,
        settings,
        budget.devices,
        draft.shape if draft else None,
        draft_settings,
        lookup=lookup,
    )
    return _Attempt(parts, settings, draft_settings, shortfall(parts, budget))


def _layers_that_fit(
    request: Request,
    settings: Settings,
    budget: Budget,
    draft: Shape | None = None,
    draft_settings: Settings | None = None,
    *,
    lookup: bool,
) -> int:
    """Most layers of the target, alone or beside ``draft``, that the accelerators hold; all of them
    includes the output. 0 when not even the draft fits.

    More layers never take less memory there, so halving the range finds the last one that fits.
    """
    if not budget.accelerators:
        return 0
    fits, too_many = 0, len(request.target.shape.layers) + 2
    middle = too_many - 1  # most often all of them fit
    while too_many - fits > 1:
        trial = replace(settings, n_gpu_layers=middle)
        parts = plan_memory(
            request.target.shape, trial, budget.devices, draft, draft_settings, lookup=lookup
        )
        full = any(
            needed_bytes(parts, device.name) > device.n_bytes_free for device in budget.accelerators
        )
        fits, too_many = (fits, middle) if full else (middle, too_many)
        middle = (fits + too_many) // 2
    return fits


# -- sentences -----------------------------------------------------------------------------------


def _fits(attempt: _Attempt, budget: Budget, draft: Candidate | None) -> str:
    pieces = [
        f"{size(needed_bytes(attempt.parts, device.name))} of {size(device.n_bytes_free)} "
        f"on {device.name}"
        for device in budget.devices
        if needed_bytes(attempt.parts, device.name)
    ]
    match = f"; {label(draft.match)}" if draft is not None and draft.match else ""
    return "needs " + ", ".join(pieces) + match


def _split(attempt: _Attempt, request: Request, budget: Budget) -> str:
    """A sentence when the target does not fit wholly on the accelerators that are there."""
    n_layers, n_all = attempt.settings.n_gpu_layers, len(request.target.shape.layers) + 1
    if request.n_gpu_layers is not None or not budget.accelerators or n_layers >= n_all:
        return ""
    place = gpu_name(budget)
    return f" {n_layers} of the target's {n_all} layers are on {place}, the rest on the CPU."


def _lacks(lack: Shortfall) -> str:
    return (
        f"needs {size(lack.needed_bytes)} on {lack.device.name}, "
        f"{size(lack.missing_bytes)} more than the {size(lack.device.n_bytes_free)} available "
        f"({lack.device.source})"
    )


def _reason(option: Option, request: Request, steps: Sequence[Step], budget: Budget) -> str:
    head = {"lookup": "Lookup", "plain": "Plain decoding"}.get(option.mode, "")
    head = option.name(budget).replace(option.mode, head, 1) if head else option.name(budget)
    head = head[0].upper() + head[1:]
    passed = next((step for step in steps if step.verdict in _PASSED_OVER), None)
    if passed is not None:
        usable = [draft for draft in request.drafts if not draft.unusable]
        given_up = option.mode != "draft" and passed.verdict == "too large" and len(usable) > 1
        also = "; no smaller draft fits either" if given_up else ""
        return f"{head}: {_sentence(passed)}{also}."
    if option.mode == "draft":
        return f"{head}: everything fits."
    if request.mode == option.mode:
        return f"{head}, as asked."
    return f"{head}: {label(request.no_draft_reason)}."


def _sentence(step: Step) -> str:
    if step.verdict == "too large":
        return f"{step.name} {step.reason}"
    if step.verdict == "failed":
        return f"{step.name} could not be loaded ({step.reason.rstrip('.')})"
    return f"{step.name} is {step.verdict} ({step.reason.rstrip('.')})"


def _refusal(
    request: Request,
    budget: Budget,
    steps: Sequence[Step],
    last: tuple[Option, Shortfall] | None,
) -> LocalspecError:
    name = label(request.target.name)
    if last is None:
        broken = next((step for step in steps if step.verdict == "failed"), None)
        if broken is not None:
            return MemoryPlanError(f"{name} does not fit into memory: {label(_sentence(broken))}.")
        unfit = next((step for step in steps if step.verdict == "not possible"), None)
        why = _sentence(unfit) if unfit else "no draft is known for it"
        return PairError(
            f"{name} cannot run with a draft: {label(why)}.",
            hint="Leave the mode on auto to run without one, or see localspec pairs --for MODEL.",
        )
    option, lack = last
    what = name if option.mode == "plain" else f"{name} ({option.name(budget)})"
    return MemoryPlanError(
        f"{what} does not fit into memory: it {_lacks(lack)}.",
        hint="\n".join(_would_fit(request, budget)),
        steps=[(step.name, step.verdict, step.reason) for step in steps],
    )


def _would_fit(request: Request, budget: Budget) -> Iterator[str]:
    """One line per change that would make it fit."""

    def works(changed: Request) -> bool:
        return any(
            option.is_possible and _try(option, changed, budget).lack is None
            for option in options(changed, budget)
        )

    fitting = [
        label(other.name)
        for other in request.other_drafts
        if works(replace(request, drafts=(other,)))
    ]
    if fitting:
        yield f"These drafts would fit: {', '.join(fitting[:_N_HINTS])} (--draft NAME)."
    if request.mode != "auto" and works(replace(request, mode="auto")):
        wish = "leave --draft out, and" if request.draft_named else "leave"
        yield f"It would fit in another mode: {wish} the mode on auto."
    if not request.allow_quantised_cache and works(replace(request, allow_quantised_cache=True)):
        yield "It would fit with a quantised cache: --allow-kv-quant."
    n_ctx = request.settings.n_ctx // 2
    while n_ctx >= request.min_ctx:
        shorter = replace(request.settings, n_ctx=n_ctx)
        if works(replace(request, settings=shorter, allow_shorter_context=False)):
            yield f"A context of {n_ctx} tokens would fit (--ctx-size {n_ctx})."
            break
        n_ctx //= 2
    fitting = [
        label(other.name)
        for other in request.other_targets
        if works(replace(request, target=other, drafts=(), mode="auto", n_gpu_layers=None))
    ]
    if fitting:
        yield f"These models would fit: {', '.join(fitting[:_N_HINTS])}."
    else:
        yield "Close other programs, or choose a smaller model or quantisation (localspec pairs)."
