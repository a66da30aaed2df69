"""A client for a running vLLM: list models, load and unload an adapter, send a probe.

In: a URL and a token. Out: the server's answer, or an error with a hint. Requests and answers follow vLLM's source
(entrypoints/serve/lora and entrypoints/openai/models): `/v1/load_lora_adapter` and `/v1/unload_lora_adapter` answer 200
with a sentence, or an error body, whose fields older servers have at the top level.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from flywheel.errors import FlywheelError, UsageError

_SHOWN = 300  # characters of a server's message
_HINTS = (
    ("has already been loaded", "another adapter has this name; unload it, or choose another name with --name"),
    ("max_lora_rank", "start vLLM with a larger --max-lora-rank, or train with a smaller [train.lora] r"),
    ("No adapter found", "the server does not see this folder; mount it there and pass its path with --path"),
    ("LoRA is not enabled", "start vLLM with --enable-lora"),
    ("max_loras", "start vLLM with a larger --max-loras"),
    ("dora", "vLLM takes no DoRA: serve the merged model (flywheel deploy merge), or train without train.lora.dora"),
    ("unexpected modules", "vLLM adapts fewer layers than were trained: set [train.lora] target_modules"),
)
_NO_ENDPOINT = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"


@dataclass(frozen=True)
class Served:
    """One model that a server lists."""

    name: str
    root: str  # folder or hub name
    parent: str | None  # of an adapter: its base


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: a token goes only to the user's URL."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


class _Refused(Exception):  # noqa: N818 - an answer, handled below
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class Server:
    """A vLLM server.

    Args:
        url: its address, with or without /v1.
        token: for `Authorization: Bearer`; '' sends none.
        timeout_s: for one request; loading an adapter takes a while.

    Raises:
        UsageError: the URL is neither http nor https.
    """

    def __init__(self, url: str, token: str = "", timeout_s: float = 120.0) -> None:
        parts = urllib.parse.urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("--url is neither http nor https", hint="as in --url http://localhost:8000")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = f"{host}:{parts.port}" if parts.port else host
        path = parts.path.rstrip("/").removesuffix("/v1")
        self.url = f"{parts.scheme}://{place}{path}"  # a password in it is neither used nor written down
        self._token, self._timeout = token, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)

    def models(self) -> list[Served]:
        """Return what the server lists.

        Raises:
            FlywheelError: it does not answer, or is not a vLLM server.
        """
        answer = self._ask("GET", "/v1/models")
        try:
            rows = json.loads(answer)["data"]
            return [Served(str(r["id"]), str(r.get("root") or ""), r.get("parent")) for r in rows]
        except (ValueError, KeyError, TypeError):
            raise FlywheelError(f"{self.url}/v1/models lists no models", hint="is it a vLLM server?") from None

    def load(self, name: str, path: str) -> None:
        """Load an adapter under a name.

        Raises:
            FlywheelError: the server refuses, with its reason and a hint.
        """
        self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    def unload(self, name: str) -> None:
        """Unload an adapter; one that is not loaded is ignored."""
        try:
            self._answer("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        except _Refused as refusal:
            if "cannot be found" not in refusal.message:
                raise self._error("/v1/unload_lora_adapter", refusal) from None

    def probe(self, name: str) -> str:
        """Request one token and return the finish reason; without a chat template as a plain completion.

        Raises:
            FlywheelError: it does not answer.
        """
        chat = {"model": name, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1, "temperature": 0}
        try:
            answer = self._answer("POST", "/v1/chat/completions", chat)
        except _Refused as refusal:
            if "template" not in refusal.message:
                raise self._error("/v1/chat/completions", refusal) from None
            plain = {"model": name, "prompt": "ping", "max_tokens": 1, "temperature": 0}
            answer = self._ask("POST", "/v1/completions", plain)
        try:
            completion = json.loads(answer)
            model, finish_reason = str(completion["model"]), str(completion["choices"][0]["finish_reason"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise FlywheelError(f"the probe of `{name}` got no completion", hint=f"is {self.url} vLLM?") from None
        if model != name:
            raise FlywheelError(f"requested `{name}`, `{model[:80]}` answered", hint="does a proxy route by itself?")
        return finish_reason

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        try:
            return self._answer(method, path, body)
        except _Refused as refusal:
            raise self._error(path, refusal) from None

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - scheme checked
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise FlywheelError(
                f"{self.url} does not answer: {type(error).__name__}: {reason}",
                hint="is the server running, and can this machine reach --url?",
            ) from None

    def _error(self, path: str, refusal: _Refused) -> FlywheelError:
        """Return an error with the server's message and a hint."""
        message = f"{self.url}{path}: {refusal.status}: {refusal.message[:_SHOWN]}"
        if refusal.status in {401, 403}:
            return FlywheelError(message, hint="set the server's token in the environment variable of --token-env")
        missing = refusal.status in {404, 405} and "lora_adapter" in path
        if missing and refusal.kind != "NotFoundError":  # the route itself is missing
            return FlywheelError(message, hint=_NO_ENDPOINT)
        hint = next((hint for mark, hint in _HINTS if mark.lower() in refusal.message.lower()), "see the server's log")
        return FlywheelError(message, hint=hint)


def _refusal(error: urllib.error.HTTPError) -> _Refused:
    """Parse a server's error: {"error": {...}}, the same flat, FastAPI's {"detail": ...}, or text."""
    text = error.read().decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    inner = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(inner, dict):
        message = inner.get("message") or inner.get("detail") or text
        return _Refused(error.code, str(inner.get("type") or ""), str(message))
    return _Refused(error.code, "", str(inner or text or error.reason))
