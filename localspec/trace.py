"""The record of every step, as JSON lines in a file of the user's (``--trace FILE``).

One line begins an answer (``"type": "answer"``: the prompt's tokens and what is in force), one for
each step says who drafted, what was accepted, what it cost and why it was chosen, and one ends it.
``bench.replay`` reads these files. They hold the text (as token ids), so only the owner may read
them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from localspec.errors import UsageError
from localspec.spec.events import Event, Finished, Step

VERSION = 1


class InForce(Protocol):
    """What a trace says about a session (``session.Status`` is one)."""

    @property
    def model(self) -> str:
        """The target's name."""

    @property
    def draft(self) -> str | None:
        """The draft's name."""

    @property
    def mode(self) -> str:
        """The mode in force."""

    @property
    def reason(self) -> str:
        """Why it is."""

    @property
    def n_threads(self) -> int:
        """CPU threads."""


class Trace:
    """Writes to ``path``, replacing what was there. Raises UsageError when that is not possible.

    A disk that is full in the middle of an answer ends the record, not the answer; ``failure``
    then says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure = ""
        self._step = 0
        self._stream: TextIO | None = None
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._stream = os.fdopen(handle, "w", encoding="utf-8", newline="\n")
            if stat.S_ISREG(os.fstat(handle).st_mode):
                with suppress(OSError):  # a file that was there before may have been readable
                    path.chmod(0o600)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"the trace cannot be written to {path}: {why}") from error

    def begin(
        self, tokens: Sequence[int], status: InForce, temperature: float, seed: int | None
    ) -> None:
        """An answer to the prompt ``tokens`` begins."""
        self._step = 0
        self._write(
            {
                "type": "answer",
                "version": VERSION,
                "model": status.model,
                "draft": status.draft,
                "mode": status.mode,
                "mode_reason": status.reason,
                "n_threads": status.n_threads,
                "temperature": temperature,
                "seed": seed,
                "prompt": list(tokens),
            }
        )

    def add(self, event: Event) -> None:
        """Record one event of the answer."""
        if isinstance(event, Step):
            self._write(_step(event, self._step))
            self._step += 1
        elif isinstance(event, Finished):
            self._write(_finished(event))
            self._flush()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the record. Safe to repeat."""
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError as error:
                self._fail(error)

    def _write(self, value: dict[str, Any]) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(value, ensure_ascii=False) + "\n")
        except OSError as error:
            self._fail(error)

    def _flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        stream, self._stream = self._stream, None
        self.failure = f"the trace {self.path} ends early: {error.strerror or error}"
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _step(step: Step, number: int) -> dict[str, Any]:
    value: dict[str, Any] = {
        "type": "step",
        "step": number,
        "first": step.is_first,
        "tokens": list(step.tokens),
        "drafter": step.drafter,
        "drafted": step.n_drafted,
        "verified": step.n_verified,
        "accepted": step.n_accepted,
        "emitted": len(step.tokens),
        "draft_s": step.draft_s,
        "verify_s": step.verify_s,
        "reason": step.reason,
    }
    measured = step.measured
    if measured is not None:
        value |= {
            "width": measured.width,
            "evidence": measured.evidence,
            "promised": [round(chance, 4) for chance in measured.promised],
            "draft_decodes": measured.n_draft_decodes,
            "catchup_s": measured.catchup_s,
            "caught_up": measured.n_catchup,
            "context": measured.n_context,
        }
    return value


def _finished(event: Finished) -> dict[str, Any]:
    stats = event.stats
    return {
        "type": "finished",
        "reason": event.reason,
        "detail": event.detail,
        "n_prompt": stats.n_prompt,
        "n_reused": stats.n_reused,
        "n_tokens": stats.n_tokens,
        "n_steps": stats.n_steps,
        "prompt_s": stats.prompt_s,
        "first_token_s": stats.first_token_s,
        "generate_s": stats.generate_s,
        "baseline_step_s": stats.baseline_step_s,
    }
