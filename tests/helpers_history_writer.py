"""A process that adds texts to a history index for as long as it is let, and says what it added."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers_history import VOCABULARY, text_of

from localspec.history import History, Source, sources


def main() -> None:
    root, name, first, n = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # Two writers on a slow disk may keep each other waiting for longer than a user would like.
    sources._BUSY_S = 60.0
    history = History.open(root, VOCABULARY, capacities=(8192, 65_536))
    for number in range(first, first + n):
        text = text_of(number, 120, 5000)
        history.remember(text, Source("chat", f"{name}-{number}"))
        if history.note:
            print("failed", history.note, flush=True)
            return
        print("added", number, flush=True)
    history.close()


if __name__ == "__main__":
    main()
