"""The steps of the cascade: every way to run a request, best expected speed first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.budget import Budget
from localspec.memory.parts import Settings
from localspec.memory.plan import Candidate, Mode, Request

_SMALL_CACHE = "q8_0"
_WIDE_CACHES = {"f32", "f16", "bf16"}
_ONLY_IF_ALLOWED = "only if you allow it"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the request; ``forbidden``: why it is not even tried; ``unseen``: the name of
    a draft that nobody has looked at yet."""

    mode: Mode
    settings: Settings
    draft: Candidate | None = None
    draft_on_gpu: bool = False
    quantised: bool = False
    shortened: bool = False
    forbidden: str = ""
    unseen: str = ""

    @property
    def is_possible(self) -> bool:
        """It may be tried: memory alone decides."""
        unfit = self.draft is not None and self.draft.unusable
        return not (self.forbidden or self.unseen or unfit)

    def name(self, budget: Budget) -> str:
        """For the list of steps and for sentences."""
        if self.forbidden:
            return "a shorter context" if self.shortened else f"a {_SMALL_CACHE.upper()} cache"
        if self.unseen:
            return f"draft {self.unseen}"
        if self.draft is not None and self.draft.unusable:
            return f"draft {self.draft.name}"
        if self.draft is not None:
            place = gpu_name(budget) if self.draft_on_gpu else "the CPU"
            text = f"draft {self.draft.name} on {place}"
        else:
            text = self.mode
        if self.quantised:
            text += f" with a {_SMALL_CACHE.upper()} cache"
        return text + (f" and a context of {self.settings.n_ctx}" if self.shortened else "")


def options(request: Request, budget: Budget) -> Iterator[Option]:
    """Every step for ``request``; nothing is computed yet."""
    yield from _at(request, budget, request.settings, shortened=False)
    n_ctx = request.settings.n_ctx // 2
    if not request.allow_shorter_context:
        if n_ctx >= request.min_ctx:
            yield Option("plain", request.settings, shortened=True, forbidden=_ONLY_IF_ALLOWED)
        return
    while n_ctx >= request.min_ctx:
        yield from _at(request, budget, replace(request.settings, n_ctx=n_ctx), shortened=True)
        n_ctx //= 2


def _at(
    request: Request, budget: Budget, settings: Settings, *, shortened: bool
) -> Iterator[Option]:
    """The steps for one context length."""
    small = _quantised(settings)
    caches = [settings]
    if small is not None and request.allow_quantised_cache:
        caches.append(small)
    if request.mode in ("auto", "draft"):
        for cache in caches:
            for draft in request.drafts:
                if draft.unusable and cache is small:
                    continue
                places = (False,) if draft.unusable else _places(request, budget)
                for on_gpu in places:
                    yield Option("draft", cache, draft, on_gpu, cache is small, shortened)
            for name in request.more_drafts if cache is settings else ():
                yield Option("draft", cache, shortened=shortened, unseen=name)
    forbidden = []
    if small is not None and not request.allow_quantised_cache and not shortened:
        forbidden = [Option("plain", small, quantised=True, forbidden=_ONLY_IF_ALLOWED)]
    wants_draft = request.mode in ("auto", "draft") and bool(request.drafts)
    if wants_draft:
        yield from forbidden
    modes: tuple[Mode, ...] = ("lookup", "plain")
    for mode in modes:
        if request.mode in ("auto", mode):
            for cache in caches:
                yield Option(mode, cache, quantised=cache is small, shortened=shortened)
    if not wants_draft:
        yield from forbidden


def _places(request: Request, budget: Budget) -> Sequence[bool]:
    """Where the draft may go: True is the GPU."""
    if not budget.accelerators or request.draft_device == "cpu":
        return (False,)
    return (True,) if request.draft_device == "gpu" else (True, False)


def _quantised(settings: Settings) -> Settings | None:
    """The same with a smaller cache; None when it is small already.

    Values can be quantised only with flash attention.
    """
    type_k = _SMALL_CACHE if settings.type_k in _WIDE_CACHES else settings.type_k
    wide_v = settings.flash_attn and settings.type_v in _WIDE_CACHES
    type_v = _SMALL_CACHE if wide_v else settings.type_v
    small = replace(settings, type_k=type_k, type_v=type_v)
    return None if small == settings else small


def gpu_name(budget: Budget) -> str:
    """What sentences call the accelerators."""
    names = [device.name for device in budget.accelerators]
    return names[0] if len(names) == 1 else "the GPUs"
