"""Pictures of the main screens at three sizes and in two themes.

They were looked at before they were accepted; after a wanted change look again and run with
``--snapshot-update``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import helpers_scenes as scenes
import pytest
from helpers_tui import PATIENCE_S

SIZES = {"small": (60, 15), "usual": (100, 30), "large": (160, 45)}
SHOWN = [
    ("answered", "small"), ("answered", "usual"), ("answered", "large"),
    ("coloured", "usual"), ("scripts", "usual"), ("loading", "usual"), ("helping", "usual"),
    ("completing", "small"),
]  # fmt: skip


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize(("scene", "size"), SHOWN)
def test_screen(snap_compare: Callable[..., bool], scene: str, size: str, theme: str) -> None:
    gate = threading.Event() if scene == "loading" else None
    app = scenes.scene_app(theme=theme, load_gate=gate)
    try:
        assert snap_compare(app, terminal_size=SIZES[size], run_before=getattr(scenes, scene))
    finally:
        app.inference.quit(PATIENCE_S)
