"""The open chat in the database, or nowhere: a chat goes on when it cannot be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from localspec.errors import LocalspecError
from localspec.provenance import Source
from localspec.sessions import Chats
from localspec.sessions_types import ChatInfo, SavedChat, State
from localspec.tui.turns import Turn

SAVE_EVERY_S = 0.7
"""How often the database writes a running answer. With the longest rest of the view, after which
new words are handed over, a kill loses the words of less than a second."""


class Keeper:
    """``chats`` None: nothing is saved. ``report`` is told when saving stops working."""

    def __init__(
        self,
        chats: Chats | None,
        report: Callable[[str], None],
    ) -> None:
        self._chats = chats
        self._report = report
        self.chat_id: str | None = None
        self.title = ""

    @property
    def is_on(self) -> bool:
        """Whether chats are saved."""
        return self._chats is not None

    @property
    def source(self) -> Source | None:
        """What the open chat is called in the index of earlier texts; None while it is not saved,
        and nothing of it may be kept there."""
        return Source("chat", self.chat_id) if self.is_on and self.chat_id else None

    def turn_on(self, chats: Chats) -> None:
        """Save from now on."""
        self._chats = chats

    def close(self) -> None:
        """Let go of the database."""
        chats, self._chats = self._chats, None
        if chats is not None:
            chats.close()

    # -- the open chat ----------------------------------------------------------------------------

    def new(self) -> None:
        """The next turn begins another chat."""
        self.chat_id, self.title = None, ""

    def open(self, chat_id: str) -> SavedChat:
        """Go on with a saved chat. Raises UsageError, LocalspecError."""
        if self._chats is None:
            raise LocalspecError("chats are not saved, so there is none to open")
        chat = self._chats.get(chat_id)
        self.chat_id, self.title = chat.info.id, chat.info.title
        return chat

    def add(self, turn: Turn, *, settings: dict[str, Any] | None = None, **chat: str) -> None:
        """Save a turn that is new; ``chat`` (model, draft, system) is for the first one."""

        def save(chats: Chats) -> None:
            if self.chat_id is None:
                self.chat_id = chats.new(settings=settings, title=self.title, **chat)
            state: State = "partial" if turn.is_running else "complete"
            turn.saved_id = chats.add_turn(
                self.chat_id, turn.role, turn.text, state=state, settings=settings
            )
            if not self.title and turn.role == "user":
                self.title = chats.get(self.chat_id).info.title

        self._try(save)

    def progress(self, turn: Turn) -> None:
        """The running answer has grown. Always handed over: who knows when more comes?"""
        saved_id = turn.saved_id
        if saved_id is not None:
            self._try(lambda chats: chats.update_partial(saved_id, turn.text))

    def finish(self, turn: Turn) -> None:
        """The answer is over."""
        saved_id = turn.saved_id
        if saved_id is None:
            return
        self._try(
            lambda chats: chats.finish_turn(
                saved_id,
                turn.text,
                state="complete" if turn.state == "complete" else "stopped",
                numbers=turn.numbers,
            )
        )

    def cut(self, turns: Sequence[Turn]) -> None:
        """The last turns, ``turns``, are gone."""
        first = next((turn.saved_id for turn in turns if turn.saved_id is not None), None)
        chat_id = self.chat_id
        if first is not None and chat_id is not None:
            self._try(lambda chats: chats.delete_turns_from(chat_id, first))

    def rename(self, title: str, chat_id: str | None = None) -> None:
        """Another title, for the open chat if no other is named."""
        if chat_id in (None, self.chat_id):
            self.title = title
        wanted = chat_id or self.chat_id
        if wanted is not None:
            self._try(lambda chats: chats.rename(wanted, title))

    def set_system(self, system: str) -> None:
        """The system message of the open chat."""
        chat_id = self.chat_id
        if chat_id is not None:
            self._try(lambda chats: chats.change(chat_id, system=system))

    # -- all chats --------------------------------------------------------------------------------

    def fork(self, chat_id: str, turn: Turn | None = None) -> str:
        """A copy up to ``turn``; its id. Raises UsageError, LocalspecError."""
        if self._chats is None:
            raise LocalspecError("chats are not saved, so there is nothing to fork from")
        return self._chats.fork(chat_id, turn.saved_id if turn is not None else None)

    def delete(self, chat_id: str) -> None:
        """Remove a chat for good."""
        self._try(lambda chats: chats.delete(chat_id))
        if chat_id == self.chat_id:
            self.new()

    def find(self, query: str = "") -> list[ChatInfo]:
        """Saved chats that have all words of ``query``, the last used first."""
        return self._try(lambda chats: chats.list(100, query)) or []

    def latest_id(self) -> str | None:
        """The last used chat."""
        latest = self._try(lambda chats: chats.latest())
        return latest.id if latest else None

    def questions(self, n_chats: int = 20) -> list[str]:
        """What was asked in the last chats, the newest last, without repeats."""

        def read(chats: Chats) -> dict[str, None]:
            found: dict[str, None] = {}
            for info in reversed(chats.list(n_chats)):
                for turn in chats.get(info.id).turns:
                    if turn.role == "user":
                        found.pop(turn.content, None)
                        found[turn.content] = None
            return found

        return list(self._try(read) or {})

    def _try(self, do: Callable[[Chats], Any]) -> Any:
        """``do``, unless nothing is saved; an error ends the saving, not the chat."""
        if self._chats is None:
            return None
        try:
            return do(self._chats)
        except LocalspecError as error:
            self._chats = None
            self._report(f"{error.message} This chat goes on, but is not saved any more.")
            return None
