"""Who says what may be kept: the chat's keeper and the flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.cli.options import config_from
from localspec.history import Source
from localspec.sessions import Chats
from localspec.tui.keeper import Keeper
from localspec.tui.turns import question


def test_only_a_saved_chat_has_a_source(tmp_path: Path) -> None:
    unsaved = Keeper(None, lambda text: pytest.fail(text))
    unsaved.add(question("a question"))
    assert unsaved.source is None
    saved = Keeper(Chats.open(tmp_path / "chats.sqlite3"), lambda text: pytest.fail(text))
    assert saved.source is None
    saved.add(question("a question"), model="m")
    assert saved.source == Source("chat", saved.chat_id or "")
    saved.new()
    assert saved.source is None
    saved.close()


def test_the_flag_and_the_setting_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_from({}).history
    assert not config_from({"history": False}).history
    monkeypatch.setenv("LOCALSPEC_HISTORY", "off")
    assert not config_from({}).history
    assert config_from({"history": True}).history
