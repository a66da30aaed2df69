"""Hooks: real commands and a real HTTP server get one document; whatever they do, nothing is raised."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from flywheel.config import NotifyConfig
from flywheel.config.files import load_config
from flywheel.errors import ConfigError
from flywheel.pipeline.admin.schemas import schema_document
from flywheel.pipeline.nightly.notify import notify
from flywheel.records import Need, Night

pytestmark = pytest.mark.slow

NIGHT = Night(
    night="abc", project="agent", pipeline="nightly", began_at=datetime(2026, 1, 1, tzinfo=UTC), outcome="held",
    exit_code=3, text="agent: round 2 is held", round=2, missing=[Need(what="new rows", have=3, need=8)],
)  # fmt: skip


class _Server(ThreadingHTTPServer):
    """Keeps what it was sent; answers what its path says: /500, /302, /slow, else 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.free = threading.Event()

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.server.got.append((self.path, dict(self.headers), self.rfile.read(length)))
        if self.path == "/slow":
            self.server.free.wait(30)
        code = int(self.path[1:]) if self.path[1:].isdigit() else 200
        self.send_response(code)
        if code == 302:
            self.send_header("Location", self.server.address("/elsewhere"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET = _answer  # noqa: N815 - http.server's names

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.free.set()
    made.shutdown()
    made.server_close()


def test_both_hooks_get_the_same_document_and_it_fits_its_schema(server: _Server, tmp_path: Path) -> None:
    cfg = NotifyConfig(command="tee sent.json", webhook=server.address("/hook"))

    assert notify(NIGHT, cfg, tmp_path) == "command: sent; webhook: sent"
    ((path, headers, body),) = server.got
    assert body == (tmp_path / "sent.json").read_bytes()
    assert (path, headers["Content-Type"], headers["Idempotency-Key"]) == ("/hook", "application/json", "abc-held")
    assert "Authorization" not in headers
    jsonschema.validate(json.loads(body), schema_document("night"))
    assert Night.model_validate_json(body) == NIGHT


def test_a_token_comes_from_the_environment(server: _Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    cfg = NotifyConfig(webhook=server.address("/"), token_env="HOOK_TOKEN")  # noqa: S106 - a name
    assert notify(NIGHT, cfg, tmp_path) == "webhook: sent"
    assert server.got[0][1]["Authorization"] == "Bearer t0ken"


def test_the_command_gets_its_words_its_folder_and_the_outcome_but_no_shell(tmp_path: Path) -> None:
    script = tmp_path / "my hook.py"
    script.write_text(
        "import json, os, sys\nopen('seen.json', 'w').write(json.dumps([sys.argv[1:], os.environ['FLYWHEEL_OUTCOME']]))"
    )
    cfg = NotifyConfig(command=f"{sys.executable} '{script}' '$HOME;' a\\ b")

    assert notify(NIGHT, cfg, tmp_path) == "command: sent"
    assert json.loads((tmp_path / "seen.json").read_text()) == [["$HOME;", "a b"], "held"]


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("false", "command: failed (exit 1)"),
        ("/no/such/program", "command: failed (No such file or directory)"),
        ("true", "command: sent"),  # it reads nothing of its standard input
    ],
)
def test_a_command_that_fails_is_reported_and_no_more(command: str, outcome: str, tmp_path: Path) -> None:
    assert notify(NIGHT, NotifyConfig(command=command), tmp_path) == outcome


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = tmp_path / "hang.sh"
    script.write_text("sleep 600 & echo $! > child; wait\n")
    assert notify(NIGHT, NotifyConfig(command="sh hang.sh", timeout_s=2), tmp_path) == "command: killed after 2 s"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _alive(child):
        time.sleep(0.05)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


@pytest.mark.parametrize(
    ("path", "outcome", "calls"),
    [
        ("/500", "webhook: failed (HTTP 500)", 2),  # the server's fault: tried again
        ("/403", "webhook: failed (HTTP 403)", 1),
        ("/302", "webhook: failed (HTTP 302)", 1),  # the user named this address and no other
    ],
)
def test_an_address_that_refuses(path: str, outcome: str, calls: int, server: _Server, tmp_path: Path) -> None:
    assert notify(NIGHT, NotifyConfig(webhook=server.address(path)), tmp_path) == outcome
    assert [p for p, _, _ in server.got] == [path] * calls


def test_an_address_that_never_answers_and_one_where_nobody_is(server: _Server, tmp_path: Path) -> None:
    assert notify(NIGHT, NotifyConfig(webhook=server.address("/slow"), timeout_s=1), tmp_path).startswith("webhook: ")
    cfg = NotifyConfig(webhook="http://127.0.0.1:9/", timeout_s=5)
    assert notify(NIGHT, cfg, tmp_path) == "webhook: failed (Connection refused)"


def test_an_outcome_that_is_not_asked_for_is_not_sent(tmp_path: Path) -> None:
    cfg = NotifyConfig(command="tee sent.json", on=["failed"])
    assert notify(NIGHT, cfg, tmp_path) == "nothing sent: `held` is not in notify.on"
    assert notify(NIGHT, NotifyConfig(), tmp_path) == "no notifications configured ([notify] in flywheel.toml)"
    assert not (tmp_path / "sent.json").exists()


@pytest.mark.parametrize("line", ['webhook = "ftp://x/y"', 'webhook = "https://"', 'command = "it\'s"', 'on = ["x"]'])
def test_what_is_no_hook_is_refused_when_the_file_is_read(line: str, tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text(f"[notify]\n{line}\n")
    with pytest.raises(ConfigError, match=r"`flywheel\.toml` line \d: `notify\."):
        load_config(tmp_path / "flywheel.toml")
