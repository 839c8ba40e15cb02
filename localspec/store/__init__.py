"""Model files: where they are, how they get here, how they go. Only this package talks to the
Hugging Face Hub and to pip."""

from localspec.store.pull import Store, local_model, offline_asked_for
from localspec.store.settings import HubSettings, Source

__all__ = ["HubSettings", "Source", "Store", "local_model", "offline_asked_for"]
