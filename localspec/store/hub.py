"""The Hugging Face Hub over HTTP: what a file is, its bytes, the files of a repository.

huggingface_hub gives addresses and the user's token; the bytes are moved here, because it cannot go
on with an interrupted download (2.x gives partial files random names), and because the token must
reach no other host. Nothing here writes to disk but ``PartialFile``.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote

import httpx2
from huggingface_hub import get_token, hf_hub_url

from localspec import __version__
from localspec.errors import (
    ConfigError,
    DownloadError,
    HubUnreachableError,
    IntegrityError,
    ModelNotFoundError,
    RateLimitError,
)
from localspec.files import Cancelled, Progress
from localspec.store.names import check_file_name, check_repo, check_revision, is_etag
from localspec.store.partial import PartialFile
from localspec.store.refusals import refusal, wait_asked_for
from localspec.store.remote import (
    Listing,
    RemoteFile,
    bounded,
    continues,
    listed,
    number,
    origin,
    promise_of,
)
from localspec.store.settings import DEFAULT_ENDPOINT, HubSettings
from localspec.store.work import cancel_error, interruptible
from localspec.terminal import label

_MAX_REDIRECTS = 10
_MAX_ATTEMPTS = 500
_MAX_LISTING_BYTES = 64 << 20


def settings_from_environment() -> HubSettings:
    """HF_ENDPOINT, and the token of HF_TOKEN or of ``hf auth login``. Raises ConfigError."""
    endpoint = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/@]+(/[^\s@]*)?", endpoint):
        raise ConfigError(
            f'HF_ENDPOINT is "{label(endpoint)}", which is not a web address.',
            hint="It looks like https://huggingface.co",
        )
    return HubSettings(endpoint=endpoint, token=_token())


def _token() -> str | None:
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    try:
        token = get_token()
    except OSError as error:
        raise ConfigError(
            f"the saved Hugging Face token cannot be read: {error.strerror}.",
            hint='Log in again with "hf auth login", or set HF_TOKEN.',
        ) from error
    if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ConfigError(
            "the Hugging Face token has characters in it that no token has.",
            hint='Correct HF_TOKEN, or log in again with "hf auth login".',
        )
    return token


class _CutError(Exception):
    """The connection broke or the server stumbled: try again from where the file is."""


class Hub:
    """A connection to one Hub. Remembers for the run that nobody answers, and a refused token.

    ``fetch`` may be called from another thread; everything else from one thread only.
    """

    def __init__(
        self, settings: HubSettings, *, progress: Progress, cancelled: Cancelled = lambda: False
    ) -> None:
        self.settings = settings
        self._progress = progress
        self._cancelled = cancelled
        self._use_token = settings.token is not None
        self._reached = False
        self._down: HubUnreachableError | None = None
        self._client = httpx2.Client(
            follow_redirects=False,
            verify=httpx2.create_ssl_context(),
            timeout=httpx2.Timeout(settings.read_s, connect=settings.notice_s),
            # Few requests, far apart: a connection kept open would only be one to forget.
            limits=httpx2.Limits(max_keepalive_connections=0),
            headers={"User-Agent": f"localspec/{__version__}", "Accept-Encoding": "identity"},
        )
        self._origin = origin(httpx2.URL(settings.endpoint))

    def head(self, repo: str, revision: str, name: str) -> RemoteFile:
        """What the file is. Raises DownloadError and its kinds, ModelNotFoundError."""
        response = self._ask("HEAD", self._file_url(repo, revision, name), repo, name)
        headers = response.headers
        commit = headers.get("x-repo-commit", "")
        if not re.fullmatch(r"[0-9a-zA-Z]{4,64}", commit):
            self._down = HubUnreachableError(
                f"{self._origin} answers, but not as a Hugging Face Hub.",
                hint="Perhaps a sign-in page of this network is in the way, or HF_ENDPOINT is "
                "wrong.",
            )
            raise self._down
        tag = headers.get("x-linked-etag") or headers.get("etag") or ""
        etag = tag.removeprefix("W/").strip('"')
        n_bytes = number(headers.get("x-linked-size"))
        if n_bytes is None and not response.has_redirect_location:
            n_bytes = number(headers.get("content-length"))
        if not is_etag(etag):
            raise DownloadError(f"the server gives no usable ETag for {label(name)}.")
        return RemoteFile(repo, name, commit, etag, promise_of(etag, n_bytes))

    def listing(self, repo: str, revision: str) -> Listing:
        """The files of ``repo`` with sizes and hashes. Raises as ``head``."""
        check_repo(repo)
        branch = quote(check_revision(revision or "main"), safe="")
        url = f"{self.settings.endpoint}/api/models/{repo}/revision/{branch}?blobs=true"
        response = self._ask("GET", url, repo, "", limit=_MAX_LISTING_BYTES)
        try:
            found = json.loads(response.extensions["body"])
            files = tuple(listed(entry) for entry in found["siblings"])
            return Listing(str(found["sha"]), bool(found.get("gated")), files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DownloadError(f"the file list of {repo} cannot be understood.") from error

    def first_bytes(self, remote: RemoteFile, n_bytes: int) -> bytes:
        """At most ``n_bytes`` from the start of the file. Raises as ``head``."""
        url = self._file_url(remote.repo, remote.commit, remote.name)
        wanted = {"Range": f"bytes=0-{n_bytes - 1}"}
        response = self._ask("GET", url, remote.repo, remote.name, headers=wanted, limit=n_bytes)
        return bytes(response.extensions["body"])

    def fetch(
        self,
        remote: RemoteFile,
        partial: PartialFile,
        *,
        stop: threading.Event,
        note: Callable[[str], None],
    ) -> None:
        """Bring ``partial`` to its full length, going on from what it holds.

        Cut connections are taken up again where they broke. Raises DownloadError and its kinds,
        OSError from writing.
        """
        n_failures = 0
        for _ in range(_MAX_ATTEMPTS):
            before = partial.n_bytes
            try:
                self._stream(remote, partial, stop, note)
                if partial.is_full or partial.promise.n_bytes is None:
                    return
                problem = "it ended too early"
            except (httpx2.TransportError, _CutError) as error:
                problem = str(error) or type(error).__name__
            n_failures = 0 if partial.n_bytes > before else n_failures + 1
            if n_failures > self.settings.n_retries:
                raise HubUnreachableError(
                    f"the download of {label(remote.name)} keeps breaking: {label(problem)}.",
                    hint="What has arrived is kept; run the same command again to go on.",
                )
            if stop.wait(min(10.0, self.settings.backoff_s * 2.0**n_failures)):
                raise cancel_error()
        raise DownloadError(f"the download of {label(remote.name)} makes no headway.")

    def _stream(
        self,
        remote: RemoteFile,
        partial: PartialFile,
        stop: threading.Event,
        note: Callable[[str], None],
    ) -> None:
        """One connection's worth. Raises _CutError and httpx2.TransportError for another try."""
        offset = partial.n_bytes
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        url = self._file_url(remote.repo, remote.commit, remote.name)
        response, sent_token = self._open("GET", url, headers)
        try:
            if response.status_code >= 300:
                self._refused_body(response, sent_token, remote, partial, note)
            if "text/html" in response.headers.get("content-type", ""):
                raise IntegrityError(f"a web page arrived in place of {label(remote.name)}.")
            if offset and not continues(response, offset, partial.promise.n_bytes):
                partial.cut_to(0)
                note("the server cannot go on where the download stopped; starting over")
                if response.status_code != 200:
                    raise _CutError("the server sent another range")
            for chunk in response.iter_raw():
                if stop.is_set():
                    raise cancel_error()
                partial.append(chunk)
        finally:
            response.close()

    def _refused_body(
        self,
        response: httpx2.Response,
        sent_token: bool,
        remote: RemoteFile,
        partial: PartialFile,
        note: Callable[[str], None],
    ) -> None:
        """What an error status in the middle of a download means; always raises."""
        status = response.status_code
        if status == 416 and partial.n_bytes:
            partial.cut_to(0)
            note(f"the file does not go on after {label(remote.name)}'s saved part; starting over")
            raise _CutError("the range was refused")
        elsewhere = origin(response.url) != self._origin
        if status == 408 or status >= 500 or (elsewhere and status in (400, 401, 403)):
            # A storage host's signed address has run out; the next try gets a fresh one.
            raise _CutError(f"error {status} from {response.url.host}")
        if status == 429:
            wait = wait_asked_for(response.headers)
            if wait is not None and wait <= self.settings.longest_wait_s:
                raise _CutError(f"asked to wait for {wait} s")
        raise self._refusal(response, sent_token, remote.repo, remote.name)

    def _ask(
        self,
        method: str,
        url: str,
        repo: str,
        name: str,
        *,
        headers: Mapping[str, str] | None = None,
        limit: int = 0,
    ) -> httpx2.Response:
        """One small question; up to ``limit`` bytes of the answer in ``extensions["body"]``.

        Stumbling servers are asked again, a refused token is left out the second time.
        """
        if self._down is not None:
            raise self._down
        refused = False
        for attempt in range(self.settings.n_retries + 1):
            response, sent_token = self._once(method, url, headers or {}, limit)
            status = response.status_code
            if status == 401 and sent_token:
                refused, self._use_token = True, False
                continue
            wait = self._worth_waiting(response, attempt)
            if wait is None:
                break
            self._pause(wait)
        if response.status_code >= 500:
            raise HubUnreachableError(
                f"{self._origin} answers with error {response.status_code}.",
                hint="That is a fault of the server; try again later.",
            )
        if response.status_code >= 400:
            raise self._refusal(response, sent_token or refused, repo, name)
        if refused:
            self._progress.note(
                "the Hugging Face token was refused (wrong or expired); going on without it, which "
                f"is enough for public models. New tokens: {self.settings.endpoint}/settings/tokens"
            )
        return response

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], limit: int
    ) -> tuple[httpx2.Response, bool]:
        def exchange(stop: threading.Event) -> tuple[httpx2.Response, bool]:
            response, sent_token = self._open(method, url, headers)
            try:
                response.extensions["body"] = bounded(response, limit, stop)
            finally:
                response.close()
            return response, sent_token

        patience = self.settings.notice_s if not self._reached else 4 * self.settings.read_s
        try:
            result = interruptible(exchange, cancelled=self._cancelled, deadline_s=patience)
        except (httpx2.TransportError, TimeoutError) as error:
            reason = str(error) if not isinstance(error, TimeoutError) else ""
            detail = f" ({label(reason[:150])})" if reason else ""
            self._down = HubUnreachableError(
                f"{self._origin} does not answer{detail}.",
                hint="Check the network and the proxy settings, or use files that are already here "
                "(localspec list).",
            )
            raise self._down from error
        self._reached = True
        return result

    def _worth_waiting(self, response: httpx2.Response, attempt: int) -> float | None:
        """Seconds to wait before asking again, or None if the answer stands."""
        if response.status_code >= 500 and attempt < min(2, self.settings.n_retries):
            return self.settings.backoff_s * 2.0**attempt
        if response.status_code == 429 and attempt < 2:
            wait: float | None = wait_asked_for(response.headers)
            if wait is not None and wait <= self.settings.longest_wait_s:
                return wait
        return None

    def _pause(self, seconds: float) -> None:
        interruptible(lambda stop: stop.wait(seconds), cancelled=self._cancelled)

    def _open(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> tuple[httpx2.Response, bool]:
        """The first answer that is no redirect, or that says all about a file, still unread; and
        whether the token went with it. The token goes to the endpoint's own host only."""
        target = httpx2.URL(url)
        for _ in range(_MAX_REDIRECTS):
            sends_token = self._use_token and origin(target) == self._origin
            own = {"Authorization": f"Bearer {self.settings.token}"} if sends_token else {}
            request = self._client.build_request(method, target, headers={**headers, **own})
            response = self._client.send(request, stream=True)
            says_all = {"x-repo-commit", "x-linked-etag"} <= set(response.headers)
            if not response.has_redirect_location or (method == "HEAD" and says_all):
                return response, sends_token
            response.close()
            try:
                following = response.url.join(response.headers["location"])
            except httpx2.InvalidURL as error:
                raise DownloadError("the server redirects to an address that is none.") from error
            if following.scheme != "https" and target.scheme == "https":
                raise DownloadError("the server redirects to an unencrypted address; not followed.")
            target = following
        raise DownloadError("the server redirects in circles.")

    def _file_url(self, repo: str, revision: str, name: str) -> str:
        return hf_hub_url(
            check_repo(repo),
            check_file_name(name),
            revision=check_revision(revision or "main"),
            endpoint=self.settings.endpoint,
        )

    def _refusal(
        self, response: httpx2.Response, sent_token: bool, repo: str, name: str
    ) -> DownloadError | RateLimitError | ModelNotFoundError:
        return refusal(
            response.status_code,
            response.headers,
            endpoint=self.settings.endpoint,
            repo=repo,
            name=name,
            had_token=sent_token,
        )
