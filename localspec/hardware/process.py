"""What this process uses."""

from __future__ import annotations

import psutil


def n_bytes_used() -> int:
    """Resident memory of this process in bytes; pages of model files that are mapped count."""
    return int(psutil.Process().memory_info().rss)
