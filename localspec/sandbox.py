"""A Jinja environment for templates that come out of model files: sandboxed, and bounded.

Jinja's own sandbox keeps a template from reaching Python; it does not keep it from filling the
memory or running for hours. Here every operation that can make something bigger, or that repeats,
is counted: loops, calls, filters, operators, literals, captured blocks. No single value may be
larger than ``max_size``, all of them together may not cost more than ``WORK`` times that, and the
clock is looked at on every count. What a chat template uses is all there; what it has no use for
(padding, wrapping, lorem ipsum) is not.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import TemplateRuntimeError, Undefined, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import _PassArg
from jinja2.visitor import NodeTransformer

WORK = 128
"""All values made in one rendering may together cost this many times the largest one allowed."""

_STEP_COST = 64  # of a loop round or a call, in characters
_ITEM_COST = 8  # of an element of a list or dict
_MAX_INT_BITS = 1024
_MAX_ARGUMENT = 100_000  # for numbers given to functions: widths, counts, digits


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILTERS = _names(
    """abs capitalize count d default dictsort e escape first float format groupby indent int join
    last length list lower items map min max reject rejectattr replace reverse round safe select
    selectattr sort string sum title trim truncate unique upper urlencode wordcount"""
)
# These only hand on what they are given, so its size need not be known (finding it takes time).
_SHALLOW = _names(
    """count d default first items last length list map reject rejectattr reverse select
    selectattr"""
)
_TEXT_METHODS = _names(
    """capitalize casefold count endswith find format index isalnum isalpha isdecimal isdigit
    islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix
    removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith
    strip swapcase title upper"""
)
_METHODS: dict[type, frozenset[str]] = {
    str: _TEXT_METHODS,
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    int: frozenset(),
    float: frozenset(),
}

# Conversions that cannot make the text wider than their arguments are.
_PRINTF = re.compile(r"%(?:\(\w{1,64}\))?[-+ 0#]{0,2}\d{0,2}(?:\.\d{1,2})?[sdifgexX%]")
_BRACES = re.compile(r"\{\{|\}\}|\{[\w.\[\]]{0,64}\}")


_PLAIN = (str, list, tuple, dict)


class TooMuchError(TemplateRuntimeError):
    """The template asked for more work or memory than a chat template can need."""


class Budget:
    """What one rendering may still cost. ``max_size``: characters in one value; ``seconds``: wall
    clock."""

    def __init__(self, max_size: int, seconds: float) -> None:
        self.max_size = max_size
        self._left = WORK * max_size
        self._end = time.monotonic() + seconds

    def spend(self, cost: int) -> None:
        """Raises TooMuchError when the work or the time is used up."""
        self._left -= cost
        if self._left < 0:
            raise TooMuchError("it does too much work for a chat template")
        if time.monotonic() > self._end:
            raise TooMuchError("it takes too long")

    def check_size(self, size: int) -> None:
        """Raises TooMuchError for a value that would be too large."""
        if size > self.max_size:
            raise TooMuchError(f"it makes a value of more than {self.max_size} characters")

    def made(self, value: Any) -> Any:
        """Account for a new value and return it. Raises TooMuchError."""
        if isinstance(value, str):
            self.check_size(len(value))
            self.spend(len(value))
        elif isinstance(value, (list, tuple, dict, set)):
            self.check_size(self.weigh(value))
            self.spend(_ITEM_COST * len(value))
        elif isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
            raise TooMuchError("it computes a number that is too large")
        elif isinstance(value, Iterator):
            return self.each(value)
        return value

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """``values``, each accounted for as it is taken."""
        for value in values:
            self.spend(_STEP_COST)
            yield value

    def weigh(self, value: Any) -> int:
        """The length of ``value`` as text, roughly: nested lists count once for each mention.

        Raises TooMuchError above ``max_size`` and TemplateRuntimeError for what is not plain data.
        """
        if isinstance(value, str):
            return len(value)
        if value is None or isinstance(value, (bool, int, float, Undefined)):
            return _ITEM_COST
        if isinstance(value, dict):
            value = [part for pair in value.items() for part in pair]
        elif not isinstance(value, (list, tuple, set)):
            raise TemplateRuntimeError(f"it uses a {type(value).__name__} as a value")
        total = _ITEM_COST
        for part in value:
            total += _ITEM_COST + self.weigh(part)
            self.check_size(total)
        return total

    def text(self, value: Any) -> str:
        """What ``{{ value }}`` shows. Raises like ``weigh``."""
        if isinstance(value, str):
            return value
        self.check_size(self.weigh(value))
        return str(value)

    def join(self, parts: Iterable[str]) -> str:
        """``parts`` as one string, taken only as long as it stays small enough."""
        kept, size = [], 0
        for part in parts:
            size += len(part)
            self.check_size(size)
            self.spend(1)
            kept.append(part)
        self.spend(size)
        return "".join(kept)


class _Each:
    """A loop's values: counted as they are taken, with their number where it is known."""

    def __init__(self, values: Any, budget: Budget) -> None:
        self._values, self._budget = values, budget

    def __iter__(self) -> Iterator[Any]:
        return self._budget.each(self._values)

    def __len__(self) -> int:
        return len(self._values)  # a TypeError is what Jinja expects where there is none


class _Route(NodeTransformer):
    """Sends what Jinja would compile to plain Python operators through the environment."""

    def _through(self, name: str, *arguments: Any) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._through("made_text", *node.nodes)

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = self._through("made_loop", node.iter)
        return node

    def _literal(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":
            return node  # the left side of an assignment
        return self._through("made_literal", node)

    visit_List = visit_Dict = visit_Tuple = _literal  # noqa: N815

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        part = node.arg
        bounds = [bound or nodes.Const(None) for bound in (part.start, part.stop, part.step)]
        return self._through("made_slice", node.node, *bounds)


class _GenerationTag(Extension):
    """``{% generation %}`` marks what to train on; its content is ordinary text here."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own type

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment described above. ``begin`` must be called before each compilation and
    rendering; one thread at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=self._shown,
            cache_size=0,
        )
        self.budget = Budget(1, 1.0)
        self.filters = {name: self._bounded(name, self.filters[name]) for name in _FILTERS}
        self.filters["tojson"] = self._tojson
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]

    def begin(self, budget: Budget) -> None:
        """From now on ``budget`` is spent."""
        self.budget = budget

    # What Jinja calls.

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Route().visit(super()._parse(source, name, filename))
        return tree

    def concat(self, parts: Iterable[str]) -> str:
        """Joins what a block, a macro or the whole template gives."""
        return self.budget.join(parts)

    def _shown(self, value: Any) -> str:
        return self.budget.text(value)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only methods that the rest of this class knows how to bound."""
        for kind, names in _METHODS.items():
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Every call in a template."""
        self.budget.spend(_STEP_COST)
        # Jinja hands macros their surroundings in these two.
        given = {k: v for k, v in kwargs.items() if k not in ("_loop_vars", "_block_vars")}
        self._check_numbers(args, given)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            args = self._check_method(owner, obj.__name__, args)
        elif hasattr(obj, "__wrapped__"):  # str.format as Jinja's sandbox replaces it
            pattern = str(obj.__wrapped__.__self__)
            self._check_format(pattern, _BRACES, "{", (*args, *given.values()))
        return self.budget.made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators that can make something bigger."""
        self.budget.spend(_STEP_COST)
        if operator == "%" and isinstance(left, str):
            arguments = right if isinstance(right, tuple) else (right,)
            self._check_format(left, _PRINTF, "%", arguments)
        elif operator in ("*", "**"):
            self._check_product(operator, left, right)
        return self.budget.made(super().call_binop(context, operator, left, right))

    # What the changed tree calls.

    def made_text(self, *values: Any) -> str:
        """``a ~ b``"""
        return self.budget.join(self.budget.text(value) for value in values)

    def made_loop(self, values: Any) -> Any:
        """What a loop runs over."""
        return values if isinstance(values, Undefined) else _Each(values, self.budget)

    def made_literal(self, value: Any) -> Any:
        """``[a]``, ``(a,)`` or ``{a: b}``; ``call`` looks at its size."""
        return value

    def made_slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """``value[start:stop:step]``"""
        return value[start:stop:step]

    # Bounds.

    def _check_numbers(self, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > _MAX_ARGUMENT:
                raise TooMuchError(
                    f"it uses the number {str(value)[:20]} where a small one belongs"
                )

    def _check_product(self, operator: str, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length()
            if bits + right.bit_length() > _MAX_INT_BITS:
                raise TooMuchError("it computes a number that is too large")
        for value, n in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(n, int):
                self.budget.check_size(self.budget.weigh(value) * max(n, 0))

    def _check_format(
        self, pattern: str, allowed: re.Pattern[str], mark: str, arguments: Iterable[Any]
    ) -> None:
        if mark in allowed.sub("", pattern):
            raise TemplateRuntimeError("it formats text in a way that is not supported")
        largest = max((self.budget.weigh(argument) for argument in arguments), default=0)
        # A conversion may pad to two digits, and show a number with that many decimals.
        self.budget.check_size(len(pattern) + pattern.count(mark) * (largest + 512))

    def _check_method(self, owner: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments for a method of a string, once it is known how large the result will be."""
        if name == "join" and len(args) == 1:
            parts = list(self.budget.each(args[0]))
            size = sum(self.budget.weigh(part) + len(owner) for part in parts)
            self.budget.check_size(size)
            return (parts,)
        if name == "replace" and len(args) >= 2:
            self._check_replace(owner, args[0], args[1])
        return args

    def _check_replace(self, text: str, old: Any, new: Any) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.budget.check_size(len(text) + text.count(old) * len(new))

    def _check_filter(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raises TooMuchError if the result of a filter would be too large."""
        budget, rest = self.budget, [*args[1:], *kwargs.values()]
        if name == "replace" and len(rest) >= 2:
            self._check_replace(budget.text(args[0]), budget.text(rest[0]), budget.text(rest[1]))
        elif name == "format":
            self._check_format(budget.text(args[0]), _PRINTF, "%", rest)
        elif name == "indent":
            width = max((v if isinstance(v, int) else len(budget.text(v)) for v in rest), default=4)
            budget.check_size((budget.text(args[0]).count("\n") + 1) * width)
        elif name == "join":
            separator = len(budget.text(rest[0])) if rest else 0
            budget.check_size(sum(budget.weigh(part) + separator for part in args[0]))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that looks at what it is given and at what it returns."""
        n_hidden = 0 if _PassArg.from_obj(function) is None else 1  # context or environment

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            hidden, shown = args[:n_hidden], list(args[n_hidden:])
            self.budget.spend(_STEP_COST)
            self._check_numbers(shown[1:], kwargs)
            if (
                shown
                and not isinstance(shown[0], (*_PLAIN, Undefined))
                and isinstance(shown[0], Iterable)
            ):
                # Ranges and views: taken once, counted, so that they can be weighed.
                shown[0] = self.budget.made(list(self.budget.each(shown[0])))
            for value in (*shown[name in _SHALLOW :], *kwargs.values()):
                self.budget.check_size(self.budget.weigh(value))
            self._check_filter(name, shown, kwargs)
            result = function(*hidden, *shown, **kwargs)
            if isinstance(result, Iterator):
                # At once, so that what a filter is given never changes under it.
                result = list(self.budget.each(result))
            return self.budget.made(result)

        return run

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As the templates expect it: JSON that is not escaped for HTML."""
        self.budget.check_size(self.budget.weigh(value) * max(indent or 0, 1))
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        return self.budget.join(encoder.iterencode(value))
