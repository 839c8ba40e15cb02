"""A local HTTP server that behaves like a Hub and its storage host, with faults on demand, and the
small things that tests of the store share."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from localspec.files import ModelFile, Shard
from localspec.store import HubSettings

COMMIT = "a" * 40
REPO = "someone/Tiny-GGUF"
NAME = "tiny-Q4_K_M.gguf"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def model(content: bytes, name: str = NAME, **changes: object) -> ModelFile:
    """A catalog entry for one file with this content."""
    shard = Shard(name, len(content), sha256(content))
    fields: dict[str, object] = {"id": name, "shards": (shard,), "repo": REPO, "revision": COMMIT}
    return ModelFile(**{**fields, **changes})  # type: ignore[arg-type]


@dataclass
class Asked:
    """One request as the server saw it."""

    host: str
    method: str
    path: str
    headers: dict[str, str]

    @property
    def range(self) -> str:
        return self.headers.get("range", "")


@dataclass
class Answer:
    """What the server says next, in place of the truth. ``cut``: body bytes before it hangs up;
    ``hold``: body bytes before it waits for ``FakeHub.go_on``; ``stall_s``: seconds before it
    says a word, or until ``go_on``."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hold: int | None = None
    body: bytes | None = None
    stall_s: float = 0.0


Fault = Callable[[Asked], "Answer | None"]


class FakeHub:
    """Files of repositories by ``(repo, name)``; ``faults`` are asked first, one after another."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.commit = COMMIT
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.ranges = True
        self.redirect = True
        self.good_tokens: set[str] = set()
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.sizes_known = True
        self.go_on = threading.Event()
        self.hub = _serve(self, "hub")
        self.storage = _serve(self, "storage")
        # Two names for this computer make two hosts.
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"
        self.elsewhere = f"http://localhost:{self.storage.server_port}"

    def close(self) -> None:
        self.go_on.set()
        for server in (self.hub, self.storage):
            server.shutdown()
            server.server_close()

    def settings(self, token: str | None = None, **changes: object) -> HubSettings:
        fields: dict[str, object] = {
            "endpoint": self.endpoint,
            "token": token,
            # Far more than a busy machine needs: whoever wants it to give up says how soon.
            "notice_s": 60.0,
            "read_s": 60.0,
            "n_retries": 3,
            "backoff_s": 0.005,
            "longest_wait_s": 1.0,
        }
        return HubSettings(**{**fields, **changes})  # type: ignore[arg-type]

    def cut_bodies(self, *lengths: int) -> None:
        """The next file bodies end after so many bytes, without a word."""
        left = list(lengths)

        def fault(asked: Asked) -> Answer | None:
            if asked.method == "GET" and "/api/" not in asked.path and asked.host == "storage":
                return Answer(cut=left.pop(0)) if left else None
            return None

        self.faults.append(fault)

    def hold_bodies(self, *lengths: int) -> None:
        """The next file bodies stop after so many bytes until ``go_on`` is set."""
        self.say(*(Answer(hold=n) for n in lengths), method="GET", host="storage")

    def say(self, *answers: Answer, method: str = "HEAD", host: str = "hub") -> None:
        """The next questions of this kind get these answers."""
        left = list(answers)

        def fault(asked: Asked) -> Answer | None:
            if asked.method == method and asked.host == host and left:
                return left.pop(0)
            return None

        self.faults.append(fault)

    def bodies(self) -> list[Asked]:
        """The requests for file bodies."""
        return [a for a in self.asked if a.method == "GET" and a.host == "storage"]


def _serve(fake: FakeHub, role: str) -> ThreadingHTTPServer:
    class Handler(_Handler):
        hub = fake
        host = role

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is what these tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every small answer waits 40 ms for an acknowledgement
    hub: FakeHub
    host: str

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        asked = Asked(self.host, self.command, unquote(self.path), headers)
        self.hub.asked.append(asked)
        for fault in self.hub.faults:
            answer = fault(asked)
            if answer is not None:
                break
        else:
            answer = Answer()
        if answer.stall_s:
            self.hub.go_on.wait(answer.stall_s)
        if answer.status is not None and answer.cut is None:
            self._send(answer.status, answer.headers, answer.body or b"")
        elif self.host == "storage":
            self._file(asked, answer)
        elif asked.path.startswith("/api/models/"):
            self._listing(asked)
        else:
            self._resolve(asked)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes, answer: Answer | None = None
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if answer is not None and answer.hold is not None:
            self.wfile.write(body[: answer.hold])
            self.hub.go_on.wait(120)
            self.wfile.write(body[answer.hold :])
        elif answer is not None and answer.cut is not None:
            self.wfile.write(body[: answer.cut])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _refused(self, repo: str) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        known = token in self.hub.good_tokens
        if token and not known:
            self._send(401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"")
        elif repo in self.hub.gated:
            self._send(403 if known else 401, {"X-Error-Code": "GatedRepo"}, b"")
        elif repo in self.hub.private and not known:
            self._send(401, {"X-Error-Code": "RepoNotFound"}, b"")
        elif not any(repo == owner for owner, _ in self.hub.files):
            self._send(404 if known else 401, {"X-Error-Code": "RepoNotFound"}, b"")
        else:
            return False
        return True

    def _resolve(self, asked: Asked) -> None:
        repo, _, rest = urlsplit(asked.path).path[1:].partition("/resolve/")
        name = rest.partition("/")[2]
        if self._refused(repo):
            return
        content = self.hub.files.get((repo, name))
        if content is None:
            self._send(
                404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.hub.commit}, b""
            )
            return
        headers = {"X-Repo-Commit": self.hub.commit, "X-Linked-Etag": f'"{sha256(content)}"'}
        if self.hub.sizes_known:
            headers["X-Linked-Size"] = str(len(content))
        headers["Location"] = f"{self.hub.elsewhere}/store/{repo}/{name}?signature=x"
        self._send(302, headers, b"")

    def _file(self, asked: Asked, answer: Answer) -> None:
        owner, repo, name = urlsplit(asked.path).path.removeprefix("/store/").split("/", 2)
        content = self.hub.files[f"{owner}/{repo}", name] if answer.body is None else answer.body
        start = 0
        if asked.range and self.hub.ranges:
            first, _, last = asked.range.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
            if start >= len(content):
                self._send(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
                return
            headers = {"Content-Range": f"bytes {start}-{end}/{len(content)}", **answer.headers}
            self._send(206, headers, content[start : end + 1], answer)
        else:
            self._send(200, answer.headers, content, answer)

    def _listing(self, asked: Asked) -> None:
        repo = "/".join(asked.path.split("/")[3:5])
        if self._refused(repo):
            return
        siblings = [
            {"rfilename": n, "size": len(c), "lfs": {"sha256": sha256(c), "size": len(c)}}
            for (owner, n), c in sorted(self.hub.files.items())
            if owner == repo
        ]
        body = json.dumps(
            {"id": repo, "sha": self.hub.commit, "gated": False, "siblings": siblings}
        )
        self._send(200, {"Content-Type": "application/json"}, body.encode())


class Recorder:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.labels: list[str] = []
        self.notes: list[str] = []
        self.n_done = 0
        self.n_finished = 0

    def start(self, label: str, total: int | None) -> None:
        self.labels.append(label)
        self.totals.append(total)

    def advance(self, n: int) -> None:
        self.n_done += n

    def finish(self) -> None:
        self.n_finished += 1

    def note(self, text: str) -> None:
        self.notes.append(text)


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    try:
        yield hub
    finally:
        hub.close()
