"""Which files are learned, and what becomes of them when they change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers_history import VOCABULARY
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec import opening, paths
from localspec.__main__ import main
from localspec.errors import UsageError
from localspec.files import NoProgress
from localspec.history import History, Source, held_everywhere
from localspec.history import ignore as ignoring
from localspec.history.ignore import files_below, rules_of
from localspec.history.learning import MAX_FILE_BYTES, Learned, learn, read_text
from localspec.sessions import Chats

TEXT = "def area(width, height):\n    return width * height  # what it covers\n" * 3


def tokenize(text: str) -> list[int]:
    return [ord(character) for character in text]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, content in {
        "main.py": TEXT,
        "docs/read me.md": "# What it does\n" * 5,
        "build/out.py": "generated",
        "notes.log": "log",
        "kept.log": "a log that is kept",
        ".env": "PASSWORD=1",
        ".hidden/x.py": "x = 1",
        "server.pem": "key",
        "node_modules/lib.js": "lib",
        "sub/.gitignore": "*.tmp\n!important.tmp\n/only_here.py\n",
        "sub/a.tmp": "a note of no use",
        "sub/important.tmp": "what matters most of all",
        "sub/only_here.py": "ignored here = 1",
        "sub/deep/only_here.py": 'print("deeper down")',
        ".gitignore": "build/\n*.log\n!kept.log\n# note\n\nnode_modules\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


MAX_MATCHING_S = 2.0
"""Usually it is milliseconds."""
WANTED = {
    "main.py",
    "docs/read me.md",
    "kept.log",
    "sub/important.tmp",
    "sub/deep/only_here.py",
}


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in files_below(root)}


def test_gitignore_is_respected_without_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignoring, "_from_git", lambda _root: None)
    assert names(project) == WANTED


def test_gitignore_is_respected_with_git(project: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    assert names(project) == WANTED


def test_a_repository_inside_another_is_read_too(project: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for root in (project / "vendored", project):
        root.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
    (project / "vendored" / "inner.py").write_text("inner = 1\n")
    (project / "vendored" / "built.o").write_text("no text for anyone")
    (project / "vendored" / ".gitignore").write_text("*.o\n")
    assert names(project) == WANTED | {"vendored/inner.py"}


def test_a_listed_repository_runs_no_program(project: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run(
        ["git", "-C", str(project), "config", "core.fsmonitor", str(program)], check=True
    )
    assert names(project) == WANTED
    assert not ran.exists()


@pytest.mark.parametrize(
    ("line", "path", "is_dir", "ignored"),
    [
        ("*.o", "a.o", False, True),
        ("*.o", "x/y/a.o", False, True),
        ("*.o", "a.out", False, False),
        ("/a.c", "a.c", False, True),
        ("/a.c", "x/a.c", False, False),
        ("x/a.c", "x/a.c", False, True),
        ("x/a.c", "y/x/a.c", False, False),
        ("x/*.c", "x/y/a.c", False, False),
        ("x/**/a.c", "x/a.c", False, True),
        ("x/**/a.c", "x/y/z/a.c", False, True),
        ("**/x", "y/x", True, True),
        ("x/**", "x/y/z", False, True),
        ("x/**", "x", True, False),
        ("dir/", "dir", True, True),
        ("dir/", "dir", False, False),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[ab].c", "b.c", False, True),
        ("[!ab].c", "b.c", False, False),
        ("[a-c]x", "bx", False, True),
        ("[", "[", False, True),
        ("\\#x", "#x", False, True),
        ("\\!x", "!x", False, True),
        ("x  ", "x", False, True),
        ("# x", "# x", False, False),
        ("a.b", "axb", False, False),
    ],
)
def test_patterns_mean_what_git_says(line: str, path: str, is_dir: bool, ignored: bool) -> None:
    rules = rules_of(line, "")
    assert any(rule.matches(path, is_dir) for rule in rules) == ignored


@settings(max_examples=200)
@given(text=st.text(alphabet="ab*?[]!\\/.#-^ \n", max_size=300), path=st.text("ab/.", max_size=80))
def test_no_pattern_is_fatal_or_slow(text: str, path: str) -> None:
    # Of this thread: a busy machine stretches the clock's time, and a stall is no slow pattern.
    started = time.thread_time()
    for rule in rules_of(text, ""):
        rule.matches(path + "a" * 60, is_dir=True)
    assert time.thread_time() - started < MAX_MATCHING_S


def test_links_are_not_followed(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    try:
        (project / "link").symlink_to(outside, target_is_directory=True)
        (project / "link.txt").symlink_to(outside / "secret.txt")
    except OSError:
        pytest.skip("this system makes no symbolic links")
    assert names(project) == WANTED


def test_only_text_of_a_sensible_size_is_read(tmp_path: Path) -> None:
    for name, content, reason in [
        ("a.txt", b"text", ""),
        ("b.txt", b"\xef\xbb\xbftext", ""),
        ("c.bin", b"text\0text", "not text"),
        ("d.bin", b"\xff\xfe\x80", "not text"),
        ("e.txt", b"x" * (MAX_FILE_BYTES + 1), "too large"),
    ]:
        (tmp_path / name).write_bytes(content)
        assert read_text(tmp_path / name) == ("" if reason else "text", reason)
    assert read_text(tmp_path / "none") == ("", "cannot be read")


# -- learning -------------------------------------------------------------------------------------


def opened() -> History:
    return History.open(paths.history_dir(), VOCABULARY, model="m", capacities=(16_384,))


def learned(*roots: Path) -> Learned:
    history = opened()
    done = learn(roots, history, tokenize, NoProgress())
    assert history.note == ""
    history.close()
    return done


def found(text: str) -> bool:
    history = opened()
    tokens = tokenize(text)
    match = history.find(tokens[:32])
    history.close()
    return match is not None and match.length == 32 and match.token == tokens[32]


def test_files_are_learned_once(project: Path) -> None:
    done = learned(project)
    assert (done.n_files, done.n_unchanged, done.n_forgotten) == (5, 0, 0)
    assert done.n_tokens > 100
    assert found(TEXT)
    again = learned(project, project / "main.py")
    assert (again.n_files, again.n_tokens) == (0, 0)


def test_a_changed_file_is_learned_anew_and_a_gone_one_forgotten(project: Path) -> None:
    learned(project)
    (project / "main.py").write_text(TEXT.replace("area", "volume").replace("covers", "holds"))
    (project / "docs" / "read me.md").unlink()
    done = learned(project)
    assert (done.n_files, done.n_forgotten) == (1, 1)
    assert found(TEXT.replace("area", "volume").replace("covers", "holds"))
    assert not found(TEXT)
    (held,) = held_everywhere(paths.history_dir())
    assert not any("read me" in info.name for info in held.sources)


def test_learning_one_directory_leaves_the_others_alone(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("Dear Sir or Madam, thank you for your letter of today.")
    learned(project)
    done = learned(other)
    assert (done.n_files, done.n_forgotten) == (1, 0)
    assert found(TEXT)


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    history = History.in_memory()
    with pytest.raises(UsageError, match="does not exist"):
        learn([tmp_path / "none"], history, tokenize, NoProgress())


def test_it_stops_when_asked(project: Path) -> None:
    history = opened()
    done = learn([project], history, tokenize, NoProgress(), lambda: True)
    history.close()
    assert done.n_files == 0


def test_a_pipe_does_not_block_it(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe")
    done = learned(tmp_path / "pipe")
    assert done.skipped == {"not a regular file": 1}


# -- the command ----------------------------------------------------------------------------------


class FakeModel:
    def __init__(self, path: Path, *, vocab_only: bool) -> None:
        assert vocab_only

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        assert not parse_special
        return tokenize(text)

    def close(self) -> None: ...


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    target = SimpleNamespace(id="a-model", path=model)
    store = SimpleNamespace(find=lambda file: file.path if file.path.exists() else None)
    monkeypatch.setattr(
        opening, "prepare", lambda *_: (None, SimpleNamespace(target=target), store)
    )
    monkeypatch.setattr("localspec.gguf.read_header", lambda _path: None)
    monkeypatch.setattr("localspec.history.vocabulary_key", lambda _header: VOCABULARY)
    monkeypatch.setattr("localspec.llama.model.Model", FakeModel)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_learn_status_forget(run: Callable[..., tuple[int, str, str]], project: Path) -> None:
    assert run("learn", "--status") == (0, "", "Nothing is in the index yet.\n")
    code, out, err = run("learn", project)
    assert (code, out) == (0, "")
    assert "5 files learned" in err
    code, out, err = run("learn", "--status")
    assert "model.gguf" in out
    assert "learned files" in out
    code, out, err = run("learn", "--status", "--json")
    (vocabulary,) = json.loads(out)["vocabularies"]
    assert {Path(source["name"]).name for source in vocabulary["sources"]} >= {"main.py"}
    code, out, err = run("learn", "--forget", project / "sub")
    assert "2 files" in err
    assert found(TEXT)
    code, out, err = run("learn", "--forget", project, "--json")
    assert json.loads(out)["n_files"] == 3
    assert not found(TEXT)
    code, out, err = run("learn", "--forget", project)
    assert code == 2
    assert "nothing of" in err


def test_learn_as_json(run: Callable[..., tuple[int, str, str]], project: Path) -> None:
    code, out, _ = run("learn", "--json", project / "main.py")
    assert code == 0
    assert json.loads(out)["n_files"] == 1


def test_learn_needs_something_to_do(run: Callable[..., tuple[int, str, str]]) -> None:
    for arguments in ((), ("--status", "x"), ("--status", "--forget", "x")):
        code, _, err = run("learn", *arguments)
        assert code == 2
        assert "Name files to learn" in err


def test_learn_needs_the_model_and_history(
    run: Callable[..., tuple[int, str, str]],
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "model.gguf").unlink()
    code, _, err = run("learn", project)
    assert code == 1
    assert "localspec pull a-model" in err
    monkeypatch.setenv("LOCALSPEC_HISTORY", "off")
    code, _, err = run("learn", project)
    assert code == 2
    assert "history is off (from LOCALSPEC_HISTORY)" in err


def test_history_forget(run: Callable[..., tuple[int, str, str]]) -> None:
    history = opened()
    history.remember(tokenize(TEXT), Source("chat", "abc123"))
    history.remember(tokenize("Something else that was asked once, in one go."), Source("run"))
    history.close()
    code, _, err = run("history", "forget")
    assert code == 0
    assert err == f"{len(TEXT)} tokens forgotten.\n"
    assert not found(TEXT)
    assert "46 tokens" in run("history", "forget", "--runs")[2]
    run("history", "forget", "--all")
    assert not paths.history_dir().exists()


def test_deleting_a_chat_by_command_forgets_it(run: Callable[..., tuple[int, str, str]]) -> None:
    with Chats.open(paths.chats_file()) as chats:
        chat = chats.new()
        chats.add_turn(chat, "user", "a question")
    history = opened()
    history.remember(tokenize(TEXT), Source("chat", chat))
    history.close()
    assert run("history", "delete", "-y", chat)[0] == 0
    assert not found(TEXT)
