"""Sections on the nightly job: how much new evidence a round needs, and who is notified."""

from __future__ import annotations

import shlex
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from flywheel.config._section import Section

Outcome = Literal["promoted", "held", "waiting", "done", "failed"]


class NightlyConfig(Section):
    """How much new evidence the nightly job waits for before it trains and evaluates another round."""

    min_new_rows: int = Field(
        default=8, ge=0, description="Fewest rows that no round was trained on yet; a changed configuration needs none."
    )


class NotifyConfig(Section):
    """Hooks that get a night's document (schema `night`); a hook that fails never fails the night."""

    command: str = Field(
        default="", description="Command line that gets the document on standard input; no shell; '' for none."
    )
    webhook: str = Field(default="", description="http(s) address that the document is posted to; '' for none.")
    token_env: str = Field(
        default="", description="Environment variable with a token that the webhook gets as `Authorization: Bearer`."
    )
    on: list[Outcome] = Field(
        default=["promoted", "held", "failed"],
        description="Outcomes that are sent: promoted, held, waiting, done, failed.",
    )
    timeout_s: float = Field(default=30.0, gt=0, description="Seconds that a hook may take.")

    @field_validator("webhook")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ValueError("write it as https://host/path")
        return value

    @field_validator("command")
    @classmethod
    def _is_a_command(cls, value: str) -> str:
        shlex.split(value)
        return value
