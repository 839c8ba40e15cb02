"""Questions: sending, queueing, stopping, asking again, and opening chats."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from localspec.errors import LocalspecError
from localspec.terminal import label
from localspec.tui.arrivals import Arrivals
from localspec.tui.told import Ask, Count, Open, SetMode, StatusLike
from localspec.tui.turns import Conversation, Turn, question
from localspec.tui.widgets.message import MessageView

MAX_QUEUED = 20


class Asking(Arrivals):
    """One answer at a time; what is asked meanwhile waits, visibly."""

    # -- the model --------------------------------------------------------------------------------

    def load_model(self, what: str) -> None:
        """(Re)load the model of the settings."""
        self.is_loading, self.status = True, None
        self.loading_view.restart(what)
        self.inference.put(Open(self.settings.config))

    def set_mode(self) -> None:
        """Tell the model's thread about the mode of the settings."""
        config = self.settings.config
        self.inference.put(SetMode(config.mode, config.draft_max))

    # -- asking -----------------------------------------------------------------------------------

    async def send(self, text: str) -> None:
        """Ask ``text`` now, or when its turn comes."""
        if self.editing is not None:
            turn, self.editing = self.editing, None
            self.prompt.border_title = None
            await self.idle(lambda: self._send_again(turn, text))
            return
        text = self._with_files(text)
        if self.status is None and not self.is_loading:
            self.prompt.take(text)
            self.say("No model is loaded. /reload tries again; /model NAME takes another.", "error")
            return
        if len(self.queued) >= MAX_QUEUED:
            self.prompt.take(text)
            self.say(f"{MAX_QUEUED} questions are waiting already.", "warning")
            return
        self.queued.append(text)
        await self.next_in_queue()

    async def _send_again(self, turn: Turn, text: str) -> None:
        if turn in self.conversation.turns:
            await self.cut(turn)
        self.queued.insert(0, text)
        await self.next_in_queue()

    def _with_files(self, text: str) -> str:
        parts = [_as_code(name, body) for name, body in self.attached]
        self.attached.clear()
        return "\n\n".join([*parts, text])

    @property
    def is_idle(self) -> bool:
        """Nothing is being answered, and nothing waits for it."""
        return self.running is None and not self.is_asking and not self.queued

    async def next_in_queue(self) -> None:
        if self.queued and self.running is None and not self.is_asking and self.status is not None:
            # Until the answer is there to be seen as running, no other question may go ahead.
            self.is_asking = True
            try:
                await self._ask_next(self.status)
            finally:
                self.is_asking = False
        self.refresh_queue()

    async def _ask_next(self, status: StatusLike) -> None:
        turn = question(self.queued.pop(0))
        self.conversation.turns.append(turn)
        self.keeper.add(
            turn,
            settings=self.settings.as_saved(),
            model=status.model,
            draft=status.draft or "",
            system=self.conversation.system,
        )
        self.refresh_title()
        await self.view.add(turn)
        await self.answer()

    async def answer(self) -> None:
        """Have the last question answered."""
        turn = Turn("assistant", "waiting")
        messages = self.conversation.messages()
        self.conversation.turns.append(turn)
        self.running = turn
        self.keeper.add(turn, settings=self.settings.as_saved())
        await self.view.add(turn)
        self.view.follow()
        config = self.settings.config
        self.inference.put(
            Ask(
                turn.id,
                messages,
                self.settings.sampling,
                config.max_tokens,
                self.conversation.n_dropped,
                self.keeper.source,
            )
        )
        self.refresh_bindings()

    # -- stopping ---------------------------------------------------------------------------------

    def stop(self) -> bool:
        """Stop the answer, if there is one running; said at once, done within a step."""
        turn = self.running
        if turn is None:
            return False
        self.inference.stop()
        turn.is_stopping = True
        view = self.view.view_of(turn)
        if view is not None:
            view.refresh_foot()
        return True

    async def idle(self, action: Callable[[], Awaitable[object]]) -> None:
        """Do ``action`` now, or when the running answer has been stopped for it."""
        if self.stop():
            self.when_idle.append(action)
        else:
            await action()

    async def become_idle(self) -> None:
        while self.when_idle and self.running is None:
            await self.when_idle.pop(0)()
        await self.next_in_queue()

    # -- changing what was said -------------------------------------------------------------------

    async def cut(self, turn: Turn) -> None:
        """Remove ``turn`` and all after it, everywhere."""
        if isinstance(self.focused, MessageView):
            self.prompt.focus()  # it may be the one that goes
        gone = self.conversation.cut(turn)
        self.keeper.cut(gone)
        await self.view.cut(gone)
        self.refresh_panel()

    async def regenerate(self, turn: Turn | None) -> None:
        """Answer the question of ``turn`` (None: the last one) again; what came after it goes."""

        async def act() -> None:
            turns = self.conversation.turns
            wanted = turn if turn in turns else (turns[-1] if turns else None)
            if wanted is None or self.status is None:
                self.say("There is nothing to answer again.", "warning")
                return
            place = turns.index(wanted)
            if wanted.role == "user":
                place += 1
            if place < len(turns):
                await self.cut(turns[place])
            await self.answer()

        await self.idle(act)

    async def edit(self, turn: Turn | None) -> None:
        """Put a question back into the prompt; sending it replaces it and all after it."""
        turns = self.conversation.turns
        found = turn if turn is not None else (turns[-1] if turns else None)
        if found is not None and found.role == "assistant":
            found = self.conversation.question_of(found)
        if found is None:
            self.say("There is no question to change.", "warning")
            return
        self.editing = found
        self.prompt.border_title = "Changing a question · Esc leaves it as it is"
        self.prompt.take(found.text)
        self.prompt.focus()

    async def delete(self, turn: Turn) -> None:
        """Remove ``turn`` and what follows."""

        async def act() -> None:
            if turn in self.conversation.turns:
                await self.cut(turn)

        await self.idle(act)

    # -- chats ------------------------------------------------------------------------------------

    async def new_chat(self) -> None:
        """Begin an empty chat; the old one stays saved."""

        async def act() -> None:
            self.keeper.new()
            await self._show(Conversation(self.settings.config.system or ""))

        await self.idle(act)

    async def open_chat(self, chat_id: str) -> None:
        """Go on with a saved chat."""

        async def act() -> None:
            try:
                saved = self.keeper.open(chat_id)
            except LocalspecError as error:
                self.say_error(error)
                return
            chat = Conversation(saved.system)
            chat.restore(saved.turns)
            self.settings = self.settings.with_system(saved.system)
            self.prompt_rate = self.prompt_rate or chat.prompt_rate
            await self._show(chat)
            if self.status is not None and chat.turns:
                self.count_prompt()

        await self.idle(act)

    async def _show(self, chat: Conversation) -> None:
        self.conversation = chat
        self.editing = None
        self.prompt.border_title = None
        self.panel_data.last_drafter = ""
        await self.view.show(chat.turns, coloured=self.settings.config.colour_tokens)
        self.refresh_title()
        self.refresh_panel()

    async def fork_chat(self, chat_id: str | None, turn: Turn | None = None) -> None:
        """Go on in a copy of a saved chat."""
        if chat_id is None:
            self.say("This chat is not saved, so there is nothing to fork.", "warning")
            return
        try:
            forked = self.keeper.fork(chat_id, turn)
        except LocalspecError as error:
            self.say_error(error)
            return
        await self.open_chat(forked)
        self.say(f"This is a copy now: {label(self.keeper.title)}")

    def count_prompt(self) -> None:
        """Ask how many tokens the next answer has to read."""
        self.inference.put(Count(self.conversation.messages()))


def _as_code(name: str, text: str) -> str:
    """A file as a code block whose fence is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"File {name}:\n\n{fence}\n{text}\n{fence}"
