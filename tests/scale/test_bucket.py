"""A store in a bucket of several real servers: kills between any two requests, six writers, a dead holder's lease.

Run by `make scale`: flywheel's own small server, moto's, and Ceph's gateway where Debian's packages can be had.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.io.bucket import Bucket, address
from tests.bucket_server import BucketServer, environment, serving
from tests.scale import gateway
from tests.scale.world import write_logs

pytestmark = pytest.mark.scale
pytest.importorskip("obstore")

KILLS = int(os.environ.get("KILLS", "50"))
_HOP = {"connection", "keep-alive", "transfer-encoding"}
_KEY = {"FLYWHEEL_KEY": "the key of all machines", "FLYWHEEL_TRUST": "1"}

_COMMANDS = """
import sys
from flywheel import Project
from flywheel.config import Config
project = Project(sys.argv[1], config=Config.model_validate({"store": sys.argv[2], "build": {"partitions": 1}}))
project.ingest()
project.build(select="links")
project.build(select="episodes")
project.gc()
"""

_WRITER = """
import json, sys
from pathlib import Path
from flywheel.errors import BusyError
from flywheel.io.bucket import address
from flywheel.io.places import InBucket
from flywheel.store import Store
accepted = []
for turn in range(6):
    store = Store(InBucket(Path(sys.argv[1]), address(sys.argv[2])))
    try:
        store.create()
        store.commit("links", fingerprint={"by": sys.argv[1], "turn": turn}, parts=(), funnel={})
    except BusyError:
        continue
    accepted.append([sys.argv[1], turn])
print(json.dumps(accepted))
"""

_HOLDER = """
import sys, time
from datetime import timedelta
from pathlib import Path
from flywheel.io import places
from flywheel.io.bucket import address
places._HELD = timedelta(seconds=25)
place = places.InBucket(Path(sys.argv[1]), address(sys.argv[2]))
with place.alone("gc", ["links"]):
    print("held", flush=True)
    time.sleep(600)
"""


@dataclass
class Proxy:
    """A relay before a server, which kills the client at one of its requests: before it is carried out, or after."""

    target: str
    at: int = 0
    after: bool = False
    client: subprocess.Popen[str] | None = None
    seen: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def relaying(proxy: Proxy) -> Iterator[Proxy]:
    """Start the relay on a free port."""
    to = urlsplit(proxy.target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body sent after its headers would wait 40 ms

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def relay(self) -> None:
            with proxy.lock:
                proxy.seen += 1
                now = proxy.seen == proxy.at
            if now and not proxy.after and proxy.client is not None:
                proxy.client.kill()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            there = HTTPConnection(to.hostname or "", to.port)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            content = answer.read()
            if now and proxy.after and proxy.client is not None:
                proxy.client.kill()
            try:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {*_HOP, "content-length", "date", "server"}:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True
            there.close()

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = relay  # noqa: N815 - as http.server names them

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that were killed."""

    http = Quiet(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{http.server_port}"
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        http.shutdown()
        http.server_close()


@contextmanager
def _moto() -> Iterator[dict[str, str]]:
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port)
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"}
        with closing(HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("PUT", "/flywheel", headers=signed)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        yield environment(f"http://127.0.0.1:{port}")
    finally:
        started.kill()
        started.wait()


def _wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as knocking:
            if knocking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the server did not start")


@pytest.fixture(scope="module", params=["ours", "moto", "ceph"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the environment of a server that has the bucket `flywheel`."""
    with ExitStack() as stack:
        if request.param == "ours":
            yield environment(stack.enter_context(serving(BucketServer())).url)
        elif request.param == "moto":
            yield stack.enter_context(_moto())
        else:
            yield stack.enter_context(gateway.running(tmp_path_factory.mktemp("ceph")))


@pytest.fixture
def here(service: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make this process a client too, and return the environment for others."""
    for name, value in {**service, **_KEY}.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **service, **_KEY}


def _run(code: str, *args: object, env: dict[str, str]) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _tables(folder: Path, store: str) -> dict[str, str]:
    """Return the content of each stage's current snapshot, every part checked."""
    project = Project(folder, config=Config.model_validate({"store": store}))
    hashes = {}
    for stage in project.store.stages():
        snapshot = project.store.current(stage)
        assert snapshot is not None
        for part in snapshot.parts:
            project.store.paths([part], part.table)
        hashes[stage] = snapshot.sha256
    return hashes


def test_a_kill_between_any_two_requests_loses_nothing(here: dict[str, str], tmp_path: Path) -> None:
    write_logs(tmp_path / "p" / "logs", 12)
    with relaying(Proxy(here["AWS_ENDPOINT_URL"])) as proxy:
        through = {**here, "AWS_ENDPOINT_URL": proxy.url}
        whole = _run(_COMMANDS, tmp_path / "p", "s3://flywheel/whole", env=through)
        assert whole.communicate()[1] == ""
        requests, expected = proxy.seen, _tables(tmp_path / "p", "s3://flywheel/whole")
        assert {"ingest", "episodes"} <= expected.keys()
        killed = 0
        for kill in range(KILLS):
            store = f"s3://flywheel/kill{kill}"
            proxy.at, proxy.after, proxy.seen = 1 + kill * requests // KILLS, bool(kill % 2), 0
            proxy.client = _run(_COMMANDS, tmp_path / "p", store, env=through)
            proxy.client.communicate()
            killed += proxy.client.returncode == -9
            proxy.at = 0
            again = _run(_COMMANDS, tmp_path / "p", store, env=through)
            assert again.communicate()[1] == "", kill
            assert _tables(tmp_path / "p", store) == expected, kill
    assert killed == KILLS


def test_of_six_writers_as_many_commits_as_accepted_are_there(here: dict[str, str], tmp_path: Path) -> None:
    writers = [_run(_WRITER, tmp_path / str(number), "s3://flywheel/race", env=here) for number in range(6)]
    answers = [writer.communicate() for writer in writers]
    assert [error for _, error in answers] == [""] * 6
    accepted = sorted(tuple(commit) for text, _ in answers for commit in json.loads(text))
    where = address("s3://flywheel/race")
    assert where is not None
    bucket = Bucket(where)
    there = [json.loads(bucket.read(found.key)) for found in bucket.below("race/snapshots/links")]
    assert sorted((d["fingerprint"]["by"], d["fingerprint"]["turn"]) for d in there) == accepted
    assert sorted(d["number"] for d in there) == list(range(1, len(accepted) + 1))
    print(f"\nsix writers: {len(accepted)} of 36 accepted")  # noqa: T201 - the figure


def test_a_dead_holders_lease_is_taken_over(here: dict[str, str], tmp_path: Path) -> None:
    write_logs(tmp_path / "p" / "logs", 4)
    project = Project(tmp_path / "p", config=Config.model_validate({"store": "s3://flywheel/lease"}))
    project.ingest()
    holder = _run(_HOLDER, tmp_path / "other", "s3://flywheel/lease", env=here)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    late = _run(_COMMANDS, tmp_path / "p", "s3://flywheel/lease", env=here)
    assert "BusyError" in late.communicate()[1]
    for _ in range(60):
        time.sleep(1)
        refused = _run(_COMMANDS, tmp_path / "p", "s3://flywheel/lease", env=here).communicate()[1]
        if not refused:
            break
    assert refused == ""
    where = address("s3://flywheel/lease")
    assert where is not None
    assert [found.key for found in Bucket(where).below("lease/locks")] == ["lease/locks/2.json"]
