"""The main screens of the chat view, always the same, for snapshots and the README."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from helpers_tui import ask, make_app, until
from textual.pilot import Pilot

from localspec.budget import Budget, DeviceMemory
from localspec.chat import Message
from localspec.memory import Part, Plan, Settings, Step
from localspec.tui.app import ChatApp
from localspec.tui.fakes import Script, ScriptedStatus, words

CODE = '''Walk from both ends towards the middle:

```python
def is_palindrome(text: str) -> bool:
    """Whether `text` reads the same backwards."""
    letters = [c.lower() for c in text if c.isalnum()]
    return letters == letters[::-1]
```

| Input | Result |
|---|---|
| `"A man, a plan"` | `False` |
| `"level"` | `True` |

- **Time**: one pass, *O(n)*
- **Memory**: a copy of the letters
'''
UNICODE = "한국어 단어, 日本語の文, שלום עולם, ❤️ and 👩‍🚀 and [red]brackets[/] stay as they are."
THINKING = "<think>\nThe user greets me, so a greeting is in order.\n</think>\n\nGood evening."


def answer(messages: Sequence[Message]) -> Sequence[str]:
    """The scripted answers."""
    last = messages[-1].content
    if "palindrome" in last:
        return words(CODE)
    if "scripts" in last:
        return words(UNICODE)
    if "evening" in last:
        return words(THINKING)
    return words("You said: " + last)


def script(**given: Any) -> Script:
    """A session whose numbers do not depend on the clock."""
    status = ScriptedStatus(
        model="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        draft="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    )
    return Script(answer=answer, accepted=(4, 3, 4, 1, None, 4, 0, 2), status=status, **given)


Scene = Callable[[Pilot[int]], Awaitable[None]]


async def ready(pilot: Pilot[int]) -> None:
    """Nothing asked yet."""
    app: Any = pilot.app
    await until(pilot, lambda: app.status is not None)


async def answered(pilot: Pilot[int]) -> None:
    """A question with code, a table and a list."""
    await ready(pilot)
    await ask(pilot, "Write a palindrome check in Python.")
    await settle(pilot)


async def coloured(pilot: Pilot[int]) -> None:
    """The same with the words in the colours of their origin."""
    await answered(pilot)
    await pilot.press("f4")
    await settle(pilot)


async def scripts(pilot: Pilot[int]) -> None:
    """Thinking, and many scripts."""
    await ready(pilot)
    await ask(pilot, "Good evening")
    await ask(pilot, "Show me other scripts.")
    await settle(pilot)


async def loading(pilot: Pilot[int]) -> None:
    """Half of the model is downloaded."""
    app: Any = pilot.app
    await until(pilot, lambda: app.loading_view._n_done >= 500 * 1024 * 1024)


async def helping(pilot: Pilot[int]) -> None:
    """The help."""
    await ready(pilot)
    await pilot.press("f1")
    await settle(pilot)


async def completing(pilot: Pilot[int]) -> None:
    """A half-typed command."""
    await ready(pilot)
    app: Any = pilot.app
    app.prompt.take("/s")
    await settle(pilot)


async def settle(pilot: Pilot[int]) -> None:
    """Passing messages are gone, and everything is drawn."""
    app: Any = pilot.app
    await pilot.pause()
    app.clear_notifications()
    await pilot.pause()


def a_plan(reason: str, target: str = "big-target.gguf", draft: str = "small-draft.gguf") -> Plan:
    """A plan that needs 1.5 of 6 GiB."""
    budget = Budget((DeviceMemory("CPU", "cpu", 6 << 30, "free"),))
    parts = (Part("weights", "target", "CPU", 3 << 29),)
    steps = (Step("all", "chosen"),)
    return Plan("draft", reason, parts, budget, steps, target, Settings(n_ctx=4096), draft)


def scene_app(**given: Any) -> ChatApp:
    """An app for a scene; it never measures the clock."""
    load_gate = given.pop("load_gate", None)
    names = ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    plan = a_plan("both models fit, and their vocabularies match", *names)
    app = make_app(script(load_gate=load_gate, plan=plan), **given)
    app.inference._clock = lambda: 0.0
    app.inference._n_bytes_used = lambda: 2_254_857_830
    return app
