"""A small HTTP server that speaks S3, with its objects in memory: the part of the protocol that flywheel asks for.

Shapes are those of Amazon's API reference: PutObject with If-None-Match, GetObject with Range, HeadObject,
ListObjectsV2, DeleteObject and DeleteObjects; and those of Google's XML API, which differs in what creates an object
(x-goog-if-generation-match: 0) and in the names of headers. `lies` makes it overwrite where it is asked to create, as
some servers do.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from flywheel import Project

ACCESS, SECRET = "AKIATESTONLY", "a-secret-that-must-not-be-shown"
URL = "s3://b/team/project"


@dataclass
class Kept:
    """One object."""

    body: bytes
    headers: dict[str, str]
    modified: datetime

    @property
    def etag(self) -> str:
        """The tag of its content."""
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass
class BucketServer:
    """What the server keeps, and what it was asked."""

    lies: bool = False
    refuses: bool = False  # any credentials
    objects: dict[str, Kept] = field(default_factory=dict)  # by /bucket/key
    asked: list[str] = field(default_factory=list)  # "PUT /bucket/key"
    before: Callable[[str], object] = lambda _: None  # called with each request; may raise to cut it off
    loses_answer_of: str = ""  # the first request of this kind is carried out and not answered
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def clear(self) -> None:
        """Be as a new one."""
        self.objects.clear()
        self.asked.clear()
        self.before, self.lies, self.refuses = lambda _: None, False, False

    def put(self, name: str, body: bytes) -> None:
        """Keep an object, as another program would."""
        self.objects[name] = Kept(body, {}, datetime.now(UTC))

    def names(self, bucket: str = "b") -> list[str]:
        """Return the names of the objects in a bucket."""
        return sorted(name.removeprefix(f"/{bucket}/") for name in self.objects)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this process's commands talk to it."""
        for name, value in environment(self.url).items():
            monkeypatch.setenv(name, value)

    def use_as_google(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        """Make this process's commands talk to it as to Google Cloud Storage."""
        key = folder / "account.json"
        names = ("client_email", "private_key", "private_key_id")
        account = {"gcs_base_url": self.url, "disable_oauth": True, **dict.fromkeys(names, "")}
        key.write_text(json.dumps(account), encoding="utf-8")
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(key))


def machine(folder: Path, store: str = URL) -> Project:
    """Return a project in a folder, as one of several machines that share a store."""
    from flywheel import Project
    from flywheel.config import Config

    folder.mkdir(exist_ok=True)
    return Project(folder, config=Config.model_validate({"store": store, "build": {"partitions": 1}}))


def environment(url: str) -> dict[str, str]:
    """Return the variables by which S3's clients find a server."""
    return {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
    }  # fmt: skip


@contextmanager
def serving(server: BucketServer) -> Iterator[BucketServer]:
    """Start the server on a free port of this machine."""

    class Handler(_Handler):
        kept = server

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body sent after its headers would wait 40 ms
    kept: BucketServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>not for a log: {ACCESS}</Message></Error>"
        self._answer(status, text.encode(), {"Content-Type": "application/xml"})

    def _asked(self) -> bool:
        """Take the request down, and read its body; return whether to answer it."""
        self.name = unquote(urlsplit(self.path).path)
        self.query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {self.name}"
        self.kept.before(request)
        self.kept.asked.append(request)
        refuses = self.kept.refuses  # once: a test may change it as soon as it is answered
        if refuses:
            self._error(403, "InvalidAccessKeyId")
        return not refuses

    def do_PUT(self) -> None:
        """Keep an object; with If-None-Match, or Google's generation 0, only where there is none."""
        if not self._asked():
            return
        metadata = ("x-amz-meta", "x-goog-meta")
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower().startswith(metadata)}
        with self.kept.lock:
            create = self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"
            if create and not self.kept.lies and self.name in self.kept.objects:
                self._error(412, "PreconditionFailed")
                return
            self.kept.objects[self.name] = kept = Kept(self.body, headers, datetime.now(UTC))
        if self.kept.loses_answer_of == f"PUT {self.name}":
            self.kept.loses_answer_of = ""
            self._error(503, "SlowDown")
            return
        self._answer(200, headers={"ETag": kept.etag})

    def do_GET(self) -> None:
        """Give an object, or some of its bytes, or a list of names."""
        if not self._asked():
            return
        if "list-type" in self.query:
            self._list()
            return
        kept = self.kept.objects.get(self.name)
        if kept is None:
            self._error(404, "NoSuchKey")
            return
        body, more = kept.body, {}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            start, end = int(asked[1]), int(asked[2] or len(body) - 1)
            if start >= len(body):
                self._error(416, "InvalidRange")
                return
            more = {"Content-Range": f"bytes {start}-{min(end, len(body) - 1)}/{len(body)}"}
            body = body[start : end + 1]
        self._answer(206 if more else 200, body, {**self._of(kept), **more})

    def do_HEAD(self) -> None:
        """Tell whether there is an object, with its size."""
        if self._asked():
            kept = self.kept.objects.get(self.name)
            if kept is None:
                self._error(404, "NoSuchKey")
            else:
                self._answer(200, b"", {**self._of(kept), "Content-Length": str(len(kept.body))})

    def _of(self, kept: Kept) -> dict[str, str]:
        return {"ETag": kept.etag, "Last-Modified": format_datetime(kept.modified, usegmt=True), **kept.headers}

    def _list(self) -> None:
        prefix = self.name.rstrip("/") + "/" + self.query.get("prefix", [""])[0]
        start = len(self.name.rstrip("/")) + 1
        with self.kept.lock:
            found = sorted((name, kept) for name, kept in self.kept.objects.items() if name.startswith(prefix))
        rows = "".join(
            f"<Contents><Key>{escape(name[start:])}</Key><Size>{len(kept.body)}</Size><ETag>{escape(kept.etag)}</ETag>"
            f"<LastModified>{kept.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for name, kept in found
        )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def do_DELETE(self) -> None:
        """Remove an object."""
        if self._asked():
            self.kept.objects.pop(self.name, None)
            self._answer(204)

    def do_POST(self) -> None:
        """Remove several objects."""
        if self._asked():
            keys = re.findall(r"<Key>(.*?)</Key>", self.body.decode())
            for key in keys:
                self.kept.objects.pop(f"{self.name.rstrip('/')}/{key}", None)
            gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode(), {"Content-Type": "application/xml"})
