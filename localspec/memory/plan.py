"""What is asked of a memory plan, and what comes out of it: plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from localspec.budget import Budget, DeviceMemory
from localspec.memory.parts import Part, Settings
from localspec.memory.shape import Shape

Mode = Literal["draft", "lookup", "plain"]
Wish = Literal["auto", "draft", "lookup", "plain"]
Where = Literal["auto", "cpu", "gpu"]
Verdict = Literal["chosen", "too large", "failed", "not possible", "not allowed", "not needed"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could be used. ``unusable``: why it cannot, for example another vocabulary;
    ``match``: of a draft, how its vocabulary goes with the target's, a few words."""

    name: str
    shape: Shape
    unusable: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants and allows.

    ``drafts``: best expected speed first. ``mode`` other than ``auto``, ``n_gpu_layers`` and
    ``draft_device`` are explicit wishes: they are fulfilled or refused, never changed.
    ``settings.n_gpu_layers`` is ignored. ``other_targets``, ``other_drafts``: named in a refusal if
    they would fit. ``draft_named``: the user asked for this very draft. ``more_drafts``: names of
    smaller drafts that nobody has looked at, because they are needed only if ``drafts`` do not fit.
    ``no_draft_reason``: why ``drafts`` is empty.
    """

    target: Candidate
    settings: Settings
    drafts: tuple[Candidate, ...] = ()
    mode: Wish = "auto"
    n_gpu_layers: int | None = None
    draft_device: Where = "auto"
    allow_quantised_cache: bool = False
    allow_shorter_context: bool = False
    min_ctx: int = 1024
    other_targets: tuple[Candidate, ...] = ()
    other_drafts: tuple[Candidate, ...] = ()
    more_drafts: tuple[str, ...] = ()
    draft_named: bool = False
    no_draft_reason: str = "no draft is known for this target"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the cascade and what became of it."""

    name: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome. ``reason`` is one sentence for the user. ``settings`` and ``draft_settings`` are
    those to load the models with; ``draft`` is the name of the chosen one, or empty;
    ``draft_match``: how its vocabulary goes with the target's, a few words."""

    mode: Mode
    reason: str
    parts: tuple[Part, ...]
    budget: Budget
    steps: tuple[Step, ...]
    target: str
    settings: Settings
    draft: str = ""
    draft_settings: Settings | None = None
    draft_match: str = ""

    @property
    def step(self) -> str:
        """Name of the chosen step."""
        return next(step.name for step in self.steps if step.verdict == "chosen")

    @property
    def n_bytes(self) -> int:
        """Bytes of all parts on all devices."""
        return sum(part.n_bytes for part in self.parts)

    def needed_bytes(self, device: str) -> int:
        """Bytes that must be there all the time on one device."""
        return needed_bytes(self.parts, device)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``: only numbers, strings, lists and dictionaries."""
        return {
            "mode": self.mode,
            "reason": self.reason,
            "target": self.target,
            "draft": self.draft or None,
            "draft_match": self.draft_match or None,
            "n_ctx": self.settings.n_ctx,
            "draft_n_ctx": self.draft_settings.n_ctx if self.draft_settings else None,
            "n_gpu_layers": self.settings.n_gpu_layers,
            "draft_n_gpu_layers": (
                self.draft_settings.n_gpu_layers if self.draft_settings else None
            ),
            "cache_type_k": self.settings.type_k,
            "cache_type_v": self.settings.type_v,
            "devices": [
                {
                    "name": device.name,
                    "kind": device.kind,
                    "free_bytes": device.n_bytes_free,
                    "needed_bytes": self.needed_bytes(device.name),
                    "source": device.source,
                }
                for device in self.budget.devices
            ],
            "parts": [
                {
                    "what": part.what,
                    "role": part.role,
                    "device": part.device,
                    "bytes": part.n_bytes,
                    "evictable_bytes": part.evictable_bytes,
                }
                for part in self.parts
            ],
            "steps": [
                {"name": step.name, "verdict": step.verdict, "reason": step.reason}
                for step in self.steps
            ],
        }


def needed_bytes(parts: Iterable[Part], device: str) -> int:
    """Bytes that must be there all the time on one device."""
    return sum(part.needed_bytes for part in parts if part.device == device)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """``missing_bytes`` too few on ``device``: ``needed_bytes`` against what is free."""

    device: DeviceMemory
    needed_bytes: int

    @property
    def missing_bytes(self) -> int:
        """How much more would be needed."""
        return self.needed_bytes - self.device.n_bytes_free


def shortfall(parts: tuple[Part, ...], budget: Budget) -> Shortfall | None:
    """The largest lack of memory of any device; None when all parts fit.

    What is put on a device that shares the computer's memory counts against both.
    """
    found = []
    for device in budget.devices:
        n_bytes = needed_bytes(parts, device.name)
        if device.kind == "cpu":
            shared = (other.name for other in budget.accelerators if other.shared_with_cpu)
            n_bytes += sum(needed_bytes(parts, name) for name in shared)
        if n_bytes > device.n_bytes_free:
            found.append(Shortfall(device, n_bytes))
    return max(found, key=lambda lack: lack.missing_bytes, default=None)


@runtime_checkable
class PlanView(Protocol):
    """A ``files.Progress`` that also shows what was planned."""

    def planned(self, plan: Plan) -> None:
        """This is what will be loaded; may come again, when the plan had to be changed."""
