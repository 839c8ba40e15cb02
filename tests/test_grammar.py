"""What a schema's grammar allows always validates; what it cannot promise is refused by name."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from helpers_schema import SCHEMAS, Grammar, valid
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.grammar import from_json_schema, quoted
from localspec.intervals import integers

IDS = [case["id"] for case in SCHEMAS]


@pytest.mark.parametrize("case", SCHEMAS, ids=IDS)
def test_every_text_of_the_grammar_validates(case: dict[str, Any]) -> None:
    grammar = Grammar(from_json_schema(json.dumps(case["schema"])))
    rng = random.Random(7)
    texts = {grammar.random_text(rng) for _ in range(150)}
    for text in texts:
        assert valid(json.loads(text), case["schema"]), text
    one_value = ("const", "empty-object")
    assert len(texts) > (1 if case["id"] not in one_value else 0)


def test_the_judge_is_not_blind() -> None:
    """Each example validates, and one with the wrong type anywhere does not."""
    for case in SCHEMAS:
        assert valid(case["example"], case["schema"]), case["id"]
        assert not valid({"unexpected": [1, "x"]}, case["schema"]), case["id"]


@settings(max_examples=200, deadline=None)
@given(st.integers(-3000, 3000), st.integers(0, 2500), st.data())
def test_integers_between_two_bounds(low: int, span: int, data: st.DataObject) -> None:
    grammar = Grammar(f"root ::= {integers(low, low + span)}")
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(20):
        assert low <= int(grammar.random_text(rng)) <= low + span


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (-1, 1), (7, 123), (-120, -9), (99, 101), (0, 1000), (995, 1005)]
)
def test_every_integer_between_the_bounds_can_be_said(low: int, high: int) -> None:
    def language(choices: list[list[Any]]) -> set[str]:
        found = set()
        for choice in choices:
            texts = {""}
            for kind, what in choice:
                parts = {what} if kind == "text" else {""} if kind == "times" else set(what)
                if kind == "times":
                    (_, members), n, _ = what
                    for _ in range(n):
                        parts = {a + b for a in parts for b in members}
                texts = {a + b for a in texts for b in parts}
            found |= texts
        return found

    said = language(Grammar(f"root ::= {integers(low, high)}").rules["root"])
    assert said == {str(number) for number in range(low, high + 1)}


REFUSED = {
    "pattern": {"type": "string", "pattern": "^a+$"},
    "multipleOf": {"type": "number", "multipleOf": 3},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "not": {"not": {"type": "string"}},
    "patternProperties": {"type": "object", "patternProperties": {"^x": {}}},
    "minProperties": {"type": "object", "minProperties": 2},
    "if": {"if": {"type": "string"}, "then": {"minLength": 2}},
    "no subset of that": {"enum": ["a"], "minLength": 3},
    "refers to nothing": {"$ref": "#/$defs/none"},
    "outside of itself": {"$ref": "https://example.com/s.json"},
    "may overlap": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    "no value at all": {"type": "string", "enum": [1, 2]},
    "no number at all": {"type": "integer", "minimum": 5, "maximum": 4},
    "by a fraction": {"type": "number", "minimum": 0.5},
    "unknown type": {"type": "strnig"},
    "is below": {"type": "string", "minLength": 5, "maxLength": 4},
    "go up to": {"type": "array", "maxItems": 10**9},
    "requires 'a' and forbids it": {
        "type": "object", "required": ["a"], "additionalProperties": False,
    },
    "allows nothing": {"type": "object", "properties": {"a": False}, "required": ["a"]},
    "more items than it allows": {"type": "array", "items": False, "minItems": 1},
    "whose parts overlap": {
        "allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {}}}]
    },
    "no schema": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_grammar_cannot_promise_is_refused_by_name(reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_json_schema(json.dumps(REFUSED[reason]))
    assert reason in caught.value.message or '"minLength"' in caught.value.message
    assert "#" in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "[" * 100_000, "\x00"])
def test_no_json_is_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is not JSON"):
        from_json_schema(text)


def test_bounds_on_hostile_schemas() -> None:
    deep: Any = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UsageError, match="nested more than"):
        from_json_schema(json.dumps(deep))
    with pytest.raises(UsageError, match="KiB"):
        from_json_schema(json.dumps({"description": "x" * 2_000_000}))
    wide = {"type": "object", "properties": {f"p{i}": {} for i in range(30_000)}}
    with pytest.raises(UsageError, match="rules"):
        from_json_schema(json.dumps(wide))


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_quoted(text: str) -> None:
    assert Grammar(f"root ::= {quoted(text)}").random_text(random.Random(0)) == text
