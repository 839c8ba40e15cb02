"""JSON Schema as a GBNF grammar: what the grammar allows always validates against the schema.

The grammar may allow less than the schema (properties come in the order in which they are declared,
undeclared ones are left out, numbers have a bounded length); it never allows more. A keyword that a
grammar cannot express is therefore an error that names it, and is not passed over in silence.

Keywords: JSON Schema draft 2020-12 (json-schema.org). Grammar notation: llama.cpp's GBNF.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from localspec import intervals
from localspec import schema_words as words
from localspec.errors import UsageError

MAX_BYTES = 1024 * 1024
MAX_RULES = 20_000
MAX_DEPTH = 64
_BLOCK = 100  # longer repetitions are made of blocks: llama.cpp writes every single one out

# Whitespace is bounded: a model that likes it could otherwise go on for ever.
_BASE = {
    "ws": r'| " " | "\n" [ \t]{0,20}',
    "hex": "[0-9a-fA-F]",
    # Half of a surrogate pair is no character: a length would count wrong.
    "char": r"""[^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" unit)""",
    "unit": "[0-9a-cA-CefEF] hex hex hex | [dD] [0-7] hex hex",
    "string": r'"\"" char* "\""',
    "integer": '"-"? natural',
    "natural": '"0" | [1-9] [0-9]{0,14}',
    # A fraction that is not zero, and one that is.
    "fraction": '"." [0-9]{0,14} [1-9]',
    "zeros": '"." "0"{1,2}',
    "number": '"-"? natural ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "member": 'string ws ":" ws value',
    "object": '"{" ws (member (ws "," ws member)* ws)? "}"',
    "array": '"[" ws (value (ws "," ws value)* ws)? "]"',
    "month-day": '("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])',
    "date": '[1-9] [0-9]{3} "-" month-day',
    "time": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})? zone',
    "zone": '"Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    "date-time": 'date "T" time',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
}
_FORMATS = ("date", "time", "date-time", "uuid")


def from_json_schema(text: str) -> str:
    """GBNF for the schema in ``text``. Raises UsageError: no JSON, no schema, or more than a
    grammar can express."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise UsageError(f"the JSON schema is longer than {MAX_BYTES // 1024} KiB")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the JSON schema is not JSON: {error}",
            hint='Give a file or a text such as {"type": "object", "properties": {...}}.',
        ) from None
    return _Converter(schema).run()


class _Converter:
    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._rules: dict[str, str] = {}
        self._refs: dict[str, str] = {}
        self._used: set[str] = set()

    def run(self) -> str:
        body = self._any(self._root, "#", 0)
        lines = [f"root ::= {body}"]
        lines += [f"{name} ::= {rule}" for name, rule in self._rules.items()]
        lines += [f"{name} ::= {rule}" for name, rule in _BASE.items()]
        return "\n".join(lines) + "\n"

    # -- rules --------------------------------------------------------------------------------

    def _rule(self, body: str, name: str = "") -> str:
        """The name of a rule with this body."""
        if len(self._rules) >= MAX_RULES:
            raise UsageError(f"the JSON schema needs more than {MAX_RULES} grammar rules")
        name = name or f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def _any(self, schema: Any, where: str, depth: int) -> str:
        """What matches ``schema``: a rule name or a group, to be used anywhere."""
        if depth > MAX_DEPTH:
            raise UsageError(f"the JSON schema is nested more than {MAX_DEPTH} deep at {where}")
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, Mapping):
            raise UsageError(f"the JSON schema at {where} allows nothing or is no schema")
        keys = set(schema) - words.ANNOTATIONS
        if "$ref" in keys:
            words.only(keys, {"$ref"}, where, "beside $ref")
            return self._ref(schema["$ref"], where, depth)
        for word in ("enum", "const"):
            if word in keys:
                words.only(keys, {word, "type"}, where, f"beside {word}")
                values = words.items(schema[word], where) if word == "enum" else [schema[word]]
                return self._literals(values, schema.get("type"), where)
        for word in ("anyOf", "oneOf"):
            if word in keys:
                words.only(keys, {word, "type"}, where, f"beside {word}")
                return self._either(schema, word, where, depth)
        if "allOf" in keys:
            return self._any(words.merged(schema, where), where, depth + 1)
        return self._typed(schema, keys, where, depth)

    def _typed(self, schema: Mapping[str, Any], keys: set[str], where: str, depth: int) -> str:
        types = words.types(schema.get("type"), keys, where)
        known = set().union(*(words.OF_TYPE[name] for name in types)) | {"type"}
        words.only(keys, known, where, f"for type {' or '.join(types)}")
        make = {
            "string": self._string, "number": self._number, "integer": self._integer,
            "object": self._object, "array": self._array,
        }  # fmt: skip
        found = [
            make[name](schema, f"{where}", depth)
            if name in make and keys & words.OF_TYPE[name]
            else name
            for name in types
        ]
        return found[0] if len(found) == 1 else self._rule(" | ".join(found))

    def _ref(self, ref: Any, where: str, depth: int) -> str:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise UsageError(f"the JSON schema at {where} refers outside of itself: {ref!r}")
        if ref not in self._refs:
            name = self._refs[ref] = f"ref{len(self._refs)}"
            self._rule(self._any(self._resolve(ref, where), ref, depth + 1), name)
        return self._refs[ref]

    def _resolve(self, ref: str, where: str) -> Any:
        found = self._root
        for part in ref[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise UsageError(f"the JSON schema at {where} refers to nothing: {ref}") from None
        return found

    def _literals(self, values: Sequence[Any], types: Any, where: str) -> str:
        wanted = words.types(types, set(), where) if types is not None else words.TYPES
        fitting = [value for value in values if words.is_of(value, wanted)]
        if not fitting:
            raise UsageError(f"the JSON schema at {where} allows no value at all")
        texts = [json.dumps(value, ensure_ascii=False) for value in fitting]
        return self._rule(" | ".join(quoted(text) for text in texts))

    def _either(self, schema: Mapping[str, Any], word: str, where: str, depth: int) -> str:
        parts = words.items(schema[word], where)
        if "type" in schema:
            parts = [
                {"type": schema["type"], **part} if isinstance(part, Mapping) else part
                for part in parts
            ]
        if word == "oneOf" and not words.disjoint([self._plain(part, where) for part in parts]):
            raise UsageError(
                f"the JSON schema at {where} has a oneOf whose parts may overlap",
                hint="Use anyOf, give the parts different types, or a property with a const each.",
            )
        return self._rule(
            " | ".join(
                self._any(part, f"{where}/{word}/{index}", depth + 1)
                for index, part in enumerate(parts)
            )
        )

    def _plain(self, part: Any, where: str) -> Any:
        """``part``, looked up if it is a reference."""
        for _ in range(MAX_DEPTH):
            if not isinstance(part, Mapping) or not isinstance(part.get("$ref"), str):
                break
            part = self._resolve(part["$ref"], where)
        return part

    # -- types --------------------------------------------------------------------------------

    def _string(self, schema: Mapping[str, Any], where: str, depth: int) -> str:  # noqa: ARG002
        low, high = words.bounds(schema, "minLength", "maxLength", where)
        if schema.get("format") in _FORMATS:
            if "minLength" in schema or "maxLength" in schema:
                raise UsageError(f"the JSON schema at {where} has a format and a length")
            return self._rule(rf'"\"" {schema["format"]} "\""')
        # Other formats are notes to the reader, as the standard has it.
        return self._rule(rf'"\"" {self._repeated("char", low, high)} "\""')

    def _repeated(self, item: str, low: int, high: int | None) -> str:
        """``low`` to ``high`` times ``item``."""
        if (high or low) <= 2 * _BLOCK:
            return f"{item}{{{low},{high if high is not None else ''}}}"
        block = self._rule(f"{item}{{{_BLOCK}}}")
        n_low, rest = divmod(low, _BLOCK)
        head = f"{block}{{{n_low}}} " if n_low else ""
        if high is None:
            return f"{head}{item}{{{rest},}}"
        if rest:
            head += f"{item}{{{rest}}} "
        n_more, last = divmod(high - low, _BLOCK)
        # Whole blocks, then less than one, or the last part; at most two ways are open at a time.
        tail = self._rule(f"{item}{{0,{last}}}" if n_more == 0 else f"{item}{{0,{_BLOCK - 1}}}")
        if n_more == 0:
            return head + tail
        full = f"{block}{{{n_more}}} {item}{{0,{last}}}"
        fewer = f"{block}{{0,{n_more - 1}}} {tail}"
        return f"{head}({fewer} | {full})"

    def _integer(self, schema: Mapping[str, Any], where: str, depth: int) -> str:  # noqa: ARG002
        low, high = intervals.integer_bounds(schema, where)
        return self._rule(intervals.integers(low, high))

    def _number(self, schema: Mapping[str, Any], where: str, depth: int) -> str:  # noqa: ARG002
        return self._rule(intervals.numbers(schema, where))

    def _array(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        low, high = words.bounds(schema, "minItems", "maxItems", where)
        first = [
            self._any(part, f"{where}/prefixItems/{index}", depth + 1)
            for index, part in enumerate(
                words.items(schema.get("prefixItems", []), where, empty=True)
            )
        ]
        rest = schema.get("items", True)
        item = None if rest is False else self._any(rest, f"{where}/items", depth + 1)
        if item is None and low > len(first):
            raise UsageError(f"the JSON schema at {where} asks for more items than it allows")
        # From the back: what may follow item i, a comma first.
        n_first = len(first)
        tail = ""
        if item is not None and (high is None or high > n_first):
            more = self._rule(f'ws "," ws {item}')
            least = max(0, low - max(n_first, 1))
            most = None if high is None else high - max(n_first, 1)
            tail = self._repeated(more, least, most) if most is None or most > 0 else ""
        members = first[: high if high is not None else n_first]
        if not members:
            if item is None or high == 0:
                return self._rule('"[" ws "]"')
            inside = f"{item} {tail} ws"
            return self._rule(f'"[" ws {inside} "]"' if low else f'"[" ws ({inside})? "]"')
        for index in range(len(members) - 1, 0, -1):
            tail = self._rule(f'ws "," ws {members[index]} {tail}')
            if index >= low:
                tail = f"{tail}?"
        inside = f"{members[0]} {tail} ws"
        return self._rule(f'"[" ws {inside} "]"' if low else f'"[" ws ({inside})? "]"')

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> str:
        properties = schema.get("properties", {})
        required = words.items(schema.get("required", []), where, empty=True)
        extra = schema.get("additionalProperties", True)
        if not isinstance(properties, Mapping) or not all(isinstance(n, str) for n in required):
            raise UsageError(f"the JSON schema at {where} has no proper properties or required")
        undeclared = [name for name in dict.fromkeys(required) if name not in properties]
        if undeclared and extra is False:
            raise UsageError(
                f"the JSON schema at {where} requires {undeclared[0]!r} and forbids it"
            )
        parts = {**properties, **dict.fromkeys(undeclared, extra)}
        if not parts:
            if extra is False:
                return self._rule('"{" ws "}"')
            value = self._any(extra, f"{where}/additionalProperties", depth + 1)
            member = self._rule(f'string ws ":" ws {value}')
            return self._rule(rf'"{{" ws ({member} (ws "," ws {member})* ws)? "}}"')
        members = []
        for name, part in parts.items():
            if name not in required and part is False:
                continue
            value = self._any(part, f"{where}/properties/{name}", depth + 1)
            key = quoted(json.dumps(name, ensure_ascii=False))
            members.append((self._rule(f'{key} ws ":" ws {value}'), name in required))
        return self._rule(f'"{{" ws {self._members(members)} "}}"')

    def _members(self, members: Sequence[tuple[str, bool]]) -> str:
        """Members in order, the optional ones there or not, with commas between."""
        more = first = '""'  # from here to the end: after another member, or as the first
        for member, is_required in reversed(members):
            follow = self._rule(more)
            start = f"{member} {follow}"
            if is_required:
                first, more = f"{start}", f'ws "," ws {start}'
            else:
                first = f"{start} | {self._rule(first)}"
                more = f'(ws "," ws {member})? {follow}'
        return f"({first}) ws"


def quoted(text: str) -> str:
    """``text`` as a GBNF literal."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char < " " or char == "\x7f":
            out.append(f"\\x{ord(char):02X}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'
