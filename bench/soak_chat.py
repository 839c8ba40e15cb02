"""A long chat against a scripted engine: does the view stay quick, small and even?

    python -m bench.soak_chat --turns 500 --tokens 100 --rate 200

Each turn asks a question and streams an answer of Markdown at ``--rate`` tokens per second; a key
is pressed every half second meanwhile. Printed: how long a key took until its letter was on the
screen (median, 99th percentile, worst), resident memory after the first tenth and at the end, and
the processor time per token of the first and the last tenth. Exit code 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence

from localspec.chat import Message
from localspec.config import Config
from localspec.hardware.process import n_bytes_used
from localspec.spec.sampling import Sampling
from localspec.tui.app import ChatApp
from localspec.tui.fakes import Script, ScriptedOpener, ScriptedStatus, words
from localspec.tui.settings import Settings

KEY_LIMIT_S = 0.1
GROWTH_LIMIT = 1.3
"""The last tenth may cost so much more per token than the first; more would grow with the chat."""
MEMORY_LIMIT_BYTES = 64 << 20
_PARTS = (
    "Some words about **this** and `that`, with a [link](https://example.org).\n\n",
    "```python\nfor i in range(10):\n    print(i)\n```\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
    "- an item\n  - one below it\n- another\n\n",
    "# A heading\n\n한국어 and 👩‍🚀 in a paragraph.\n\n",
)


def answer(n_tokens: int) -> list[str]:
    """``n_tokens`` words of Markdown."""
    text = "".join(itertools.islice(itertools.cycle(_PARTS), n_tokens // 8 + 1))
    return words(text)[:n_tokens]


def soak_app(n_tokens: int, rate: float) -> ChatApp:
    """A chat view whose engine answers ``n_tokens`` words at ``rate`` per second."""
    accepted = (3, 1, None, 4, 0)
    mean = sum((n or 0) + 1 for n in accepted) / len(accepted)

    def say(_: Sequence[Message]) -> Sequence[str]:
        script.asked.clear()  # or the script would keep a copy of the chat for each question
        return answer(n_tokens)

    status = ScriptedStatus(n_ctx=8192)
    script = Script(say, accepted, step_s=mean / rate if rate else 0.0, status=status)
    return ChatApp(ScriptedOpener(script), Settings(Config(), Sampling()))


async def press(app: ChatApp, key: str) -> float:
    """Seconds from a key press to the refresh that shows its letter."""
    shown = asyncio.Event()
    before = len(app.prompt.text)
    started = time.perf_counter()
    app.simulate_key(key)
    while len(app.prompt.text) == before:
        await asyncio.sleep(0.001)
    app.call_after_refresh(shown.set)
    await shown.wait()
    return time.perf_counter() - started


async def soak(n_turns: int, n_tokens: int, rate: float) -> int:
    """Run it, print the figures, return the exit code."""
    app = soak_app(n_tokens, rate)
    keys: list[float] = []
    cpu: list[float] = []
    memory: list[int] = []
    async with app.run_test(size=(120, 40)) as pilot:
        while app.status is None:
            await pilot.pause()
        for turn in range(n_turns):
            started = time.process_time()
            await app.send(f"Question {turn}")
            pressed = time.monotonic()
            while not app.is_idle:
                await asyncio.sleep(0.01)
                if time.monotonic() - pressed > 0.5:
                    pressed = time.monotonic()
                    keys.append(await press(app, "x"))
            app.prompt.take("")
            cpu.append((time.process_time() - started) / n_tokens)
            memory.append(n_bytes_used())
            if turn % max(1, n_turns // 10) == 0:
                print(f"turn {turn}: {memory[-1] >> 20} MiB, {cpu[-1] * 1000:.2f} ms/token")
    app.inference.quit(5)
    return report(keys, cpu, memory)


def report(keys: list[float], cpu: list[float], memory: list[int]) -> int:
    """Print the figures; 1 when one is beyond its limit."""
    tenth = max(1, len(cpu) // 10)
    first, last = statistics.median(cpu[1 : tenth + 1]), statistics.median(cpu[-tenth:])
    grown = memory[-1] - memory[tenth]
    keys = sorted(keys) or [0.0]
    p99 = keys[min(len(keys) - 1, int(len(keys) * 0.99))]
    print(f"key response: median {statistics.median(keys) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms,")
    print(f"  worst {keys[-1] * 1000:.0f} ms over {len(keys)} keys")
    print(f"memory: {memory[tenth] >> 20} MiB after a tenth, {memory[-1] >> 20} MiB at the end")
    print(f"processor time per token: first {first * 1000:.2f} ms, last {last * 1000:.2f} ms")
    failed = p99 > KEY_LIMIT_S or last > first * GROWTH_LIMIT or grown > MEMORY_LIMIT_BYTES
    print("FAILED" if failed else "passed")
    return int(failed)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rate", type=float, default=200.0)
    given = parser.parse_args()
    return asyncio.run(soak(given.turns, given.tokens, given.rate))


if __name__ == "__main__":
    raise SystemExit(main())
