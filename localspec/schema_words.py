"""What the keywords of a JSON Schema say, and which of them can be kept by a grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.errors import UsageError

MAX_REPEAT = 100_000

ANNOTATIONS = {
    "title", "description", "default", "examples", "example", "$schema", "$id", "$comment",
    "$anchor", "deprecated", "readOnly", "writeOnly", "$defs", "definitions", "$vocabulary",
    "contentMediaType", "contentEncoding",
}  # fmt: skip
OF_TYPE = {
    "string": {"minLength", "maxLength", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "boolean": set(),
    "null": set(),
}
TYPES = tuple(OF_TYPE)


def only(keys: set[str], allowed: set[str], where: str, beside: str) -> None:
    """Raise UsageError for the first of ``keys`` that is not ``allowed``."""
    for key in sorted(keys - allowed):
        raise UsageError(
            f'the JSON schema at {where} uses "{key}", which cannot be kept {beside}',
            hint="A grammar cannot express everything that a schema can; leave it out and check "
            "the answer yourself.",
        )


def items(value: Any, where: str, *, empty: bool = False) -> list[Any]:
    """``value``, which must be a list (``empty``: and may hold nothing). Raises UsageError."""
    if not isinstance(value, list) or (not value and not empty):
        raise UsageError(f"the JSON schema at {where} needs a list that is not empty")
    return value


def types(value: Any, keys: set[str], where: str) -> tuple[str, ...]:
    """The types that are allowed; where none is named, those that the other keywords are about."""
    if value is None:
        implied = [name for name in TYPES if keys & OF_TYPE[name] and name != "integer"]
        # Without a type, keywords only say how values of theirs must look: one of them will do.
        return (implied[0],) if implied else TYPES
    names = [value] if isinstance(value, str) else items(value, where)
    for name in names:
        if name not in TYPES:
            raise UsageError(f"the JSON schema at {where} names an unknown type {name!r}")
    return tuple(dict.fromkeys(names))


def is_of(value: Any, types: Sequence[str]) -> bool:
    """Whether a JSON value is of one of ``types``."""
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer" in types or "number" in types
    names = {float: "number", str: "string", dict: "object", list: "array", type(None): "null"}
    return names[type(value)] in types


def bounds(schema: Mapping[str, Any], low: str, high: str, where: str) -> tuple[int, int | None]:
    """(least, most) of a length; None for no upper bound. Raises UsageError."""
    least, most = schema.get(low, 0), schema.get(high)
    for value in (least, most):
        if value is not None and (type(value) is not int or not 0 <= value <= MAX_REPEAT):
            raise UsageError(f"the JSON schema at {where}: {low} and {high} go up to {MAX_REPEAT}")
    if most is not None and most < least:
        raise UsageError(f"the JSON schema at {where}: {high} is below {low}")
    return least, most


def disjoint(parts: Sequence[Any]) -> bool:
    """Whether no value can match two of ``parts``, as far as types and constants tell."""
    for index, one in enumerate(parts):
        for other in parts[index + 1 :]:
            if not isinstance(one, Mapping) or not isinstance(other, Mapping):
                return False
            if not (_types_apart(one, other) or _constants_apart(one, other)):
                return False
    return True


def _values(schema: Any) -> list[str] | None:
    """The only values that ``schema`` allows, as texts; None when they are not listed."""
    if isinstance(schema, Mapping):
        if "const" in schema:
            return [json.dumps(schema["const"], sort_keys=True)]
        if isinstance(schema.get("enum"), list):
            return [json.dumps(value, sort_keys=True) for value in schema["enum"]]
    return None


def _types_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    sets = []
    for schema in (one, other):
        names = schema.get("type")
        if names is None:
            return False
        found = {names} if isinstance(names, str) else set(names)
        sets.append({"number" if name == "integer" else name for name in found})
    return not sets[0] & sets[1]


def _constants_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = _values(one), _values(other)
    if first is not None and second is not None:
        return not set(first) & set(second)
    shared = set(one.get("required", [])) & set(other.get("required", []))
    for name in shared:
        first = _values(one.get("properties", {}).get(name))
        second = _values(other.get("properties", {}).get(name))
        if first is not None and second is not None and not set(first) & set(second):
            return True
    return False


def merged(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``allOf`` of objects with different properties, as one object."""
    parts = items(schema["allOf"], where)
    if len(parts) == 1 and not set(schema) - ANNOTATIONS - {"allOf"}:
        part = parts[0]
        return dict(part) if isinstance(part, Mapping) else {"anyOf": [part]}
    whole: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    for part in [*parts, rest]:
        if not isinstance(part, Mapping):
            raise UsageError(f"the JSON schema at {where} has an allOf of something else")
        only(set(part) - ANNOTATIONS, {"type", "properties", "required"}, where, "in an allOf")
        if part.get("type", "object") != "object" or (
            set(part.get("properties", {})) & set(whole["properties"])
        ):
            raise UsageError(f"the JSON schema at {where} has an allOf whose parts overlap")
        whole["properties"] |= part.get("properties", {})
        whole["required"] += part.get("required", [])
    return whole
