"""The comparison's arithmetic and its skips; the peers themselves are not needed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench import peers, versus
from bench.peers import SERVER_MODES, Peer, find_program, speed_in
from bench.side_by_side import Answered, Answering, Contender, Task, side_by_side
from bench.versus import Log, Run, compare, lines
from localspec.benchmark import BenchPrompt

PROMPTS = [BenchPrompt("a", "code", "x"), BenchPrompt("b", "edit", "y")]


def task(prompt: BenchPrompt, number: int, temperature: float) -> Task:
    return Task(prompt, [1], 10, temperature, number)


def test_without_the_peers_it_says_so_and_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versus, "open_session", lambda *_: pytest.fail("a model was loaded"))
    assert versus.main(["--peers", str(tmp_path)]) == 0
    assert "skipped: llama-server is not built in" in capsys.readouterr().out
    assert versus.main(["--peers", ""]) == 0
    assert "LOCALSPEC_PEERS" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="makes an executable the POSIX way")
def test_programs_are_found_in_bin_too(tmp_path: Path) -> None:
    assert find_program(None, "llama-server") is None
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "llama-server"
    program.write_text("#!/bin/sh\n")
    assert find_program(tmp_path, "llama-server") is None
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert find_program(tmp_path, "llama-server") == program


def wait_until(fact: Callable[[], bool]) -> None:
    """A signal takes its time."""
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def contender(name: str, order: list[str], speed: float | None = 1.0) -> Contender:
    def answer(_: Task) -> Answering:
        order.append(name)
        yield
        return None if speed is None else Answered(speed, 0.5)

    return answer


NAMES = ["localspec", "server off", "server draft"]


def test_everyone_takes_turns() -> None:
    order: list[str] = []
    log = Log(None, {})
    everyone = {name: contender(name, order) for name in NAMES}
    compare(everyone, task, PROMPTS, 3, [0.0, 0.8], log, lambda _: None)
    assert len(log.runs) == len(order) == 3 * 2 * 2 * len(NAMES)
    assert set(order[::3]) == set(NAMES)
    for i in range(0, len(order), 3):
        assert set(order[i : i + 3]) == set(NAMES)


def test_a_comparison_that_was_stopped_is_taken_up(tmp_path: Path) -> None:
    file, order = tmp_path / "log", list[str]()

    def stops(_: Task) -> Answering:
        yield
        raise KeyboardInterrupt

    everyone = {
        "localspec": contender("localspec", order, None),
        "server off": contender("server off", order),
    }
    compare(everyone, task, PROMPTS[:1], 1, [0.0], Log(file, {"tokens": 10}), lambda _: None)
    broken = {**everyone, "server off": stops}
    with pytest.raises(KeyboardInterrupt):
        compare(broken, task, PROMPTS, 2, [0.0], Log(file, {"tokens": 10}), lambda _: None)
    log = Log(file, {"tokens": 10})
    assert log.runs == [
        Run(0.0, 0, "a", "localspec", None, None),
        Run(0.0, 0, "a", "server off", 1.0, 0.5),
    ]
    order.clear()
    compare(everyone, task, PROMPTS, 2, [0.0], log, lambda _: None)
    assert sorted(order) == ["localspec"] * 3 + ["server off"] * 3
    assert Log(file, {"tokens": 10}).runs == log.runs
    with pytest.raises(SystemExit, match="other settings"):
        Log(file, {"tokens": 11})


def test_ours_and_the_others_alternate() -> None:
    def named(*names: str) -> dict[str, Contender]:
        return {name: contender(name, []) for name in names}

    assert list(versus._in_turns(named("a", "b"), named("x", "y", "z"))) == [
        "a",
        "x",
        "b",
        "y",
        "z",
    ]
    assert list(versus._in_turns(named("a", "b"), {})) == ["a", "b"]


def runs_of(prompt: str, by_name: dict[str, list[float]]) -> list[Run]:
    return [
        Run(0.0, number, prompt, name, speed, 1 / speed, 1.9 if name == "localspec" else 1.0)
        for name, speeds in by_name.items()
        for number, speed in enumerate(speeds)
    ]


def test_medians_ratios_within_rounds_and_the_best_server_mode() -> None:
    by_name = {
        "localspec": [30.0, 10.0, 20.0],
        "localspec off": [10.0, 10.0],
        "server off": [9.0, 11.0, 10.0],
        "server draft": [25.0],
        "llama-cli": [100.0],
    }
    one, other = lines([*runs_of("a", by_name), *runs_of("b", {"localspec": [5.0]})])
    assert one.speeds["localspec"] == 20.0
    assert one.plain == pytest.approx(2.0)  # of 3 and 1; the third round has no plain
    assert one.first == pytest.approx((1 / 3 + 1) / 2)
    assert (one.best_name, one.best) == ("server draft", pytest.approx(1.2))
    assert (other.plain, other.first, other.best, other.best_name) == (None, None, None, "")


def test_the_table_has_a_cell_for_everyone(capsys: pytest.CaptureFixture[str]) -> None:
    found = runs_of("a", {"localspec": [2.0], "localspec off": [1.0], "server off": [1.0]})
    found.append(Run(0.0, 0, "b", "localspec", None, None))
    versus.show(lines(found), ["localspec", "localspec off", "server off"])
    rows = capsys.readouterr().out.splitlines()
    assert len({row.count("|") for row in rows}) == 1
    assert rows[2] == "| a | 2.0 | 1.0 | 1.0 | 2.00 | 1.90 | 0.50 | 2.00 |"
    assert rows[-1].endswith("2.00 | 1.90 | 0.50 | 2.00 |")


def test_speed_from_the_text_of_llama_cli() -> None:
    text = "an answer [ Generation: x ]\n[ Prompt: 80.1 t/s | Generation: 27.3 t/s ]\n"
    assert speed_in(text) == 27.3
    assert speed_in("no timings") is None


def test_every_peer_gets_the_same_files_threads_and_context() -> None:
    peer = Peer(Path("t.gguf"), Path("d.gguf"), 2048, 2)
    for extra in SERVER_MODES.values():
        command = peer.arguments(*extra)
        assert command[:8] == ["-m", "t.gguf", "-c", "2048", "-t", "2", "-tb", "2"]
        assert "--offline" in command


def test_unknown_server_modes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        versus.main(["--servers", "server fast"])
    assert "server fast" in capsys.readouterr().err


SERVER = """#!{python}
import http.server, json, sys
if "--fail" in sys.argv:
    sys.exit("error: unknown model architecture")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{{}}")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["cache_prompt"] is False and asked["top_k"] == 40 and asked["stream"]
        self.send_response(200); self.end_headers()
        n = min(asked["n_predict"], len(asked["prompt"]) + 100 * (asked["temperature"] == 0))
        for i in range(1, n + 2):
            told = {{"stop": i > n, "timings": {{"predicted_n": min(i, n)}}}}
            self.wfile.write(b"data: " + json.dumps(told).encode() + b"\\n\\n")
    def log_message(self, *_): pass

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.skipif(os.name != "posix", reason="makes an executable the POSIX way")
def test_a_server_is_started_asked_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # must not be asked
    program = tmp_path / "llama-server"
    program.write_text(SERVER.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    peer = Peer(Path("t.gguf"), None, 512, 1)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: Any, **how: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with peers.server(program, peer, ("--spec-default",)) as ask:
        turns = ask(Task(PROMPTS[0], [1, 2], 41, 0.0, 1))
        handle = psutil.Process(started[0].pid)
        n_turns = 0
        for _ in turns:
            n_turns += 1
            wait_until(lambda: handle.status() == psutil.STATUS_STOPPED)  # it is not its turn
        assert n_turns == 3  # after 1, 17 and 33 tokens
        [found] = side_by_side([ask(Task(PROMPTS[0], [1, 2], 41, 0.0, 1))])
        assert found is not None
        assert found.first_token_s is not None
        assert found.speed > 0
        # One token says nothing about speed.
        assert side_by_side([ask(Task(PROMPTS[0], [1], 41, 0.8, 1))]) == [None]
        next(ask(Task(PROMPTS[0], [1, 2], 41, 0.0, 1)))  # left there: it is ended all the same
        assert started[0].poll() is None
    assert started[0].poll() is not None
    with pytest.raises(SystemExit, match="unknown model architecture"):
        peers.server(program, peer, ("--fail",)).__enter__()
