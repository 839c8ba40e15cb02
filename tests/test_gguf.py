import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from helpers_gguf import byte_metadata, byte_vocab, write_gguf, write_tiny_llama

from bench import fuzz_header
from localspec.errors import ModelFileError, ModelNotFoundError
from localspec.ggml_types import BY_NAME, TYPES
from localspec.gguf import FIRST_READ, MAX_HEADER, NeedMore, parse_header, read_header


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def setting(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def numbers(key: str, kind: int, code: str, *values: float) -> bytes:
    head = struct.pack("<IQ", kind, len(values))
    return setting(key, 9, head + struct.pack(f"<{len(values)}{code}", *values))


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def gguf_bytes(
    settings: list[bytes] = (),
    tensors: list[bytes] = (),
    *,
    version: int = 3,
    n_settings: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    counts = struct.pack(
        "<QQ",
        len(tensors) if n_tensors is None else n_tensors,
        len(settings) if n_settings is None else n_settings,
    )
    return b"GGUF" + struct.pack("<I", version) + counts + b"".join([*settings, *tensors])


def refuse(data: bytes, file_bytes: int | None = None) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        parse_header(data, len(data) if file_bytes is None else file_bytes, name="model.gguf")
    assert caught.value.message.startswith("model.gguf")
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    return caught.value


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", n_padding=3)


# -- good files ----------------------------------------------------------------------------------


def test_a_header_gives_the_numbers_under_their_names(tiny):
    header = read_header(tiny)
    assert (header.version, header.architecture, header.name) == (3, "llama", "tiny")
    assert (header.n_layer, header.n_embd, header.n_ctx_train) == (2, 64, 512)
    assert header.n_head == (4, 4)
    assert header.n_head_kv == (2, 2)
    assert (header.n_embd_head_k, header.n_embd_head_v) == (16, 16)
    assert (header.n_vocab, header.special("eos"), header.special("bos")) == (261, 256, 257)
    assert header.tokens[256] == b"<|end|>"
    assert header.type_of(260) == 5
    assert not header.add_bos
    assert not header.is_recurrent
    assert header.file_bytes == header.needed_bytes == tiny.stat().st_size
    assert header.weight_bytes == 261 * 64 * 4 + 64 * 4 + 2 * (
        4 * (64 * 64 + 32 * 64 + 32 * 64 + 64 * 64 + 3 * 64 * 128) + 2 * 64 * 4
    )


def test_tokens_are_as_the_gguf_package_wrote_them(tmp_path):
    tokens = ["", "a", "ü" * 500, "\0", *[f"t{n}" for n in range(3000)]]
    header = read_header(write_gguf(tmp_path / "v.gguf", tokens=tokens, scores=[0.0] * 3004))
    assert [token.decode() for token in header.tokens] == tokens
    assert header.arrays["tokenizer.ggml.scores"].count == 3004
    with pytest.raises(IndexError):
        header.tokens[len(tokens)]
    with pytest.raises(IndexError):
        header.tokens[-1]


def test_per_layer_arrays_and_single_numbers_read_alike(tmp_path):
    meta = {"llama.block_count": 4, "llama.attention.head_count": [8, 8, 4, 4]}
    header = read_header(write_gguf(tmp_path / "a.gguf", meta))
    assert header.n_head == (8, 8, 4, 4)
    assert header.n_head_kv == header.n_head
    assert header.number("attention.head_count") == 8
    short = {"llama.block_count": 4, "llama.attention.head_count": [8, 2]}
    assert read_header(write_gguf(tmp_path / "b.gguf", short)).n_head == (8, 2, 2, 2)


def test_defaults_of_bos_follow_the_tokenizer(tmp_path):
    def add_bos(**settings: object) -> bool:
        keys = {f"tokenizer.ggml.{key}": value for key, value in settings.items()}
        return read_header(write_gguf(tmp_path / "x.gguf", keys)).add_bos

    assert add_bos(model="llama")
    assert not add_bos(model="gpt2", pre="qwen2")
    assert add_bos(model="gpt2", pre="llama-bpe")
    assert not add_bos(model="llama", add_bos_token=False)


def test_a_special_id_outside_the_vocabulary_is_none(tmp_path):
    tokens, types = byte_vocab()
    path = write_gguf(
        tmp_path / "x.gguf", byte_metadata(eos=5000), tokens=tokens, token_types=types
    )
    assert read_header(path).special("eos") is None


def test_all_types_have_the_sizes_of_the_gguf_package():
    import gguf  # noqa: PLC0415 - only this test compares with it

    for kind, (n_block, n_bytes) in gguf.GGML_QUANT_SIZES.items():
        if kind.value in TYPES and kind.name != "Q8_1":  # never in files; the package is older
            assert (TYPES[kind.value].n_block, TYPES[kind.value].n_bytes) == (n_block, n_bytes)
    assert BY_NAME["NVFP4"].tensor_bytes((128, 2)) == 144
    assert BY_NAME["Q4_K"].tensor_bytes((256, 3, 2)) == 6 * 144
    with pytest.raises(ValueError, match="not whole blocks"):
        BY_NAME["Q4_K"].tensor_bytes((100,))


def test_version_2_is_read_as_version_3(tiny):
    data = bytearray(tiny.read_bytes())
    data[4] = 2
    assert parse_header(bytes(data)).n_vocab == 261


# -- prefixes ------------------------------------------------------------------------------------


def test_a_short_prefix_asks_for_more_until_the_header_is_whole(tiny):
    data = tiny.read_bytes()
    sizes = [1]
    while len(sizes) < 100:
        try:
            header = parse_header(data[: sizes[-1]], len(data))
            break
        except NeedMore as more:
            sizes.append(more.n_bytes)
    assert header.n_vocab == 261
    assert 2 < len(sizes) < 10
    assert sizes == sorted(set(sizes)), "each asks for more than the one before"
    assert sizes[-1] <= len(data)


def test_a_prefix_of_unknown_length_never_asks_beyond_the_limit():
    big = gguf_bytes([setting("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 400_000))])
    with pytest.raises(NeedMore) as caught:
        parse_header(big)
    assert caught.value.n_bytes <= MAX_HEADER
    parse_header(gguf_bytes([setting("a", 4, b"\0" * 4)]))  # no length to check against


def test_a_file_that_needs_several_reads(tmp_path):
    tokens = [f"token {'x' * 20} {n}" for n in range(60_000)]
    path = write_gguf(tmp_path / "v.gguf", tokens=tokens, merges=[f"{n} b" for n in range(60_000)])
    assert path.stat().st_size > 2 * FIRST_READ
    assert read_header(path).tokens[59_999] == tokens[-1].encode()


# -- files that are no GGUF ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty."),
        (b"<!DOCTYPE html><html>" + b" " * 2000, "is a web page, not a model file."),
        (b"\xef\xbb\xbf\n <HTML lang=en>", "is a web page, not a model file."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:"
            + b"a" * 64
            + b"\nsize 1117320768\n",
            "is a Git LFS pointer, not the model file itself (which has 1.04 GiB).",
        ),
        (b'{"error":"Entry not found"}', "is JSON text (a server's error message, perhaps)"),
        (b"PK\x03\x04" + b"\0" * 40, "is a zip archive (a PyTorch checkpoint, perhaps), not a"),
        (b"\x40\0\0\0\0\0\0\0{" + b'"a":1}' * 10, "is a safetensors file, not a GGUF."),
        (b"tjgg\1\0\0\0", "is in the old GGJT format, which llama.cpp no longer reads."),
        (b"\0" * 4096, "begins with zeros: the space was reserved but the bytes never arrived."),
        (b"FUGG\0\0\0\3", "was made for big-endian machines"),
        (b"GGUF\0\0\0\3" + b"\0" * 20, "was made for big-endian machines"),
        (b"hello world", "is not a GGUF model file: it begins with 'hell'."),
        (b"\x01\x02\x03\x04\x05", "is not a GGUF model file: its first bytes differ."),
        (b"\x1b[2J", "is not a GGUF model file: its first bytes differ."),
        (gguf_bytes(version=1), "is a GGUF of version 1, which llama.cpp no longer reads."),
        (gguf_bytes(version=4), "is a GGUF of version 4, newer than this localspec reads (3)."),
        (gguf_bytes(version=0), "is damaged: its header says version 0."),
        (b"GGUF", "is cut: it has only 4 B and ends inside its header."),
        (b"GG", "is cut: it has only 2 B and ends inside its header."),
    ],
)
def test_what_is_not_a_gguf_is_named(tmp_path, content, says):
    """F30: a web page, a pointer or nothing, saved under a model's name."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        read_header(path)
    assert caught.value.message.startswith(f"{path} {says.removesuffix('.')}")
    assert caught.value.hint


def test_a_cut_file_tells_both_sizes(tiny):
    """F30: a download that stopped in the middle of the weights."""
    whole = tiny.stat().st_size
    os.truncate(tiny, int(whole * 0.6))
    with pytest.raises(ModelFileError) as caught:
        read_header(tiny)
    assert f"is cut: it has {int(whole * 0.6)} bytes" in caught.value.message
    assert f"of {whole} (" in caught.value.message


def test_a_file_cut_anywhere_is_refused(tiny):
    data = tiny.read_bytes()
    header_end = parse_header(data, len(data)).data_offset
    for n_bytes in [*range(0, header_end, 7), header_end, len(data) - 1]:
        with pytest.raises(ModelFileError):
            parse_header(data[:n_bytes], n_bytes, name="x")


def test_paths_that_are_not_files(tmp_path):
    with pytest.raises(ModelFileError, match="is a directory"):
        read_header(tmp_path)
    with pytest.raises(ModelNotFoundError, match="There is no file"):
        read_header(tmp_path / "missing.gguf")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_header(Path("a\0b"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_header(tmp_path / "pipe")


# -- hostile headers -----------------------------------------------------------------------------

HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gguf_bytes(n_settings=HUGE), "announces 18446744073709551615 settings"),
        (gguf_bytes(n_tensors=HUGE), "announces 18446744073709551615 tensors"),
        (gguf_bytes([struct.pack("<Q", HUGE)]), "the name of a setting would have"),
        (gguf_bytes([setting("a", 8, struct.pack("<Q", HUGE))]), "the text of 'a' would have"),
        (
            gguf_bytes([setting(f"k{n}", 8, text(b"\xff" * (2 << 20))) for n in range(5)]),
            "the text of 'k3' would have 2097152 bytes",
        ),
        (gguf_bytes([setting("a", 99, b"")]), "'a' is of the unknown type 99"),
        (gguf_bytes([setting("", 4, b"\0" * 4)]), "a setting has no name"),
        (gguf_bytes([setting("a", 4, b"\0" * 4)] * 2), "its header says 'a' twice"),
        (
            gguf_bytes([setting("a", 9, struct.pack("<IQ", 9, 1) * 1000)]),
            "'a' is a list of lists",
        ),
        (gguf_bytes([setting("a", 9, struct.pack("<IQ", 77, 1))]), "list of the unknown type 77"),
        (gguf_bytes([setting("a", 9, struct.pack("<IQ", 8, HUGE))]), "'a' announces"),
        (gguf_bytes([setting("a", 9, struct.pack("<IQ", 10, 1 << 61))]), "'a' announces"),
        (
            gguf_bytes([setting("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1 << 20))]),
            "it announces 1048576 tokens",
        ),
        (
            gguf_bytes([setting("b", 9, struct.pack("<IQQ", 8, 100, (1 << 64) - 9) + b"\0" * 800)]),
            "a text of 'b' has an impossible length",
        ),
        (gguf_bytes([setting("general.alignment", 4, b"\0" * 4)]), "its alignment is 0"),
        (gguf_bytes([setting("general.alignment", 4, b"\3\0\0\0")]), "not a power of two"),
        (gguf_bytes([setting("general.alignment", 8, text("x"))]), "its alignment is x"),
        (gguf_bytes([], [tensor("t", (1, 1, 1, 1, 1))]), "tensor 't' has 5 dimensions"),
        (gguf_bytes([], [tensor("t", (-1,))]), "tensor 't' has a negative dimension"),
        (gguf_bytes([], [tensor("t", (1 << 32, 1 << 32))]), "would have 18446744073709551616"),
        (gguf_bytes([], [tensor("t", (100,), 12)]), "rows of 100 are not whole blocks of 256"),
        (gguf_bytes([], [tensor("t", (4,), 0, 64)]), "tensor 't' is not where it should be"),
        (
            gguf_bytes([], [tensor("t", (8,)), tensor("t", (8,), 0, 32)]),
            "two tensors called 't'",
        ),
        (gguf_bytes([], [text("n" * 2000)]), "the name of a tensor would have 2000 bytes"),
        (
            gguf_bytes([numbers("tokenizer.ggml.token_type", 5, "i", 1, 1, 1)]),
            "it has 0 tokens but 3 token types",
        ),
    ],
)
def test_hostile_headers_end_in_one_sentence(data, says):
    error = refuse(data + b"\0" * 4096)
    assert says in error.message
    assert error.message.startswith("model.gguf is damaged: ")


def test_an_unknown_tensor_type_asks_for_an_update():
    error = refuse(gguf_bytes([], [tensor("t", (8,), 33)]) + b"\0" * 64)
    assert "tensor 't' is of type 33, which this llama.cpp does not read" in error.message
    assert "update" in error.hint


def test_names_are_cleaned_before_they_are_shown():
    error = refuse(gguf_bytes([setting("\x1b[2J\n" + "k" * 500, 99, b"")]))
    assert "\x1b" not in error.message
    assert len(error.message) < 200


@pytest.mark.parametrize(
    "data",
    [
        # The most tokens, each empty; the most numbers; many lists that are each worth keeping;
        # bytes that become three times as long as text.
        gguf_bytes(
            [
                setting("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 1 << 19))
                + b"\0" * (4 << 20)
            ]
        ),
        gguf_bytes([setting("a", 9, struct.pack("<IQ", 0, 27 << 20)) + b"\0" * (27 << 20)]),
        gguf_bytes([numbers(f"k{n}", 4, "I", *range(1000)) for n in range(5000)]),
        gguf_bytes([setting(f"k{n}", 8, text(b"\xff" * (2 << 20))) for n in range(3)]),
    ],
    ids=["tokens", "numbers", "lists", "strings"],
)
def test_the_largest_headers_stay_in_their_memory(tmp_path, data):
    path = tmp_path / "big.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6


def test_random_changes_never_crash_what_reads_headers():
    """A small run of the bench, always the same 2000 inputs."""
    good = fuzz_header.seeds()
    reference = parse_header(good[0])
    ends = {
        fuzz_header.run_case(*fuzz_header.case(number, 20, good), reference)
        for number in range(2000)
    }
    assert ends == {"read", "refused", "asked for more"}


def test_numbers_of_a_hostile_header_are_bounded():
    data = gguf_bytes(
        [
            setting("general.architecture", 8, text("x")),
            setting("x.block_count", 4, b"\xff" * 4),
            setting("x.attention.head_count", 6, struct.pack("<f", float("nan"))),
        ]
    )
    header = parse_header(data)
    assert header.n_layer_all == 512
    assert header.n_head == (0,) * 512
    assert np.isfinite(header.n_embd_head_k)
