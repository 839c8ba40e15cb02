"""The less common sampler options, under llama.cpp's names, and what they come to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from localspec.cli.options import AtLeast
from localspec.errors import UsageError

MAX_FILE_BYTES = 1024 * 1024
"""Longest grammar or schema that is read."""

_BIAS = re.compile(r"(\d{1,9})([+-])(\d+(?:\.\d+)?|\.\d+|inf)")

SAMPLERS = [
    click.option("--typical", "--typical-p", "typical_p", type=AtLeast(0, 1), metavar="P",
                 help="Keep tokens about as surprising as expected, up to P; 1 is off."),
    click.option("--top-nsigma", "--top-n-sigma", "top_n_sigma", type=AtLeast(-1, 100), metavar="N",
                 help="Drop tokens more than N standard deviations below the best; -1 is off."),
    click.option("--xtc-probability", type=AtLeast(0, 1), metavar="P",
                 help="How often to leave out the most likely tokens but the least of them."),
    click.option("--xtc-threshold", type=AtLeast(0, 1), metavar="P",
                 help="Which tokens count as likely for that.  [default: 0.1]"),
    click.option("--dynatemp-range", type=AtLeast(0, 100), metavar="R",
                 help="Let the temperature move by R either way, with the model's doubt."),
    click.option("--dynatemp-exp", "dynatemp_exponent", type=AtLeast(0, 100), metavar="X",
                 help="Exponent of that.  [default: 1]"),
    click.option("--dry-multiplier", type=AtLeast(0, 100), metavar="X",
                 help="Punish tokens that would continue a repeat; 0 is off."),
    click.option("--dry-base", type=AtLeast(1, 100), metavar="X",
                 help="How fast that grows with the repeat.  [default: 1.75]"),
    click.option("--dry-allowed-length", type=AtLeast(0, 10_000, whole=True), metavar="N",
                 help="Longest repeat that is not punished.  [default: 2]"),
    click.option("--dry-penalty-last-n", type=AtLeast(-1, 16_777_216, whole=True), metavar="N",
                 help="How far back to look for repeats; -1: the whole context."),
    click.option("--dry-sequence-breaker", "dry_sequence_breakers", multiple=True, metavar="TEXT",
                 help="Repeats do not reach across TEXT; may be repeated, \"none\" for none."),
    click.option("--mirostat", type=AtLeast(0, 2, whole=True), metavar="N",
                 help="Hold the surprise steady, version 1 or 2; nothing is drafted then."),
    click.option("--mirostat-ent", "mirostat_tau", type=AtLeast(0, 100), metavar="X",
                 help="The surprise to aim at.  [default: 5]"),
    click.option("--mirostat-lr", "mirostat_eta", type=AtLeast(0, 1), metavar="X",
                 help="How fast to correct.  [default: 0.1]"),
    click.option("-l", "--logit-bias", "logit_bias", multiple=True, metavar="ID(+|-)VALUE",
                 help="Make a token likelier or less likely: 15043+1; may be repeated."),
    click.option("--grammar", metavar="FILE",
                 help="Only answers that this GBNF grammar allows (a file or the text itself)."),
    click.option("-j", "--json-schema", metavar="FILE|TEXT",
                 help="Only answers that validate against this JSON schema."),
]  # fmt: skip

_PLAIN = (
    "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range",
    "dynatemp_exponent", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "mirostat", "mirostat_tau", "mirostat_eta",
)  # fmt: skip


def sampler_settings(flags: dict[str, Any]) -> dict[str, Any]:
    """Fields of ``Sampling`` that were given. Raises UsageError."""
    given = {name: flags[name] for name in _PLAIN if flags.get(name) is not None}
    breakers = flags.get("dry_sequence_breakers") or ()
    if breakers:
        if "" in breakers:
            raise UsageError("--dry-sequence-breaker needs a text that is not empty")
        given["dry_sequence_breakers"] = () if breakers == ("none",) else tuple(breakers)
    if flags.get("logit_bias"):
        given["logit_bias"] = dict(_bias(text) for text in flags["logit_bias"])
    grammar = _grammar(flags.get("grammar"), flags.get("json_schema"))
    if grammar:
        given["grammar"] = grammar
    return given


def _bias(text: str) -> tuple[int, float]:
    match = _BIAS.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f'--logit-bias "{text}" is not understood',
            hint="A token id, + or -, and a number: --logit-bias 15043+1 or 15043-inf.",
        )
    value = float(match[3])
    if match[2] == "+" and value == float("inf"):
        raise UsageError("--logit-bias +inf would leave nothing to choose", hint="Use a number.")
    return int(match[1]), value if match[2] == "+" else -value


def _grammar(grammar: str | None, schema: str | None) -> str:
    if grammar is not None and schema is not None:
        raise UsageError("--grammar and --json-schema cannot be used together")
    if schema is not None:
        from localspec.grammar import from_json_schema

        is_text = schema.lstrip()[:1] in ("{", "t") and not Path(schema[:255]).is_file()
        return from_json_schema(schema if is_text else _read(schema, "JSON schema"))
    if grammar is None:
        return ""
    text = grammar if "::=" in grammar else _read(grammar, "grammar")
    if not text.strip():
        raise UsageError("the grammar is empty")
    if "\0" in text:
        raise UsageError("the grammar holds a zero byte")
    return text


def _read(name: str, what: str) -> str:
    try:
        with Path(name).open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"the {what} {name} cannot be read: {reason}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"the {what} {name} is longer than {MAX_FILE_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"the {what} {name} is not UTF-8 text") from None
