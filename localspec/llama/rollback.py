"""Taking rejected tokens back out of a context's memory: one policy for each kind of memory.

Attention forgets any tail. A sliding window does, while the window is still there. A recurrent
layer has only its latest state: some architectures keep the states of the last few tokens beside it
(``n_rs_seq``), for the others a state is saved before tokens are tried and put back afterwards.

llama.cpp's ``seq_rm`` answers True in cases where the state behind it is stale (a whole batch taken
back, several decodes taken back, a window that has moved on). So what it can do is counted here,
and its answer is only ever believed when it says no.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llama_cpp

from localspec.errors import DecodeError
from localspec.llama.keepers import SEQUENCE, Keeper, Memory, Snapshot, SpareSequence

MAX_KEPT_ROWS = 8
"""Most states to keep beside the latest one: as many tokens can be taken back without saving."""
_KEPT_SHARE = 0.1  # of the weights: more memory than that for states would be missed elsewhere

# Architectures whose recurrent states llama.cpp keeps for the last tokens (llama-arch.cpp,
# llm_arch_supports_rs_rollback). Only a guess to size the context by: what counts is what
# llama_n_rs_seq says about the context.
KEEPS_ROWS = frozenset(
    {
        "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h",
        "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
    }
)  # fmt: skip


class Policy:
    """How one context takes tokens back. This one, for plain attention, may cut anywhere."""

    name = "attention"
    can = True
    """Whether rejected drafts can be taken back at all."""
    reason = ""
    """Why not, where they cannot."""
    keeps_partial = True
    """Whether the memory is sound after a decode that was stopped half-way."""
    keeps_prompt_end = False
    """Whether the last token of a prompt is to be decoded apart, with ``prompt_ends`` before."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def before(self, n_tokens: int, n_rows: int) -> None:
        """Called before each decode. More than one row means that drafted tokens are tried."""

    def after(self, n_tokens: int) -> None:
        """Called after each decode that worked."""

    def prompt_ends(self) -> None:
        """Called when all of a prompt but its last token was decoded."""

    def settle(self, attempt: Callable[[], bool], clock: Callable[[], float]) -> bool:  # noqa: ARG002
        """Find out, once, whether this works. ``attempt()`` tries tokens, takes some back and says
        whether the state was right afterwards; ``clock`` gives seconds."""
        return attempt()

    def cleared(self) -> None:
        """Called when the memory was emptied."""

    def stands(self, n_keep: int) -> None:
        """Called after each rollback that worked: these tokens stand, others may come now."""

    def rollback(self, n_keep: int) -> bool:
        """Make the memory hold the first ``n_keep`` tokens (0 < n_keep < what it holds).

        False: that is not possible. The memory then holds what it did, or nothing.
        """
        return self._cut(n_keep)

    def n_to_read_again(self, n_keep: int) -> int:  # noqa: ARG002
        """Tokens that ``rollback(n_keep)`` would decode again; ``n_keep`` where it cannot be done,
        because all of them are to be read again then."""
        return 0

    def _cut(self, n_keep: int) -> bool:
        memory = self._memory.memory
        if not llama_cpp.llama_memory_seq_rm(memory, SEQUENCE, n_keep, -1):
            return False
        return int(llama_cpp.llama_memory_seq_pos_max(memory, SEQUENCE)) == n_keep - 1

    def _n_tokens(self) -> int:
        return len(self._memory.tokens)


class Window(Policy):
    """Sliding-window attention: cells that left the window may be gone.

    llama.cpp answers True to a cut that would need them back; the first position that is still
    there tells. ``n_swa``: the window, in tokens.
    """

    name = "sliding window"

    def __init__(self, memory: Memory, n_swa: int) -> None:
        super().__init__(memory)
        self._n_swa = n_swa

    def rollback(self, n_keep: int) -> bool:
        return self.holds(n_keep) and super().rollback(n_keep)

    def n_to_read_again(self, n_keep: int) -> int:
        return 0 if self.holds(n_keep) else n_keep

    def holds(self, n_keep: int) -> bool:
        """Whether everything that token ``n_keep`` looks at is still there."""
        first = int(llama_cpp.llama_memory_seq_pos_min(self._memory.memory, SEQUENCE))
        return first <= max(0, n_keep - self._n_swa + 1)


class Refuses(Policy):
    """A memory that takes nothing back."""

    name = "none"
    can = False
    keeps_partial = False

    def __init__(self, memory: Memory, reason: str) -> None:
        super().__init__(memory)
        self.reason = reason

    def rollback(self, n_keep: int) -> bool:  # noqa: ARG002
        return False

    def n_to_read_again(self, n_keep: int) -> int:
        return n_keep


# -- recurrent layers --------------------------------------------------------------------------


class Checkpoint(Policy):
    """Saves the state before drafted tokens are tried. To take some back, that state is restored
    and the tokens that stand are read again.

    ``token_by_token``: for a draft model, whose tokens come one decode each: the state is saved
    at the first row that is asked for after a rollback, because all before it stands.
    """

    keeps_partial = False

    def __init__(self, memory: Memory, keeper: Keeper, *, token_by_token: bool = False) -> None:
        super().__init__(memory)
        self.name = keeper.name
        self._keeper = keeper
        self._token_by_token = token_by_token
        self._fresh = True
        self._saved_at = 0  # tokens in the kept state; 0: none is kept

    def before(self, n_tokens: int, n_rows: int) -> None:  # noqa: ARG002
        tries = n_rows > 0 and self._fresh if self._token_by_token else n_rows > 1
        if tries:
            self.save()

    def save(self) -> None:
        """Keep the present state."""
        self._fresh = False
        n = self._n_tokens()
        self._saved_at = n if n and self._keeper.save() else 0

    def cleared(self) -> None:
        self._keeper.drop()
        self._saved_at = 0
        self._fresh = True

    def stands(self, n_keep: int) -> None:
        self._fresh = True
        if self._saved_at > n_keep:
            # What follows may be other tokens than the kept state has read.
            self._keeper.drop()
            self._saved_at = 0

    def rollback(self, n_keep: int) -> bool:
        start, memory = self._saved_at, self._memory
        if not 0 < start <= n_keep:
            return False
        # A snapshot lacks the attention part, which must still be there to be cut.
        if int(llama_cpp.llama_memory_seq_pos_max(memory.memory, SEQUENCE)) < start - 1:
            return False
        kept = list(memory.tokens[start:n_keep])
        try:
            if not self._keeper.restore(start):
                return self._lost()
            for at in range(0, len(kept), memory.n_batch):
                memory.decode_again(kept[at : at + memory.n_batch], start + at)
        except DecodeError:
            return self._lost()
        return True

    def n_to_read_again(self, n_keep: int) -> int:
        start = self._saved_at
        return n_keep - start if 0 < start <= n_keep else n_keep

    def _lost(self) -> bool:
        # Half-restored: whatever is there must not be used.
        llama_cpp.llama_memory_clear(self._memory.memory, False)
        self.cleared()
        return False


class Rows(Policy):
    """Recurrent memory with the states of the last ``n_rows`` tokens beside it.

    They are those of the last decode only, one of them must stay, and they can be used once:
    beyond that llama.cpp still says True and leaves a stale state. Wider drafts are covered by
    ``wide``.
    """

    name = "kept states"
    keeps_partial = False

    def __init__(self, memory: Memory, n_rows: int, wide: Checkpoint) -> None:
        super().__init__(memory)
        self.n_rows = n_rows
        self._wide = wide
        self._n_left = 0

    def before(self, n_tokens: int, n_rows: int) -> None:
        if n_rows - 1 > self.n_rows:
            self._wide.before(n_tokens, n_rows)

    def after(self, n_tokens: int) -> None:
        self._n_left = min(self.n_rows, n_tokens - 1)

    def cleared(self) -> None:
        self._n_left = 0
        self._wide.cleared()

    def stands(self, n_keep: int) -> None:
        self._wide.stands(n_keep)

    def rollback(self, n_keep: int) -> bool:
        n_left, self._n_left = self._n_left, 0
        if self._n_tokens() - n_keep <= n_left:
            return self._cut(n_keep)
        return self._wide.rollback(n_keep)

    def n_to_read_again(self, n_keep: int) -> int:
        if self._n_tokens() - n_keep <= self._n_left:
            return 0
        return self._wide.n_to_read_again(n_keep)


class Recurrent(Policy):
    """A memory with recurrent layers: one of several ways to take drafted tokens back, with two
    additions. A sliding window beside it may refuse. And the state at the end of the prompt is
    kept (``anchor``), so that an answer can be given again without reading the prompt again.
    """

    keeps_partial = False

    def __init__(
        self,
        memory: Memory,
        choices: Sequence[Policy],
        window: Window | None,
        anchor: Checkpoint | None,
    ) -> None:
        super().__init__(memory)
        self._choices = list(choices)
        self._way = self._choices[0]
        self._window = window
        self._anchor = anchor

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._way.name

    @property
    def keeps_prompt_end(self) -> bool:  # type: ignore[override]
        return self._anchor is not None

    def prompt_ends(self) -> None:
        if self._anchor is not None:
            self._anchor.save()

    def settle(self, attempt: Callable[[], bool], clock: Callable[[], float]) -> bool:
        """Use what costs least. ``attempt()`` tries tokens, takes some back and says whether the
        state was right afterwards. False: no way passed."""
        times: list[tuple[float, Policy]] = []
        for way in self._choices:
            self._way = way
            if not attempt():
                continue
            started = clock()
            if len(self._choices) > 1:
                attempt()  # once more, now that everything is warm
            times.append((clock() - started, way))
        if not times:
            return False
        self._way = min(times, key=lambda timed: timed[0])[1]
        return True

    def before(self, n_tokens: int, n_rows: int) -> None:
        self._way.before(n_tokens, n_rows)

    def after(self, n_tokens: int) -> None:
        self._way.after(n_tokens)

    def cleared(self) -> None:
        for part in (*self._choices, self._anchor):
            if part is not None:
                part.cleared()

    def stands(self, n_keep: int) -> None:
        for part in (self._way, self._anchor):
            if part is not None:
                part.stands(n_keep)

    def rollback(self, n_keep: int) -> bool:
        if self._window is not None and not self._window.holds(n_keep):
            return False
        if self._way.rollback(n_keep):
            return True
        return self._anchor is not None and self._anchor.rollback(n_keep)

    def n_to_read_again(self, n_keep: int) -> int:
        if self._window is not None and not self._window.holds(n_keep):
            return n_keep
        n = self._way.n_to_read_again(n_keep)
        return n if n < n_keep or self._anchor is None else self._anchor.n_to_read_again(n_keep)


# -- choosing --------------------------------------------------------------------------------


def rows_worth_keeping(architecture: str, state_bytes: int, weight_bytes: int) -> int:
    """How many recurrent states of ``state_bytes`` to keep (``n_rs_seq``). Where llama.cpp keeps
    none by itself, 1: for the copy that a checkpoint takes."""
    if architecture not in KEEPS_ROWS:
        return 1
    affordable = int(_KEPT_SHARE * weight_bytes / max(1, state_bytes))
    return max(1, min(MAX_KEPT_ROWS, affordable))


def n_sequences(architecture: str, is_recurrent: bool, token_by_token: bool) -> int:
    """Sequences to make a context with: a second one where it may have to keep a state."""
    keeps_rows = architecture in KEEPS_ROWS and not token_by_token
    return 2 if is_recurrent and not keeps_rows else 1


def choose(
    memory: Memory,
    *,
    is_recurrent: bool,
    n_swa: int,
    n_rs_seq: int,
    n_seq_max: int,
    token_by_token: bool,
) -> Policy:
    """The policy for a new context. ``n_rs_seq``: as the context has it, not as it was asked for.
    ``n_swa``: 0 for a model, or a cache, that forgets nothing."""
    window = Window(memory, n_swa) if n_swa > 0 else None
    if not is_recurrent and not n_rs_seq:
        return window or Policy(memory)
    snapshot = Checkpoint(memory, Snapshot(memory), token_by_token=token_by_token)
    choices: list[Policy] = [snapshot]
    if n_rs_seq and not token_by_token:
        choices = [Rows(memory, n_rs_seq, snapshot)]
    elif n_seq_max > 1:
        choices.append(Checkpoint(memory, SpareSequence(memory), token_by_token=token_by_token))
    anchor = None if token_by_token else Checkpoint(memory, Snapshot(memory))
    return Recurrent(memory, choices, window, anchor)
