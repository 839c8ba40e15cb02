"""``localspec run`` over a scripted session: input, streams, exit codes, JSON, nonsense."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec import opening
from localspec.__main__ import main
from localspec.chat import Message, Template
from localspec.config import Config
from localspec.files import Cancelled, Progress
from localspec.history import RUNS, Source
from localspec.session import Status
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Event
from localspec.spec.fakes import FakeDecoder, FakeSampler, FakeVocabulary, says
from localspec.spec.fixed_pacers import FixedPacer
from localspec.spec.lookup import Lookup
from localspec.spec.sampling import Sampling

KEYS = {
    "text", "model", "draft", "mode", "reason", "finish_reason", "seed", "n_prompt", "n_tokens",
    "n_steps", "n_drafted", "n_verified", "n_accepted", "acceptance_rate", "mean_accepted_length",
    "per_position", "prompt_s", "first_token_s", "generate_s", "tokens_per_s",
    "baseline_tokens_per_s", "gain", "drafters",
}  # fmt: skip
PIECES = [b"", *(bytes([96 + i]) for i in range(1, 27)), b" ", b"\x1b[31m"]
SPACE, ESCAPE, END = 27, 28, 0
PROMPT = [5, 6]


@dataclass
class ScriptedSession:
    """Says "abc abc abc ..." with lookup, or what it is given."""

    config: Config
    answer: Sequence[int] = (*[1, 2, 3, SPACE] * 8, END)
    asked: list[Any] = field(default_factory=list)
    closed: bool = False
    template: Template = field(default_factory=lambda: Template("{{ messages[-1].content }}"))

    @property
    def status(self) -> Status:
        return Status("scripted", None, "lookup", "asked for", "cpu", 256, 1)

    def ask(
        self,
        prompt: Sequence[Message] | str,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancelled: Cancelled = lambda: False,
        source: Source | None = None,
    ) -> Iterator[Event]:
        assert source == RUNS
        self.asked.append((prompt, sampling))
        target = FakeDecoder(len(PIECES), says(len(PIECES), [*PROMPT, *self.answer]), n_ctx=256)
        engine = Engine(target, FakeVocabulary(PIECES, [END]), [Lookup()], FixedPacer("lookup", 4))
        request = Request(
            PROMPT, FakeSampler(), np.random.default_rng(sampling.seed), max_tokens, stops,
            cancelled=cancelled,
        )  # fmt: skip
        yield from engine.generate(request)

    def close(self) -> None:
        self.closed = True


Opened = list[ScriptedSession]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made: Opened = []

    def open_session(
        config: Config, progress: Progress | None = None, cancelled: Cancelled = lambda: False
    ) -> ScriptedSession:
        made.append(ScriptedSession(config))
        return made[-1]

    monkeypatch.setattr(opening, "open_session", open_session)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    return made


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def prompt_of(sessions: Opened) -> str:
    (turns, _) = sessions[0].asked[0]
    return turns if isinstance(turns, str) else str(turns[-1].content)


Capture = pytest.CaptureFixture[str]


def test_the_answer_is_alone_on_stdout(sessions: Opened, capsys: Capture) -> None:
    assert main(["run", "hello"]) == 0
    out, err = capsys.readouterr()
    assert out == "abc " * 7 + "abc \n"
    assert "mode lookup: asked for" in err
    assert "accepted" in err
    assert sessions[0].closed


def test_quiet_and_no_stats(sessions: Opened, capsys: Capture) -> None:
    main(["run", "hello", "-q"])
    main(["run", "hello", "--no-stats"])
    assert capsys.readouterr().err == ""


def test_json_has_the_promised_keys_and_nothing_else_on_stdout(
    sessions: Opened, capsys: Capture
) -> None:
    """F15: mode in force, reason, and drafted tokens above 0 when the text repeats."""
    assert main(["run", "hello", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert KEYS <= value.keys()
    assert value["text"] == "abc " * 8
    assert (value["mode"], value["reason"]) == ("lookup", "asked for")
    assert value["finish_reason"] == "stop"
    assert value["n_drafted"] > 0
    assert value["drafters"]["lookup"]["n_accepted"] == value["n_accepted"]
    assert value["acceptance_rate"] == value["n_accepted"] / value["n_verified"]
    assert isinstance(value["seed"], int)


def test_json_says_null_when_nothing_was_verified(sessions: Opened, capsys: Capture) -> None:
    main(["run", "hello", "--json", "-n", "2"])
    value = json.loads(capsys.readouterr().out)
    assert value["acceptance_rate"] is None
    assert value["finish_reason"] == "length"
    assert value["text"] == "ab"


def test_fresh_seeds_differ_and_a_given_one_is_used(sessions: Opened, capsys: Capture) -> None:
    seeds = []
    for extra in ([], [], ["--seed", "7"]):
        main(["run", "hello", "--json", *extra])
        seeds.append(json.loads(capsys.readouterr().out)["seed"])
    assert seeds[0] != seeds[1]
    assert seeds[2] == 7


def test_stdin_comes_before_the_prompt(
    sessions: Opened, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pipe_in(monkeypatch, "piped é\n".encode())
    main(["run", "question"])
    assert prompt_of(sessions) == "piped é\n\nquestion"


def test_a_dash_reads_stdin(sessions: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, b"only this")
    main(["run", "-"])
    assert prompt_of(sessions) == "only this"


def test_files_come_first(
    sessions: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("file text", encoding="utf-8")
    pipe_in(monkeypatch, b"piped")
    main(["run", "-f", str(tmp_path / "a.txt"), "question"])
    assert prompt_of(sessions) == "file text\n\npiped\n\nquestion"


def test_raw_keeps_the_text_as_it_is(sessions: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, b"  def f(x):\n")
    main(["run", "--raw", "-"])
    assert sessions[0].asked[0][0] == "  def f(x):\n"


def test_a_system_message_goes_first(sessions: Opened) -> None:
    main(["run", "-s", "be brief", "hello"])
    turns, _ = sessions[0].asked[0]
    assert [(turn.role, turn.content) for turn in turns] == [
        ("system", "be brief"), ("user", "hello"),
    ]  # fmt: skip


def test_sampler_flags_arrive(sessions: Opened) -> None:
    main(
        "run x --temp 0.3 --top-k 7 --top-p .5 --min-p 0 --repeat-penalty 1.2 "
        "--presence-penalty 0.5 --repeat-last-n -1".split()
    )
    sampling = sessions[0].asked[0][1]
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (
        0.3,
        7,
        0.5,
        0,
    )
    assert (sampling.repeat_penalty, sampling.presence_penalty) == (1.2, 0.5)
    assert sampling.penalty_last_n == -1


def test_model_flags_arrive(sessions: Opened) -> None:
    main("run x -m pair -md other --mode draft --draft-max 5 -c 512 -t 3 --offline".split())
    config = sessions[0].config
    assert (config.model, config.draft, config.mode) == ("pair", "other", "draft")
    assert (config.draft_max, config.n_ctx, config.threads, config.offline) == (5, 512, 3, True)
    assert config.source_of("mode") == "from --mode"


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (["run", ""], "prompt is empty", 1),
        (["run", "  \n "], "prompt is empty", 1),
        (["run", "x", "-n", "-3"], "-3 is out of range: it must be at least 1", 2),
        (["run", "x", "-n", "many"], "'many' is not a whole number", 2),
        (["run", "x", "--temp", "-1"], "it must be from 0 to 100", 2),
        (["run", "x", "--temp", "nan"], "out of range", 2),
        (["run", "x", "--mode", "fast"], "fast", 2),
        (["run", "x", "--draft-max", "0"], "it must be from 1 to 63", 2),
        (["run", "x", "-f", "/no/such/file"], "/no/such/file cannot be read", 2),
        (["run", "x", "-f", "/"], "is a directory", 2),
        (["run", "x", "--stop", ""], "--stop needs a text", 2),
        (["run", "x", "--frobnicate"], "--frobnicate", 2),
        (["run", "a", "b"], "unexpected extra argument", 2),
        (["rnu"], 'Did you mean "run"?', 2),
    ],
)
def test_nonsense_gets_a_sentence_and_an_exit_code(
    sessions: Opened, capsys: Capture, args: list[str], words: str, code: int
) -> None:
    assert main(args) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 3


def test_a_binary_file_is_not_a_prompt(sessions: Opened, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"ab\0cd")
    assert main(["run", "x", "-f", str(tmp_path / "x.bin")]) == 1
    assert "does not hold text" in capsys.readouterr().err


def test_a_terminal_never_gets_escape_sequences(
    sessions: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    says_escape = ScriptedSession(Config(), answer=(1, ESCAPE, 2, END))
    monkeypatch.setattr(opening, "open_session", lambda *_: says_escape)
    main(["run", "x", "-q"])
    assert screen.getvalue() == "a[31mb\n"


def test_an_error_message_cannot_carry_control_characters(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    assert main(["run", "x", "-m", "./\x1b[2Jevil.gguf"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_an_unexpected_fault_is_a_sentence_and_a_log_entry(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    def explode(*_: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(opening, "open_session", explode)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    assert main(["run", "x"]) == 70
    err = capsys.readouterr().err
    assert "boom" in err
    assert "Traceback" not in err
    assert "RuntimeError: boom" in (own_home / "log" / "localspec.log").read_text("utf-8")


# -- real processes --------------------------------------------------------------------------


def process(*args: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", *args],
        capture_output=True, timeout=60, check=False, **options,
    )  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from localspec.__main__ import main; main(['--help']); "
        "heavy = {'llama_cpp', 'numpy', 'textual', 'huggingface_hub', 'psutil', 'jinja2', 'rich', "
        "'yaml', 'httpx'} & set(sys.modules); sys.exit(len(heavy))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert found.returncode == 0, found.stderr.decode()
    assert b"Commands:" in found.stdout


def test_version_and_paths() -> None:
    assert process("--version").stdout.startswith(b"localspec, version ")
    listed = json.loads(process("paths", "--json").stdout)
    assert listed["log_file"].startswith(os.environ["LOCALSPEC_HOME"])


@pytest.mark.skipif(os.name != "posix", reason="pipes to head are a POSIX shell's way")
def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = (
        "import sys; from localspec.__main__ import main; from localspec.cli import run; "
        "from localspec import opening; from tests_scripted import session; "
        "opening.open_session = session; sys.exit(main(['run', 'x', '-q']))"
    )
    helper = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(helper)}
    shell = f'{sys.executable} -c "{code}" </dev/null | head -c 1; exit ${{PIPESTATUS[0]}}'
    found = subprocess.run(
        ["bash", "-c", shell], env=environment, capture_output=True, timeout=60, check=False
    )
    assert found.stderr == b""
    assert found.stdout == b"a"
    assert found.returncode == 0
