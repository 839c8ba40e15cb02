"""``localspec history`` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec import paths
from localspec.__main__ import main
from localspec.sessions import Chats


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


@pytest.fixture
def chat() -> str:
    with Chats.open(paths.chats_file()) as chats:
        chat = chats.new(model="big", draft="small", system="Be brief.")
        chats.add_turn(chat, "user", "Why is the sky blue?")
        chats.add_turn(
            chat,
            "assistant",
            "Light \x1b]0;owned\x07scatters.",
            numbers={"n_tokens": 12, "tokens_per_s": 20.5, "acceptance_rate": None, "gain": 1.5},
        )
        chats.add_turn(chat, "user", "More")
        chats.add_turn(chat, "assistant", "Rayl", state="stopped")
    return chat


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["history", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_list(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    head, row = out.splitlines()
    assert head.split() == ["id", "last", "used", "turns", "title", "model"]
    assert row.startswith(chat)
    assert "Why is the sky blue?" in row
    assert row.rstrip().endswith("big + small")
    code, out, _ = run(capsys, "list", "--json", "scatters")
    assert [info["id"] for info in json.loads(out)["chats"]] == [chat]
    code, out, err = run(capsys, "list", "absent")
    assert (code, out, err) == (0, "", "No saved chat has these words.\n")


def test_nothing_is_saved_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list") == (0, "", "There are no saved chats yet.\n")
    assert json.loads(run(capsys, "list", "--json")[1]) == {"chats": []}
    code, _, err = run(capsys, "show", "latest")
    assert (code, err) == (2, "localspec: there is no saved chat yet\n")


def test_show(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", chat[:4])
    assert code == 0
    assert out.split("\n", 2)[2] == (
        "\n[system]\nBe brief.\n\n[user]\nWhy is the sky blue?\n\n"
        "[assistant]  12 tokens, 20.5 tokens/s, 1.50x plain speed\nLight ]0;ownedscatters.\n\n"
        "[user]\nMore\n\n[assistant, stopped]\nRayl\n"
    )
    data = json.loads(run(capsys, "show", "latest", "--json")[1])
    assert [turn["state"] for turn in data["turns"]] == ["complete"] * 3 + ["stopped"]


def test_show_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "show", "zzz")
    assert (code, out) == (2, "")
    assert err.startswith('localspec: there is no saved chat "zzz"\n')


def test_search(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "search", "SCATTERS", "light")
    assert code == 0
    assert chat in out
    assert "\x1b" not in out
    hits = json.loads(run(capsys, "search", "--json", "sky")[1])["hits"]
    assert [(hit["chat"]["id"], hit["role"]) for hit in hits] == [(chat, "user")]
    assert run(capsys, "search", "absent")[2] == "Nothing was found.\n"


def test_export(chat: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "export", chat)
    assert code == 0
    assert out.startswith("# Why is the sky blue?\n")
    assert out.endswith("*(stopped)*\n")
    target = tmp_path / "new" / "chat.json"
    code, out, err = run(capsys, "export", chat, "--format", "json", "-o", str(target))
    assert (code, out, err) == (0, "", f"Written to {target}.\n")
    assert json.loads(target.read_text("utf-8"))["id"] == chat
    before = target.read_bytes()
    code, _, err = run(capsys, "export", chat, "-o", str(target))
    assert code == 2
    assert "exists already" in err
    assert target.read_bytes() == before


def test_delete_asks(
    chat: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["n", "y"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(answers))
    code, out, err = run(capsys, "delete", chat)
    assert (code, out) == (130, "")
    assert "Why is the sky blue?" in err
    assert chat in run(capsys, "list")[1]
    assert run(capsys, "delete", chat)[0] == 0
    assert run(capsys, "list")[1] == ""


@pytest.mark.usefixtures("chat")
def test_a_damaged_file_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    paths.chats_file().write_bytes(b"nonsense" * 100)
    code, out, err = run(capsys, "list")
    assert (code, out) == (0, "")
    assert "damaged" in err.splitlines()[0]
    assert "damaged" not in run(capsys, "list")[2]


def test_delete_without_asking(chat: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "delete", "--yes")[0] == 2  # which ones?
    assert run(capsys, "delete", "--yes", "--all", chat)[0] == 2
    code, out, err = run(capsys, "delete", "--yes", "--all")
    assert (code, out, err) == (0, "", "Deleted: 1.\n")
    assert run(capsys, "delete", "--yes", "--all")[2] == "There are no saved chats.\n"
