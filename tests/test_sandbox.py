"""Templates from model files are untrusted: they may not reach Python, nor fill the memory, nor
run for long; and what honest templates use must work."""

from __future__ import annotations

import tracemalloc

import pytest

from localspec.chat import MAX_TEMPLATE, Message, Template
from localspec.errors import PromptError

AGAIN = "{% for i in range(60) %}"
ON_TEXT = "{% set n = namespace(x='xx') %}" + AGAIN
ON_ONE = "{% set n = namespace(x=1) %}" + AGAIN
ON_LIST = "{% set n = namespace(x=[1]) %}" + AGAIN
END = "{% endfor %}"

HOSTILE = {
    "long loop": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "long output": "{% for i in range(99999) %}{% for j in range(99) %}xxx{% endfor %}{% endfor %}",
    "huge range": "{% for i in range(10 ** 12) %}x{% endfor %}",
    "repeated text": "{{ 'x' * 10 ** 10 }}",
    "repeated text, other side": "{{ 99999999 * 'xxxxxxxxxxxx' }}",
    "repeated list": "{{ ([1] * 99999999999)|length }}",
    "doubled text": ON_TEXT + "{% set n.x = n.x + n.x %}{% endfor %}",
    "doubled by tilde": ON_TEXT + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubled by block": ON_TEXT
    + "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "doubled by filter block": ON_TEXT
    + "{% set y %}{% filter upper %}{{ n.x }}{{ n.x }}{% endfilter %}{% endset %}"
    "{% set n.x = y %}{% endfor %}",
    "doubled by macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + ON_TEXT
    + "{% set n.x = m(n.x) %}{% endfor %}",
    "doubled by join": ON_TEXT
    + "{% set n.x = n.x.join(['', n.x, '']) %}{% endfor %}",
    "doubled by join filter": ON_TEXT
    + "{% set n.x = [n.x, n.x]|join(n.x) %}{% endfor %}",
    "doubled by replace": ON_TEXT
    + "{% set n.x = n.x.replace('x', n.x) %}{% endfor %}",
    "doubled by replace filter": ON_TEXT
    + "{% set n.x = n.x|replace('x', n.x) %}{% endfor %}",
    "doubled by format": ON_TEXT
    + "{% set n.x = '{0}{0}'.format(n.x) %}{% endfor %}",
    "doubled by percent": ON_TEXT
    + "{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}",
    "doubled lists": ON_LIST + "{% set n.x = n.x + n.x %}{% endfor %}",
    "nested lists": ON_LIST + "{% set n.x = [n.x, n.x] %}{% endfor %}",
    "nested tuples": ON_ONE + "{% set n.x = (n.x, n.x) %}{% endfor %}",
    "nested dicts": ON_ONE
    + "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}",
    "nested dict()": ON_ONE
    + "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}",
    "nested namespaces": ON_ONE
    + "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "nested namespaces in a list": ON_ONE
    + "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ [n.x] }}",
    "namespace as text": ON_ONE
    + "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x|upper }}",
    "kept lists": "{% set n = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set n.x = n.x + [range(99999)|list] %}{% endfor %}",
    "kept slices": "{% set s = 'x' * 900000 %}{% set n = namespace(x=[]) %}"
    "{% for i in range(99999) %}{% set n.x = n.x + [s[i:]] %}{% endfor %}",
    "huge power": "{{ 9 ** 99999999999 }}",
    "squares": "{% set n = namespace(x=9) %}" + AGAIN + "{% set n.x = n.x * n.x %}{% endfor %}",
    "wide format": "{{ '%9999999999d' % 1 }}",
    "wide format by argument": "{{ '%*d' % (999999999, 1) }}",
    "wide braces": "{{ '{:>9999999999}'.format(1) }}",
    "wide braces by argument": "{{ '{:>{}}'.format(1, 9999999999) }}",
    "wide format_map": "{{ '{a:>9999999999}'.format_map({'a': 1}) }}",
    "wide format filter": "{{ '%9999999999d'|format(1) }}",
    "padding": "{{ 'x'.ljust(9999999999) }}",
    "centred": "{{ 'x'|center(9999999999) }}",
    "indented": "{{ 'x\nx'|indent(9999999999) }}",
    "indented json": "{{ [[1]]|tojson(indent=9999999999) }}",
    "zeros": "{{ '1'.zfill(9999999999) }}",
    "bytes": "{{ (1).to_bytes(9999999999, 'big') }}",
    "tabs": "{{ '\t'.expandtabs(9999999999) }}",
    "digits": "{{ 1.5|round(9999999999, 'ceil') }}",
    "lorem ipsum": "{{ lipsum(n=9999999) }}",
    "endless macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "branching macro": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "endless block": "{% block b %}{{ self.b() }}{% endblock %}",
    "nested brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "long sum": "{{ 1" + "+1" * 50_000 + " }}",
    "nested ifs": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "too long": "x" * (MAX_TEMPLATE + 1),
    "include": "{% include '/etc/passwd' %}",
    "attributes": "{{ messages.__class__.__mro__ }}",
    "attributes by item": "{{ ''['__class__']['__mro__'] }}",
    "globals": "{{ raise_exception.__globals__['sys'] }}",
    "format attributes": "{{ '{0.__class__.__mro__}'.format('') }}",
    "changed list": "{{ messages.append(1) }}",
    "long date": "{{ strftime_now('%A' * 9999) }}",
    "unknown filter": "{{ messages|nosuchfilter }}",
    "not closed": "{% if 1 %}",
    "wrong type": "{{ 1 + 'a' }}",
    "division": "{{ 1 / 0 }}",
    "not there": "{{ nothing.at.all }}",
    "broken promise": "{{ 'abcdefghijk'|truncate(1) }}",
    "no method": "{{ messages[0].content.nosuch() }}",
}  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_template_ends_in_an_error(source: str) -> None:
    template = Template(source, name="bad.gguf", seconds=1.5)
    with pytest.raises(PromptError, match=r"chat template of bad\.gguf"):
        template.render([Message("user", "Hi")])


@pytest.mark.parametrize("name", ["kept lists", "kept slices", "doubled lists", "nested lists"])
def test_memory_stays_bounded(name: str) -> None:
    template = Template(HOSTILE[name], seconds=20.0)
    tracemalloc.start()
    try:
        with pytest.raises(PromptError):
            template.render([Message("user", "Hi")])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000_000


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a' ~ 1 ~ [1] ~ none }}", "a1[1]None"),
        ("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{{ loop.last }}{% endfor %}", "x1True"),
        ("{% for a in 'abc' if a != 'b' %}{{ a }}{{ loop.length }}{% endfor %}", "a2c2"),
        ("{% for a in nothing %}x{% else %}none{% endfor %}", "none"),
        ("{% for a in [1, 2, 3] %}{% if a == 2 %}{% break %}{% endif %}{{ a }}{% endfor %}", "1"),
        ("{% for a in [1, 2] %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}", "2"),
        ("{% for a in [1, [2]] recursive %}{% if a is iterable %}{{ loop(a) }}{% else %}{{ a }}"
         "{% endif %}{% endfor %}", "12"),
        ("{% set a, b = (1, 2) %}{{ a + b * 3 }}", "7"),
        ("{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{{ ns.a|length }}", "1"),
        ("{% set x %}{{ 'a' }}b{% endset %}{{ x|upper }}", "AB"),
        ("{% macro m(a, b='z') %}[{{ a }}{{ b }}]{% endmacro %}{{ m('q')|trim }}", "[qz]"),
        ("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{% endcall %}", "<in>"),
        ("{{ '%s-%02d' % ('a', 3) }}{{ '{}:{k}'.format(1, k=2) }}", "a-031:2"),
        ("{{ '%s'|format('x') }}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}", "xbccba"),
        ("{{ {'a': '<é>', 'b': [1, none]}|tojson }}", '{"a": "<é>", "b": [1, null]}'),
        ("{{ {'a': 1}|tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ messages|map(attribute='content')|join(', ') }}", "Hi, Ho"),
        ("{{ (messages|selectattr('role', 'equalto', 'user')|list|last).content }}", "Ho"),
        ("{{ (messages|rejectattr('role', '==', 'user')|list)|length }}", "0"),
        ("{{ messages[::-1][0]['content'].split('o')[0] }}", "H"),
        ("{{ range(2, 5)|list }}{{ ['b', 'a']|sort|join }}", "[2, 3, 4]ab"),
        ("{{ {'b': 1, 'a': 2}|dictsort|first|first }}{{ {'q': 1}|items|list }}", "a[('q', 1)]"),
        ("{{ 'a b'.title().strip().startswith('A') and 'x' in 'xy' }}", "True"),
        ("{{ 'x'|default('y') }}{{ nothing|default('z') }}{{ nothing }}", "xz"),
        ("{{ 'a\nb'|indent(2) }}{{ 'aXb'|replace('X', '-') }}", "a\n  ba-b"),
        ("{{ messages is defined and messages is not string and 1 is number }}", "True"),
        ("{% if true %}\n  a\n{% endif %}\nb", "  a\nb"),
        ("{{ messages[0].get('tool_calls') }}{{ messages[0].tool_calls is defined }}", "NoneFalse"),
    ],
)  # fmt: skip
def test_what_templates_use_works(source: str, text: str) -> None:
    assert Template(source).render([Message("user", "Hi"), Message("user", "Ho")]) == text


def test_a_long_chat_is_not_mistaken_for_an_attack() -> None:
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}"
        "{% set ns.text = ns.text ~ m.role ~ m.content %}"
        "{% if loop.index > messages|length - 2 and messages[:loop.index] %}.{% endif %}"
        "{% endfor %}{{ ns.text }}"
    )
    messages = [Message("user", "word " * 200)] * 1000
    text = Template(source, seconds=60.0).render(messages)
    assert text.endswith("word " * 200)
    assert len(text) == 2 + 1000 * 1004
