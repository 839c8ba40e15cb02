"""Are two vocabularies the same? If not, where and why, and can the pair be used all the same?

Content decides: the texts of the tokens, their special roles and whether a BOS is put first. A name
or an equal size proves nothing, and a different size alone disproves nothing (padding rows).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from localspec.header import Header, Tokens, TokenType
from localspec.terminal import label

Verdict = Literal["same", "near", "different"]

_SPECIAL = {TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED}
_PADDING_NAME = re.compile(
    rb"\A[<\[]\|?_?(pad|unused|dummy|reserved|extra|placeholder)[\w\- ]*\|?[>\]]\Z", re.IGNORECASE
)
_N_SHOWN = 8
_ROLES = {"bos": "beginning-of-text", "eos": "end-of-text"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One id whose token is not the same; None: the model has no such id."""

    id: int
    target: bytes | None
    draft: bytes | None

    def __str__(self) -> str:
        target, draft = _show(self.target), _show(self.draft)
        return f"token {self.id} is {target} in the target and {draft} in the draft"


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """How a draft's vocabulary relates to its target's.

    ``same``: token for token. ``near``: usable; what differs is padding or a few special tokens, in
    ``differences`` (the first few) and ``reason``. ``different``: not usable.

    ``n_common``: ids that both have. ``never_propose`` int32: draft ids that must not be drafted,
    sorted: padding rows and tokens that the target does not have. ``to_target`` and ``to_draft``
    map the few ids whose token stands at another id on the other side, or that need a stand-in
    there; every other id is the same on both sides.
    """

    verdict: Verdict
    reason: str
    n_target: int
    n_draft: int
    n_common: int = 0
    n_differences: int = 0
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    never_propose: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    to_target: dict[int, int] = field(default_factory=dict)
    to_draft: dict[int, int] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Can the pair decode together?"""
        return self.verdict != "different"

    def draft_id(self, token: int) -> int:
        """The draft's id for a token of the target; always one that the draft has."""
        return self.to_draft.get(token, token)

    def target_id(self, token: int) -> int | None:
        """The target's id for a token of the draft; None when it must not be proposed."""
        found = self.to_target.get(token)
        if found is not None:
            return found
        place = int(np.searchsorted(self.never_propose, token))
        banned = place < len(self.never_propose) and self.never_propose[place] == token
        return None if banned or not 0 <= token < self.n_common else token

    def project(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The draft's logits [n_draft] as logits over the target's vocabulary [n_target], a copy.

        What must not be proposed is -inf, so that no sampler can draw it.
        """
        result = np.full(self.n_target, -np.inf, np.float32)
        result[: self.n_common] = row[: self.n_common]
        result[self.never_propose[self.never_propose < self.n_common]] = -np.inf
        for token, place in self.to_target.items():
            if token < self.n_common and token not in self.to_target.values():
                result[token] = -np.inf
            result[place] = row[token]
        return result


def compare(target: Header, draft: Header) -> Match:
    """Match the draft's vocabulary against the target's, from their headers alone."""
    n_target, n_draft = len(target.tokens), len(draft.tokens)
    n_common = min(n_target, n_draft)
    for header, role in ((target, "target"), (draft, "draft")):
        if not len(header.tokens):
            return Match("different", f"The {role}'s file has no vocabulary.", n_target, n_draft)
    found = _differences(target, draft)
    why = _ordinary(target, draft, found) or _roles(target, draft)
    shown = tuple(_difference(target, draft, token) for token in found[:_N_SHOWN])
    if why:
        return Match("different", why, n_target, n_draft, n_common, len(found), shown)
    to_target, to_draft = _mappings(target, draft, found)
    banned = [token for token in found if token < n_draft and token not in to_target]
    padding = np.flatnonzero(draft.token_types == TokenType.UNUSED)
    never = np.setdiff1d(np.union1d(banned, padding), list(to_target)).astype(np.int32)
    return Match(
        "near" if found else "same",
        _near(target, draft, found) if found else f"Both have the same {n_target} tokens.",
        n_target,
        n_draft,
        n_common,
        len(found),
        shown,
        _notes(target, draft),
        never,
        to_target,
        to_draft,
    )


# -- what differs --------------------------------------------------------------------------------


def _texts(tokens: Tokens) -> list[bytes]:
    return [tokens.raw[start + 8 : end] for start, end in pairwise(tokens.starts.tolist())]


def _differences(target: Header, draft: Header) -> list[int]:
    """Ids whose tokens differ, then those that only the larger vocabulary has."""
    n_common = min(len(target.tokens), len(draft.tokens))
    end = int(target.tokens.starts[n_common])
    same = end == int(draft.tokens.starts[n_common])
    found: list[int] = []
    if not same or target.tokens.raw[:end] != draft.tokens.raw[:end]:
        both = zip(_texts(target.tokens), _texts(draft.tokens), strict=False)
        found = [token for token, (one, other) in enumerate(both) if one != other]
    return found + list(range(n_common, max(len(target.tokens), len(draft.tokens))))


def _difference(target: Header, draft: Header, token: int) -> Difference:
    return Difference(
        token,
        target.tokens[token] if token < len(target.tokens) else None,
        draft.tokens[token] if token < len(draft.tokens) else None,
    )


def _is_padding(header: Header, token: int) -> bool:
    return header.type_of(token) == TokenType.UNUSED or bool(
        _PADDING_NAME.match(header.tokens[token])
    )


def _is_special(header: Header, token: int) -> bool:
    return header.type_of(token) in _SPECIAL or _is_padding(header, token)


def _sides(target: Header, draft: Header, token: int) -> list[Header]:
    return [header for header in (target, draft) if token < len(header.tokens)]


def _ordinary(target: Header, draft: Header, found: Sequence[int]) -> str:
    """Why the pair cannot be used, as far as the tokens' texts tell; empty when it can."""
    if target.tokenizer_model != draft.tokenizer_model:
        return (
            f"They split text in different ways ({_show(target.tokenizer_model)} in the target, "
            f"{_show(draft.tokenizer_model)} in the draft)."
        )
    ordinary = [
        token
        for token in found
        if not all(_is_special(header, token) for header in _sides(target, draft, token))
    ]
    if ordinary:
        rest = f" (and {len(ordinary) - 1} more differ)" if len(ordinary) > 1 else ""
        first = _difference(target, draft, ordinary[0])
        return f"Their vocabularies differ: {first}{rest}."
    special = [
        token
        for token in found
        if not any(_is_padding(header, token) for header in _sides(target, draft, token))
    ]
    # A few: the reserved tokens of one family that were renamed between its versions, not more.
    if len(special) > 8 + min(len(target.tokens), len(draft.tokens)) // 256:
        first = _difference(target, draft, special[0])
        return f"They differ in {len(special)} special tokens: first, {first}."
    return ""


def _roles(target: Header, draft: Header) -> str:
    """Why the pair cannot be used, as far as BOS and EOS tell; empty when it can."""
    for what, one, other in (
        ("a beginning-of-text", target.add_bos, draft.add_bos),
        ("an end-of-text", target.add_eos, draft.add_eos),
    ):
        if one != other:
            does, does_not = ("target", "draft") if one else ("draft", "target")
            return (
                f"The {does} adds {what} token to the prompt and the {does_not} does not, "
                "so they would not read the same text."
            )
    for role, what in _ROLES.items():
        one_id, other_id = _role_id(target, role), _role_id(draft, role)
        if one_id is not None and other_id is not None and one_id != other_id:
            return (
                f"Their {what} tokens differ: {one_id} ({_show(target.tokens[one_id])}) in the "
                f"target and {other_id} ({_show(draft.tokens[other_id])}) in the draft."
            )
    return ""


def _role_id(header: Header, role: str) -> int | None:
    """The id in this role if the file states it or the tokenizer uses it."""
    stated = header.integer(f"tokenizer.ggml.{role}_token_id") is not None
    used = header.add_bos if role == "bos" else header.add_eos
    return header.special(role) if stated or used else None


# -- how to use a near pair ----------------------------------------------------------------------


def _mappings(
    target: Header, draft: Header, found: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Differing tokens that the other side has at another differing id, and stand-ins for the
    target's tokens that the draft does not have."""
    in_draft = {
        draft.tokens[token]: token
        for token in found
        if token < len(draft.tokens) and not _is_padding(draft, token)
    }
    to_target: dict[int, int] = {}
    to_draft: dict[int, int] = {}
    stand_in = next(
        (i for role in ("unknown", "padding", "eos") if (i := draft.special(role)) is not None), 0
    )
    for token in found:
        if token >= len(target.tokens):
            continue
        place = in_draft.get(target.tokens[token])
        if place is not None and not _is_padding(target, token):
            to_target[place] = token
            to_draft[token] = place
        elif token >= len(draft.tokens):
            to_draft[token] = stand_in
    return to_target, to_draft


def _near(target: Header, draft: Header, found: Sequence[int]) -> str:
    n_common = min(len(target.tokens), len(draft.tokens))
    parts = []
    inner = [token for token in found if token < n_common]
    outer = [token for token in found if token >= n_common]
    if inner:
        what = f"{len(inner)} special or padding token{'s' * (len(inner) > 1)}"
        parts.append(
            f"{what} differ{'s' * (len(inner) == 1)} ({_difference(target, draft, inner[0])})"
        )
    if outer:
        longer, header = ("target", target) if len(target.tokens) > n_common else ("draft", draft)
        padding = all(_is_padding(header, token) for token in outer)
        what = "padding row" if padding else "special or padding token"
        parts.append(
            f"the {longer} has {len(outer)} {what}{'s' * (len(outer) > 1)} more at the end"
        )
    return f"The same tokens, but {' and '.join(parts)}; what differs is never drafted."


def _notes(target: Header, draft: Header) -> tuple[str, ...]:
    notes = []
    if target.tokenizer_pre != draft.tokenizer_pre:
        notes.append(
            f"The files name different ways to split text ({_show(target.tokenizer_pre)} and "
            f"{_show(draft.tokenizer_pre)}); only the target's is used."
        )
    one, other = target.special("eot"), draft.special("eot")
    if one is not None and other is not None and one != other:
        notes.append(f"Their end-of-turn tokens differ ({one} and {other}); the target's counts.")
    return tuple(notes)


def _show(text: bytes | str | None) -> str:
    if text is None:
        return "missing"
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return '"' + label(shown[:40]) + ('…"' if len(shown) > 40 else '"')
