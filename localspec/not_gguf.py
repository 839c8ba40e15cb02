"""What is this file, if it is not a GGUF? So that the message names the cause and the next step."""

from __future__ import annotations

import re

from localspec.errors import ModelFileError
from localspec.terminal import label, size

AGAIN = "Download it again; localspec pull continues where a download stopped."
_LFS = b"version https://git-lfs.github.com/spec/"
_PAGE = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|body|\?xml|!--|script|title)", re.IGNORECASE
)
_OLD = {b"tjgg": "GGJT", b"fmgg": "GGMF", b"lmgg": "GGML"}
_ZIP = "a zip archive (a PyTorch checkpoint, perhaps)"
_OTHER = {
    b"PK\x03\x04": _ZIP,
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"7z\xbc\xaf": "a 7-Zip archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"%PDF": "a PDF document",
}


def not_gguf(head: bytes, name: str) -> ModelFileError:
    """The error for a file that begins with ``head`` (a few hundred bytes), not with ``GGUF``."""
    convert = "localspec needs the model in GGUF format; look for a GGUF version of it."
    if not head:
        return ModelFileError(f"{name} is empty.", hint=AGAIN)
    if _PAGE.match(head):
        return ModelFileError(
            f"{name} is a web page, not a model file.",
            hint="The address was that of a page about the file, or the server asked for a login. "
            "Use the address of the file itself, or localspec pull.",
        )
    if head.startswith(_LFS):
        return ModelFileError(
            f"{name} is a Git LFS pointer, not the model file itself{_lfs_size(head)}.",
            hint="Fetch the file itself with git lfs pull or localspec pull.",
        )
    if head[:4] in _OLD:
        return ModelFileError(
            f"{name} is in the old {_OLD[head[:4]]} format, which llama.cpp no longer reads.",
            hint=convert,
        )
    if head[:4] == b"FUGG":
        return big_endian(name)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return ModelFileError(f"{name} is a safetensors file, not a GGUF.", hint=convert)
    for start, what in _OTHER.items():
        if head.startswith(start):
            return ModelFileError(f"{name} is {what}, not a GGUF.", hint=convert)
    if not head.strip(b"\0"):
        return ModelFileError(
            f"{name} begins with zeros: the space was reserved but the bytes never arrived.",
            hint=AGAIN,
        )
    return _unknown(head, name)


def _unknown(head: bytes, name: str) -> ModelFileError:
    if head.lstrip()[:1] in (b"{", b"[") and head.isascii():
        return ModelFileError(
            f"{name} is JSON text (a server's error message, perhaps), not a model file.",
            hint=AGAIN,
        )
    text = head[:4].decode("latin-1")
    shown = f"it begins with {label(text)!r}" if text.isprintable() else "its first bytes differ"
    return ModelFileError(f"{name} is not a GGUF model file: {shown}.", hint=AGAIN)


def _lfs_size(head: bytes) -> str:
    found = re.search(rb"^size (\d{1,15})\s*$", head, re.MULTILINE)
    return f" (which has {size(int(found[1]))})" if found else ""


def big_endian(name: str) -> ModelFileError:
    """The error for a file made for big-endian machines."""
    return ModelFileError(
        f"{name} was made for big-endian machines and cannot be used on this computer.",
        hint="Look for the usual (little-endian) version of the model.",
    )
