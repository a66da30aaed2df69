"""The optional judge, against a real endpoint on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from flywheel.config import RewardsConfig
from flywheel.errors import ExtensionError
from flywheel.stages.signals.judge import CANARIES, judge
from tests.stages.talks import Talk, made


@contextmanager
def endpoint(answer: Callable[[list[dict[str, Any]]], str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve the chat completions protocol; yield the base URL and the requests seen."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            log = json.loads(json.loads(body["messages"][1]["content"])["log"])
            reply = json.dumps({"choices": [{"message": {"content": answer(log)}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def honest(log: list[dict[str, Any]]) -> str:
    good = any(m["role"] == "assistant" and "is done" in str(m.get("content")) for m in log)
    return json.dumps({"verdict": "done" if good else "not_done"})


def cfg(url: str) -> RewardsConfig:
    return RewardsConfig.model_validate({"judge": {"url": url, "model": "m"}})


TALKS = (Talk("a").ask("Cancel 7").act("It is done."), Talk("b").ask("Cancel 7").act("I like trains."))


def test_each_conversation_gets_its_verdict_and_stands_in_the_prompt_as_data() -> None:
    with endpoint(honest) as (url, seen):
        rows = judge(*made(*TALKS)[:3], cfg(url))
        assert sorted(rows["score"]) == [-1.0, 1.0]
    system, user = seen[-1]["messages"]
    assert "Cancel 7" not in system["content"]
    assert list(json.loads(user["content"])) == ["log"]


def test_a_judge_that_obeys_the_log_is_refused() -> None:
    def gullible(log: list[dict[str, Any]]) -> str:
        return json.dumps({"verdict": "done"}) if CANARIES[3] in json.dumps(log, ensure_ascii=False) else honest(log)

    with endpoint(gullible) as (url, _), pytest.raises(ExtensionError, match="moves this judge"):
        judge(*made(*TALKS)[:3], cfg(url))


def test_what_is_no_verdict_is_no_vote() -> None:
    with endpoint(lambda _: "Sure! The verdict is done.") as (url, _):
        assert judge(*made(*TALKS)[:3], cfg(url)).is_empty()


def test_no_endpoint_and_none_that_answers() -> None:
    with pytest.raises(ExtensionError, match="no endpoint"):
        judge(*made(*TALKS))
    with pytest.raises(ExtensionError, match="gave no answer"):
        judge(*made(*TALKS)[:3], cfg("http://127.0.0.1:9/v1"))
    with pytest.raises(ExtensionError, match="neither http"):
        judge(*made(*TALKS)[:3], cfg("file:///etc/passwd"))
