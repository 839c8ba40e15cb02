"""Settings as they were written: values, lists and mappings that remember where they stand.

``yamlfile`` makes them from a file; environment variables and flags are nodes without a line. Apart
from YAML, whose library would be a tenth of the chat's start.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as it was written. ``line`` 0: not from a file, ``name`` says it all."""

    text: str
    name: str
    line: int
    quoted: bool = False

    @property
    def where(self) -> str:
        """``config.yaml, line 3``."""
        return f"{self.name}, line {self.line}" if self.line else self.name


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of values."""

    items: tuple[Node, ...]
    name: str
    line: int

    @property
    def where(self) -> str:
        """``config.yaml, line 3``."""
        return f"{self.name}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Settings with their values; ``lines`` holds the line of each key."""

    entries: dict[str, Node]
    lines: dict[str, int]
    name: str
    line: int

    @property
    def where(self) -> str:
        """``config.yaml, line 3``."""
        return f"{self.name}, line {self.line}"


Node = Scalar | Sequence | Mapping
