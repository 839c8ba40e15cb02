"""A program that writes a chat until it is killed; run by test_sessions_crash.

Question, answer word by word, next question; every third answer is thrown away and written again.
Each line of its log is written when the call that it names has come back:

    chat ID | turn ROLE ID | word N BEGUN ENDED | end ID N | cut ID
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from localspec.sessions import Chats


def log(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def text(n_words: int) -> str:
    """What an answer of ``n_words`` says."""
    return "".join(f"word{n} " for n in range(n_words))


def write_answer(chats: Chats, chat: str, n_words: int) -> int:
    turn = chats.add_turn(chat, "assistant", "", state="partial")
    log("turn", "assistant", turn)
    for n in range(1, n_words + 1):
        begun = time.monotonic()
        chats.update_partial(turn, text(n))
        log("word", n, begun, time.monotonic())
        time.sleep(0.001)
    chats.finish_turn(turn, text(n_words), numbers={"n_tokens": n_words})
    log("end", turn, n_words)
    return turn


def main(path: str, interval_s: float, seed: int) -> None:
    chats = Chats.open(Path(path), interval_s=interval_s)
    chat = chats.new(model="m")
    log("chat", chat)
    lengths = random.Random(seed)
    n = 0
    while True:
        n += 1
        log("turn", "user", chats.add_turn(chat, "user", f"question {n}"))
        turn = write_answer(chats, chat, lengths.randint(1, 40))
        if n % 3 == 0:
            chats.delete_turns_from(chat, turn)
            log("cut", turn)
            write_answer(chats, chat, lengths.randint(1, 40))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
