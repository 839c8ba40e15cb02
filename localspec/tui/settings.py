"""What can be changed while the chat goes on; the next answer uses it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from localspec.config import Config, Mode
from localspec.errors import UsageError
from localspec.nodes import Scalar
from localspec.schema import convert, hints_of, nearest
from localspec.spec.sampling import Sampling

SETTABLE = {
    "temperature": "0: always the most probable token",
    "top_k": "keep the K best tokens; 0 keeps all",
    "top_p": "keep the best tokens up to this probability",
    "min_p": "drop tokens below this share of the best",
    "repeat_penalty": "above 1: recent tokens become less probable",
    "seed": "the same seed gives the same answer; none: a fresh one",
    "max_tokens": "longest answer; none: until the model ends",
    "draft_max": "most tokens to guess in one step; none: automatic",
    "colour_tokens": "show where each word came from: on or off",
    "theme": "dark or light",
}
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")


@dataclass(frozen=True, slots=True)
class Settings:
    """``config`` as changed in the chat, and the sampler settings that come of it."""

    config: Config
    sampling: Sampling

    def change(self, name: str, text: str) -> Settings:
        """``name`` set to what ``text`` says. Raises UsageError in words."""
        key = name.strip().lower().replace("-", "_")
        if key not in SETTABLE:
            raise UsageError(f'there is no setting "{name}"', hint=nearest(name, SETTABLE))
        value: Any = convert(Scalar(text.strip(), "/set", 0), hints_of(Config)[key], key)
        config = dataclasses.replace(self.config, **{key: value})
        sampling = self.sampling
        if key in _SAMPLING:
            given: Any = getattr(Sampling(), key) if value is None else value
            sampling = dataclasses.replace(sampling, **{key: given})
        return Settings(config, sampling)

    def with_mode(self, mode: Mode, draft_max: int | None) -> Settings:
        """Another mode, and draft length."""
        return Settings(
            dataclasses.replace(self.config, mode=mode, draft_max=draft_max), self.sampling
        )

    def with_system(self, system: str) -> Settings:
        """Another system message; empty for none."""
        return Settings(dataclasses.replace(self.config, system=system or None), self.sampling)

    def with_model(self, model: str, draft: str | None) -> Settings:
        """Another model."""
        config = dataclasses.replace(self.config, model=model, draft=draft, pair=None)
        return Settings(config, self.sampling)

    def value(self, name: str) -> str:
        """The value of a setting as the user would write it."""
        found = getattr(self.sampling if name in _SAMPLING else self.config, name)
        if isinstance(found, bool):
            return "on" if found else "off"
        return "none" if found is None else f"{found:g}" if isinstance(found, float) else str(found)

    def as_saved(self) -> dict[str, Any]:
        """What is kept with each answer."""
        found = {name: getattr(self.sampling, name) for name in _SAMPLING}
        return {**found, "mode": self.config.mode, "draft_max": self.config.draft_max}
