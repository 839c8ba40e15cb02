"""What passes between the inference thread and the screen: requests one way, events the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.config import Config, Mode
from localspec.files import Cancelled, Progress
from localspec.messages import Message, Prompt
from localspec.provenance import Source
from localspec.spec.events import Event, Finished, Prefill, Step
from localspec.spec.sampling import Sampling


class StatusLike(Protocol):
    """``session.Status``, which cannot be imported without loading llama.cpp."""

    @property
    def model(self) -> str: ...
    @property
    def draft(self) -> str | None: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def reason(self) -> str: ...
    @property
    def exactness(self) -> str: ...
    @property
    def profile(self) -> str: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_threads(self) -> int: ...


class TemplateLike(Protocol):
    """``chat.Template``."""

    @property
    def note(self) -> str: ...
    def prompt_for(self, messages: Sequence[Message]) -> Prompt: ...


class SessionLike(Protocol):
    """What the chat needs of a ``session.Session``; ``fakes.ScriptedSession`` is another."""

    @property
    def status(self) -> StatusLike: ...
    @property
    def template(self) -> TemplateLike: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_used(self) -> int: ...
    @property
    def baseline_step_s(self) -> float | None: ...
    def tokenize(self, prompt: Prompt) -> list[int]: ...
    def fit(
        self, messages: Sequence[Message], n_reserve: int, n_dropped: int = 0
    ) -> tuple[list[Message], int]: ...
    def ask(
        self,
        prompt: Sequence[Message],
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        cancelled: Cancelled = ...,
        source: Source | None = None,
    ) -> Iterator[Event]: ...
    def set_mode(self, mode: Mode, draft_max: int | None = None) -> None: ...
    def close(self) -> None: ...


class Opener(Protocol):
    """``opening.open_session``."""

    def __call__(self, config: Config, progress: Progress, cancelled: Cancelled) -> SessionLike: ...


# -- what the app asks for ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Load what ``config`` names, in place of what is loaded."""

    config: Config


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer ``messages``; ``n_dropped`` of them were left out of the last prompt."""

    id: int
    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int | None
    n_dropped: int = 0
    source: Source | None = None
    """The saved chat they belong to; None: nothing of it may be kept."""


@dataclass(frozen=True, slots=True)
class SetMode:
    """Use another mode from the next answer on."""

    mode: Mode
    draft_max: int | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many tokens have these messages?"""

    messages: tuple[Message, ...]


Request = Open | Ask | SetMode | Count

# -- what the thread tells ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadStarted:
    label: str
    total: int | None


@dataclass(frozen=True, slots=True)
class LoadAdvanced:
    n: int


@dataclass(frozen=True, slots=True)
class LoadFinished:
    pass


@dataclass(frozen=True, slots=True)
class Noted:
    """One line that the user should see."""

    text: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What will be loaded, and why, in place of what was planned before."""

    text: str


@dataclass(frozen=True, slots=True)
class Opened:
    status: StatusLike
    n_ctx: int
    note: str


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """Nothing is loaded now. ``cancelled``: because the user wanted that."""

    message: str
    hint: str = ""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Began:
    """The prompt of answer ``id`` is ready; ``n_dropped`` messages had no room in it.
    ``is_thinking``: the prompt ends with an opening thinking tag."""

    id: int
    n_dropped: int
    seed: int | None
    is_thinking: bool


@dataclass(frozen=True, slots=True)
class Reading:
    id: int
    prefill: Prefill


@dataclass(frozen=True, slots=True)
class Stepped:
    """``seconds``: the wall clock of this step, without the time we spent reading events."""

    id: int
    step: Step
    seconds: float
    baseline_step_s: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    id: int
    finished: Finished
    status: StatusLike


@dataclass(frozen=True, slots=True)
class AnswerFailed:
    """The answer ended in an error. ``is_fatal``: the model must be loaded again."""

    id: int
    message: str
    hint: str = ""
    is_fatal: bool = False


@dataclass(frozen=True, slots=True)
class StatusChanged:
    status: StatusLike


@dataclass(frozen=True, slots=True)
class Counted:
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens in the target's cache, and bytes of memory of this process (None if unknown)."""

    n_used: int
    n_bytes: int | None


Told = (
    LoadStarted | LoadAdvanced | LoadFinished | Noted | Planned | Opened | OpenFailed | Began
    | Reading | Stepped | Ended | AnswerFailed | StatusChanged | Counted | Usage
)  # fmt: skip
