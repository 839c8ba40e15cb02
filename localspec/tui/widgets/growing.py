"""Widgets that grow while they are looked at."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class Growing(Widget):
    """Takes the size that a layout gave it and is content. Other widgets ask for a second layout of
    the whole screen when their content has a new size, which doubles what each new word costs; it
    is needed where scrollbars come and go, and those ask for one themselves."""

    virtual_size = Reactive(Size(0, 0))
