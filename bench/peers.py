"""The peers of ``bench.versus``: llama-server and llama-cli, started and asked alike."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.side_by_side import TURN, Answered, Answering, Contender, Task

START_S = 300.0
ANSWER_S = 3600.0
SERVER_MODES: dict[str, tuple[str, ...]] = {
    "server off": (),
    "server draft": ("--spec-type", "draft-simple"),
    "server lookup": ("--spec-default",),
    "server simple": ("--spec-type", "ngram-simple"),
}
"""What each adds to the command line; "server draft" gets the draft's file, too."""
CLI = "llama-cli"
_SPEED = re.compile(r"Generation:\s*([0-9.]+)\s*t/s")


def find_program(folder: Path | None, name: str) -> Path | None:
    """The program in ``folder`` or its ``bin``; None if it is not there."""
    for place in (folder, folder / "bin") if folder is not None else ():
        found = shutil.which(name, path=str(place))
        if found:
            return Path(found)
    return None


@dataclass(frozen=True, slots=True)
class Peer:
    """What all peers are started with."""

    target: Path
    draft: Path | None
    n_ctx: int
    n_threads: int

    def arguments(self, *extra: str) -> list[str]:
        """Model, context, threads; no help from the network."""
        return [
            "-m", str(self.target), "-c", str(self.n_ctx), "-t", str(self.n_threads),
            "-tb", str(self.n_threads), "--offline", *extra,
        ]  # fmt: skip


@contextmanager
def server(program: Path, peer: Peer, extra: Sequence[str]) -> Iterator[Contender]:
    """A running llama-server that answers; it ends with the block."""
    port = _free_port()
    command = [
        str(program), *peer.arguments(*extra), "--host", "127.0.0.1", "--port", str(port),
        "-np", "1", "--no-ui", "--cache-ram", "0",
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        handle = psutil.Process(process.pid)
        try:
            _wait_for(process, port, log)
            yield lambda task: _ask_server(handle, port, task)
        finally:
            with suppress(psutil.NoSuchProcess):
                handle.resume()  # a stopped one would not hear that it ends
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# A proxy in the environment is not for this machine itself.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Any) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            tail = log.read()[-1500:].decode("utf-8", "replace")
            raise SystemExit(f"llama-server ended with code {process.returncode}:\n{tail}")
        try:
            with _open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.3)
    raise SystemExit(f"llama-server did not get ready in {START_S:.0f} s")


def _ask_server(process: psutil.Process, port: int, task: Task) -> Answering:
    """The answer as a stream. The server is stopped while it is not its turn: it would run on."""
    body = {
        "prompt": task.tokens,
        "n_predict": task.n,
        "temperature": task.temperature,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repeat_penalty": 1.0,
        "seed": task.seed,
        "cache_prompt": False,
        "stream": True,
        "timings_per_token": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    started = time.perf_counter()
    first_s, spent_s, given, told = 0.0, 0.0, 0, 1 - TURN
    with _open(request, timeout=ANSWER_S) as lines:
        for line in lines:
            if not line.startswith(b"data: "):
                continue
            heard = json.loads(line.removeprefix(b"data: "))
            given = int(heard["timings"]["predicted_n"])
            if heard["stop"]:
                break
            if given < told + TURN:
                continue
            spent_s += time.perf_counter() - started
            first_s, told = first_s or spent_s, given
            process.suspend()
            yield
            started = time.perf_counter()
            process.resume()
    spent_s += time.perf_counter() - started
    return Answered((given - 1) / (spent_s - first_s), first_s) if given > 1 and first_s else None


def cli(program: Path, peer: Peer) -> Contender:
    """llama-cli for one question; it loads the model each time."""

    def answer(task: Task) -> Answering:
        yield
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompt.txt"
            file.write_text(task.prompt.prompt, encoding="utf-8")
            command = [
                str(program), *peer.arguments("-f", str(file), "-n", str(task.n)),
                "--temp", str(task.temperature), "--seed", str(task.seed),
                "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05",
                "--single-turn", "--simple-io", "--show-timings",
            ]  # fmt: skip
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ANSWER_S,
                check=False,
            )
        speed = speed_in(done.stdout.decode("utf-8", "replace"))
        return None if speed is None else Answered(speed)

    return answer


def speed_in(text: str) -> float | None:
    """Tokens per second from the line that llama-cli prints after an answer; None without one."""
    found = _SPEED.findall(text)
    return float(found[-1]) if found else None
