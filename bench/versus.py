"""localspec against plain decoding, llama-server and llama-cli of the same llama.cpp.

    python -m bench.versus [--peers DIR] [--model NAME] [--draft NAME] [--prompts all]
                           [--tokens 200] [--rounds 5] [--temps 0,0.8] [--servers NAMES|none]
                           [--no-cli] [--log FILE] [--check] [--json]

The peers are built once, outside the repository, from the source archive of the installed
llama-cpp-python, which carries the llama.cpp that it was built from:

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    tar xf llama_cpp_python-0.3.36.tar.gz
    cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B DIR -DCMAKE_BUILD_TYPE=Release \\
          -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF
    cmake --build DIR --target llama-server llama-cli

DIR (or one with the programs in ``bin``) is named by --peers or LOCALSPEC_PEERS; without the
programs this says so and ends well, or with --servers none compares with plain decoding alone. Same
files, same token ids, same threads, same sampler settings, no reuse of prompts. All answer a prompt
side by side, some tokens of each by turns (``bench.side_by_side``; a server is stopped meanwhile),
but for llama-cli, which answers alone. llama-server runs in four modes: without speculation, with
its draft defaults, with its own default of speculation (--spec-default, a lookup), and with its
simple lookup. Speed is that of the tokens after the first, for everyone. Speeds shown are medians;
a ratio is the median of the ratios within each round; the gain shown is what localspec itself
measured in each answer, against plain steps of the same answer. With --log every answer is kept as
a line of JSON, and what is there already is not measured again: a long comparison can be stopped
and taken up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import geometric_mean, median

from bench.peers import CLI, SERVER_MODES, Peer, cli, find_program, server
from bench.side_by_side import Contender, Task, session_answers, side_by_side
from localspec.benchmark import BenchPrompt, choose, load
from localspec.chat import Message
from localspec.config import Config
from localspec.files import NoProgress
from localspec.opening import open_session
from localspec.session import Session

PEERS = "LOCALSPEC_PEERS"
OFF, AUTO, SEEDED = "localspec off", "localspec", "localspec seeded"
OURS = (OFF, AUTO, SEEDED)


# -- measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One answer of one contender. ``speed`` None: too short an answer."""

    temperature: float
    round: int
    prompt: str
    contender: str
    speed: float | None = None
    first_token_s: float | None = None
    gain: float | None = None


class Log:
    """The runs so far, each written to ``file`` at once if there is one."""

    def __init__(self, file: Path | None, setting: dict[str, object]) -> None:
        self.runs: list[Run] = []
        self._file = file
        if file is None:
            return
        if file.exists():
            first, *rest = file.read_text(encoding="utf-8").splitlines()
            if json.loads(first) != setting:
                raise SystemExit(f"{file} was measured with other settings: {first}")
            self.runs = [Run(**json.loads(line)) for line in rest]
        else:
            file.write_text(json.dumps(setting) + "\n", encoding="utf-8")

    def add(self, run: Run) -> None:
        """Keep one more."""
        self.runs.append(run)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(run)) + "\n")

    def has(self, temperature: float, number: int, prompt: str, contender: str) -> bool:
        """Whether that was measured."""
        wanted = (temperature, number, prompt, contender)
        return any((r.temperature, r.round, r.prompt, r.contender) == wanted for r in self.runs)


def compare(
    contenders: dict[str, Contender],
    tasks: Callable[[BenchPrompt, int, float], Task],
    prompts: Sequence[BenchPrompt],
    rounds: int,
    temperatures: Sequence[float],
    log: Log,
    report: Callable[[str], None],
) -> None:
    """All answer each prompt side by side, another one first each time; what ``log`` has already is
    not measured again."""
    names = list(contenders)
    for number in range(rounds):
        for temperature in temperatures:
            for index, prompt in enumerate(prompts):
                if all(log.has(temperature, number, prompt.id, name) for name in names):
                    continue
                report(f"round {number + 1} of {rounds}, temperature {temperature:g}, {prompt.id}")
                shift = (number + index) % len(names)
                order = [*names[shift:], *names[:shift]]
                task = tasks(prompt, number, temperature)
                answers = side_by_side([contenders[name](task) for name in order])
                for name, found in zip(order, answers, strict=True):
                    measured = () if found is None else astuple(found)
                    log.add(Run(temperature, number, prompt.id, name, *measured))


# -- comparing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt. ``plain``: localspec over its own plain, ``gain``: what it shows for that itself,
    ``first``: the same for the time to the first token; ``best``: over the fastest mode of
    llama-server, ``best_name``. None where one of them has no figure."""

    prompt: str
    speeds: dict[str, float]
    plain: float | None
    gain: float | None
    first: float | None
    best: float | None
    best_name: str


def lines(runs: Iterable[Run]) -> list[Line]:
    """Medians by prompt."""
    gains: dict[str, dict[int, float]] = {}
    speeds: dict[str, dict[str, dict[int, float]]] = {}
    firsts: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        mine = speeds.setdefault(run.prompt, {}).setdefault(run.contender, {})
        first = firsts.setdefault(run.prompt, {}).setdefault(run.contender, {})
        if run.speed is not None:
            mine[run.round] = run.speed
        if run.contender == AUTO and run.gain:
            gains.setdefault(run.prompt, {})[run.round] = run.gain
        if run.first_token_s:
            first[run.round] = run.first_token_s
    result = []
    for prompt, by_name in speeds.items():
        medians = {name: median(found.values()) for name, found in by_name.items() if found}
        servers = {name: speed for name, speed in medians.items() if name in SERVER_MODES}
        best_name = max(servers, key=lambda name: servers[name], default="")
        result.append(
            Line(
                prompt,
                medians,
                _ratio(by_name, AUTO, OFF),
                median(gains[prompt].values()) if prompt in gains else None,
                _ratio(firsts[prompt], AUTO, OFF),
                _ratio(by_name, AUTO, best_name),
                best_name,
            )
        )
    return result


def _ratio(found: dict[str, dict[int, float]], one: str, other: str) -> float | None:
    """The median of the ratios within each round: a machine that drifts moves both sides."""
    mine, theirs = found.get(one, {}), found.get(other, {})
    ratios = [mine[number] / theirs[number] for number in mine if number in theirs]
    return median(ratios) if ratios else None


def show(found: list[Line], names: Sequence[str]) -> None:
    """A table that a README can take."""
    heads = ["localspec / plain", "gain shown", "first token / plain", "localspec / best server"]
    print(f"| prompt | {' | '.join([*names, *heads])} |")
    print(f"|---|{'---:|' * (len(names) + len(heads))}")
    for line in found:
        cells = [f"{line.speeds[n]:.1f}" if n in line.speeds else "–" for n in names]
        ratios = (line.plain, line.gain, line.first, line.best)
        cells += ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        print(f"| {line.prompt} | {' | '.join(cells)} |")
    means = []
    for name in ("plain", "gain", "first", "best"):
        known = [value for line in found if (value := getattr(line, name))]
        means.append(f"{geometric_mean(known):.2f}" if known else "–")
    print(f"| geometric mean |{' |' * len(names)} {' | '.join(means)} |")


# -- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. 1 with --check when a mode of llama-server was faster on some prompt."""
    options = _options(arguments)
    folder = Path(options.peers).expanduser() if options.peers else None
    program = find_program(folder, "llama-server")
    if program is None and options.servers != "none":
        where = f"in {folder}" if folder else f"(--peers DIR or {PEERS}=DIR names where)"
        print(f"skipped: llama-server is not built {where}; see the top of bench/versus.py")
        return 0
    prompts = choose(load(), options.prompts)
    temperatures = [float(text) for text in options.temps.split(",")]
    config = Config(model=options.model, draft=options.draft, n_ctx=options.ctx, history=False,
                    threads=options.threads, learn=not options.no_learn)  # fmt: skip
    with ExitStack() as running:

        def opened(config: Config) -> Session:
            return running.enter_context(closing(open_session(config, NoProgress())))

        session = opened(config)
        status = session.status
        setting = {"model": status.model, "draft": status.draft, "threads": status.n_threads,
                   "tokens": options.tokens}  # fmt: skip
        log = Log(Path(options.log) if options.log else None, setting)
        plain = opened(replace(config, mode="off", draft=None, learn=False))
        contenders = {OFF: session_answers(plain, "off"), AUTO: session_answers(session, "auto")}
        if options.seeded:
            contenders[SEEDED] = session_answers(opened(config), "auto", seeded=True)
        contenders = _in_turns(contenders, _peers(session, program, folder, options, running))
        compare(
            contenders, _tasks(session, options.tokens), prompts, options.rounds, temperatures,
            log, lambda text: print(text, file=sys.stderr),
        )  # fmt: skip
    return _tell(log, setting, temperatures, options)


def _tell(
    log: Log, setting: dict[str, object], temperatures: Sequence[float], options: argparse.Namespace
) -> int:
    lost = 0
    for temperature in temperatures:
        runs = [run for run in log.runs if run.temperature == temperature]
        result = lines(runs)
        lost += sum(line.best is not None and line.best < 1 for line in result)
        if not options.json:
            rounds = 1 + max((run.round for run in runs), default=0)
            print(f"\n{setting['model']} + {setting['draft'] or 'no draft'}, {setting['threads']} "
                  f"threads, temperature {temperature:g}, {setting['tokens']} tokens, medians of "
                  f"{rounds}\n")  # fmt: skip
            known = {run.contender for run in runs}
            show(result, [n for n in [*OURS, *SERVER_MODES, CLI] if n in known])
    if options.json:
        print(json.dumps({**setting, "runs": [asdict(run) for run in log.runs]}, indent=1))
    return 1 if options.check and lost else 0


def _peers(
    session: Session,
    program: Path | None,
    folder: Path | None,
    options: argparse.Namespace,
    running: ExitStack,
) -> dict[str, Contender]:
    models = [context.model.path for context in session.contexts]
    peer = Peer(
        models[0], models[1] if len(models) > 1 else None, session.n_ctx, session.status.n_threads
    )
    found: dict[str, Contender] = {}
    wanted = options.servers.split(",") if options.servers else list(SERVER_MODES)
    for name in wanted:
        if program is None or name == "none":
            break
        extra = list(SERVER_MODES[name])
        if name == "server draft":
            if peer.draft is None:
                continue
            extra += ["-md", str(peer.draft)]
        found[name] = running.enter_context(server(program, peer, extra))
    cli_program = find_program(folder, CLI)
    if cli_program is not None and not options.no_cli:
        found[CLI] = cli(cli_program, peer)
    return found


def _in_turns(ours: dict[str, Contender], others: dict[str, Contender]) -> dict[str, Contender]:
    """One of ours, one of the others: everyone's turn follows that of another process, if there is
    one for each."""
    found = dict[str, Contender]()
    rest = iter(others.items())
    for name, contender in ours.items():
        found[name] = contender
        found |= dict(islice(rest, 1))
    return {**found, **dict(rest)}


def _tasks(session: Session, n: int) -> Callable[[BenchPrompt, int, float], Task]:
    def task(prompt: BenchPrompt, number: int, temperature: float) -> Task:
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
    parser.add_argument("--servers", help="none, or some of: " + ", ".join(SERVER_MODES))
    parser.add_argument("--seeded", action="store_true", help="also auto with a seed")
    parser.add_argument("--log", help="keep every answer in this file, and go on from it")
    parser.add_argument("--no-cli", action="store_true")
    parser.add_argument("--no-learn", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a server mode was faster")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in (options.servers or "").split(","):
        if name and name != "none" and name not in SERVER_MODES:
            parser.error(f'there is no server mode "{name}"')
    return options


if __name__ == "__main__":
    sys.exit(main())
