"""Scripted stand-ins for models and drafters: they satisfy the protocols without llama.cpp, count
what is asked of them, and fail on demand. Tests and the replay bench drive the real engine with
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.errors import DecodeError
from localspec.spec.drafter import Dist, Draft, More, Offer, Row, Sampler
from localspec.spec.race import Race

NextRow = Callable[[Sequence[int]], Row]
"""Logits after a prefix of tokens."""


def sure(n_vocab: int, token: int) -> Row:
    """Logits of a model that says ``token`` and nothing else."""
    row = np.full(n_vocab, -30.0, dtype=np.float32)
    row[token] = 0.0
    return row


def says(n_vocab: int, text: Sequence[int]) -> NextRow:
    """A model that, whatever came before, has ``text[i]`` at position i."""
    return lambda prefix: sure(n_vocab, text[len(prefix) % len(text)])


class FakeDecoder:
    """A ``Decoder`` whose logits come from a function of the whole prefix.

    ``can_roll_back`` False imitates a recurrent model. ``fail_at``: numbers of decode calls that
    raise DecodeError. ``max_rollback``: deepest removal that works (a sliding window).
    """

    def __init__(
        self,
        n_vocab: int,
        next_row: NextRow,
        *,
        n_ctx: int = 4096,
        can_roll_back: bool = True,
        max_rollback: int | None = None,
        fail_at: Sequence[int] = (),
    ) -> None:
        self.n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.can_roll_back = can_roll_back
        self.max_rollback = max_rollback
        self.n_decodes = 0
        self.widths: list[int] = []
        self._fail_at = set(fail_at)
        self._next_row = next_row
        self._tokens: list[int] = []
        self._rows: list[Row] = []

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        self.n_decodes += 1
        if self.n_decodes in self._fail_at:
            raise DecodeError("this decode was told to fail")
        if not tokens or len(self._tokens) + len(tokens) > self.n_ctx:
            raise DecodeError(f"{len(tokens)} tokens do not fit")
        if any(not 0 <= token < self.n_vocab for token in tokens):
            raise DecodeError("token outside the vocabulary")
        self._tokens.extend(tokens)
        self.widths.append(len(tokens))
        n = len(self._tokens)
        self._rows = [self._next_row(self._tokens[: n - n_rows + i + 1]) for i in range(n_rows)]

    def row(self, index: int) -> Row:
        return self._rows[index]

    def rollback(self, n_keep: int) -> bool:
        n_removed = len(self._tokens) - n_keep
        if n_removed < 0:
            return False
        too_deep = self.max_rollback is not None and n_removed > self.max_rollback
        if n_removed and n_keep and (not self.can_roll_back or too_deep):
            return False
        del self._tokens[n_keep:]
        self._rows = []
        return True

    def n_to_read_again(self, n_keep: int) -> int:
        n_removed = len(self._tokens) - n_keep
        too_deep = self.max_rollback is not None and n_removed > self.max_rollback
        return n_keep if n_removed > 0 and (not self.can_roll_back or too_deep) else 0

    def clear(self) -> None:
        self._tokens.clear()
        self._rows = []


class FakeSampler:
    """A ``Sampler`` with temperature, and perhaps a seed, only; remembers what it was told."""

    def __init__(self, temperature: float = 0.0, seed: int | None = None) -> None:
        self.temperature = temperature
        self.greedy = temperature <= 0
        self.seed = seed
        self.seeded = seed is not None
        self.accepted: list[int] = []

    def best(self, row: Row) -> int:
        return int(row.argmax())

    def distribution(self, row: Row) -> Dist:
        logits = row.astype(np.float64) / self.temperature
        probs = np.exp(logits - logits.max())
        return Dist(np.arange(len(row), dtype=np.int32), probs / probs.sum())

    def draw(self, dist: Dist) -> int:
        assert self.seed is not None
        return Race(self.seed).winner(dist, len(self.accepted))

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def fork(self) -> FakeSampler:
        copy = FakeSampler(self.temperature, self.seed)
        copy.accepted = list(self.accepted)
        return copy


class FakeDrafter:
    """A ``Drafter`` that proposes what ``guess(tokens)`` returns (a point mass)."""

    def __init__(
        self, guess: Callable[[Sequence[int]], Sequence[int]], name: str = "scripted"
    ) -> None:
        self.name = name
        self.tokens: list[int] = []
        self._guess = guess

    def begin(self, tokens: Sequence[int], sampler: Sampler) -> None:  # noqa: ARG002
        self.tokens = list(tokens)

    def offer(self) -> Offer | None:
        return Offer(self.name, evidence=1)

    def propose(self, limit: int, more: More, cancelled: Callable[[], bool]) -> Draft:  # noqa: ARG002
        tokens = list(self._guess(self.tokens))[:limit]
        return Draft(tokens, [1.0] * len(tokens))

    def read(self, limit: int, cancelled: Callable[[], bool]) -> None:
        """It misses nothing."""

    def commit(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def costs(self) -> tuple[float, int, float, int]:
        return 0.0, 1, 0.0, 0


class FakeVocabulary:
    """Token ``i`` is the bytes ``pieces[i]``; the ids in ``ends`` end an answer."""

    def __init__(self, pieces: Sequence[bytes], ends: Sequence[int] = ()) -> None:
        self._pieces = list(pieces)
        self._ends = set(ends)

    def piece(self, token: int) -> bytes:
        return b"" if token in self._ends else self._pieces[token]

    def is_end(self, token: int) -> bool:
        return token in self._ends
