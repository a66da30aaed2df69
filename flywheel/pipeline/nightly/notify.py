"""Telling people how a night ended: a command of theirs, an address that they named, both with the same document.

In: a `Night`. Out: a sentence on what became of each hook. Nothing here raises: a night is not worse for a hook that
fails, hangs or answers with an error. What is sent has no text of a log (see `flywheel.records.nights`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from flywheel.records import canonical_json

if TYPE_CHECKING:
    from flywheel.config import NotifyConfig
    from flywheel.records import Night

__all__ = ["notify"]

_ATTEMPTS = 2  # at an address; a second time where nobody answered or the server said that the fault is its own
_SERVER_FAULT = 500


def notify(night: Night, cfg: NotifyConfig, project: Path) -> str:
    """Run every hook and return what became of each: 'command: told; webhook: HTTP 500, told nobody'."""
    if not cfg.command and not cfg.webhook:
        return "no hook is configured"
    if night.outcome not in cfg.on:
        return f"`{night.outcome}` is not in notify.on"
    body = (canonical_json(night.model_dump(mode="json")) + "\n").encode()
    told = [f"command: {_within(cfg.timeout_s * 2, lambda: _run(body, night, cfg, project))}"] if cfg.command else []
    if cfg.webhook:
        told.append(f"webhook: {_within(cfg.timeout_s, lambda: _post(body, night, cfg))}")
    return "; ".join(told)


def _within(seconds: float, hook: Callable[[], str]) -> str:
    """Return a hook's sentence, or that it took too long; a server that drips its answer cannot hold the night up."""
    said: list[str] = []

    def run() -> None:
        try:
            said.append(hook())
        except Exception as error:  # noqa: BLE001 - whatever a hook does, the night goes on
            said.append(f"{type(error).__name__}, told nobody")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return said[0] if said else f"no answer in {seconds:g} s"


def _run(body: bytes, night: Night, cfg: NotifyConfig, project: Path) -> str:
    """Give the document to a command; its process and what it started end when its time is over."""
    try:
        process = subprocess.Popen(
            shlex.split(cfg.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=project,
            env={**os.environ, "FLYWHEEL_OUTCOME": night.outcome},
            start_new_session=True,
        )
    except OSError as error:
        return f"{error.strerror or 'could not be started'}, told nobody"
    try:
        process.communicate(body, timeout=cfg.timeout_s)
    except subprocess.TimeoutExpired:
        return f"ended after {cfg.timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "told" if process.returncode == 0 else f"exit {process.returncode}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The document goes to the address that the user named, and to no other."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Follow nothing."""


def _post(body: bytes, night: Night, cfg: NotifyConfig) -> str:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "flywheel",
        "Idempotency-Key": f"{night.night}-{night.outcome}",
    }
    token = os.environ.get(cfg.token_env, "") if cfg.token_env else ""
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(cfg.webhook, body, headers, method="POST")  # noqa: S310 - http(s), checked on loading
    opener = urllib.request.build_opener(_NoRedirect)
    said = "told nobody"
    for _ in range(_ATTEMPTS):
        said, final = _once(opener, request, cfg.timeout_s / _ATTEMPTS)
        if final:
            break
    return said


def _once(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> tuple[str, bool]:
    """Return what one attempt came to, and whether another would be of no use."""
    try:
        with opener.open(request, timeout=seconds):
            return "told", True
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}", error.code < _SERVER_FAULT
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return f"{getattr(reason, 'strerror', None) or type(reason).__name__}, told nobody", False
