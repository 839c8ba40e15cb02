"""The loop: prompt pass, then draft, verify, emit, until the answer ends.

``tokens`` is the committed sequence: prompt and answer. Between steps the target's cache holds all
of it but the last token, which is decoded together with the next draft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from localspec.errors import PromptError
from localspec.spec.drafter import (
    MAX_WIDTH,
    Choice,
    Decoder,
    Draft,
    Drafter,
    Interrupted,
    Measured,
    Offer,
    Pacer,
    Sampler,
)
from localspec.spec.events import PLAIN, Event, Finished, FinishReason, Prefill, Step
from localspec.spec.stats import Stats
from localspec.spec.text import TextStream
from localspec.spec.verify import Verifier, peak


class Vocabulary(Protocol):
    """What the engine needs to know about tokens."""

    def piece(self, token: int) -> bytes:
        """Its bytes; empty for control tokens."""

    def is_end(self, token: int) -> bool:
        """Whether it ends an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to give. ``max_tokens`` None: until the text ends or the context is full.
    ``temperature`` only informs the pacer; the sampler is what decides."""

    prompt: Sequence[int]
    sampler: Sampler
    rng: np.random.Generator
    max_tokens: int | None = None
    stops: Sequence[str] = ()
    temperature: float = 0.0
    cancelled: Callable[[], bool] = lambda: False


NO_ROLLBACK = "this model's memory cannot take back rejected tokens"


class Engine:
    """Answers one request at a time over one target context, which it keeps from answer to answer:
    what the next prompt shares with the cache is not decoded again."""

    def __init__(
        self,
        target: Decoder,
        vocabulary: Vocabulary,
        drafters: Sequence[Drafter],
        pacer: Pacer,
        *,
        n_chunk: int = 512,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._target = target
        self._vocabulary = vocabulary
        self.drafters = list(drafters)
        self.pacer = pacer
        self._n_chunk = n_chunk
        self._clock = clock
        self.max_width = MAX_WIDTH
        """Most rows of one decode: 1 + the longest draft."""
        self.reuses_cache = True
        """Whether a prompt is read only from where it differs from the cache. Off, the same prompt
        is always read in the same pieces, and thus rounds the same."""
        self.broken = ""
        """Why nothing is drafted any more although drafters are there; empty while all is well."""

    def generate(self, request: Request) -> Iterator[Event]:
        """Yield ``Prefill``, then ``Step`` events, then exactly one ``Finished``.

        Raises PromptError for a prompt that is empty or does not fit, DecodeError when llama.cpp
        fails. The generator may be closed at any point; the next request then starts cleanly.
        """
        n_prompt = len(request.prompt)
        if n_prompt == 0:
            raise PromptError("the prompt is empty", hint="Give some text to answer.")
        if n_prompt > self._target.n_ctx:
            raise PromptError(
                f"the prompt has {n_prompt} tokens, more than the context of {self._target.n_ctx}",
                hint="Shorten it, or give the model more room with --ctx-size.",
            )
        yield from _Answer(self, request).run()

    def __repr__(self) -> str:
        names = [drafter.name for drafter in self.drafters]
        return f"Engine(n_ctx={self._target.n_ctx}, drafters={names})"


class _Answer:
    """The state of one ``generate``."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine = engine
        self._target = engine._target
        self._clock = engine._clock
        self._request = request
        self._tokens = list(request.prompt)
        self._n_prompt = len(request.prompt)
        self._text = TextStream(engine._vocabulary.piece, request.stops)
        self._is_end = engine._vocabulary.is_end
        self._verifier = Verifier(self._target.n_vocab, request.rng)
        self._stats = Stats(n_prompt=self._n_prompt)
        self._ended: tuple[FinishReason, str] | None = None
        self._left = ""  # text before a stop string whose own token is not part of the answer

    def run(self) -> Iterator[Event]:
        started = self._clock()
        try:
            yield from self._prefill()
            yield self._first_step(started)
            while self._ended is None:
                # Only our own time counts: a reader of the events may be slow.
                stepping = self._clock()
                step = self._step()
                self._stats.generate_s += self._clock() - stepping
                yield step
        except Interrupted:
            self._ended = ("cancelled", "cancelled")
        yield self._finish()

    def _stop_if_cancelled(self) -> None:
        if self._request.cancelled():
            raise Interrupted

    # -- the prompt ---------------------------------------------------------------------------

    def _prefill(self) -> Iterator[Event]:
        started = self._clock()
        n_reused = self._reuse()
        self._stats.n_reused = n_reused
        done = n_reused
        yield Prefill(done, self._n_prompt, n_reused)
        while done < self._n_prompt:
            self._stop_if_cancelled()
            chunk = self._tokens[done : done + self._engine._n_chunk]
            done += len(chunk)
            self._target.decode(chunk, 1 if done == self._n_prompt else 0)
            if done < self._n_prompt:
                yield Prefill(done, self._n_prompt, n_reused)
        self._stats.prompt_s = self._clock() - started

    def _reuse(self) -> int:
        """Cut the cache back to what it shares with the prompt; returns how much that is. At least
        the last token is decoded again: its logits are needed."""
        cached = self._target.tokens
        n = min(len(cached), self._n_prompt - 1)
        same = next((i for i in range(n) if cached[i] != self._tokens[i]), n)
        if same == 0 or not self._engine.reuses_cache or not self._target.rollback(same):
            self._target.clear()
            return 0
        return same

    def _first_step(self, started: float) -> Step:
        request, engine = self._request, self._engine
        n_read = self._n_prompt - self._stats.n_reused
        engine.pacer.begin(self._n_prompt, n_read, self._stats.prompt_s, request.temperature)
        for drafter in engine.drafters:
            drafter.begin(self._tokens, request.sampler.fork())
        token = self._verifier.pick(self._target.row(0), request.sampler)
        request.sampler.accept(token)
        self._stats.first_token_s = self._clock() - started
        texts = self._emit([token])
        for drafter in engine.drafters:
            drafter.commit([token])
        step = Step(
            tokens=(token,) if texts else (),
            texts=tuple(texts),
            n_drafted=0,
            n_verified=0,
            n_accepted=0,
            drafter=PLAIN,
            draft_s=0.0,
            verify_s=0.0,
            reason="first token",
            is_first=True,
        )
        self._stats.add(step)
        return step

    # -- one round ----------------------------------------------------------------------------

    def _step(self) -> Step:
        n_before = len(self._tokens)
        self._stop_if_cancelled()
        offers, choice, draft, draft_s = self._draft()
        self._stop_if_cancelled()
        n_drafted = len(draft.tokens)
        if draft.dists is None:
            # Only a point mass may be cut after the fact: a drawn token that is dropped because
            # of what it is would bias what is emitted in its place.
            draft.cut(self._engine.pacer.n_to_verify(draft))
        drafter = choice.drafter if n_drafted or choice.n_read else PLAIN

        started = self._clock()
        self._target.decode([self._tokens[-1], *draft.tokens], len(draft.tokens) + 1)
        verdict = self._verifier.verify(
            self._target.row, draft, self._request.sampler, self._is_end
        )
        verify_s = self._clock() - started

        confidence = None
        if self._engine.pacer.wants_confidence:
            confidence = peak(self._target.row(verdict.n_accepted))
        texts = self._emit(verdict.tokens)
        n_emitted = len(self._tokens) - n_before
        n_accepted = min(verdict.n_accepted, n_emitted)
        # Rows past the end of the answer were decoded but have no say in its numbers.
        n_verified = min(len(draft.tokens), n_emitted) if self._ended else len(draft.tokens)
        started = self._clock()
        self._roll_back(n_before + n_accepted)
        # A memory that must read the accepted tokens again makes a wide step dearer.
        verify_s += self._clock() - started
        step = Step(
            tokens=tuple(verdict.tokens[:n_emitted]),
            texts=tuple(texts),
            n_drafted=n_drafted,
            n_verified=n_verified,
            n_accepted=n_accepted,
            drafter=drafter,
            draft_s=draft_s,
            verify_s=verify_s,
            reason=choice.reason,
        )
        self._stats.add(step)
        width, promised = len(draft.tokens) + 1, tuple(draft.confidence)
        measured = self._learn(step, offers, width, promised, n_before, confidence)
        return replace(step, measured=measured)

    def _draft(self) -> tuple[list[Offer], Choice, Draft, float]:
        engine = self._engine
        room = self._room()
        offers: list[Offer] = []
        if room > 0 and not engine.broken:
            offers = [o for o in (d.offer() for d in engine.drafters) if o is not None]
        choice = engine.pacer.choose(offers, room)
        drafter = next((d for d in engine.drafters if d.name == choice.drafter), None)
        limit = min(choice.n, room)
        if drafter is None or (limit < 1 and not choice.n_read) or engine.broken:
            return offers, choice, Draft(), 0.0
        started = self._clock()
        draft = Draft()
        if choice.n_read:
            drafter.read(choice.n_read, self._request.cancelled)
        else:
            draft = drafter.propose(limit, engine.pacer.more, self._request.cancelled)
            draft.cut(limit)
        return offers, choice, draft, self._clock() - started

    def _room(self) -> int:
        """Most draft tokens that the context and max_tokens leave for this step."""
        room = min(self._engine.max_width - 1, self._target.n_ctx - len(self._tokens))
        limit = self._request.max_tokens
        if limit is not None:
            room = min(room, limit - self._stats.n_tokens - 1)
        return max(0, room)

    def _emit(self, tokens: Sequence[int]) -> list[str]:
        """Commit ``tokens`` one by one until the answer ends; returns their texts."""
        texts: list[str] = []
        n_answer = len(self._tokens) - self._n_prompt
        for token in tokens:
            if self._is_end(token):
                texts.append("")
                self._tokens.append(token)
                self._ended = ("stop", "end of text")
                break
            text = self._text.push(token)
            if self._text.stopped:
                # A stop that ends inside this token may leave it, or earlier ones, out of the text.
                kept = self._text.n_tokens_kept - n_answer
                if kept > len(texts):
                    self._tokens.append(token)
                    texts.append(text)
                else:
                    self._left = text
                self._ended = ("stop", "stop string")
                break
            texts.append(text)
            self._tokens.append(token)
            limit = self._request.max_tokens
            if limit is not None and len(self._tokens) - self._n_prompt >= limit:
                self._ended = ("length", "max tokens")
                break
            if len(self._tokens) > self._target.n_ctx:
                self._ended = ("length", "context full")
                break
        return texts

    def _roll_back(self, n_keep: int) -> None:
        """Take rejected tokens out of the target's cache; a cache that cannot is read anew, and
        nothing is drafted from then on."""
        if len(self._target.tokens) <= n_keep or self._target.rollback(n_keep):
            return
        self._engine.broken = NO_ROLLBACK
        self._target.clear()
        for start in range(0, n_keep, self._engine._n_chunk):
            self._stop_if_cancelled()
            end = min(n_keep, start + self._engine._n_chunk)
            self._target.decode(self._tokens[start:end], 0)

    def _learn(
        self,
        step: Step,
        offers: Sequence[Offer],
        width: int,
        promised: tuple[float, ...],
        n_before: int,
        confidence: float | None,
    ) -> Measured:
        engine = self._engine
        for drafter in engine.drafters:
            drafter.commit(step.tokens)
        costs = (step.draft_s, 0, 0.0, 0)
        for drafter in engine.drafters:
            if drafter.name == step.drafter:
                costs = drafter.costs()
        evidence = next((o.evidence for o in offers if o.drafter == step.drafter), 0)
        measured = Measured(
            drafter=step.drafter,
            evidence=evidence,
            width=width,
            verify_s=step.verify_s,
            n_drafted=step.n_drafted,
            n_verified=step.n_verified,
            n_accepted=step.n_accepted,
            n_emitted=len(step.tokens),
            promised=promised,
            draft_s=costs[0],
            n_draft_decodes=costs[1],
            catchup_s=costs[2],
            n_catchup=costs[3],
            n_context=n_before,
            confidence=confidence,
        )
        engine.pacer.learn(measured)
        self._stats.compare(step, engine.pacer.baseline_step_s())
        return measured

    # -- the end ------------------------------------------------------------------------------

    def _finish(self) -> Finished:
        text = self._left + self._text.finish()
        reason, detail = self._ended or ("cancelled", "cancelled")
        if self._text.stopped:
            reason, detail = "stop", "stop string"
        return Finished(reason, self._stats, text, detail)
