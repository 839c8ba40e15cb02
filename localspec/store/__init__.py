"""Model files: where they are, how they get here, how they go. Only this package talks to the
Hugging Face Hub and to pip."""

from localspec.store.cache import Leftover
from localspec.store.names import choose, is_side_file, quant_tag
from localspec.store.places import Entry, Origin
from localspec.store.pull import Store, local_model, offline_asked_for
from localspec.store.settings import HubSettings, Source

__all__ = [
    "Entry",
    "HubSettings",
    "Leftover",
    "Origin",
    "Source",
    "Store",
    "choose",
    "is_side_file",
    "local_model",
    "offline_asked_for",
    "quant_tag",
]
