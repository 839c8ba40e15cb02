"""Settings files, upper half: nodes of ``yamlfile`` to a dataclass, checked by its type hints.

Understood as field types: ``bool``, ``int``, ``float``, ``str``, ``Path``, ``Literal``, unions with
``None``, ``list``/``tuple[T, ...]``, ``dict[str, T]``, other dataclasses, ``Any``; ``Annotated``
adds ``Range`` or ``Size``. Every complaint is a ConfigError that names file, line and setting.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from localspec.errors import ConfigError
from localspec.nodes import Mapping, Node, Scalar, Sequence

T = TypeVar("T")


class _OutOfRangeError(ConfigError):
    """Of the right type, but too small or too large."""


@dataclass(frozen=True, slots=True)
class Range:
    """``Annotated[int, Range(1, 512)]``: both ends are allowed."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Size:
    """``Annotated[int, Size()]``: a number of bytes, written ``8 GiB``, ``8G`` or ``8GB``."""


def read(node: Node, schema: type[T], *, base: T | None = None, what: str = "setting") -> T:
    """``node`` as the dataclass ``schema``, every value checked against its type hint.

    A field that is not set keeps its value from ``base``, else its default; a field without
    default must be set. Names may be written with ``-`` for ``_``. A ValueError of the dataclass'
    own ``__post_init__`` is reported with the place. A field with the metadata
    ``{"setting": False}`` cannot be set by a file. ``what`` is what messages call a name.

    Raises ConfigError.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"{node.where}: expected names with values (name: value)")
    fields = {
        field.name: field
        for field in dataclasses.fields(schema)  # type: ignore[arg-type]
        if field.metadata.get("setting", True)
    }
    hints = hints_of(schema)
    values: dict[str, Any] = {}
    for key, value in node.entries.items():
        name = known_name(key, fields, f"{node.name}, line {node.lines[key]}", what)
        if name in values:
            raise ConfigError(f'{node.name}, line {node.lines[key]}: "{name}" is set twice')
        values[name] = convert(value, hints[name], name)
    for name, field in fields.items():
        if name in values:
            continue
        if base is not None:
            values[name] = getattr(base, name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f'{node.where}: "{name}" is missing')
    try:
        return schema(**values)
    except ValueError as error:
        said = [n for key, n in node.lines.items() if f'"{key.replace("-", "_")}"' in str(error)]
        where = f"{node.name}, line {said[0]}" if said and said[0] else node.where
        raise ConfigError(f"{where}: {error}") from None


def hints_of(schema: type[Any]) -> dict[str, Any]:
    """The type hints of a dataclass, with ``Annotated`` kept."""
    return _hints_of(schema)  # type: ignore[arg-type]  # mypy: classes are not Hashable


@functools.cache  # working them out takes longer than reading a whole catalog
def _hints_of(schema: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(schema, include_extras=True)


def known_name(key: str, known: Iterable[str], where: str, what: str = "setting") -> str:
    """``key`` as one of ``known``; raises ConfigError that suggests the nearest."""
    names = list(known)
    for candidate in (key, key.replace("-", "_"), key.replace("-", "_").lower()):
        if candidate in names:
            return candidate
    article = "an" if what[0] in "aeiou" else "a"
    raise ConfigError(f'{where}: "{key}" is not {article} {what}', hint=nearest(key, names))


def nearest(text: str, known: Iterable[str]) -> str:
    """``Did you mean "threads"?``, or all known names when none is near and they are few."""
    names = list(known)
    lowered = {name.lower(): name for name in names}
    found = difflib.get_close_matches(text.lower().replace("-", "_"), lowered, n=1, cutoff=0.6)
    if found:
        return f'Did you mean "{lowered[found[0]]}"?'
    return f"Known: {', '.join(names)}." if 0 < len(names) <= 30 else ""


def convert(node: Node, hint: Any, setting: str) -> Any:
    """``node`` as a value of the type ``hint``; raises ConfigError that names ``setting``."""
    origin: Any = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(node, arguments[0], arguments[1:], setting)
    if origin in (typing.Union, types.UnionType):
        return _union(node, arguments, setting)
    if origin in (list, tuple):
        items = node.items if isinstance(node, Sequence) else (node,)
        if isinstance(node, Scalar) and _is_null(node):
            items = ()
        values = [convert(item, arguments[0], setting) for item in items]
        return values if origin is list else tuple(values)
    if origin is dict:
        if not isinstance(node, Mapping):
            raise _wrong(node, setting, "names with values (name: value)")
        return {k: convert(v, arguments[1], f"{setting}.{k}") for k, v in node.entries.items()}
    if hint is Any:
        return plain(node)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return read(node, hint)
    if not isinstance(node, Scalar):
        raise _wrong(node, setting, "a single value")
    if origin is Literal:
        return _choice(node, arguments, setting)
    return _scalar(node, hint, setting)


def _annotated(node: Node, hint: Any, marks: tuple[Any, ...], setting: str) -> Any:
    if any(isinstance(mark, Size) for mark in marks):
        if _allows_none(hint) and isinstance(node, Scalar) and _is_null(node):
            return None
        if not isinstance(node, Scalar):
            raise _wrong(node, setting, "a size, such as 8GiB")
        value: Any = parse_size(node, setting)
    else:
        value = convert(node, hint, setting)
    for mark in marks:
        if isinstance(mark, Range):
            for number in value if isinstance(value, (list, tuple)) else [value]:
                if number is not None and not mark.low <= number <= mark.high:
                    raise _OutOfRangeError(
                        f'{node.where}: "{setting}" is {number}, but {_span(mark)}'
                    )
    return value


def _span(mark: Range) -> str:
    if mark.high == math.inf:
        return f"it must be at least {mark.low:.12g}"
    if mark.low == -math.inf:
        return f"it must be at most {mark.high:.12g}"
    return f"it must be between {mark.low:.12g} and {mark.high:.12g}"


def _allows_none(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _is_null(node: Scalar) -> bool:
    return not node.quoted and node.text.strip().lower() in ("", "~", "null", "none")


def _is_not_words(hint: Any) -> bool:
    origin: Any = typing.get_origin(hint)
    return origin is not Literal


def _union(node: Node, options: tuple[Any, ...], setting: str) -> Any:
    """``None`` first, then the words (Literal), then the rest in order."""
    if type(None) in options and isinstance(node, Scalar) and _is_null(node):
        return None
    rest = [option for option in options if option is not type(None)]
    if len(rest) == 1:
        return convert(node, rest[0], setting)
    rest.sort(key=_is_not_words)
    for option in rest:
        try:
            return convert(node, option, setting)
        except _OutOfRangeError:
            raise
        except ConfigError:
            continue
    raise _wrong(node, setting, " or ".join(_name_of(option) for option in rest))


_TRUE = ("true", "yes", "on", "y", "1")
_FALSE = ("false", "no", "off", "n", "0")


def _choice(node: Scalar, options: tuple[Any, ...], setting: str) -> Any:
    text = node.text.strip().lower()
    by_name = {str(option).lower(): option for option in options}
    for name in (text, text.replace("_", "-"), text.replace("-", "_")):
        if name in by_name:
            return by_name[name]
    # YAML habit: someone who writes "no" or "true" for a switch of words means off or on.
    switch = "on" if text in _TRUE else "off" if text in _FALSE else ""
    if switch in by_name:
        return by_name[switch]
    names = [str(option) for option in options]
    raise ConfigError(
        f'{node.where}: "{setting}" cannot be "{node.text}"; it is one of {", ".join(names)}',
        hint=hint if (hint := nearest(node.text, names)).startswith("Did") else "",
    )


def _scalar(node: Scalar, hint: Any, setting: str) -> Any:
    text = node.text.strip()
    if hint is str:
        return node.text
    if hint is Path:
        if not text:
            raise _wrong(node, setting, "a path")
        return Path(text).expanduser()
    if hint is bool:
        if text.lower() in _TRUE:
            return True
        if text.lower() in _FALSE:
            return False
        raise _wrong(node, setting, "on or off")
    if hint in (int, float):
        number = _number(text)
        if number is None or (hint is int and number != int(number)):
            raise _wrong(node, setting, _name_of(hint))
        return int(number) if hint is int else float(number)
    raise TypeError(f"{setting}: no way to read a {hint!r} from a settings file")


_INTEGER = re.compile(r"[+-]?\d[\d_]*")
_DECIMAL = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


def _number(text: str) -> int | float | None:
    """``08`` is 8 and ``1e-3`` is 0.001, whatever YAML 1.1 thinks; None: not a finite number."""
    if len(text) > 40:
        return None
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text.replace("_", ""))
    return value if math.isfinite(value) else None


_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 1024**_power


def parse_size(node: Scalar, setting: str) -> int:
    """Bytes: ``8GiB`` and ``8G`` are 8·2³⁰, ``8GB`` is 8·10⁹, ``1073741824`` is itself.

    A bare small number is refused: nobody means eight bytes. Raises ConfigError.
    """
    match = re.fullmatch(r"(.*?)\s*([a-z]*)", node.text.strip().lower())
    number = _number(match[1]) if match else None
    if match is None or number is None or match[2] not in _UNITS or number < 0:
        raise _wrong(node, setting, "a size, such as 8GiB or 500MB")
    if match[2] == "" and 0 < number < 2**20:
        raise ConfigError(
            f'{node.where}: "{setting}" is {node.text.strip()}, but of what?',
            hint=f"Write a unit, for example {node.text.strip()}GiB.",
        )
    return int(number * _UNITS[match[2]])


_NAMES = {bool: "on or off", int: "a whole number", float: "a number", str: "text", Path: "a path"}


def _name_of(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _name_of(typing.get_args(hint)[0])
    if origin is Literal:
        return ", ".join(str(option) for option in typing.get_args(hint))
    return _NAMES.get(hint, "something else")


def _wrong(node: Node, setting: str, expected: str) -> ConfigError:
    found = {Sequence: "a list", Mapping: "a group of settings"}.get(type(node), "")
    if isinstance(node, Scalar):
        found = f'"{node.text}"' if node.text else "empty"
    return ConfigError(f'{node.where}: "{setting}" is {found}, but it must be {expected}')


def plain(node: Node) -> Any:
    """``node`` as str, int, float, bool, None, list and dict, for values without a schema."""
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    if node.quoted:
        return node.text
    if _is_null(node):
        return None
    if node.text.lower() in ("true", "false"):
        return node.text.lower() == "true"
    number = _number(node.text)
    return node.text if number is None else number
