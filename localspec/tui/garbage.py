"""When Python looks for garbage: at rest, not while somebody waits for a letter to appear.

To look through all objects takes a tenth of a second in a long chat, and nothing is drawn
meanwhile. The young ones, which most garbage is, are looked through between two pictures.
"""

from __future__ import annotations

import gc

YOUNG, TOO_MANY = 3_000, 50_000
"""Objects made since the last round, after which the young ones are looked through between two
pictures; and after which at once. A picture makes a few thousand."""
WORTH, DUE, LATEST = 16, 120, 800
"""Rounds among the young after which to look through all is worth a moment of rest; is due, if
only nobody types; and does not wait for that either."""


def keep_what_there_is() -> None:
    """Leave out of later rounds what the view and the model are made of: it stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(TOO_MANY, 10, LATEST)


def look_through_young() -> None:
    """Look for garbage among the objects that are not old, if there are many."""
    if gc.get_count()[0] >= YOUNG:
        gc.collect(1)


def look_through_all(*, at_rest: bool) -> None:
    """Look for garbage everywhere, if that is worth it now."""
    if gc.get_count()[2] >= (WORTH if at_rest else DUE):
        gc.collect()
