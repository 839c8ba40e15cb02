"""Bounded reader of GGUF headers, from a local file or the first bytes of a remote one.

Format: ggml/docs/gguf.md and ggml/src/gguf.cpp of llama.cpp. The file is not trusted: every count
and length is checked against what the file can hold and against fixed limits before anything is
allocated, so that a hostile file costs well under a second and 50 MB.
"""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import NoReturn

import numpy as np

from localspec.errors import ModelFileError, ModelNotFoundError
from localspec.ggml_types import TYPES
from localspec.header import BigArray, Header, Scalar, Tensor, Tokens, TokenType, Value
from localspec.not_gguf import AGAIN, big_endian, not_gguf
from localspec.terminal import label, size

__all__ = [
    "FIRST_READ",
    "MAX_HEADER",
    "Header",
    "NeedMore",
    "Tensor",
    "TokenType",
    "Tokens",
    "join_headers",
    "parse_header",
    "read_header",
]

FIRST_READ = 1 << 20
"""A sensible first prefix to fetch, in bytes; many headers need more."""
MAX_HEADER = 28 << 20
"""Longest header we read, in bytes; the longest known one has 15 MiB."""

_MAX_KEYS = 10_000
_MAX_TENSORS = 1 << 16
_MAX_TEXT = 4 << 20
_MAX_ALL_TEXT = 8 << 20  # all texts that are kept, but the vocabulary
_MAX_TEXT_ITEMS = 1 << 20  # texts in all arrays together
_MAX_TOKENS = 1 << 19
_MAX_TOKEN_BYTES = 10 << 20
_MAX_KEPT = 1 << 16  # values of all arrays that are kept, together
_KEEP_NUMBERS = 1024
_KEEP_TEXTS = 64
_MAX_ELEMENTS = (1 << 63) - 1

_STRING, _ARRAY, _BOOL = 8, 9, 7
# GGUF's value types: struct code, name.
_VALUES = {
    0: ("B", "uint8"),
    1: ("b", "int8"),
    2: ("H", "uint16"),
    3: ("h", "int16"),
    4: ("I", "uint32"),
    5: ("i", "int32"),
    6: ("f", "float32"),
    7: ("?", "bool"),
    10: ("Q", "uint64"),
    11: ("q", "int64"),
    12: ("d", "float64"),
}
_TOKENS = "tokenizer.ggml.tokens"
_TOKEN_TYPES = "tokenizer.ggml.token_type"
_LENGTH = struct.Struct("<Q")


class NeedMore(Exception):  # noqa: N818 - a request, not an error
    """The prefix ends before the header does: fetch at least ``n_bytes`` and parse again."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(n_bytes)
        self.n_bytes = n_bytes


def read_header(path: Path) -> Header:
    """The header of the GGUF at ``path``, one file of a split model at a time.

    The whole file's length is checked against its last tensor. Raises ModelNotFoundError, or
    ModelFileError with the cause: empty, a web page, a Git LFS pointer, cut, damaged, …
    """
    name = str(path)
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise ModelFileError(
                f"{name} is a directory, not a model file.", hint="Name the .gguf file inside it."
            )
        if not stat.S_ISREG(info.st_mode):
            raise ModelFileError(f"{name} is not a regular file.")
        with path.open("rb") as stream:
            wanted = min(FIRST_READ, info.st_size)
            while True:
                stream.seek(0)
                data = stream.read(wanted)
                if len(data) < wanted:
                    raise ModelFileError(f"{name} became shorter while it was read.", hint=AGAIN)
                try:
                    return parse_header(data, info.st_size, name=name)
                except NeedMore as more:
                    wanted = more.n_bytes
                del data  # or two copies would be in memory during the next read
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"There is no file {name}.") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelFileError(f"{name} cannot be read: {reason}.") from error


def parse_header(data: bytes, file_bytes: int | None = None, *, name: str = "the file") -> Header:
    """The header at the start of ``data``, the first bytes of a file of ``file_bytes`` bytes.

    Raises NeedMore when ``data`` is a too short part of the file, ModelFileError as
    ``read_header`` does. ``file_bytes`` None: the length is unknown and not checked.
    """
    name = label(name)
    if data[:4] != b"GGUF":
        if len(data) < 4 and data == b"GGUF"[: len(data)] and data:
            _Reader(data, file_bytes, name).more(4)
        raise not_gguf(data[:512], name)
    return _Reader(data, file_bytes, name).header()


def join_headers(parts: Sequence[Header]) -> Header:
    """The header of a split model: settings and vocabulary of the first part, tensors of all.

    ``parts`` in order, all of them. Raises ModelFileError when one is missing.
    """
    first = parts[0]
    if len(parts) != first.split_count:
        raise ModelFileError(
            f"The model has {first.split_count} parts but only {len(parts)} of them are here.",
            hint="Fetch all parts into one directory; localspec pull does.",
        )
    sizes = [part.file_bytes for part in parts]
    known = [size for size in sizes if size is not None]
    return replace(
        first,
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        file_bytes=sum(known) if len(known) == len(sizes) else None,
        needed_bytes=sum(part.needed_bytes for part in parts),
    )


class _Reader:
    """Walks over one prefix; ``pos`` is the next byte."""

    def __init__(self, data: bytes, file_bytes: int | None, name: str) -> None:
        self.data = data
        self.end = len(data)
        self.file_bytes = file_bytes
        self.name = name
        self.pos = 0
        self.n_texts = 0
        self.n_kept = 0
        self.n_text_bytes = 0
        self.metadata: dict[str, Value] = {}
        self.arrays: dict[str, BigArray] = {}
        self.tokens: Tokens | None = None
        self.token_types = np.zeros(0, np.int32)

    # -- errors ------------------------------------------------------------------------------

    def damaged(self, what: str) -> NoReturn:
        raise ModelFileError(f"{self.name} is damaged: {what}.", hint=AGAIN)

    def more(self, n_bytes: int) -> NoReturn:
        """``data`` must reach to ``n_bytes`` at least."""
        if self.file_bytes is not None and n_bytes > self.file_bytes:
            raise ModelFileError(
                f"{self.name} is cut: it has only {size(self.file_bytes)} and ends inside its "
                "header.",
                hint=AGAIN,
            )
        if n_bytes > MAX_HEADER:
            self.damaged(f"its header would be longer than {size(MAX_HEADER)}")
        wanted = min(max(n_bytes, 8 * self.end), MAX_HEADER)
        raise NeedMore(wanted if self.file_bytes is None else min(wanted, self.file_bytes))

    # -- primitives --------------------------------------------------------------------------

    def take(self, n_bytes: int) -> bytes:
        start, self.pos = self.pos, self.pos + n_bytes
        if self.pos > self.end:
            self.more(self.pos)
        return self.data[start : self.pos]

    def unpack(self, code: str) -> tuple[Scalar, ...]:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self, what: str, limit: int = _MAX_TEXT) -> str:
        length = self.u64()
        self.n_text_bytes += length
        if length > limit or self.n_text_bytes > _MAX_ALL_TEXT:
            self.damaged(f"{what} would have {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    # -- parts -------------------------------------------------------------------------------

    def header(self) -> Header:
        self.take(4)
        version = self.u32()
        self.check_version(version)
        n_tensors, n_keys = self.u64(), self.u64()
        if n_tensors > _MAX_TENSORS:
            self.damaged(f"its header announces {n_tensors} tensors")
        if n_keys > _MAX_KEYS:
            self.damaged(f"its header announces {n_keys} settings")
        for _ in range(n_keys):
            self.setting()
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            self.damaged(f"its alignment is {label(str(alignment)[:40])}")
        if alignment & (alignment - 1):
            self.damaged(f"its alignment is {alignment}, not a power of two")
        if len(self.token_types) and len(self.token_types) != len(self.tokens or ()):
            self.damaged(
                f"it has {len(self.tokens or ())} tokens but {len(self.token_types)} token types"
            )
        tensors, n_bytes = self.all_tensors(n_tensors, alignment)
        data_offset = -(-self.pos // alignment) * alignment
        needed = data_offset + n_bytes if tensors else self.pos
        self.check_length(needed)
        found = Header(
            version=version,
            metadata=self.metadata,
            arrays=self.arrays,
            tensors=tensors,
            token_types=self.token_types,
            alignment=alignment,
            data_offset=data_offset,
            file_bytes=self.file_bytes,
            needed_bytes=needed,
        )
        return found if self.tokens is None else replace(found, tokens=self.tokens)

    def check_version(self, version: int) -> None:
        if version in (2, 3):
            return
        if version and not version & 0xFFFF:
            raise big_endian(self.name)
        if version == 1:
            raise ModelFileError(
                f"{self.name} is a GGUF of version 1, which llama.cpp no longer reads.",
                hint="Look for a newer conversion of the model.",
            )
        if 3 < version < 100:
            raise ModelFileError(
                f"{self.name} is a GGUF of version {version}, newer than this localspec reads (3).",
                hint="Update localspec.",
            )
        self.damaged(f"its header says version {version}")

    def check_length(self, needed: int) -> None:
        if self.file_bytes is not None and needed > self.file_bytes:
            raise ModelFileError(
                f"{self.name} is cut: it has {self.file_bytes} bytes "
                f"({size(self.file_bytes)}) of {needed} ({size(needed)}).",
                hint=AGAIN,
            )

    def setting(self) -> None:
        key = self.text("the name of a setting", 1 << 16)
        shown = label(key[:80])
        if not key:
            self.damaged("a setting has no name")
        if key in self.metadata or key in self.arrays:
            self.damaged(f"its header says {shown!r} twice")
        kind = self.u32()
        if kind == _STRING:
            self.metadata[key] = self.text(f"the text of {shown!r}")
        elif kind == _ARRAY:
            self.list_of(key, shown)
        elif kind in _VALUES:
            self.metadata[key] = self.unpack(_VALUES[kind][0])[0]
        else:
            self.damaged(f"{shown!r} is of the unknown type {kind}")

    def list_of(self, key: str, shown: str) -> None:
        kind, count = self.u32(), self.u64()
        if kind == _STRING:
            self.texts(key, shown, count)
        elif kind in _VALUES:
            self.numbers(key, shown, kind, count)
        elif kind == _ARRAY:
            self.damaged(f"{shown!r} is a list of lists")
        else:
            self.damaged(f"{shown!r} is a list of the unknown type {kind}")

    def numbers(self, key: str, shown: str, kind: int, count: int) -> None:
        code, type_name = _VALUES[kind]
        if count > MAX_HEADER:
            self.damaged(f"{shown!r} announces {count} numbers")
        if count <= _KEEP_NUMBERS and key != _TOKEN_TYPES and self.n_kept + count <= _MAX_KEPT:
            self.n_kept += count
            self.metadata[key] = self.unpack(f"{count}{code}")
            return
        start = self.pos
        self.skip(count * struct.calcsize("<" + code))
        self.arrays[key] = BigArray(type_name, count)
        if key == _TOKEN_TYPES:
            found = np.frombuffer(self.data, np.dtype("<" + code), count, start)
            self.token_types = found.astype(np.int32)

    def skip(self, n_bytes: int) -> None:
        self.pos += n_bytes
        if self.pos > self.end:
            self.more(self.pos)

    def texts(self, key: str, shown: str, count: int) -> None:
        self.n_texts += count
        if self.n_texts > _MAX_TEXT_ITEMS:
            self.damaged(f"{shown!r} announces {count} texts")
        if key == _TOKENS:
            if count > _MAX_TOKENS:
                self.damaged(f"it announces {count} tokens")
            self.tokens = self.vocabulary(shown, count)
        elif count <= _KEEP_TEXTS and self.n_kept + count <= _MAX_KEPT:
            self.n_kept += count
            self.metadata[key] = tuple(self.text(f"a text of {shown!r}") for _ in range(count))
            return
        else:
            self.walk(shown, count, None)
        self.arrays[key] = BigArray("string", count)

    def vocabulary(self, shown: str, count: int) -> Tokens:
        first = self.pos
        starts = array("q")
        self.walk(shown, count, starts)
        if self.pos - first > _MAX_TOKEN_BYTES:
            self.damaged(f"its vocabulary has {size(self.pos - first)}")
        starts.append(self.pos)
        places = np.frombuffer(starts, np.int64) - first
        return Tokens(self.data[first : self.pos], places)

    def walk(self, shown: str, count: int, starts: array[int] | None) -> None:
        """Steps over ``count`` texts, noting where each starts.

        This loop is the cost of reading a header, so it has no checks: a length that leads out of
        the data ends it at the next text.
        """
        unpack, data, pos = _LENGTH.unpack_from, self.data, self.pos
        try:
            if starts is None:
                for _ in repeat(None, count):
                    pos += 8 + unpack(data, pos)[0]
            else:
                for _ in repeat(None, count):
                    starts.append(pos)
                    pos += 8 + unpack(data, pos)[0]
        except (struct.error, OverflowError, IndexError):
            pos += 8
        if pos > self.pos + 8 + MAX_HEADER:
            self.damaged(f"a text of {shown!r} has an impossible length")
        self.skip(pos - self.pos)

    def all_tensors(self, count: int, alignment: int) -> tuple[tuple[Tensor, ...], int]:
        """The tensors, and the bytes from the first one's start to the last one's end."""
        tensors: list[Tensor] = []
        seen: set[str] = set()
        expected = end = 0
        for _ in range(count):
            tensor = self.tensor()
            if tensor.name in seen:
                self.damaged(f"it has two tensors called {label(tensor.name)!r}")
            seen.add(tensor.name)
            if tensor.offset != expected:
                self.damaged(f"tensor {label(tensor.name)!r} is not where it should be")
            end = tensor.offset + tensor.n_bytes
            expected = -(-end // alignment) * alignment
            tensors.append(tensor)
        return tuple(tensors), end

    def tensor(self) -> Tensor:
        name = self.text("the name of a tensor", 1024)
        shown = f"tensor {label(name[:64])!r}"
        n_dims = self.u32()
        if n_dims > 4:
            self.damaged(f"{shown} has {n_dims} dimensions")
        shape = struct.unpack(f"<{n_dims}q", self.take(8 * n_dims))
        number, offset = struct.unpack("<IQ", self.take(12))
        if any(extent < 0 for extent in shape):
            self.damaged(f"{shown} has a negative dimension")
        n_elements = 1
        for extent in shape:
            n_elements *= max(extent, 1)
        if n_elements > _MAX_ELEMENTS:
            self.damaged(f"{shown} would have {n_elements} elements")
        if number not in TYPES:
            raise ModelFileError(
                f"{self.name}: {shown} is of type {number}, which this llama.cpp does not read.",
                hint="Look for another quantisation of the model, or update localspec.",
            )
        try:
            n_bytes = TYPES[number].tensor_bytes(shape)
        except ValueError as error:
            self.damaged(f"{shown}: {error}")
        return Tensor(name, shape, TYPES[number], offset, n_bytes)
