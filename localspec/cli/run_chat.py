"""What ``localspec run --continue`` does with a saved chat: read it, and add to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec import paths
from localspec.cli.output import note
from localspec.report import as_dict
from localspec.sessions import Chats
from localspec.tui.keeper import Keeper
from localspec.tui.turns import Conversation, Turn, question

if TYPE_CHECKING:
    from localspec.chat import Message
    from localspec.history import Source
    from localspec.session import Session, Status
    from localspec.spec.events import Finished


class Continued:
    """A saved chat that gets one more question and its answer, kept as the full-screen chat keeps
    them: the answer is written while it comes, so that a crash loses at most its last second."""

    def __init__(self, chat_id: str, system: str | None, settings: dict[str, Any]) -> None:
        """``chat_id``: an id, the beginning of one, or ``latest``. ``system``: another system
        message from now on; None leaves that of the chat. ``settings`` are kept with the turns.
        Raises UsageError when there is no such chat, LocalspecError when none can be read."""
        chats = Chats.open(paths.chats_file())
        if chats.note:
            note(chats.note)
        self._keeper = Keeper(chats, note)
        try:
            saved = self._keeper.open(chat_id)
        except BaseException:
            self._keeper.close()
            raise
        self.id = saved.info.id
        self._new_system = system
        self._chat = Conversation(saved.system if system is None else system)
        self._chat.restore(saved.turns)
        self._settings = settings
        self._answer = Turn("assistant", "waiting")

    @property
    def source(self) -> Source | None:
        """What its text is called in the index of earlier texts."""
        return self._keeper.source

    def prompt(
        self, session: Session, text: str, max_tokens: int | None, *, quiet: bool
    ) -> Sequence[Message]:
        """The chat and ``text`` as its last question, without the oldest turns if they have no
        room, which is said. Raises PromptError when not even the question has."""
        self._chat.turns.append(question(text))
        # Room for the answer: a quarter of the context, or what it may be at most if that is less.
        n_reserve = max(1, min(max_tokens or session.n_ctx, session.n_ctx // 4))
        messages, n_dropped = session.fit(self._chat.messages(), n_reserve)
        if n_dropped and not quiet:
            note(
                f"the first {n_dropped} messages of the chat do not fit into the context and are "
                "left out of the prompt"
            )
        return messages

    def add(self, text: str) -> None:
        """More of the answer. The first call saves the question too: what never came to be
        answered is not in the chat."""
        if self._answer.state == "waiting":
            self._answer.state = "writing"
            if self._new_system is not None:
                self._keeper.set_system(self._new_system)
            self._keeper.add(self._chat.turns[-1], settings=self._settings)
            self._keeper.add(self._answer, settings=self._settings)
        self._answer.add_text(text)
        self._keeper.progress(self._answer)

    def finish(self, finished: Finished, status: Status, seed: int | None) -> None:
        """The answer is over: save it with its numbers."""
        self._answer.state = "stopped" if finished.reason == "cancelled" else "complete"
        self._answer.numbers = as_dict(finished, "", status, seed)
        del self._answer.numbers["text"]
        self._keeper.finish(self._answer)

    def close(self) -> None:
        """An answer that ended in an error is kept as far as it came."""
        if self._answer.state == "writing":
            self._answer.state = "stopped"
            self._keeper.finish(self._answer)
        self._keeper.close()
