"""How long does the chat take from the start of its process to its first picture?

    python -m bench.first_frame --runs 9

Starts ``localspec chat`` under a pseudo-terminal with a data directory of its own, and waits for
the words of the loading view among the bytes that arrive: once for the first picture, which has
nothing else, and a second time for the whole view. Printed: seconds from just before the process is
made to those bytes, each run and their median, processor time up to then (on a busy machine the
more telling figure), and the same for a Python that only prints them, which no program can be
quicker than. Exit code 1 when the first picture is above the limit. The modules are compiled before
the first run counts, as an installed program's are. Needs a POSIX system.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl

from localspec.tui.terminalio import FIRST_WORDS

LIMIT_S = 0.5
WORDS = FIRST_WORDS.encode()
PATIENCE_S = 60.0
CHAT = ("-m", "localspec", "chat", "--offline", "--no-save")
BARE = ("-c", f"print({WORDS.decode()!r}, flush=True); input()")


def until_words_s(
    arguments: Sequence[str], environment: dict[str, str], times: int = 1
) -> tuple[float, float]:
    """Seconds from the start of Python with ``arguments`` to ``WORDS`` on its terminal, so many
    times, by the clock and of processor time. Raises TimeoutError when they do not come."""
    ours, theirs = pty.openpty()
    try:
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 110, 0, 0))
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        try:
            seconds = _wait_for(WORDS, ours, times) - started
        finally:
            process.kill()
            _, process.returncode, used = os.wait4(process.pid, 0)
        return seconds, used.ru_utime + used.ru_stime
    finally:
        os.close(theirs)
        os.close(ours)


def _wait_for(words: bytes, terminal: int, times: int) -> float:
    """When ``words`` had arrived, on the clock ``time.perf_counter``."""
    seen, end = b"", time.perf_counter() + PATIENCE_S
    while (left := end - time.perf_counter()) > 0:
        if select.select([terminal], [], [], left)[0]:
            seen += os.read(terminal, 1 << 16)
            now = time.perf_counter()
            if seen.count(words) >= times:
                return now
    raise TimeoutError(f"no picture came within {PATIENCE_S:.0f} s: {seen[-500:]!r}")


def measure(n_runs: int) -> int:
    """Run it, print the figures, return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "LOCALSPEC_HOME": folder,
            "PYTHONPYCACHEPREFIX": f"{folder}/pycache",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        until_words_s(CHAT, environment, 2)
        firsts, wholes, bares = [], [], []
        for _ in range(n_runs):
            bares.append(until_words_s(BARE, environment))
            firsts.append(until_words_s(CHAT, environment))
            wholes.append(until_words_s(CHAT, environment, 2))
    medians = {}
    named = {"python alone": bares, "first picture": firsts, "whole view": wholes}
    for name, runs in named.items():
        print(f"{name}: {', '.join(f'{seconds:.3f}' for seconds, _ in runs)} s")
        medians[name] = [statistics.median(kind) for kind in zip(*runs, strict=True)]
        print("  median {:.3f} s, of processor time {:.3f} s".format(*medians[name]))
    return int(medians["first picture"][0] > LIMIT_S)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    return measure(max(1, parser.parse_args().runs))


if __name__ == "__main__":
    raise SystemExit(main())
