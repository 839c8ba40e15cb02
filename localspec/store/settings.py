"""Where the Hub is; apart from ``hub`` so that naming it does not import the HTTP stack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Source = Literal["auto", "hub", "mirror"]
DEFAULT_ENDPOINT = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Where the Hub is and how patient to be. ``notice_s``: how soon a silent Hub is given up."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    notice_s: float = 5.0
    read_s: float = 15.0
    n_retries: int = 5
    backoff_s: float = 0.5
    longest_wait_s: float = 10.0
