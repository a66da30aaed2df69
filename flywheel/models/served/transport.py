"""Requests to the server at `eval.endpoint`: JSON there, JSON back, tried again while the server is busy or gone.

Nothing but this address is ever connected to: no proxy of the environment, no redirect. A server's message may quote
what it was sent, so an error shows its status and which known cause it names, never its text.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import math
import os
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import orjson

from flywheel.config import EvalConfig
from flywheel.errors import EvalError, UsageError

MOST_BYTES = 256 * 2**20  # of one answer
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_CONNECT_S = 5.0  # that a connection may take; an answer has `eval.server.timeout_s`
_HANGING_UP_S = 0.02
_HEARD_S = 0.2  # Ctrl-C, at the latest
_START = {
    "vllm": "`vllm serve BASE --enable-lora`",
    "sglang": "`python -m sglang.launch_server --model-path BASE --enable-lora`",
    "llama.cpp": "`llama-server -m BASE.gguf`",
    "transformers": "`transformers serve`",
}
_CAUSES = (
    ("maximum context length", "the prompt is longer than the server's context: start it with a longer one"),
    ("context size", "the prompt is longer than the server's context: start it with a longer one"),
    ("max_lora_rank", "start the server with a larger --max-lora-rank, or train with a smaller [train.lora] r"),
    ("dora", "this server takes no DoRA: serve the merged model (flywheel deploy merge), or train without lora.dora"),
    ("lora is not enabled", "start the server with adapters enabled (--enable-lora)"),
    ("no adapter found", "the server does not see this folder: map it with [eval.server.paths]"),
    ("no such file", "the server does not see this folder: map it with [eval.server.paths]"),
    ("already been loaded", "unload it there, or name it in [eval.server.models]"),
    ("does not exist", "set [eval.server] model, and models, to names that it lists"),
    ("pinned to", "set [eval.server] model, and models, to names that it lists"),
    ("template", "start the server with the base model's chat template"),
    ("tool choice", "start the server with its parser of tool calls, or set [eval.server] api to completions"),
)

_ABSENT: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (socket.gaierror, "its host has no address"),
    (UnicodeError, "its host has no address"),
    (ConnectionRefusedError, "nothing listens there"),
    (ssl.SSLCertVerificationError, "its certificate is not one that this machine trusts"),
    (ssl.SSLError, "it does not speak TLS, which https needs"),
    (TimeoutError, "its host does not answer in time"),
    (http.client.HTTPException, "what listens there does not speak HTTP"),
)


@dataclass(frozen=True)
class Request:
    """One question."""

    path: str
    body: Mapping[str, Any] | Sequence[Any] | None = None  # None: a GET

    @property
    def method(self) -> str:
        """How it is sent."""
        return "GET" if self.body is None else "POST"


class Refused(Exception):  # noqa: N818 - an answer, which the caller makes an error or not
    """The server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(str(status))
        self.status, self.message = status, message

    @property
    def cause(self) -> str:
        """What to do about it, where the message names a known cause."""
        return next((hint for mark, hint in _CAUSES if mark in self.message.lower()), "see the server's log")


class Unfinished(Exception):  # noqa: N818 - as above
    """The server ended an answer before the model did, and before the tokens that it was given were used up."""


class Transport:
    """Sends requests, so many at a time, over connections that are kept.

    Args:
        cfg: address, key, concurrency, time-out and retries.

    Raises:
        UsageError: the key's environment variable is not set, or holds what no header can.
    """

    def __init__(self, cfg: EvalConfig) -> None:
        parts = urllib.parse.urlsplit(cfg.endpoint)
        self._host, self._port, self._tls = parts.hostname or "", parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._server = cfg.server
        self._idle: list[http.client.HTTPConnection] = []
        self._asking: set[http.client.HTTPConnection] = set()
        self._reached = False  # whether it ever answered: before that, there is none
        self.address = f"{parts.scheme}://{parts.netloc}{self._path}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if name := cfg.server.key_env:
            if not (key := os.environ.get(name, "").strip()):
                raise UsageError(f"the environment variable `{name}` is not set", hint="it holds the server's API key")
            if not (key.isascii() and key.isprintable() and " " not in key):
                hint = "it holds a blank, a control character or one beyond ASCII: set it to the server's API key alone"
                raise UsageError(f"the environment variable `{name}` holds no API key", hint=hint)
            self._headers["Authorization"] = f"Bearer {key}"

    def ask(
        self,
        request: Request,
        *,
        again: bool = True,
        ended: threading.Event | None = None,
        read: Callable[[Any], Any] = lambda reply: reply,
    ) -> Any:
        """Return what is read in the answer, a JSON value; a text that is none as a text.

        Args:
            request: what to send.
            again: whether it may be sent again when the server is busy, fails or is gone.
            ended: set where no one waits for the answer any more.
            read: returns what is wanted of the answer; one that is `Unfinished` is asked for again.

        Raises:
            Refused: the server answers with an error, still after all tries.
            EvalError: it does not answer, or only in part.
        """
        tries, ended = self._server.retries if again else 0, ended or threading.Event()
        for number in range(tries + 1):
            last, wait = number == tries, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**number)
            if ended.is_set():
                break
            try:
                status, text, asked_to_wait = self._sent(request, ended)
            except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: a host that can be none
                if last or ended.is_set() or not self._reached:
                    raise self._silent(error, number + 1) from None
            else:
                self._reached = True
                if status < http.HTTPStatus.MULTIPLE_CHOICES:
                    try:
                        return read(_value(text))
                    except Unfinished as cut:
                        if last:
                            raise self._cut(cut) from None
                elif last or status not in _AGAIN:
                    raise Refused(status, text)
                wait = max(wait, min(asked_to_wait, 2 * _LONGEST_WAIT_S))
            ended.wait(wait)
        raise EvalError("no one waits for this answer any more")

    def each(self, requests: Sequence[Request], read: Callable[[Any], Any], done: Callable[[int], None]) -> list[Any]:
        """Send requests side by side; return what is read in each answer, and state how many there are so far.

        The first error ends it, and so does Ctrl-C: what is not yet sent is not sent, and no one waits for the rest.
        """
        pool = ThreadPoolExecutor(max_workers=min(self._server.at_once, max(1, len(requests))))
        ended, answers = threading.Event(), list[Future[Any]]()
        try:
            answers += (pool.submit(self.ask, request, ended=ended, read=read) for request in requests)
            waiting = set(answers)
            while waiting:  # with a time limit: where polars is loaded, Ctrl-C ends no wait
                answered, waiting = wait(waiting, timeout=_HEARD_S, return_when=FIRST_COMPLETED)
                for answer in answered:
                    answer.result()
                done(len(answers) - len(waiting))
            return [answer.result() for answer in answers]
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            while self._asking or not all(answer.done() for answer in answers):  # a thread may be about to connect
                self._hang_up()
                time.sleep(_HANGING_UP_S)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _hang_up(self) -> None:
        """End the connections on which an answer is waited for, so that their threads end."""
        for connection in list(self._asking):
            with contextlib.suppress(OSError, AttributeError):  # none yet, or gone already
                connection.sock.shutdown(socket.SHUT_RDWR)

    def error(self, request: Request, refusal: Refused) -> EvalError:
        """Return the error to show for a refusal."""
        if refusal.status in {401, 403}:
            hint = "set [eval.server] key_env to the environment variable that holds its key"
            return EvalError(f"{self.address} refuses the key ({refusal.status})", hint=hint)
        if refusal.status < http.HTTPStatus.BAD_REQUEST:
            hint = "redirects are not followed: name the server that it points to as eval.endpoint"
            return EvalError(f"{self.address}{request.path} sends elsewhere ({refusal.status})", hint=hint)
        return EvalError(f"{self.address}{request.path} answered {refusal.status}", hint=refusal.cause)

    def _sent(self, request: Request, ended: threading.Event) -> tuple[int, str, float]:
        connection = self._connected()
        body = None if request.body is None else json.dumps(request.body).encode()
        self._asking.add(connection)  # before it looks: whoever ends it sees one or the other
        try:
            _require_wanted(ended)
            unconnected = connection.sock is None
            if unconnected:
                connection.connect()
                connection.sock.settimeout(self._server.timeout_s)
            connection.request(request.method, self._path + request.path, body, self._headers)
            answer = connection.getresponse()
            raw = answer.read(MOST_BYTES + 1)
        except BaseException:
            connection.close()
            raise
        finally:
            self._asking.discard(connection)
        if len(raw) > MOST_BYTES:
            connection.close()
            raise EvalError(f"{self.address} sent an answer of more than {MOST_BYTES:,} bytes")
        self._idle.append(connection)
        return answer.status, raw.decode("utf-8", "replace"), _seconds(answer.headers.get("Retry-After", ""))

    def _connected(self) -> http.client.HTTPConnection:
        """Return a connection that no other thread uses."""
        try:
            return self._idle.pop()  # in one step, whatever thread
        except IndexError:
            made = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
            return made(self._host, self._port, timeout=min(_CONNECT_S, self._server.timeout_s))

    def close(self) -> None:
        """Close the connections that were kept."""
        while self._idle:
            self._idle.pop().close()

    def _absent(self, error: Exception) -> EvalError:
        """Return the error where no server was ever reached: it names what would start one."""
        what = next((text for kind, text in _ABSENT if isinstance(error, kind)), type(error).__name__)
        start = _START.get(self._server.kind, f"{_START['vllm']}, {_START['llama.cpp']} or {_START['transformers']}")
        return EvalError(
            f"no server at {self.address}: {what}",
            hint=f"start it ({start}), correct [eval] endpoint, or remove it to evaluate in this process",
        )

    def _cut(self, cut: Unfinished) -> EvalError:
        return EvalError(
            f"{self.address} did not finish an answer ({cut})",
            hint="see the server's log, or its limit on tokens; what was answered is kept: the same command goes on",
        )

    def _silent(self, error: Exception, tries: int) -> EvalError:
        if not self._reached:
            return self._absent(error)
        late = isinstance(error, TimeoutError)
        what = f"no answer in {self._server.timeout_s:g} s" if late else type(error).__name__
        return EvalError(
            f"{self.address} does not answer ({what}, {tries} {'try' if tries == 1 else 'tries'})",
            hint="is the server running? What was answered is kept: the same command goes on from there"
            + ("; a larger [eval.server] timeout_s, or a smaller at_once, gives it more time" if late else ""),
        )


def _value(text: str) -> Any:
    try:
        value = orjson.loads(text)
        orjson.dumps(value)  # nested deeper than what can be written again is none either
    except (ValueError, TypeError):
        return text
    return value


def _seconds(header: str) -> float:
    """Return how long to wait: seconds, or until a date."""
    try:
        seconds = float(header)
    except ValueError:
        date = email.utils.parsedate_tz(header)
        seconds = email.utils.mktime_tz(date) - time.time() if date else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def chunks(size: int, of: int) -> Iterator[range]:
    """Yield the places of so many things in pieces of a size."""
    yield from (range(start, min(start + size, of)) for start in range(0, of, size))


def _require_wanted(ended: threading.Event) -> None:
    if ended.is_set():
        raise ConnectionAbortedError
