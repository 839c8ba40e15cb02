"""Markdown as one text for one widget.

A widget for each paragraph, list item and cell, as Textual's own Markdown has them, is more than a
small computer can lay out while it also runs a model; a long answer has thousands. Here a segment
of an answer becomes lines of styled text of a given width, at a cost that depends on the segment
alone. Nothing a model writes is lost (HTML is shown as it is) or obeyed (links show where they
lead, and do nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from rich.cells import chop_cells
from textual.content import Content
from textual.highlight import highlight

from localspec.terminal import clean

MIN_WIDTH = 12
_BULLETS = "•◦▪"
_CODE = "on $code-background"
_INLINE = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}
_parser = MarkdownIt("gfm-like", {"html": False})


def render(text: str, width: int) -> Content:
    """``text`` in lines of at most ``width`` cells."""
    width = max(MIN_WIDTH, width)
    tree = SyntaxTreeNode(_parser.parse(clean(text).expandtabs(4)))
    return Content("\n").join(_blocks(tree.children, width))


def _blocks(nodes: Sequence[SyntaxTreeNode], width: int, *, tight: bool = False) -> list[Content]:
    """The lines of block elements, an empty line between two of them unless ``tight``."""
    lines: list[Content] = []
    for node in nodes:
        new = _BLOCKS.get(node.type, _other)(node, max(MIN_WIDTH, width))
        if lines and new and not tight:
            lines.append(Content(""))
        lines += new
    return lines


def _wrapped(content: Content, width: int) -> list[Content]:
    return [line.rstrip() for line in content.wrap(width)] or [Content("")]


def _chopped(line: Content, width: int) -> list[Content]:
    """``line`` cut hard. (Content.fold loses text after characters that take no cell.)"""
    parts, start = [], 0
    for piece in chop_cells(line.plain, width):
        parts.append(line[start : start + len(piece)])
        start += len(piece)
    return parts or [line]


def _prefixed(lines: Sequence[Content], first: Content, rest: Content) -> list[Content]:
    return [(first if place == 0 else rest) + line for place, line in enumerate(lines)]


# -- blocks ---------------------------------------------------------------------------------------


def _paragraph(node: SyntaxTreeNode, width: int) -> list[Content]:
    return _wrapped(_inline(node.children), width)


def _heading(node: SyntaxTreeNode, width: int) -> list[Content]:
    style = "bold underline $text-primary" if node.tag in ("h1", "h2") else "bold $text-primary"
    return _wrapped(_inline(node.children).stylize(style), width)


def _fence(node: SyntaxTreeNode, width: int) -> list[Content]:
    language = (node.info or "").split()
    # Without a language none is guessed: that would try every lexer at each new word.
    code = highlight(node.content.rstrip("\n"), language=language[0] if language else "text")
    lines: list[Content] = []
    for line in code.split("\n", allow_blank=True):
        for part in _chopped(line, width - 2):
            padding = " " * max(0, width - 1 - part.cell_length)
            lines.append(Content.assemble(" ", part, padding).stylize_before(_CODE))
    return lines


def _list(node: SyntaxTreeNode, width: int) -> list[Content]:
    is_ordered = node.type == "ordered_list"
    number = int(node.attrs.get("start", 1)) if is_ordered else 0
    bullet = _BULLETS[min(_depth(node), len(_BULLETS) - 1)]
    lines: list[Content] = []
    is_tight = all(
        child.hidden
        for item in node.children
        for child in item.children
        if child.type == "paragraph"
    )
    for item in node.children:
        mark = f"{number}. " if is_ordered else f"{bullet} "
        number += 1
        inner = _blocks(item.children, width - len(mark), tight=is_tight) or [Content("")]
        if lines and not is_tight:
            lines.append(Content(""))
        first, rest = Content.styled(mark, "$text-primary"), Content(" " * len(mark))
        lines += _prefixed(inner, first, rest)
    return lines


def _depth(node: SyntaxTreeNode) -> int:
    """In how many bullet lists a list is."""
    depth, parent = 0, node.parent
    while parent is not None:
        depth += parent.type == "bullet_list"
        parent = parent.parent
    return depth


def _quote(node: SyntaxTreeNode, width: int) -> list[Content]:
    bar = Content.styled("▌ ", "$muted")
    return _prefixed(_blocks(node.children, width - 2), bar, bar)


def _rule(_: SyntaxTreeNode, width: int) -> list[Content]:
    return [Content.styled("─" * width, "$muted")]


def _other(node: SyntaxTreeNode, width: int) -> list[Content]:
    """Anything else is shown as it was written."""
    if node.type == "inline":
        return _wrapped(_inline([node]), width)
    return _wrapped(Content(node.content), width) if node.content else []


# -- tables ---------------------------------------------------------------------------------------


def _table(node: SyntaxTreeNode, width: int) -> list[Content]:
    rows = [
        [_inline(cell.children) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    n_columns = len(rows[0])
    widths = _widths(rows, width - 3 * (n_columns - 1))
    if not widths:
        return _records(rows, width)
    bar = Content.styled(" │ ", "$muted")
    lines: list[Content] = []
    for place, row in enumerate(rows):
        cells = [_wrapped(cell, w) for cell, w in zip(row, widths, strict=False)]
        for level in range(max(len(cell) for cell in cells)):
            parts = [
                (cell[level] if level < len(cell) else Content("")).pad_right(
                    w - (cell[level].cell_length if level < len(cell) else 0)
                )
                for cell, w in zip(cells, widths, strict=False)
            ]
            line = bar.join(parts)
            lines.append(line.stylize("bold") if place == 0 else line)
        if place == 0:
            lines.append(Content.styled("─┼─".join("─" * w for w in widths), "$muted"))
    return lines


def _widths(rows: Sequence[Sequence[Content]], room: int) -> list[int]:
    """Widths of columns that fill at most ``room``; empty when there is no room for that many."""
    n_columns = len(rows[0])
    if room < 4 * n_columns:
        return []
    natural = [
        max(4, *(row[i].cell_length if i < len(row) else 0 for row in rows))
        for i in range(n_columns)
    ]
    # Narrow columns keep what they need; the wide ones share what is left.
    widths = natural
    while sum(widths) > room:
        widest = max(widths)
        n_widest = widths.count(widest)
        below = max((w for w in widths if w < widest), default=4)
        too_much = sum(widths) - room
        new = max(below, widest - -(-too_much // n_widest), 4)
        widths = [new if w == widest else w for w in widths]
        if new == widest:
            break
    return widths


def _records(rows: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """A table that is too wide: one line per cell, under the name of its column."""
    lines: list[Content] = []
    for row in rows[1:]:
        for name, cell in zip(rows[0], row, strict=False):
            lines += _wrapped(name.stylize("bold") + ": " + cell, width)
        lines.append(Content(""))
    return lines[:-1]


# -- inside of a paragraph ------------------------------------------------------------------------


def _inline(nodes: Iterable[SyntaxTreeNode]) -> Content:
    return Content("").join([_span(node) for node in nodes])


def _span(node: SyntaxTreeNode) -> Content:
    match node.type:
        case "inline" | "text_special":
            return _inline(node.children) if node.children else Content(node.content)
        case "text":
            return Content(node.content)
        case "softbreak" | "hardbreak":
            return Content("\n")
        case "code_inline":
            return Content.styled(node.content, "$text-accent on $code-background")
        case "image":
            return Content.assemble(
                f"🖼 {node.content} ", (f"({node.attrs.get('src', '')})", "$muted")
            )
        case "link":
            inner = _inline(node.children)
            address = clean(str(node.attrs.get("href", "")))
            shown = inner.stylize("underline")
            same = inner.plain in (address, address.removeprefix("mailto:"))
            return shown if same else Content.assemble(shown, (f" ({address})", "$muted"))
    inner = _inline(node.children) if node.children else Content(node.content)
    style = _INLINE.get(node.type)
    return inner.stylize(style) if style else inner


_BLOCKS: dict[str, Callable[[SyntaxTreeNode, int], list[Content]]] = {
    "paragraph": _paragraph,
    "heading": _heading,
    "fence": _fence,
    "code_block": _fence,
    "bullet_list": _list,
    "ordered_list": _list,
    "blockquote": _quote,
    "hr": _rule,
    "table": _table,
}
