"""Ten million tokens through the history index: do size, time and memory stay within the bounds?

``python -m bench.soak_history [--tokens N] [--json]``. Exit code 1 when a bound is broken (those on
time hold for the median).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from localspec.history import History, Source
from localspec.history.disk import directory_bytes
from localspec.history.index import LIMIT_BYTES, directories

N_VOCAB = 150_000
N_DOC = 1000
N_PHRASES = 20_000
N_QUERIES = 2000
VOCABULARY = b"soak" * 8

MAX_OPEN_S, MAX_QUERY_S, MAX_ADD_S = 0.020, 50e-6, 20e-6
MAX_MEMORY_BYTES = 96 << 20
"""Of the process, above what it had before: the mapped files and SQLite's cache."""


@dataclass(frozen=True)
class Result:
    """Times in seconds of the thread, because a busy machine stretches those of the clock.
    ``memory_bytes``: resident memory above what it was before."""

    n_tokens: int
    n_held: int
    disk_bytes: int
    memory_bytes: int
    open_s: float
    add_s_per_token: float
    add_text_max_s: float
    query_median_s: float
    query_p99_s: float
    hit_rate: float

    def broken(self) -> list[str]:
        """The bounds that do not hold."""
        found = []
        for name, value, bound in [
            ("disk_bytes", self.disk_bytes, LIMIT_BYTES),
            ("memory_bytes", self.memory_bytes, MAX_MEMORY_BYTES),
            ("open_s", self.open_s, MAX_OPEN_S),
            ("query_median_s", self.query_median_s, MAX_QUERY_S),
            ("add_s_per_token", self.add_s_per_token, MAX_ADD_S),
        ]:
            if value > bound:
                found.append(f"{name} is {value:g}, more than {bound:g}")
        return found


def texts(n_tokens: int, seed: int = 1) -> Iterator[npt.NDArray[np.uint32]]:
    """Texts made of phrases, some of which come again and again (Zipf), as people's do."""
    rng = np.random.default_rng(seed)
    vocabulary = (rng.zipf(1.2, N_VOCAB * 2) % N_VOCAB).astype(np.uint32)
    for _ in range(n_tokens // N_DOC):
        parts, n = [], 0
        while n < N_DOC:
            phrase = np.random.default_rng(int(rng.zipf(1.3)) % N_PHRASES)
            part = vocabulary[phrase.integers(0, len(vocabulary), int(phrase.integers(5, 60)))]
            if rng.random() < 0.3:  # something new
                part = vocabulary[rng.integers(0, len(vocabulary), 30)]
            parts.append(part)
            n += len(part)
        yield np.concatenate(parts)[:N_DOC]


def soak(root: Path, n_tokens: int, say: bool = False) -> Result:
    """Add ``n_tokens`` below ``root``, then query."""
    process = psutil.Process()
    before = process.memory_info().rss
    history = History.open(root, VOCABULARY)
    spent, slowest, n_added, peak = 0.0, 0.0, 0, 0
    last: list[list[int]] = []
    for number, text in enumerate(texts(n_tokens)):
        tokens = text.tolist()
        started = time.thread_time()
        history.remember(tokens, Source("chat", f"chat-{number // 20}"))
        seconds = time.thread_time() - started
        spent += seconds
        slowest = max(slowest, seconds)
        n_added += len(tokens)
        last = [*last[-200:], tokens]
        if number % 500 == 0:
            peak = max(peak, process.memory_info().rss - before)
            if say:
                print(f"{n_added} tokens, {spent / n_added * 1e6:.1f} us/token", file=sys.stderr)
        assert not history.note, history.note
    peak = max(peak, process.memory_info().rss - before)
    history.close()
    opening = []
    for _ in range(9):
        started = time.thread_time()
        history = History.open(root, VOCABULARY)
        opening.append(time.thread_time() - started)
        history.close()
    history = History.open(root, VOCABULARY)
    times, n_hits = _query(history, last)
    held = history.held()
    history.close()
    return Result(
        n_tokens=n_added,
        n_held=held.n_tokens if held else 0,
        disk_bytes=sum(map(directory_bytes, directories(root))),
        memory_bytes=peak,
        open_s=statistics.median(opening),
        add_s_per_token=spent / max(1, n_added),
        add_text_max_s=slowest,
        query_median_s=statistics.median(times),
        query_p99_s=times[int(len(times) * 0.99)],
        hit_rate=n_hits / len(times),
    )


def _query(history: History, recent: list[list[int]]) -> tuple[list[float], int]:
    """Sorted times of single queries, half of them for text that is there."""
    rng = np.random.default_rng(2)
    unknown = [text.tolist() for text in texts(N_DOC * 20, seed=77)]
    times, n_hits = [], 0
    for query in range(N_QUERIES):
        known = query % 2 == 0
        text = (recent if known else unknown)[int(rng.integers(len(recent if known else unknown)))]
        at = int(rng.integers(32, N_DOC - 1))
        tail = text[at - 32 : at]
        started = time.thread_time()
        match = history.find(tail)
        times.append(time.thread_time() - started)
        n_hits += match is not None and match.token == text[at]
    return sorted(times), n_hits


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.soak_history")
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = soak(Path(directory), arguments.tokens, say=True)
    broken = result.broken()
    if arguments.json:
        print(json.dumps({**asdict(result), "broken": broken}, indent=2))
    else:
        for name, value in asdict(result).items():
            print(f"{name:>18}  {value:g}")
        print("\n".join(broken) or "all bounds hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
