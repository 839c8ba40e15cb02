"""A program that writes an answer word by word until it is killed; run by test_sessions_crash.

For each word it logs the monotonic clock before and after the call that may save it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from localspec.sessions import Chats


def main(path: str, interval_s: float) -> None:
    chats = Chats.open(Path(path), interval_s=interval_s)
    chat = chats.new(model="m")
    chats.add_turn(chat, "user", "go")
    turn = chats.add_turn(chat, "assistant", "", state="partial")
    os.write(1, f"{chat} {turn}\n".encode())
    text, n = "", 0
    while True:
        text += f"word{n} "
        before = time.monotonic()
        chats.update_partial(turn, text)
        os.write(1, f"{n} {before!r} {time.monotonic()!r}\n".encode())
        n += 1
        time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
