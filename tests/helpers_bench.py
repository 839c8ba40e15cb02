"""A session whose decodes cost what a curve says, on a clock of its own: every figure that the
bench shows is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from localspec.benchmark import BenchPrompt
from localspec.chat import Message, Template
from localspec.config import Config, Mode
from localspec.errors import DecodeError
from localspec.session import Status
from localspec.spec.drafter import Drafter, Pacer
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Event
from localspec.spec.fakes import FakeDecoder, FakeDrafter, FakeSampler, FakeVocabulary, says
from localspec.spec.fixed_pacers import FixedPacer, PlainPacer
from localspec.spec.sampling import Sampling

N_VOCAB = 40
PROMPT = [5, 6, 7, 8]
COPY = BenchPrompt("edit-a", "edit", "copy")
OTHER = BenchPrompt("story-b", "creative", "story")
WRONG = 39


class Clock:
    """Seconds that pass only when something is spent."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CostlyDecoder(FakeDecoder):
    """A decode of n tokens takes ``cost(n)`` seconds; ``sets`` remembers thread counts."""

    def __init__(self, clock: Clock, cost: Callable[[int], float], **options: Any) -> None:
        answer = [3 + i % 30 for i in range(200)]
        super().__init__(N_VOCAB, says(N_VOCAB, [*PROMPT, *answer]), **options)
        self._clock, self._cost = clock, cost
        self.n_batch = 512

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        super().decode(tokens, n_rows)
        self._clock.now += self._cost(len(tokens))


class CostlySession:
    """``off`` costs one second a token; ``lookup`` is right with its three tokens, ``draft`` never.

    ``stop_after``: decodes after which Ctrl-C is pressed. ``slower``: factor by which each answer
    is slower than the one before (a machine that gets hot). ``fail_at``: decode that fails.
    """

    def __init__(
        self, cost: Callable[[int], float] | None = None, *, modes: Sequence[Mode] = ("lookup",)
    ) -> None:
        self.clock = Clock()
        self.template = Template("{{ messages[-1].content }}")
        self.cost = cost or (lambda n: 1.0 if n < 4 else 1.5)
        self.factor = 1.0
        self.slower = 1.0
        self.fail_at: int | None = None
        self.stop_after: int | None = None
        self.n_asked = 0
        self.n_cleared = 0
        self.asked: list[tuple[str, Mode, int | None]] = []
        self.closed = False
        self.config: Config | None = None
        self._modes = modes
        self._mode: Mode = "off"
        self.target = CostlyDecoder(self.clock, lambda n: self.factor * self.cost(n))

    @property
    def status(self) -> Status:
        reason = "asked for" if self._mode in ("off", *self._modes) else "no draft model"
        mode: Mode = self._mode if self._mode in ("off", *self._modes) else "lookup"
        return Status("big <&> one.gguf", "small.gguf", mode, reason, "cpu", 256, 2)

    @property
    def target_context(self) -> CostlyDecoder:
        return self.target

    def tokenize(self, prompt: Any) -> list[int]:
        return PROMPT

    def set_mode(self, mode: Mode, draft_max: int | None = None) -> None:
        self._mode = mode

    def clear(self) -> None:
        self.n_cleared += 1
        self.target.clear()

    def interrupted(self) -> bool:
        return self.stop_after is not None and self.target.n_decodes >= self.stop_after

    def ask(
        self,
        prompt: Sequence[Message] | str,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Event]:
        assert not isinstance(prompt, str)
        assert not self.target.tokens, "the cache was not cleared"
        self.asked.append((str(prompt[-1].content), self._mode, sampling.seed))
        self.n_asked += 1
        self.factor *= self.slower
        engine = Engine(
            self.target, FakeVocabulary([b"x"] * N_VOCAB), self._drafters(), self._pacer(),
            clock=self.clock,
        )  # fmt: skip
        request = Request(
            PROMPT, FakeSampler(), np.random.default_rng(1), max_tokens,
            cancelled=lambda: cancelled() or self.interrupted(),
        )  # fmt: skip
        if self.fail_at is not None and self.n_asked >= self.fail_at:
            raise DecodeError("llama.cpp could not decode 1 tokens at position 4")
        yield from engine.generate(request)

    def _drafters(self) -> list[Drafter]:
        right = lambda tokens: [3 + (len(tokens) - 4 + i) % 30 for i in range(3)]  # noqa: E731
        wrong = lambda _: [WRONG] * 3  # noqa: E731
        return {
            "lookup": [FakeDrafter(right, "lookup")],
            "draft": [FakeDrafter(wrong, "draft")],
            "auto": [FakeDrafter(right, "lookup")],
        }.get(self._mode, [])  # type: ignore[return-value]

    def _pacer(self) -> Pacer:
        if self._mode == "off":
            return PlainPacer()
        return FixedPacer("draft" if self._mode == "draft" else "lookup", 3)

    def close(self) -> None:
        self.closed = True
