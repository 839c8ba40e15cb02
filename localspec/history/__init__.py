"""Texts of earlier answers and of the user's files, as a source of drafts."""

from localspec.history.index import (
    History,
    follow_deletions,
    forget_all,
    forget_everywhere,
    held_everywhere,
    vocabulary_key,
)
from localspec.provenance import RUNS, Source

__all__ = [
    "RUNS",
    "History",
    "Source",
    "follow_deletions",
    "forget_all",
    "forget_everywhere",
    "held_everywhere",
    "vocabulary_key",
]
