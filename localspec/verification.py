"""A self-check: does drafting change what the model says?

Greedy: the same prompts are answered plainly, token by token, and with each way of drafting. Texts
may fork only where the plain run's two best tokens were nearly equal: there the number of rows in a
decode, through rounding, may tip the scale.

Sampled: answers are drawn with each way of drafting, then the target alone is asked how probable
each of their tokens was. If tokens are drawn from p, then the probability mass before a token plus
a random part of its own is uniform on [0, 1] (Rosenblatt 1952); a Kolmogorov-Smirnov test says
whether it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.chat import Message
from localspec.config import Mode
from localspec.llama.context import Context
from localspec.llama.probe import width_differences
from localspec.llama.sampler import Chain
from localspec.session import FIXED_LENGTH, Session
from localspec.spec.drafter import MAX_WIDTH
from localspec.spec.events import Step
from localspec.spec.sampling import Sampling

NEAR_TIE = 0.5
"""Largest gap between the two best logits at which rounding may decide."""
SUSPICIOUS = 1e-4
"""A smaller p-value twice in a row is a violation."""
MIN_PLACES = 100
ENOUGH = 200
"""Sampled tokens that a test needs; short answers are drawn more often, up to ``MAX_PASSES``."""
MAX_PASSES = 5
PROBED_WIDTH = 8

GREEDY = Sampling(temperature=0.0, seed=1)
DOUBTFUL = Sampling(temperature=1.3, top_k=40, top_p=1.0, min_p=0.0)
"""Hot, so that tokens are rarely certain: a certain token tells nothing about how it was drawn.
Without a seed, which would pick the tokens by itself."""

PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Correct the spelling and repeat the whole text: The quik brown fox jumpd over the lazzy dog "
    "and than it ran into the forrest, were it met an other fox that was quik and brown too.",
    "Explain in a few sentences why the sky is blue.",
    'Turn this into JSON with the keys "name", "age" and "city": Anna is 31 and lives in Oslo.',
    "List the planets of the solar system with one fact about each.",
    "Rename the variable x to total and print the whole code again:\n"
    "def add(values):\n    x = 0\n    for value in values:\n        x = x + value\n    return x\n",
    "Translate to German: The meeting was moved to Thursday because the train was late.",
    "Write a short poem about the sea.",
    "Write the SQL to create a table of books with title, author and year, and three inserts.",
    "What is the difference between a list and a tuple in Python?",
    "Give me a recipe for pancakes.",
    "Write a shell command that finds all files larger than 10 MB and sorts them by size.",
)


@dataclass(frozen=True, slots=True)
class GreedyResult:
    """One prompt, one mode. ``first_difference``: the answer token where the texts fork, None if
    they are identical; ``gap`` between the plain run's two best logits there."""

    prompt: int
    mode: str
    n_tokens: int
    n_verified: int
    first_difference: int | None
    gap: float | None

    @property
    def is_violation(self) -> bool:
        """Whether it differs where the model was sure."""
        return self.gap is not None and self.gap >= NEAR_TIE


@dataclass(frozen=True, slots=True)
class SampledResult:
    """One mode: how well ``n_tokens`` drawn tokens fit the target's own distributions."""

    mode: str
    n_tokens: int
    n_verified: int
    p_value: float
    again: float | None
    """The p-value of a second round, where the first was suspicious."""

    @property
    def is_violation(self) -> bool:
        """Whether two rounds in a row fit too badly."""
        return self.again is not None and max(self.p_value, self.again) < SUSPICIOUS


@dataclass(slots=True)
class Verification:
    """All that was found. ``widths``: largest logit difference by rows per decode, None where it
    cannot be measured."""

    greedy: list[GreedyResult] = field(default_factory=list)
    sampled: list[SampledResult] = field(default_factory=list)
    widths: dict[int, float] | None = None

    @property
    def n_violations(self) -> int:
        """Results that cannot be explained by rounding or chance."""
        return sum(r.is_violation for r in self.greedy) + sum(r.is_violation for r in self.sampled)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is decoded."""

    n_prompts: int
    n_greedy: int
    n_sampled: int


QUICK = Effort(n_prompts=4, n_greedy=48, n_sampled=64)
THOROUGH = Effort(n_prompts=len(PROMPTS), n_greedy=128, n_sampled=192)


class Verifying:
    """Runs the checks on a loaded session; ``note`` is told what comes next."""

    def __init__(
        self,
        session: Session,
        effort: Effort = QUICK,
        note: Callable[[str], None] = lambda _text: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session = session
        self._effort = effort
        self._note = note
        self._cancelled = cancelled
        self._context = session.target_context
        self._prompts = PROMPTS[: effort.n_prompts]

    def run(self, modes: Sequence[Mode]) -> Verification:
        """Raises KeyboardInterrupt when cancelled."""
        found = Verification()
        if not modes:
            return found
        for number, prompt in enumerate(self._prompts, start=1):
            self._note(f"greedy: prompt {number} of {len(self._prompts)}")
            found.greedy += self._greedy(number, prompt, modes)
        for mode in modes:
            self._note(f"sampled: {mode}")
            found.sampled.append(self._sampled(mode))
        self._note("rounding by rows per decode")
        found.widths = width_differences(self._context, PROBED_WIDTH, self._cancelled)
        return found

    # -- greedy ---------------------------------------------------------------------------------

    def _greedy(self, number: int, prompt: str, modes: Sequence[Mode]) -> list[GreedyResult]:
        plain, gaps = self._plain(prompt)
        results = []
        for mode in modes:
            tokens, n_verified = self._answer(prompt, mode, GREEDY, self._effort.n_greedy)
            fork = next(
                (i for i, (a, b) in enumerate(zip(plain, tokens, strict=False)) if a != b), None
            )
            if fork is None and len(plain) != len(tokens):
                fork = min(len(plain), len(tokens))
            gap = None
            if fork is not None:
                gap = gaps[fork] if fork < len(gaps) else math.inf
            results.append(GreedyResult(number, mode, len(tokens), n_verified, fork, gap))
        return results

    def _tokens(self, prompt: str) -> list[int]:
        session = self._session
        return session.tokenize(session.template.prompt_for([Message("user", prompt)]))

    def _plain(self, prompt: str) -> tuple[list[int], list[float]]:
        """(answer, gap at each of its tokens), decoded here one by one, without the engine."""
        context, model = self._context, self._session.target_model
        text = self._tokens(prompt)
        _read(context, text)
        answer: list[int] = []
        gaps: list[float] = []
        while len(answer) < self._effort.n_greedy:
            self._stop_if_cancelled()
            row = context.row(0).copy()
            token = int(row.argmax())
            best = float(row[token])
            row[token] = -np.inf
            answer.append(token)
            gaps.append(best - float(row.max()))
            if model.is_end(token) or len(context.tokens) >= context.n_ctx:
                break
            context.decode([token], 1)
        return answer, gaps

    def _answer(
        self, prompt: str, mode: Mode, sampling: Sampling, max_tokens: int
    ) -> tuple[list[int], int]:
        """(answer, draft tokens verified) with a way of drafting."""
        session = self._session
        # What is left in the cache would cut the prompt into other pieces, which rounds otherwise.
        self._context.clear()
        session.set_mode(mode, FIXED_LENGTH[mode])
        tokens: list[int] = []
        n_verified = 0
        for event in session.ask(
            [Message("user", prompt)], sampling, max_tokens=max_tokens, cancelled=self._cancelled
        ):
            if isinstance(event, Step):
                tokens += event.tokens
                n_verified += event.n_verified
        self._stop_if_cancelled()
        return tokens, n_verified

    def _stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise KeyboardInterrupt

    # -- sampled --------------------------------------------------------------------------------

    def _sampled(self, mode: Mode) -> SampledResult:
        p_value, n_tokens, n_verified = self._round(mode)
        again = None
        if p_value < SUSPICIOUS:
            again, more_tokens, more_verified = self._round(mode)
            n_tokens, n_verified = n_tokens + more_tokens, n_verified + more_verified
        return SampledResult(mode, n_tokens, n_verified, p_value, again)

    def _round(self, mode: Mode) -> tuple[float, int, int]:
        rng = np.random.default_rng()
        places: list[float] = []
        n_verified = 0
        for _ in range(MAX_PASSES):
            for prompt in self._prompts:
                answer, verified = self._answer(prompt, mode, DOUBTFUL, self._effort.n_sampled)
                n_verified += verified
                places += self._places(self._tokens(prompt), answer, DOUBTFUL, rng)
            if len(places) >= ENOUGH:
                break
        return uniform_p_value(places), len(places), n_verified

    def _places(
        self, prompt: list[int], answer: Sequence[int], sampling: Sampling, rng: np.random.Generator
    ) -> list[float]:
        """Where each token of ``answer`` lies in the target's own distribution, from 0 to 1."""
        context = self._context
        _read(context, prompt)
        chain = Chain(self._session.target_model, sampling, prompt)
        places = []
        rows = 0
        for index, token in enumerate(answer):
            self._stop_if_cancelled()
            if index > 0 and index - 1 >= rows:
                chunk = answer[rows : rows + MAX_WIDTH]
                context.decode(chunk, len(chunk))
                rows += len(chunk)
            row = context.row(0 if index == 0 else (index - 1) % MAX_WIDTH)
            dist = chain.distribution(row)
            p = dist.of(token)
            before = float(dist.probs[dist.probs > p].sum())
            places.append(min(1.0, before + float(rng.random()) * p))
            chain.accept(token)
        chain.close()
        return places


def _read(context: Context, tokens: list[int]) -> None:
    """``tokens`` into the empty cache, in the pieces in which the engine reads a prompt."""
    context.clear()
    for start in range(0, len(tokens), context.n_batch):
        chunk = tokens[start : start + context.n_batch]
        context.decode(chunk, 1 if start + len(chunk) == len(tokens) else 0)


def uniform_p_value(places: Sequence[float]) -> float:
    """p-value of a Kolmogorov-Smirnov test that ``places`` are uniform on [0, 1].

    Asymptotic distribution with the correction of Stephens 1970 for small samples. 1 when there
    are too few to tell.
    """
    n = len(places)
    if n < MIN_PLACES:
        return 1.0
    ordered = np.sort(np.asarray(places))
    above = float((np.arange(1, n + 1) / n - ordered).max())
    below = float((ordered - np.arange(n) / n).max())
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * max(above, below)
    if scaled < 0.2:
        return 1.0  # the series below converges slowly there, to 1
    terms = ((2.0 if k % 2 else -2.0) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 30))
    return min(1.0, max(0.0, sum(terms)))


def modes_of(session: Session) -> list[Mode]:
    """The ways of drafting that can be checked here."""
    wanted: list[Mode] = ["lookup", "draft", "auto"]
    found: list[Mode] = []
    before = session.status.mode
    for mode in wanted:
        session.set_mode(mode)
        if session.status.mode != "off" and (mode != "draft" or session.status.mode == "draft"):
            found.append(mode)
    session.set_mode(before)
    return found
