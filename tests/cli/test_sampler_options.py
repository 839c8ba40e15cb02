"""Sampler options come to settings, and nonsense to a sentence."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from localspec.cli.options import config_from, model_options, sampling_from, sampling_options
from localspec.errors import UsageError
from localspec.spec.sampling import Sampling


def parse(*args: str) -> Sampling:
    found: list[Sampling] = []

    @click.command()
    @model_options
    @sampling_options
    def command(**flags: object) -> None:
        found.append(sampling_from(config_from(flags), flags))

    result = CliRunner().invoke(command, list(args), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_without_options_llama_cpps_defaults_hold() -> None:
    assert parse() == Sampling()


def test_every_option_arrives() -> None:
    found = parse(
        "--temp", "0.5", "--typical", "0.9", "--top-nsigma", "2", "--xtc-probability", "0.2",
        "--xtc-threshold", "0.05", "--dynatemp-range", "0.3", "--dynatemp-exp", "2",
        "--dry-multiplier", "0.8", "--dry-base", "1.5", "--dry-allowed-length", "3",
        "--dry-penalty-last-n", "99", "--dry-sequence-breaker", "\n", "--dry-sequence-breaker", "x",
        "--mirostat", "2", "--mirostat-ent", "4", "--mirostat-lr", "0.2",
        "-l", "12+1.5", "-l", "7-inf", "--logit-bias", "9-3",
    )  # fmt: skip
    assert found == Sampling(
        temperature=0.5, typical_p=0.9, top_n_sigma=2, xtc_probability=0.2, xtc_threshold=0.05,
        dynatemp_range=0.3, dynatemp_exponent=2, dry_multiplier=0.8, dry_base=1.5,
        dry_allowed_length=3, dry_penalty_last_n=99, dry_sequence_breakers=("\n", "x"), mirostat=2,
        mirostat_tau=4, mirostat_eta=0.2, logit_bias={12: 1.5, 7: float("-inf"), 9: -3.0},
    )  # fmt: skip


def test_dry_can_do_without_breakers() -> None:
    assert parse("--dry-sequence-breaker", "none").dry_sequence_breakers == ()


def test_a_grammar_and_a_schema_come_from_a_file_or_a_text(tmp_path: Path) -> None:
    grammar = 'root ::= "yes" | "no"'
    file = tmp_path / "answer.gbnf"
    file.write_text(grammar, encoding="utf-8")
    assert parse("--grammar", str(file)).grammar == parse("--grammar", grammar).grammar == grammar
    schema = '{"enum": ["yes", "no"]}'
    file = tmp_path / "answer.json"
    file.write_text("\ufeff" + schema, encoding="utf-8")
    from_file = parse("-j", str(file)).grammar
    assert from_file == parse("--json-schema", schema).grammar
    assert r"\"yes\"" in from_file


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-l", "12"], "not understood"),
        (["-l", "x+1"], "not understood"),
        (["-l", "12+inf"], "nothing to choose"),
        (["--grammar", "no-such-file"], "cannot be read"),
        (["--grammar", "."], "cannot be read"),
        (["--json-schema", "no-such-file"], "cannot be read"),
        (["--json-schema", '{"type": '], "is not JSON"),
        (["--json-schema", '{"pattern": "a"}'], '"pattern"'),
        (["-j", "{}", "--grammar", 'root ::= "a"'], "together"),
        (["--dry-sequence-breaker", ""], "not empty"),
        (["--mirostat", "3"], "from 0 to 2"),
        (["--typical", "1.5"], "from 0 to 1"),
    ],
)
def test_nonsense_is_a_sentence(args: list[str], says: str) -> None:
    with pytest.raises((UsageError, click.UsageError)) as caught:
        parse(*args)
    message = getattr(caught.value, "message", str(caught.value))
    assert says in message


def test_a_huge_or_binary_file_is_refused(tmp_path: Path) -> None:
    for name, data, says in (("big", b"x" * 2**21, "KiB"), ("binary", b"\xff\xfe", "UTF-8")):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(UsageError, match=says):
            parse("--grammar", str(path))
