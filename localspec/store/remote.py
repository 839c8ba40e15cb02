"""What a Hub's answers say: about a file, a repository, a range. No requests are made here."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

import httpx2

from localspec.store.cache import is_sha256
from localspec.store.partial import Promise


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file on the Hub. ``etag`` names its blob in the cache."""

    repo: str
    name: str
    commit: str
    etag: str
    promise: Promise


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One entry of a repository's listing; None where it does not say."""

    name: str
    n_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at ``commit``; ``gated``: the owner lets in only who asked."""

    commit: str
    gated: bool
    files: tuple[ListedFile, ...]


def promise_of(etag: str, n_bytes: int | None) -> Promise:
    """What an ETag promises: large files carry their SHA-256, small ones git's blob hash."""
    if is_sha256(etag):
        return Promise(n_bytes, "sha256", etag)
    if re.fullmatch(r"[0-9a-f]{40}", etag) and n_bytes is not None:
        return Promise(n_bytes, "git-sha1", etag)
    return Promise(n_bytes)


def origin(url: httpx2.URL) -> str:
    """Scheme, host and port: what a token is bound to."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    standard = url.port is None or (url.scheme, port) in (("http", 80), ("https", 443))
    return f"{url.scheme}://{url.host}" + ("" if standard else f":{port}")


def bounded(response: httpx2.Response, limit: int, stop: threading.Event) -> bytes:
    """The first ``limit`` bytes of a good answer."""
    body = bytearray()
    if limit and response.status_code < 300:
        for chunk in response.iter_raw():
            body += chunk
            if len(body) >= limit or stop.is_set():
                break
    return bytes(body[:limit])


def number(text: str | None) -> int | None:
    """A count in a header, None if there is none that makes sense."""
    return int(text) if text and re.fullmatch(r"\d{1,18}", text) else None


def continues(response: httpx2.Response, offset: int, n_bytes: int | None) -> bool:
    """Whether this is the rest of the same file from ``offset`` on."""
    found = re.fullmatch(
        r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", response.headers.get("content-range", "")
    )
    if response.status_code != 206 or found is None or int(found[1]) != offset:
        return False
    return n_bytes is None or found[2] in ("*", str(n_bytes))


def listed(entry: Any) -> ListedFile:
    """One of the ``siblings`` of a repository. Raises KeyError, AttributeError."""
    large = entry.get("lfs") or {}
    n_bytes = large.get("size", entry.get("size"))
    sha256 = large.get("sha256")
    return ListedFile(
        name=str(entry["rfilename"]),
        n_bytes=n_bytes if type(n_bytes) is int and n_bytes >= 0 else None,
        sha256=sha256 if isinstance(sha256, str) and is_sha256(sha256) else None,
    )
