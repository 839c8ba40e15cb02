"""``localspec run --continue`` and ``--resume``: one more question in a saved chat."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from test_cli_run import END, SPACE, ScriptedSession, _Terminal, pipe_in

from localspec import chat, opening, paths
from localspec.__main__ import main
from localspec.chat import Message
from localspec.config import Config
from localspec.errors import DecodeError
from localspec.files import Cancelled
from localspec.history import RUNS, Source
from localspec.sessions import Chats, SavedChat
from localspec.spec.events import Event, Step
from localspec.spec.sampling import Sampling

Capture = pytest.CaptureFixture[str]
ANSWER = "abc " * 8


@dataclass
class ChatSession(ScriptedSession):
    """Counts a token for each word of a chat; says what it was asked, and fails if told to."""

    sources: list[Source | None] = field(default_factory=list)
    n_ctx: int = 256
    error: Exception | None = None

    def fit(
        self, messages: Sequence[Message], n_reserve: int, n_dropped: int = 0
    ) -> tuple[list[Message], int]:
        count = lambda turns: sum(len(turn.content.split()) for turn in turns)  # noqa: E731
        return chat.fit(messages, max(1, self.n_ctx - n_reserve), count, n_dropped=n_dropped)

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
        self.sources.append(source)
        for event in super().ask(
            prompt, sampling, max_tokens=max_tokens, stops=stops, cancelled=cancelled, source=RUNS
        ):
            yield event
            if isinstance(event, Step) and self.error is not None:
                raise self.error


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ChatSession]]:
    def use(**given: Any) -> list[ChatSession]:
        made: list[ChatSession] = []

        def open_session(config: Config, *_: object) -> ChatSession:
            made.append(ChatSession(config, **given))
            return made[-1]

        monkeypatch.setattr(opening, "open_session", open_session)
        monkeypatch.setattr(sys, "stdin", _Terminal())
        return made

    return use


def a_chat(*said: str, system: str = "") -> str:
    """The id of a saved chat of questions and answers in turn."""
    with Chats.open(paths.chats_file()) as chats:
        chat_id = chats.new(model="m", system=system)
        for place, text in enumerate(said):
            chats.add_turn(chat_id, ("user", "assistant")[place % 2], text)
    return chat_id


def saved(chat_id: str = "latest") -> SavedChat:
    with Chats.open(paths.chats_file()) as chats:
        return chats.get(chat_id)


def contents(session: ChatSession) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in session.asked[0][0]]


Scripted = Callable[..., list[ChatSession]]


def test_the_question_is_asked_in_the_last_chat_and_saved_with_its_numbers(
    scripted: Scripted, capsys: Capture
) -> None:
    a_chat("older", "one")
    chat_id = a_chat("first", "answer one", system="be brief")
    (session,) = [*_run(scripted(), "run", "--continue", "second", "--temp", "0.5")]
    assert capsys.readouterr().out == "abc " * 7 + "abc \n"
    assert contents(session) == [
        ("system", "be brief"), ("user", "first"), ("assistant", "answer one"), ("user", "second"),
    ]  # fmt: skip
    assert session.sources == [Source("chat", chat_id)]
    assert session.closed
    turns = saved(chat_id).turns
    assert [(t.role, t.content, t.state) for t in turns[2:]] == [
        ("user", "second", "complete"), ("assistant", ANSWER, "complete"),
    ]  # fmt: skip
    assert turns[3].numbers["n_tokens"] == 33
    assert turns[3].numbers["n_accepted"] > 0
    assert "text" not in turns[3].numbers
    assert turns[3].settings["temperature"] == 0.5


def _run(sessions: list[ChatSession], *args: str, code: int = 0) -> list[ChatSession]:
    assert main(list(args)) == code
    return sessions


def test_two_runs_one_after_the_other_are_one_chat(scripted: Scripted) -> None:
    a_chat("first", "one")
    sessions = scripted()
    main(["run", "--continue", "second"])
    main(["run", "--continue", "third"])
    assert [text for _, text in contents(sessions[1])] == [
        "first",
        "one",
        "second",
        ANSWER,
        "third",
    ]


def test_another_chat_by_the_beginning_of_its_id(scripted: Scripted, capsys: Capture) -> None:
    wanted = a_chat("wanted", "yes")
    a_chat("newer", "no")
    (session,) = _run(scripted(), "run", "--resume", wanted[:5], "more", "--json")
    assert contents(session)[0] == ("user", "wanted")
    value = json.loads(capsys.readouterr().out)
    assert (value["chat"], value["text"]) == (wanted, ANSWER)
    numbers = saved(wanted).turns[3].numbers
    assert numbers == {k: v for k, v in value.items() if k not in ("text", "chat")}


def test_piped_text_is_part_of_the_question(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_chat("first", "one")
    sessions = scripted()
    pipe_in(monkeypatch, b"piped\n")
    main(["run", "--continue", "what is this?"])
    assert contents(sessions[0])[-1] == ("user", "piped\n\nwhat is this?")


def test_a_new_system_message_is_the_chats_from_now_on(scripted: Scripted) -> None:
    a_chat("first", "one", system="old")
    (session,) = _run(scripted(), "run", "--continue", "-s", "new", "second")
    assert contents(session)[0] == ("system", "new")
    assert saved().system == "new"


def test_a_long_chat_is_trimmed_at_the_front_and_that_is_said(
    scripted: Scripted, capsys: Capture
) -> None:
    said = [f"{who}{i} " + "word " * 9 for i in range(8) for who in "qa"]
    a_chat(*said, system="stay")
    (session,) = _run(scripted(n_ctx=64), "run", "--continue", "last question")
    turns = contents(session)
    assert turns[0] == ("system", "stay")
    assert turns[-1] == ("user", "last question")
    n_dropped = len(said) - (len(turns) - 2)
    assert n_dropped > 0
    assert turns[1][1] == said[n_dropped]
    assert f"the first {n_dropped} messages of the chat do not fit" in capsys.readouterr().err
    assert len(saved().turns) == len(said) + 2
    main(["run", "--continue", "-q", "another"])
    assert capsys.readouterr().err == ""


def test_a_question_that_has_no_room_changes_nothing(scripted: Scripted, capsys: Capture) -> None:
    a_chat("first", "one")
    (session,) = _run(scripted(n_ctx=64), "run", "--continue", "word " * 100, code=1)
    assert "the prompt has 100 tokens" in capsys.readouterr().err
    assert session.closed
    assert len(saved().turns) == 2


def test_an_answer_that_ends_in_an_error_is_kept_as_far_as_it_came(
    scripted: Scripted, capsys: Capture
) -> None:
    a_chat("first", "one")
    _run(scripted(error=DecodeError("llama.cpp failed")), "run", "--continue", "x", code=1)
    assert "llama.cpp failed" in capsys.readouterr().err
    turn = saved().turns[3]
    assert turn.state == "stopped"
    assert turn.content
    assert ANSWER.startswith(turn.content)


def test_a_shortened_answer_is_saved_as_it_was_shown(scripted: Scripted, capsys: Capture) -> None:
    a_chat("first", "one")
    _run(scripted(answer=(1, 2, SPACE, 3, END)), "run", "--continue", "x", "--stop", " ")
    assert capsys.readouterr().out == "ab\n"
    assert saved().turns[3].content == "ab"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--continue"], "there is no saved chat yet"),
        (["--resume", "zzz"], 'there is no saved chat "zzz"'),
        (["--resume", ""], "there is no saved chat"),
        (["--continue", "--resume", "zzz"], "name two chats"),
        (["--continue", "--raw"], "cannot add to a saved chat"),
        (["--resume", "zzz", "--raw"], "cannot add to a saved chat"),
    ],
)
def test_nonsense_is_refused_before_a_model_is_loaded(
    scripted: Scripted, capsys: Capture, args: list[str], words: str
) -> None:
    sessions = _run(scripted(), "run", "x", *args, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) <= 3
    assert not sessions


def test_where_chats_are_not_saved_there_is_none_to_go_on_with(
    scripted: Scripted, capsys: Capture
) -> None:
    paths.config_file().parent.mkdir(parents=True, exist_ok=True)
    paths.config_file().write_text("save_chats: false\n", encoding="utf-8")
    _run(scripted(), "run", "x", "--continue", code=2)
    assert "chats are not saved" in capsys.readouterr().err


def test_a_run_without_it_saves_no_chat(scripted: Scripted) -> None:
    scripted()
    main(["run", "x"])
    assert not paths.chats_file().exists()
