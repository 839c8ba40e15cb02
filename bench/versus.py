"""localspec against llama-server and llama-cli of the same llama.cpp.

    python -m bench.versus --peers DIR [--model NAME] [--prompts all] [--tokens 200] [--rounds 5]
                           [--temps 0,0.8] [--check] [--json]

The peers are built once, outside the repository, from the source archive of the installed
llama-cpp-python, which carries the llama.cpp that it was built from:

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    tar xf llama_cpp_python-0.3.36.tar.gz
    cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B DIR -DCMAKE_BUILD_TYPE=Release \\
          -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF
    cmake --build DIR --target llama-server llama-cli

DIR (or one with the programs in ``bin``) is named by --peers or LOCALSPEC_PEERS; without the
programs this says so and ends well. Same files, same token ids, same threads, same sampler
settings, no reuse of prompts. For each prompt everyone takes a turn, round after round; medians are
shown. llama-server runs in four modes: without speculation, with its draft defaults, with its own
default of speculation (--spec-default, a lookup), and with its simple lookup. Speed is that of the
tokens after the first, for everyone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from localspec.benchmark import BenchPrompt, choose, load
from localspec.chat import Message
from localspec.config import Config, Mode
from localspec.files import NoProgress
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.events import Finished
from localspec.spec.sampling import Sampling

PEERS = "LOCALSPEC_PEERS"
START_S = 300.0
ANSWER_S = 3600.0
SERVER_MODES: dict[str, tuple[str, ...]] = {
    "server off": (),
    "server draft": ("--spec-type", "draft-simple"),
    "server lookup": ("--spec-default",),
    "server simple": ("--spec-type", "ngram-simple"),
}
"""What each adds to the command line; "server draft" gets the draft's file, too."""
OURS: dict[str, Mode] = {"localspec off": "off", "localspec": "auto"}
CLI = "llama-cli"
_SPEED = re.compile(r"Generation:\s*([0-9.]+)\s*t/s")


@dataclass(frozen=True, slots=True)
class Task:
    """One answer to give."""

    prompt: BenchPrompt
    tokens: list[int]
    n: int
    temperature: float
    seed: int


Contender = Callable[[Task], float | None]
"""Answers, and returns tokens per second after the first (None: the answer was too short)."""


# -- localspec ------------------------------------------------------------------------------------


def ours(session: Session, mode: Mode) -> Contender:
    """localspec in one mode, within this process."""

    def answer(task: Task) -> float | None:
        session.set_mode(mode)
        session.clear()
        sampling = Sampling(temperature=task.temperature, seed=task.seed)
        events = session.ask([Message("user", task.prompt.prompt)], sampling, max_tokens=task.n)
        last = list(events)[-1]
        assert isinstance(last, Finished)
        return last.stats.tokens_per_s

    return answer


# -- the peers ------------------------------------------------------------------------------------


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
        try:
            _wait_for(process, port, log)
            yield lambda task: _ask_server(port, task)
        finally:
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


def _ask_server(port: int, task: Task) -> float | None:
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
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with _open(request, timeout=ANSWER_S) as answer:
        timings = json.load(answer)["timings"]
    n, milliseconds = int(timings["predicted_n"]) - 1, float(timings["predicted_ms"])
    return n / milliseconds * 1000 if n > 0 and milliseconds > 0 else None


def cli(program: Path, peer: Peer) -> Contender:
    """llama-cli for one question; it loads the model each time."""

    def answer(task: Task) -> float | None:
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
        return speed_in(done.stdout.decode("utf-8", "replace"))

    return answer


def speed_in(text: str) -> float | None:
    """Tokens per second from the line that llama-cli prints after an answer; None without one."""
    found = _SPEED.findall(text)
    return float(found[-1]) if found else None


# -- comparing ------------------------------------------------------------------------------------


def compare(
    contenders: dict[str, Contender],
    tasks: Callable[[BenchPrompt, int], Task],
    prompts: Sequence[BenchPrompt],
    rounds: int,
    report: Callable[[str], None],
) -> dict[str, dict[str, list[float]]]:
    """prompt -> contender -> tokens per second of each round. Everyone takes a turn on each prompt,
    another one first each time."""
    names = list(contenders)
    found: dict[str, dict[str, list[float]]] = {p.id: {n: [] for n in names} for p in prompts}
    for number in range(rounds):
        for index, prompt in enumerate(prompts):
            shift = (number + index) % len(names)
            for name in [*names[shift:], *names[:shift]]:
                report(f"round {number + 1} of {rounds}, {prompt.id}, {name}")
                speed = contenders[name](tasks(prompt, number))
                if speed is not None:
                    found[prompt.id][name].append(speed)
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt. ``plain``: localspec over its own plain; ``best``: over the fastest mode of
    llama-server, ``best_name``. None where one of them has no figure."""

    prompt: str
    speeds: dict[str, float]
    plain: float | None
    best: float | None
    best_name: str


def lines(found: dict[str, dict[str, list[float]]]) -> list[Line]:
    """Medians by prompt."""
    result = []
    for prompt, runs in found.items():
        speeds = {name: median(values) for name, values in runs.items() if values}
        mine, plain = speeds.get("localspec"), speeds.get("localspec off")
        servers = {name: speed for name, speed in speeds.items() if name in SERVER_MODES}
        best_name = max(servers, key=lambda name: servers[name], default="")
        result.append(
            Line(
                prompt,
                speeds,
                mine / plain if mine and plain else None,
                mine / servers[best_name] if mine and best_name else None,
                best_name,
            )
        )
    return result


def show(found: list[Line], names: Sequence[str]) -> None:
    """A table that a README can take."""
    print(f"| prompt | {' | '.join(names)} | localspec / plain | localspec / best server |")
    print(f"|---|{'---:|' * (len(names) + 2)}")
    for line in found:
        cells = [f"{line.speeds[n]:.1f}" if n in line.speeds else "–" for n in names]
        cells += ["–" if ratio is None else f"{ratio:.2f}" for ratio in (line.plain, line.best)]
        print(f"| {line.prompt} | {' | '.join(cells)} |")
    means = []
    for values in ([x.plain for x in found], [x.best for x in found]):
        known = [value for value in values if value]
        means.append(f"{geometric_mean(known):.2f}" if known else "–")
    print(f"| geometric mean |{' |' * len(names)} {' | '.join(means)} |")


# -- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. 1 with --check when a mode of llama-server was faster on some prompt."""
    options = _options(arguments)
    folder = Path(options.peers).expanduser() if options.peers else None
    program = find_program(folder, "llama-server")
    if program is None:
        where = f"in {folder}" if folder else f"(--peers DIR or {PEERS}=DIR names where)"
        print(f"skipped: llama-server is not built {where}; see the top of bench/versus.py")
        return 0
    prompts = choose(load(), options.prompts)
    session = open_session(
        Config(model=options.model, draft=options.draft, n_ctx=options.ctx, history=False,
               threads=options.threads, learn=not options.no_learn),
        NoProgress(),
    )  # fmt: skip
    report: list[dict[str, Any]] = []
    lost = 0
    try:
        with ExitStack() as running:
            contenders = _contenders(session, program, find_program(folder, CLI), options, running)
            for temperature in [float(text) for text in options.temps.split(",")]:
                found = compare(
                    contenders, _tasks(session, options.tokens, temperature), prompts,
                    options.rounds, lambda text: print(text, file=sys.stderr),
                )  # fmt: skip
                result = lines(found)
                lost += sum(line.best is not None and line.best < 1 for line in result)
                report.append({"temperature": temperature, "runs": found})
                if not options.json:
                    print(f"\n{session.status.model} + {session.status.draft or 'no draft'}, "
                          f"{session.status.n_threads} threads, temperature {temperature:g}, "
                          f"{options.tokens} tokens, medians of {options.rounds}\n")  # fmt: skip
                    show(result, list(contenders))
    finally:
        session.close()
    if options.json:
        print(json.dumps(report, indent=1))
    return 1 if options.check and lost else 0


def _contenders(
    session: Session,
    program: Path,
    cli_program: Path | None,
    options: argparse.Namespace,
    running: ExitStack,
) -> dict[str, Contender]:
    models = [context.model.path for context in session.contexts]
    peer = Peer(
        models[0], models[1] if len(models) > 1 else None, session.n_ctx, session.status.n_threads
    )
    found = {name: ours(session, mode) for name, mode in OURS.items()}
    wanted = options.servers.split(",") if options.servers else list(SERVER_MODES)
    for name in wanted:
        extra = list(SERVER_MODES[name])
        if name == "server draft":
            if peer.draft is None:
                continue
            extra += ["-md", str(peer.draft)]
        found[name] = running.enter_context(server(program, peer, extra))
    if cli_program is not None and not options.no_cli:
        found[CLI] = cli(cli_program, peer)
    return found


def _tasks(session: Session, n: int, temperature: float) -> Callable[[BenchPrompt, int], Task]:
    def task(prompt: BenchPrompt, number: int) -> Task:
        rendered = session.template.prompt_for([Message("user", prompt.prompt)])
        return Task(prompt, session.tokenize(rendered), n, temperature, 1 + number)

    return task


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", default=os.environ.get(PEERS, ""))
    parser.add_argument("--model")
    parser.add_argument("--draft")
    parser.add_argument("--prompts", default="all")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--servers", help="some of: " + ", ".join(SERVER_MODES))
    parser.add_argument("--no-cli", action="store_true")
    parser.add_argument("--no-learn", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a server mode was faster")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in (options.servers or "").split(","):
        if name and name not in SERVER_MODES:
            parser.error(f'there is no server mode "{name}"')
    return options


if __name__ == "__main__":
    sys.exit(main())
