"""Markdown from a model: nothing it writes is lost, obeyed or opened."""

from __future__ import annotations

from markdown_it import MarkdownIt
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from localspec.terminal import clean


def _parser() -> MarkdownIt:
    # HTML is not Markdown's business here: with it on, "<b>" would vanish from the answer.
    return MarkdownIt("gfm-like", {"html": False})


class _Fence(MarkdownFence):
    """A code block; one without a language is not guessed at, which would try every lexer at each
    new word."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        name = language.split()[0] if language.split() else "text"
        return super().highlight(code, name, ansi, dark)


class ModelMarkdown(Markdown):
    """A part of an answer. Links are shown and copied, never opened."""

    BLOCKS: dict[str, type[MarkdownBlock]] = {  # noqa: RUF012 - as Textual has it
        **Markdown.BLOCKS,
        "fence": _Fence,
        "code_block": _Fence,
    }

    def __init__(self, markdown: str | None = None, *, classes: str | None = None) -> None:
        text = None if markdown is None else clean(markdown)
        super().__init__(text, parser_factory=_parser, open_links=False, classes=classes)
