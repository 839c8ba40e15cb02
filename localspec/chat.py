"""From the turns of a chat to the text that the model reads: its template, and trimming."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from localspec.errors import PromptError
from localspec.messages import Message, Prompt, Role
from localspec.sandbox import BoundedEnvironment, Budget, TooMuchError

__all__ = ["MAX_TEMPLATE", "Message", "Prompt", "Role", "Template", "fit"]

MAX_TEMPLATE = 256 * 1024  # characters; the largest in use have about 30,000
_SECONDS = 10.0
_JOINT = "\n\n"  # between texts that had to become one turn
_SLACK = 0.75  # of the room, after trimming: so that not every later turn trims again

# What templates can raise besides Jinja's own errors: whatever Python does on wrong types.
_TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Template:
    """A model's way of writing a chat down.

    ``source``: the Jinja text from the model file, None when it has none. ``bos``, ``eos``: the
    texts of those tokens, empty where the model has no such token. ``add_bos``: the model wants its
    BOS in front of every text. ``chatml``: the vocabulary has ``<|im_start|>`` and ``<|im_end|>``.
    ``options``: more variables for the template, like ``enable_thinking``. ``now``: today's clock,
    which some templates write into the prompt.

    A model without a template gets ChatML if its vocabulary has the marks for it; otherwise the
    texts of the turns are joined by empty lines, without role names. ``note`` says so.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos: str = "",
        eos: str = "",
        add_bos: bool = False,
        name: str = "the model",
        chatml: bool = False,
        options: Mapping[str, Any] | None = None,
        now: Callable[[], datetime] = datetime.now,
        seconds: float = _SECONDS,
    ) -> None:
        self._source = source
        self._bos, self._eos, self._add_bos = bos, eos, add_bos
        self._name, self._chatml = name, chatml
        self._options = dict(options or {})
        self._now, self._seconds = now, seconds
        self._compiled: jinja2.Template | None = None
        self._environment = BoundedEnvironment()
        self._environment.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": self._strftime_now,
        }
        self._lock = threading.Lock()  # the environment counts for one rendering at a time

    @property
    def note(self) -> str:
        """One sentence for the user when the model has no template of its own, else empty."""
        if self._source is not None:
            return ""
        how = "ChatML is used" if self._chatml else "it continues your text as it stands"
        return f"{self._name} has no chat template; {how}."

    def prompt_for(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> Prompt:
        """The whole prompt. Raises PromptError like ``render``."""
        return self._with_bos(
            self.render(messages, add_generation_prompt=add_generation_prompt), strip=True
        )

    def raw(self, text: str) -> Prompt:
        """``text`` as it is, without the template."""
        return self._with_bos(text)

    def _with_bos(self, text: str, strip: bool = False) -> Prompt:
        """Exactly one BOS where the model wants one, whoever writes it."""
        if not self._bos:
            return Prompt(text, False)
        start = text.lstrip() if strip else text
        if start.startswith(self._bos):
            return Prompt(start, False)
        return Prompt(text, self._add_bos)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The text of the chat, ending where the assistant's answer is to begin.

        Where the template refuses the order of the turns or a system text, or leaves the system
        text out, the turns are joined or the text is moved into the first question. Raises
        PromptError, with the template's own words, if nothing helps.
        """
        turns = [m for m in messages if m.content or m.role != "assistant"]
        if not turns:
            raise PromptError("the chat is empty, so there is nothing to answer")
        if self._source is None:
            return self._without_template(turns, add_generation_prompt)
        refusal, incomplete = "", ""
        # Some templates written for tools fail on None, which others take as "no tools".
        choices: tuple[list[Any] | None, ...] = (None, [])
        for tools in choices:
            for attempt in _repairs(turns):
                try:
                    text = self._rendered(attempt, add_generation_prompt, tools)
                except TooMuchError as error:
                    raise self._unusable(_reason(error)) from error
                except _TEMPLATE_ERRORS as error:
                    refusal = refusal or _reason(error)
                    continue
                if all(m.content.strip() in text for m in turns if m.role == "system"):
                    return text
                incomplete = incomplete or text
            if incomplete:
                # The template rewrites system texts, so that they cannot be found in the prompt.
                return incomplete
        raise PromptError(
            f"the chat template of {self._name} refuses these messages: {refusal}",
            hint="--raw sends the text without the template.",
        )

    def _rendered(
        self, messages: Sequence[Message], add_generation_prompt: bool, tools: list[Any] | None
    ) -> str:
        n_given = sum(len(m.content) for m in messages)
        with self._lock:
            template = self._template()
            self._environment.begin(Budget((1 << 20) + 8 * n_given, self._seconds))
            return template.render(
                messages=[{"role": m.role, "content": m.content} for m in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=tools,
                documents=None,
                **self._options,
            )

    def _template(self) -> jinja2.Template:
        if self._compiled is not None:
            return self._compiled
        source = self._source or ""
        if len(source) > MAX_TEMPLATE:
            raise self._unusable(f"it has more than {MAX_TEMPLATE} characters")
        self._environment.begin(Budget(1 << 20, self._seconds))
        try:
            self._compiled = self._environment.from_string(source)
        # Python itself compiles what Jinja makes of it, and has limits of its own.
        except (*_TEMPLATE_ERRORS, SyntaxError, MemoryError) as error:
            raise self._unusable(_reason(error)) from error
        return self._compiled

    def _unusable(self, why: str) -> PromptError:
        return PromptError(
            f"the chat template of {self._name} cannot be used: {why}",
            hint="--raw sends the text without the template.",
        )

    def _without_template(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        if not self._chatml:
            return _JOINT.join(m.content for m in messages)
        text = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in messages)
        return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")

    def _strftime_now(self, pattern: str) -> str:
        if len(pattern) > 64:
            raise jinja2.TemplateRuntimeError("it asks for a date of more than 64 characters")
        return self._now().strftime(pattern)


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"line {error.lineno}: {error.message}"[:300]
    return " ".join(str(error).split())[:300] or type(error).__name__


def _repairs(messages: Sequence[Message]) -> list[list[Message]]:
    """The same chat in the ways that strict templates accept, the faithful ones first."""
    system = _JOINT.join(m.content for m in messages if m.role == "system")
    rest = [m for m in messages if m.role != "system"]
    in_front = [Message("system", system), *rest] if system else rest
    folded = rest
    if system:
        place = next((i for i, m in enumerate(rest) if m.role == "user"), None)
        if place is None:
            folded = [Message("user", system), *rest]
        else:
            question = Message("user", system + _JOINT + rest[place].content)
            folded = [*rest[:place], question, *rest[place + 1 :]]
    ways: list[list[Message]] = []
    for way in (list(messages), _joined(messages), _joined(in_front), folded, _joined(folded)):
        if way and way not in ways:
            ways.append(way)
    return ways


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Neighbouring turns of one role as one turn."""
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = Message(message.role, turns[-1].content + _JOINT + message.content)
        else:
            turns.append(message)
    return turns


def fit(
    messages: Sequence[Message],
    n_room: int,
    count: Callable[[Sequence[Message]], int],
    *,
    n_dropped: int = 0,
) -> tuple[list[Message], int]:
    """What of a chat fits into ``n_room`` tokens, and how many messages were left out for it.

    The oldest questions go first, each with its answer; system texts and the last question stay.
    ``count`` gives the tokens of a list of messages; it is called O(log n) times. ``n_dropped``:
    what was left out last time; it stays out, so that the prompt begins as it did and need not be
    evaluated again. When something must go, a quarter of the room is freed for the turns to come.

    Raises PromptError when even the last question does not fit.
    """
    system = [m for m in messages if m.role == "system"]
    rest = [m for m in messages if m.role != "system"]
    # Where one may begin: at questions. The last one is the most that can be left out before.
    starts = [i for i, m in enumerate(rest) if m.role == "user"] or [0]
    if starts[0] != 0:
        starts.insert(0, 0)

    def n_tokens(k: int) -> int:
        return count([*system, *rest[starts[k] :]])

    first = max(k for k, start in enumerate(starts) if start <= max(n_dropped, 0))
    last = len(starts) - 1
    if n_tokens(first) > n_room:
        n_least = n_tokens(last)
        if n_least > n_room:
            raise PromptError(
                f"the prompt has {n_least} tokens, but the context has room for {n_room}",
                hint="Shorten it, or set a larger context.",
            )
        goal = n_room * _SLACK if n_least <= n_room * _SLACK else n_room
        low, high = first + 1, last
        while low < high:
            middle = (low + high) // 2
            if n_tokens(middle) <= goal:
                high = middle
            else:
                low = middle + 1
        first = high
    return [*system, *rest[starts[first] :]], starts[first]


_THINKING = re.compile(r"(?m)^[ \t]*<(think|thinking|thought)>[ \t]*\n?")


def split_thinking(text: str, *, started: bool = False) -> list[tuple[str, str]]:
    """An answer as parts ``("thinking", ...)`` and ``("text", ...)``, without the tags.

    A block begins with ``<think>`` at the start of a line (elsewhere the answer only talks about
    it) and ends at ``</think>``, or with the text while it is still being written. ``started``: the
    prompt already ended with the opening tag.
    """
    parts: list[tuple[str, str]] = []
    position, tag = 0, "think" if started else ""
    while position < len(text) or tag:
        if tag:
            close = f"</{tag}>"
            end = text.find(close, position)
            parts.append(("thinking", text[position : end if end >= 0 else len(text)]))
            position, tag = (end + len(close) if end >= 0 else len(text)), ""
            continue
        found = _THINKING.search(text, position)
        end = found.start() if found else len(text)
        parts.append(("text", text[position:end]))
        position, tag = (found.end(), found[1]) if found else (len(text), "")
    return [(kind, part) for kind, part in parts if part.strip()]
