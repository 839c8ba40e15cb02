"""A scripted session: answers what it is told, at the pace it is told, and fails on demand.

It satisfies ``inference.SessionLike`` without llama.cpp and notices what must never happen: two
calls at once. Tests, the soak and the screenshot use it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from localspec import chat
from localspec.config import Config, Mode
from localspec.files import Cancelled, Progress
from localspec.memory import Plan, PlanView
from localspec.messages import Message, Prompt
from localspec.provenance import Source
from localspec.spec.events import PLAIN, Event, Finished, Prefill, Step
from localspec.spec.sampling import Sampling
from localspec.spec.stats import Stats


@dataclass(frozen=True, slots=True)
class ScriptedStatus:
    """Like ``session.Status``."""

    model: str = "tiny-target.gguf"
    draft: str | None = "tiny-draft.gguf"
    mode: Mode = "draft"
    reason: str = "automatic: draft model and lookup, chosen step by step by what pays"
    exactness: str = "the same distribution as the target alone"
    profile: str = "cpu"
    n_ctx: int = 4096
    n_threads: int = 2


class OverlapError(AssertionError):
    """Two threads were in one session at once."""


@dataclass
class Script:
    """What a session does.

    ``answer``: the words of the answer to a list of messages. ``accepted``: for each step in turn
    (again and again) how many of ``n_draft`` tokens are accepted; None: a step without a draft.
    Delays in seconds. ``fail``: raised by the next answer after ``fail_after`` steps, once.
    """

    answer: Callable[[Sequence[Message]], Sequence[str]] = lambda messages: words(
        f"You said: {messages[-1].content}"
    )
    accepted: Sequence[int | None] = (3, 1, None, 4, 0)
    n_draft: int = 4
    step_s: float = 0.0
    prefill_s: float = 0.0
    n_prefill: int = 4
    load_s: float = 0.0
    baseline_step_s: float | None = 0.05
    fail: Exception | None = None
    fail_after: int = 2
    fail_open: Exception | None = None
    notes: Sequence[str] = ()
    plan: Plan | None = None
    status: ScriptedStatus = field(default_factory=ScriptedStatus)
    template_note: str = ""
    prompt_end: str = ""
    asked: list[list[Message]] = field(default_factory=list)
    samplings: list[Sampling] = field(default_factory=list)
    sources: list[Source | None] = field(default_factory=list)
    opened: list[Config] = field(default_factory=list)
    n_closed: int = 0
    load_gate: threading.Event | None = None
    """If set, half of the download waits until it is set (or the loading is stopped)."""
    gate: threading.Event | None = None
    """If set, each step waits until it is set (or the answer is cancelled)."""


def words(text: str) -> list[str]:
    """``text`` as tokens: each word with the white space before it."""
    tokens: list[str] = []
    for character in text:
        starts = character.isspace() and tokens and not tokens[-1].isspace()
        if starts or not tokens:
            tokens.append(character)
        else:
            tokens[-1] += character
    return tokens


class _Template:
    def __init__(self, script: Script) -> None:
        self._script = script

    @property
    def note(self) -> str:
        return self._script.template_note

    def prompt_for(self, messages: Sequence[Message]) -> Prompt:
        text = "".join(f"<{m.role}>{m.content}" for m in messages)
        return Prompt(text + self._script.prompt_end, False)


class ScriptedSession:
    """A ``SessionLike`` that follows a ``Script``; tokens are words."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._inside = threading.Lock()
        self.status = script.status
        self.template = _Template(script)
        self._n_used = 0
        self._is_closed = False

    @property
    def n_ctx(self) -> int:
        return self.status.n_ctx

    @property
    def n_used(self) -> int:
        return self._n_used

    @property
    def baseline_step_s(self) -> float | None:
        return self._script.baseline_step_s

    def tokenize(self, prompt: Prompt) -> list[int]:
        return list(range(len(prompt.text.split())))

    def fit(
        self, messages: Sequence[Message], n_reserve: int, n_dropped: int = 0
    ) -> tuple[list[Message], int]:
        count = lambda turns: len(self.tokenize(self.template.prompt_for(turns)))  # noqa: E731
        return chat.fit(messages, max(1, self.n_ctx - n_reserve), count, n_dropped=n_dropped)

    def set_mode(self, mode: Mode, draft_max: int | None = None) -> None:
        with self._alone():
            in_force: Mode = "draft" if mode == "auto" else mode
            self.status = replace(self.status, mode=in_force, reason=f"asked for: {mode}")
            if draft_max is not None:
                self._script.n_draft = draft_max

    def close(self) -> None:
        with self._alone():
            self._is_closed = True
            self._script.n_closed += 1

    def ask(
        self,
        prompt: Sequence[Message],
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        cancelled: Cancelled = lambda: False,
        source: Source | None = None,
    ) -> Iterator[Event]:
        self._script.sources.append(source)
        with self._alone():
            if self._is_closed:
                raise OverlapError("the session is closed")
            self._script.asked.append(list(prompt))
            self._script.samplings.append(sampling)
            yield from self._answer(prompt, max_tokens, cancelled)

    def _answer(
        self, prompt: Sequence[Message], max_tokens: int | None, cancelled: Cancelled
    ) -> Iterator[Event]:
        script = self._script
        stats = Stats(n_prompt=len(self.tokenize(self.template.prompt_for(prompt))))
        stats.baseline_step_s = script.baseline_step_s
        for part in range(script.n_prefill):
            yield Prefill(stats.n_prompt * part // script.n_prefill, stats.n_prompt, 0)
            if not _wait(script.prefill_s / script.n_prefill, cancelled):
                yield Finished("cancelled", stats, detail="cancelled")
                return
        stats.prompt_s = stats.first_token_s = script.prefill_s
        tokens = list(script.answer(prompt))
        is_cut = max_tokens is not None and len(tokens) > max_tokens
        tokens = tokens[:max_tokens]
        for number, step in enumerate(self._steps(tokens)):
            if script.fail is not None and number == script.fail_after:
                error, script.fail = script.fail, None
                raise error
            if not _wait(script.step_s, cancelled, script.gate):
                yield Finished("cancelled", stats, detail="cancelled")
                return
            stats.add(step)
            stats.generate_s += 0.0 if step.is_first else step.draft_s + step.verify_s
            self._n_used = stats.n_prompt + stats.n_tokens
            yield step
        if is_cut:
            yield Finished("length", stats, detail="max tokens")
        else:
            yield Finished("stop", stats, detail="end of text")

    def _steps(self, tokens: Sequence[str]) -> Iterator[Step]:
        drafts, names = itertools.cycle(self._script.accepted), itertools.cycle(["draft", "lookup"])
        position = 0
        while position < len(tokens):
            wanted = next(drafts) if position else None
            n_accepted = min(wanted or 0, len(tokens) - position - 1)
            n_draft = 0 if wanted is None else max(n_accepted, self._script.n_draft)
            texts = tuple(tokens[position : position + n_accepted + 1])
            yield Step(
                tokens=tuple(range(position, position + len(texts))),
                texts=texts,
                n_drafted=n_draft,
                n_verified=n_draft,
                n_accepted=n_accepted,
                drafter=next(names) if n_draft else PLAIN,
                draft_s=0.004 * n_draft,
                verify_s=0.05,
                reason="as scripted",
                is_first=position == 0,
            )
            position += len(texts)

    def _alone(self) -> _Alone:
        return _Alone(self._inside)


class _Alone:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise OverlapError("two calls at once in one session")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _wait(seconds: float, cancelled: Cancelled, gate: threading.Event | None = None) -> bool:
    """Whether the time passed (and the gate opened) without a cancel."""
    until = time.monotonic() + seconds
    while not cancelled():
        left = until - time.monotonic()
        if left <= 0 and (gate is None or gate.is_set()):
            return True
        time.sleep(min(max(left, 0.001), 0.005))
    return False


class ScriptedOpener:
    """An ``inference.Opener`` of scripted sessions; ``sessions`` are those it made."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sessions: list[ScriptedSession] = []

    def __call__(self, config: Config, progress: Progress, cancelled: Cancelled) -> ScriptedSession:
        script = self.script
        script.opened.append(config)
        for text in script.notes:
            progress.note(text)
        if script.plan is not None and isinstance(progress, PlanView):
            progress.planned(script.plan)
        n_bytes = 1000 * 1024 * 1024
        progress.start(f"Downloading {script.status.model}", n_bytes)
        for part in range(10):
            gate = script.load_gate if part == 5 else None
            if not _wait(script.load_s / 10, cancelled, gate):
                raise KeyboardInterrupt
            progress.advance(n_bytes // 10)
        progress.finish()
        progress.start(f"Loading {script.status.model}", None)
        progress.finish()
        if script.fail_open is not None:
            error, script.fail_open = script.fail_open, None
            raise error
        session = ScriptedSession(script)
        if config.mode != "auto":
            session.set_mode(config.mode, config.draft_max)
        self.sessions.append(session)
        return session
