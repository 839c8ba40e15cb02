"""When Python looks for garbage: at rest, not while somebody waits for a letter to appear.

To look through all objects takes a tenth of a second in a long chat, and nothing is drawn
meanwhile. The young ones, which most garbage is, are looked through as they come.
"""

from __future__ import annotations

import gc

YOUNG = 2_000
"""Objects made before garbage is looked for among the young ones; Python's 700 come and go with
every frame."""
WORTH, DUE, LATEST = 4, 30, 200
"""Rounds among the young after which to look through all is worth a moment of rest; is due, if
only nobody types; and does not wait for that either."""


def keep_what_there_is() -> None:
    """Leave out of later rounds what the view and the model are made of: it stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, LATEST)


def look_through_all(*, at_rest: bool) -> None:
    """Look for garbage everywhere, if that is worth it now."""
    if gc.get_count()[2] >= (WORTH if at_rest else DUE):
        gc.collect()
