"""Settings are read as people mean them, and complaints name file, line and setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from localspec.errors import ConfigError
from localspec.nodes import Scalar
from localspec.schema import Range, Size, convert, plain, read
from localspec.yamlfile import load


@dataclass(frozen=True)
class Inner:
    name: str
    weight: float = 1.0


@dataclass(frozen=True)
class Settings:
    threads: Annotated[int | None, Range(1, 512)] = None
    temperature: float = 0.8
    history: bool = True
    mode: Literal["auto", "off", "on"] = "auto"
    layers: Literal["auto", "all"] | Annotated[int, Range(0)] = "auto"
    memory_limit: Annotated[int | None, Size()] = None
    dirs: list[Path] = field(default_factory=list)
    names: tuple[str, ...] = ()
    inner: list[Inner] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    top: int = 40

    def __post_init__(self) -> None:
        if self.top == 13:
            raise ValueError("top may not be 13")


def settings(text: str) -> Settings:
    return read(load(text, "config.yaml"), Settings)


def fault(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(text)
    return " | ".join(filter(None, (caught.value.message, caught.value.hint)))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("threads: 08", "threads", 8),
        ("threads: 4.0", "threads", 4),
        ("threads: none", "threads", None),
        ("threads:", "threads", None),
        ("temperature: 1e-3", "temperature", 0.001),
        ("temperature: 0", "temperature", 0.0),
        ("temperature: .5", "temperature", 0.5),
        ("history: off", "history", False),
        ("history: Yes", "history", True),
        ("mode: off", "mode", "off"),
        ("mode: no", "mode", "off"),
        ("mode: true", "mode", "on"),
        ("mode: AUTO", "mode", "auto"),
        ("layers: all", "layers", "all"),
        ("layers: 012", "layers", 12),
        ("memory-limit: 8 GiB", "memory_limit", 8 * 2**30),
        ("memory_limit: 8GB", "memory_limit", 8 * 10**9),
        ("memory_limit: 1.5g", "memory_limit", 3 * 2**29),
        ("memory_limit: 2147483648", "memory_limit", 2**31),
        ("names: off", "names", ("off",)),
        ("names: [08, 'x']", "names", ("08", "x")),
        ("names:", "names", ()),
        ("dirs: /a", "dirs", [Path("/a")]),
        ("inner: [{name: x, weight: 1e1}]", "inner", [Inner("x", 10.0)]),
        ("numbers: {a: 08, b: [true, 'true', 1.5, null]}", "numbers", None),
    ],
)
def test_as_people_mean_it(text: str, name: str, value: object) -> None:
    found = getattr(settings(text), name)
    if name == "numbers":
        assert found == {"a": 8, "b": [True, "true", 1.5, None]}
    else:
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\nthread: 4",
            'config.yaml, line 2: "thread" is not a setting | Did you mean "threads"?',
        ),
        ("threads: 0", 'config.yaml, line 1: "threads" is 0, but it must be between 1 and 512'),
        (
            "threads: many",
            'config.yaml, line 1: "threads" is "many", but it must be a whole number',
        ),
        ("threads: 1.5", 'config.yaml, line 1: "threads" is "1.5", but it must be a whole number'),
        ("threads: [1]", 'config.yaml, line 1: "threads" is a list, but it must be a single value'),
        (
            "temperature: nan",
            'config.yaml, line 1: "temperature" is "nan", but it must be a number',
        ),
        ("temperature: 1e999", '"temperature" is "1e999", but it must be a number'),
        ("history: perhaps", '"history" is "perhaps", but it must be on or off'),
        (
            "mode: atuo",
            'config.yaml, line 1: "mode" cannot be "atuo"; it is one of auto, off, on'
            ' | Did you mean "auto"?',
        ),
        ("layers: some", '"layers" is "some", but it must be auto, all or a whole number'),
        ("layers: -1", '"layers" is -1, but it must be at least 0'),
        ("memory_limit: 8", '"memory_limit" is 8, but of what? | Write a unit, for example 8GiB.'),
        ("memory_limit: 8 XB", '"memory_limit" is "8 XB", but it must be a size'),
        ("memory_limit: -1GB", '"memory_limit" is "-1GB", but it must be a size'),
        ("inner:\n  - weight: 1", 'config.yaml, line 2: "name" is missing'),
        ("inner: [5]", "config.yaml, line 1: expected names with values"),
        ("top: 13", "config.yaml, line 1: top may not be 13"),
        ("- a", "config.yaml, line 1: expected names with values"),
        ("top: 1\nTop: 2", 'config.yaml, line 2: "top" is set twice'),
    ],
)
def test_complaints(text: str, expected: str) -> None:
    assert expected in fault(text)


def test_a_base_fills_what_is_not_set() -> None:
    base = Settings(threads=3, top=7)
    assert read(load("top: 8"), Settings, base=base) == Settings(threads=3, top=8)


def test_a_value_from_the_environment_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        convert(Scalar("x", "LOCALSPEC_THREADS", 0), int, "threads")
    assert caught.value.message == (
        'LOCALSPEC_THREADS: "threads" is "x", but it must be a whole number'
    )


def test_numbers_too_long_to_be_meant_are_text() -> None:
    assert plain(Scalar("9" * 5000, "x", 1)) == "9" * 5000
