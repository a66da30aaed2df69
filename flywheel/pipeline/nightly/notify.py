"""Notifications at the end of a night: a command and a webhook of the user's, both sent the same document.

In: a `Night`. Out: the outcome of each hook in a few words. Nothing here raises: a hook that fails, hangs or answers
with an error does not fail the night. What is sent has no text of a log (see `flywheel.records.nights`).
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
from typing import IO, Any

from flywheel.config import NotifyConfig
from flywheel.io.safe_path import users_environment
from flywheel.records import Night, canonical_json

_ATTEMPTS = 2  # at an address; the second one after no answer, or an error of the server's own
_SERVER_FAULT = 500


def notify(night: Night, cfg: NotifyConfig, project: Path) -> str:
    """Run every hook and return the outcome of each: 'command: sent; webhook: failed (HTTP 500)'."""
    if not cfg.command and not cfg.webhook:
        return "no notifications configured ([notify] in flywheel.toml)"
    if night.outcome not in cfg.on:
        return f"nothing sent: `{night.outcome}` is not in notify.on"
    body = (canonical_json(night.model_dump(mode="json")) + "\n").encode()
    sent = [f"command: {_within(cfg.timeout_s * 2, lambda: _run(body, night, cfg, project))}"] if cfg.command else []
    if cfg.webhook:
        sent.append(f"webhook: {_within(cfg.timeout_s, lambda: _post(body, night, cfg))}")
    return "; ".join(sent)


def _within(seconds: float, hook: Callable[[], str]) -> str:
    """Return a hook's outcome, or that it took too long; a server that drips its answer cannot hold the night up."""
    outcome: list[str] = []

    def run() -> None:
        try:
            outcome.append(hook())
        except Exception as error:  # noqa: BLE001 - whatever a hook does, the night goes on
            outcome.append(f"failed ({type(error).__name__})")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else f"failed (no answer in {seconds:g} s)"


def _run(body: bytes, night: Night, cfg: NotifyConfig, project: Path) -> str:
    """Send the document to a command; its process and what that started are killed when its time is over."""
    try:
        process = subprocess.Popen(
            shlex.split(cfg.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=project,
            env={**users_environment(), "FLYWHEEL_OUTCOME": night.outcome},
            start_new_session=True,
        )
    except OSError as error:
        return f"failed ({error.strerror or 'could not be started'})"
    try:
        process.communicate(body, timeout=cfg.timeout_s)
    except subprocess.TimeoutExpired:
        return f"killed after {cfg.timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "sent" if process.returncode == 0 else f"failed (exit {process.returncode})"


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
    outcome = ""
    for _ in range(_ATTEMPTS):
        outcome, final = _attempt(opener, request, cfg.timeout_s / _ATTEMPTS)
        if final:
            break
    return outcome


def _attempt(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float
) -> tuple[str, bool]:
    """Return the outcome of one attempt, and whether it is final."""
    try:
        with opener.open(request, timeout=seconds):
            return "sent", True
    except urllib.error.HTTPError as error:
        error.close()
        return f"failed (HTTP {error.code})", error.code < _SERVER_FAULT
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return f"failed ({getattr(reason, 'strerror', None) or type(reason).__name__})", False
