"""The record of a forgotten user: a certificate, with hashes of everything before and after."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from flywheel.records.base import Document, Record


class TaintedRound(Record):
    """A round whose adapter saw the user, and is therefore never champion or parent again."""

    round: int = Field(ge=1)
    adapter_sha256: str = Field(description="The adapter; '' where there is none.")
    rows: int = Field(ge=0, description="Rows of the user that it was trained on.")
    why: str = Field(description="One sentence.")


class Certificate(Document):
    """That a user was forgotten: what was removed, and hashes of the tables and datasets before and after.

    It holds no pseudonym, only a hash of it: whoever has the user's id and the project's key can find it again.
    """

    document: ClassVar[str] = "certificate"

    schema_version: int = 1
    user_sha256: str = Field(description="Hash of the user's pseudonym.")
    at: datetime
    by: str = Field(description="Command that did it.")
    removed: dict[str, int] = Field(description="Rows removed, by table; 'conversations'; 'round N'; 'audits'.")
    before: dict[str, str] = Field(description="Hash of each table and of each round's dataset before.")
    after: dict[str, str] = Field(description="The same afterwards; '' for what is no longer there.")
    tainted: list[TaintedRound] = Field(description="Rounds that saw the user, and those that descend from them.")
    champion_before: int | None
    champion_after: int | None = Field(description="null: the base model serves.")
    rebase_round: int = Field(ge=1, description="The next round; it starts again from the base.")
    holdout_share: float = Field(ge=0, le=1, description="Share of the held-out episodes that were the user's.")
    voided: list[int] = Field(
        description="Rounds whose evaluation is void: more than 5 % of the held-out episodes were removed."
    )
    notes: list[str] = Field(default_factory=list, description="What the command could not do, in sentences.")
    previous_sha256: str = Field(default="", description="Hash of the line before; '' for the first.")
