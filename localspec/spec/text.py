"""Tokens in, text out that is safe to show: whole characters only, and nothing of a stop string.

Text is decided per character, never per token, so that the same tokens give the same text however
they arrive: one at a time, or several from one accepted draft.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Sequence


class TextStream:
    """Turns the tokens of one answer into text.

    ``piece(token)`` gives the bytes of a token, ``b""`` for a control token that is not text.
    Bytes are UTF-8; invalid ones become the marks that ``bytes.decode("utf-8", "replace")`` would
    give for the whole answer. Nothing is shown until a character is whole.

    ``stops``: strings that end the answer (empty ones are ignored). The stop that is completed
    first wins; if several are completed by the same character, the longest. Its text and all after
    it is never shown; text that may yet become a stop is held back, and released as soon as it
    cannot. Time is linear in the text (times the number of stops).
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [_Matcher(stop) for stop in dict.fromkeys(stops) if stop]
        self._held = ""
        self._n_chars = 0  # decoded so far, shown or held
        self._match_start: int | None = None
        # For each token the index of the character in which its first byte lies; non-decreasing.
        self._starts: list[int] = []
        self.stop = ""
        """The stop string that ended the answer, empty if none did."""

    @property
    def stopped(self) -> bool:
        """A stop string is complete: the answer is over."""
        return self._match_start is not None

    @property
    def n_tokens(self) -> int:
        """Tokens pushed until now, those after the stop not counted."""
        return len(self._starts)

    @property
    def n_tokens_kept(self) -> int:
        """How many of the pushed tokens belong to the text.

        After a stop, tokens whose text lies wholly in or after it are left out; one that has text
        before it is kept. Otherwise all tokens are.
        """
        if self._match_start is None:
            return len(self._starts)
        return bisect_left(self._starts, self._match_start)

    @property
    def held(self) -> str:
        """Whole characters that are not shown yet since they may become a stop string."""
        return self._held

    def push(self, token: int) -> str:
        """Take one token; return the text that may be shown now. After a stop: nothing."""
        if self.stopped:
            return ""
        return self._show(self._decode(self._piece(token)))

    def finish(self) -> str:
        """The answer is over: return the text that was held back, a broken tail as a mark.

        The last mark can complete a stop string; then ``stopped`` becomes true. A second call
        returns nothing.
        """
        if self.stopped:
            return ""
        text = self._show(self._decoder.decode(b"", True))
        if not self.stopped:
            text, self._held = text + self._held, ""
        return text

    def _decode(self, data: bytes) -> str:
        """The characters completed by a token's bytes; notes where the token starts."""
        if not data:
            # No text of its own: it goes with the token before it.
            self._starts.append(self._starts[-1] if self._starts else -1)
            return ""
        start, head = self._n_chars, ""
        if self._decoder.getstate()[0]:
            # A character is open. Only its next byte tells whether this token continues it or
            # leaves it broken (one mark) and starts after it.
            head, data = self._decoder.decode(data[:1]), data[1:]
            if head:
                is_open = bool(self._decoder.getstate()[0])
                start += len(head) if is_open else len(head) - 1
        self._starts.append(start)
        return head + self._decoder.decode(data)

    def _show(self, text: str) -> str:
        """Look for stops in the new characters; return what can no longer be part of one."""
        first = self._n_chars - len(self._held)  # index of the first held character
        held = self._held + text
        if not self._stops:
            self._n_chars += len(text)
            return text
        for character in text:
            self._n_chars += 1
            # All matchers must see the character before any decides.
            complete = [stop for stop in self._stops if stop.step(character)]
            if complete:
                longest = max(complete, key=lambda stop: len(stop.text))
                self.stop = longest.text
                self._match_start = self._n_chars - len(longest.text)
                self._held = ""
                return held[: self._match_start - first]
        n_held = max(stop.n_matched for stop in self._stops)
        shown = len(held) - n_held
        self._held = held[shown:]
        return held[:shown]


class _Matcher:
    """Finds one string in a stream of characters (Knuth, Morris and Pratt 1977).

    ``n_matched``: how many characters at the end of the stream are a beginning of the string.
    """

    __slots__ = ("_border", "n_matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.n_matched = 0
        # border[i]: length of the longest proper prefix of text[:i + 1] that is also its suffix.
        self._border = [0] * len(text)
        length = 0
        for i in range(1, len(text)):
            while length and text[i] != text[length]:
                length = self._border[length - 1]
            length += text[i] == text[length]
            self._border[i] = length

    def step(self, character: str) -> bool:
        """Take one character; true when it completes the string."""
        n = self.n_matched
        while n and self.text[n] != character:
            n = self._border[n - 1]
        self.n_matched = n + (self.text[n] == character)
        return self.n_matched == len(self.text)
