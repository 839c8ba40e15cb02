from pathlib import Path

import numpy as np
import pytest
from helpers_gguf import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    byte_metadata,
    byte_vocab,
    write_gguf,
)

from localspec.gguf import read_header
from localspec.header import Header
from localspec.vocab import compare


@pytest.fixture
def make(tmp_path: Path):
    """``make(change)`` gives the header of a file whose vocabulary ``change(tokens, types, meta)``
    altered in place."""
    count = iter(range(1000))

    def build(change=lambda *_: None) -> Header:
        tokens, types = byte_vocab([f"word{n}" for n in range(100)])
        meta = byte_metadata()
        change(tokens, types, meta)
        path = write_gguf(
            tmp_path / f"{next(count)}.gguf", meta, tokens=tokens, token_types=types, merges=["a b"]
        )
        return read_header(path)

    return build


def pad(n: int):
    def change(tokens, types, _meta):
        tokens += [f"[PAD{len(tokens) + i}]" for i in range(n)]
        types += [UNUSED] * n

    return change


def put(token: int, text: str, kind: int = NORMAL):
    def change(tokens, types, _meta):
        tokens[token] = text
        types[token] = kind

    return change


def setting(key: str, value):
    return lambda _tokens, _types, meta: meta.update({f"tokenizer.ggml.{key}": value})


def test_the_same_vocabulary_needs_no_mapping(make):
    match = compare(make(), make())
    assert match.verdict == "same"
    assert match.reason == "Both have the same 358 tokens."
    assert match.never_propose.tolist() == []
    assert (match.to_target, match.to_draft) == ({}, {})
    assert match.target_id(357) == 357
    assert match.target_id(358) is None


def test_padding_rows_of_the_target_are_near(make):
    """F01: a pair must not be refused because one vocabulary is padded."""
    match = compare(make(pad(128)), make())
    assert match.verdict == "near"
    assert match.reason == (
        "The same tokens, but the target has 128 padding rows more at the end; "
        "what differs is never drafted."
    )
    assert match.n_common == 358
    assert match.draft_id(100) == 100
    assert match.draft_id(358 + 127) == 256  # a token that the draft has


def test_padding_rows_of_the_draft_are_never_drafted(make):
    match = compare(make(), make(pad(128)))
    assert match.verdict == "near"
    assert match.never_propose.tolist() == list(range(358, 486))
    assert match.target_id(358) is None
    row = np.zeros(486, np.float32)
    row[400] = 99
    projected = match.project(row)
    assert projected.shape == (358,)
    assert np.isfinite(projected).all()


def test_padding_rows_that_both_have_are_never_drafted_either(make):
    match = compare(make(pad(5)), make(pad(5)))
    assert match.verdict == "same"
    assert match.never_propose.tolist() == [358, 359, 360, 361, 362]
    row = np.arange(363, dtype=np.float32)
    projected = match.project(row)
    assert int(projected.argmax()) == 357
    assert row[362] == 362, "the draft's own row is left alone"


def test_one_ordinary_token_that_differs_under_padding_is_refused(make):
    """F01: padding excuses nothing else."""
    match = compare(make(pad(128)), make(put(300, "other")))
    assert match.verdict == "different"
    assert match.reason == (
        'Their vocabularies differ: token 300 is "word42" in the target and "other" in the draft.'
    )
    assert match.differences[0].id == 300


def test_one_low_ordinary_token_is_enough(make):
    """F02: the same family and size, and still one other token."""
    match = compare(make(), make(put(5, "<2mass>")))
    assert not match.usable
    assert 'token 5 is "ą" in the target and "<2mass>" in the draft' in match.reason


def test_other_tokens_of_the_same_number_are_refused(make):
    """F02: as many tokens, all of them others."""

    def reverse(tokens, _types, _meta):
        tokens[258:] = tokens[:257:-1]

    match = compare(make(), make(reverse))
    assert not match.usable
    assert match.n_differences == 100
    assert "(and 99 more differ)" in match.reason
    assert len(match.differences) == 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            setting("eos_token_id", 300),
            'Their end-of-text tokens differ: 256 ("<|end|>") in the target and 300 ("word42") in '
            "the draft.",
        ),
        (
            setting("bos_token_id", 256),
            'Their beginning-of-text tokens differ: 257 ("<|start|>") in the target and 256 '
            '("<|end|>") in the draft.',
        ),
        (
            setting("add_bos_token", True),
            "The draft adds a beginning-of-text token to the prompt and the target does not, so "
            "they would not read the same text.",
        ),
        (
            setting("add_eos_token", True),
            "The draft adds an end-of-text token to the prompt and the target does not, so they "
            "would not read the same text.",
        ),
        (
            setting("model", "llama"),
            'They split text in different ways ("gpt2" in the target, "llama" in the draft).',
        ),
    ],
)
def test_the_same_tokens_in_other_roles_are_refused(make, change, reason):
    """F02: the same tokens, but others begin or end a text."""
    match = compare(make(), make(change))
    assert match.verdict == "different"
    assert match.reason == reason


def test_one_special_token_that_differs_is_near_and_never_drafted(make):
    match = compare(make(put(258, "<|a|>", CONTROL)), make(put(258, "<|b|>", USER_DEFINED)))
    assert match.verdict == "near"
    assert match.reason == (
        'The same tokens, but 1 special or padding token differs (token 258 is "<|a|>" in the '
        'target and "<|b|>" in the draft); what differs is never drafted.'
    )
    assert match.never_propose.tolist() == [258]
    assert match.target_id(258) is None
    assert match.draft_id(258) == 258, "the draft can read its own token there"


def test_a_special_token_against_an_ordinary_one_is_refused(make):
    assert not compare(make(put(258, "<|a|>", CONTROL)), make()).usable


def test_special_tokens_that_changed_places_are_mapped(make):
    def swap(tokens, types, _meta):
        tokens[258], tokens[259] = "<|x|>", "<|y|>"
        types[258:260] = [CONTROL, CONTROL]

    def swapped(tokens, types, _meta):
        tokens[258], tokens[259] = "<|y|>", "<|x|>"
        types[258:260] = [CONTROL, CONTROL]

    match = compare(make(swap), make(swapped))
    assert match.verdict == "near"
    assert match.to_target == {258: 259, 259: 258}
    assert match.to_draft == {258: 259, 259: 258}
    assert match.never_propose.tolist() == []
    projected = match.project(np.arange(358, dtype=np.float32))
    assert projected[258] == 259
    assert projected[259] == 258


def test_a_special_token_that_moved_behind_the_end_is_mapped(make):
    def moved(tokens, types, _meta):
        tokens[258] = "<|gone|>"
        types[258] = CONTROL
        tokens.append("<|x|>")
        types.append(CONTROL)

    match = compare(make(put(258, "<|x|>", CONTROL)), make(moved))
    assert match.verdict == "near"
    assert match.to_target == {358: 258}
    assert match.draft_id(258) == 358
    assert match.never_propose.tolist() == [258]
    row = np.zeros(359, np.float32)
    row[358] = 7
    row[258] = 9
    assert match.project(row)[258] == 7


def test_many_special_tokens_that_differ_are_refused(make):
    def rename(letter):
        def change(tokens, types, _meta):
            for token in range(258, 288):
                tokens[token] = f"<|{letter}{token}|>"
                types[token] = CONTROL

        return change

    match = compare(make(rename("a")), make(rename("b")))
    assert not match.usable
    assert match.reason.startswith("They differ in 30 special tokens: first, token 258 is")


def test_ordinary_tokens_at_the_end_are_refused_but_padding_names_are_not(make):
    def more(text, kind):
        return lambda tokens, types, _meta: (tokens.append(text), types.append(kind))

    assert not compare(make(more("extra words", NORMAL)), make()).usable
    assert not compare(make(), make(more("extra words", NORMAL))).usable
    assert compare(make(), make(more("[PAD358]", NORMAL))).verdict == "near"
    assert compare(make(), make(more("<unused7>", NORMAL))).verdict == "near"


def test_padding_named_otherwise_is_near(make):
    one = make(lambda t, k, _m: (t.append("<|PAD_TOKEN|>"), k.append(CONTROL)))
    assert compare(one, make(pad(1))).verdict == "near"


def test_a_file_without_a_vocabulary_is_refused(make, tmp_path):
    bare = read_header(write_gguf(tmp_path / "bare.gguf", {"llama.block_count": 1}))
    assert compare(bare, make()).reason == "The target's file has no vocabulary."
    assert compare(make(), bare).reason == "The draft's file has no vocabulary."


def test_control_characters_of_a_hostile_vocabulary_do_not_reach_the_reason(make):
    match = compare(make(), make(put(300, "\x1b[2J\u202eevil")))
    assert "\x1b" not in match.reason
    assert "\u202e" not in match.reason


def test_another_way_to_split_text_is_a_note_only(make):
    match = compare(make(), make(setting("pre", "qwen2")))
    assert match.verdict == "same"
    assert match.notes == (
        'The files name different ways to split text ("gpt-2" and "qwen2"); only the target\'s is '
        "used.",
    )
