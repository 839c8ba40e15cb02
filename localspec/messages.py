"""The turns of a chat and the text made of them: plain data, so that a view of a chat need not load
what renders templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. A stopped answer is an ordinary assistant turn with what there was of it."""

    role: Role
    content: str


class Prompt(NamedTuple):
    """``add_special``: the tokenizer must put the model's BOS in front of ``text``."""

    text: str
    add_special: bool
