"""An independent judge of JSON Schemas, and a generator of random texts from a grammar."""

from __future__ import annotations

import datetime
import json
import random
import re
import uuid
from pathlib import Path
from typing import Any

SCHEMAS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "bench" / "data" / "schemas.json").read_text(encoding="utf-8")
)


def valid(value: Any, schema: Any, root: Any = None) -> bool:
    """Whether ``value`` validates; the keywords of the schemas in this repository only."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        found = root
        for part in schema["$ref"].split("/")[1:]:
            found = found[part]
        return valid(value, found, root)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    checks = [
        "type" not in schema or any(_of(value, name) for name in _names(schema["type"])),
        "enum" not in schema or any(_same(value, other) for other in schema["enum"]),
        "const" not in schema or _same(value, schema["const"]),
        "anyOf" not in schema or any(valid(value, part, root) for part in schema["anyOf"]),
        "oneOf" not in schema or sum(valid(value, part, root) for part in schema["oneOf"]) == 1,
        all(valid(value, part, root) for part in schema.get("allOf", [])),
        not number or schema.get("minimum", value) <= value <= schema.get("maximum", value),
        not number or value > schema.get("exclusiveMinimum", float("-inf")),
        not number or value < schema.get("exclusiveMaximum", float("inf")),
    ]
    if isinstance(value, str):
        checks.append(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9))
        checks.append("format" not in schema or _format(value, schema["format"]))
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        checks.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9))
        checks += [valid(item, part, root) for item, part in zip(value, first, strict=False)]
        checks += [valid(item, schema.get("items", True), root) for item in value[len(first) :]]
    if isinstance(value, dict):
        parts = schema.get("properties", {})
        checks += [name in value for name in schema.get("required", [])]
        extra = schema.get("additionalProperties", True)
        checks += [valid(item, parts.get(name, extra), root) for name, item in value.items()]
    return all(checks)


def _names(types: Any) -> list[str]:
    return [types] if isinstance(types, str) else types


def _of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, (int, float)):
        return name == "number" or (name == "integer" and value == int(value))
    kinds = {str: "string", list: "array", dict: "object", type(None): "null"}
    return kinds[type(value)] == name


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _format(text: str, name: str) -> bool:
    try:
        if name == "date":
            datetime.date.fromisoformat(text)
        elif name == "date-time":
            datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        elif name == "time":
            datetime.time.fromisoformat(text.replace("Z", "+00:00"))
        elif name == "uuid":
            return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
    return True


# -- grammar --------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'\s*(?:("(?:\\.|[^"\\])*")|(\[(?:\\.|[^\]\\])*\])|([a-zA-Z][\w-]*)|(\{\d*,?\d*\})|([()|?*+]))'
)


class Grammar:
    """GBNF as far as this project writes it."""

    def __init__(self, text: str) -> None:
        lines = (line.split(" ::= ", 1) for line in text.strip("\n").split("\n"))
        self.rules = {name: _parse(body) for name, body in lines}

    def random_text(self, rng: random.Random, name: str = "root") -> str:
        """A random text that the grammar allows."""
        return self._text(("or", self.rules[name]), rng, 0)

    def _text(self, node: Any, rng: random.Random, depth: int) -> str:
        kind, what = node
        if kind == "text":
            return str(what)
        if kind == "class":
            return str(rng.choice(what))
        if kind == "rule":
            return self._text(("or", self.rules[what]), rng, depth + 1)
        if kind == "or":
            # Deep inside, the shortest way out.
            choices = sorted(what, key=len) if depth > 24 else what
            chosen = choices[0] if depth > 24 else rng.choice(choices)
            return "".join(self._text(part, rng, depth) for part in chosen)
        part, low, high = what
        if high is None:
            high = low + (0 if depth > 12 else 4)
        elif high > low + 6 and rng.random() < 0.7:
            high = low + 6
        return "".join(self._text(part, rng, depth + 1) for _ in range(rng.randint(low, high)))


def _parse(body: str) -> list[list[Any]]:
    tokens = [match.group(match.lastindex or 0) for match in _TOKEN.finditer(body)]
    choices, rest = _choices(tokens)
    assert not rest, body
    return choices


def _choices(tokens: list[str]) -> tuple[list[list[Any]], list[str]]:
    choices: list[list[Any]] = [[]]
    while tokens and tokens[0] != ")":
        token, tokens = tokens[0], tokens[1:]
        if token == "|":
            choices.append([])
        elif token == "(":
            inner, tokens = _choices(tokens)
            choices[-1].append(("or", inner))
            tokens = tokens[1:]
        elif token in "?*+" or token[0] == "{":
            low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(token, (0, 0))
            if token[0] == "{":
                parts = token[1:-1].split(",")
                low = int(parts[0])
                high = low if len(parts) == 1 else int(parts[1]) if parts[1] else None
            choices[-1][-1] = ("times", (choices[-1][-1], low, high))
        elif token[0] == '"':
            choices[-1].append(("text", _unescaped(token[1:-1])))
        elif token[0] == "[":
            choices[-1].append(("class", _members(token[1:-1])))
        else:
            choices[-1].append(("rule", token))
    return choices, tokens


def _unescaped(text: str) -> str:
    special = {"n": "\n", "t": "\t", "r": "\r"}

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 3 else special.get(code, code)

    return re.sub(r"\\(x[0-9A-F]{2}|.)", one, text)


def _members(text: str) -> list[str]:
    negated = text.startswith("^")
    raw = re.findall(r"\\x[0-9A-F]{2}|\\.|.", text.removeprefix("^"), re.S)
    found: list[str] = []
    index = 0
    while index < len(raw):
        if index + 2 < len(raw) and raw[index + 1] == "-":
            low, high = ord(_unescaped(raw[index])), ord(_unescaped(raw[index + 2]))
            found += [chr(code) for code in range(low, high + 1)]
            index += 3
        else:
            found.append(_unescaped(raw[index]))
            index += 1
    if negated:
        return [char for char in 'abc XYZ09{}:,äß東🟢"\\\n\x00\x7f' if char not in found]
    return found
