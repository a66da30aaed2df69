"""Sections on what is read: sources, redaction, the cut-off in time, and how events become episodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from flywheel.config._section import Section


class RedactConfig(Section):
    """What is replaced by a pseudonym before anything reaches the disk."""

    kinds: list[str] = Field(
        default=["secret", "email", "phone", "card", "iban", "account", "ip", "mac", "national_id"],
        description="Kinds of personal data and secrets to replace.",
    )
    allow: list[str] = Field(default=[], description="Exact values that are kept as they are (a support address, say).")
    allow_patterns: list[str] = Field(
        default=[], description="Regular expressions; a find that one of them matches as a whole is kept."
    )
    allow_domains: list[str] = Field(
        default=[], description="Domains whose e-mail addresses are kept, those of their subdomains too."
    )
    deny: list[str] = Field(default=[], description="Regular expressions whose matches are always replaced.")
    plus_addressing: bool = Field(
        default=False, description="Whether `name+tag@host` is the user `name@host`; case never makes another user."
    )
    presidio: bool = Field(
        default=False, description="Presidio looks for names of persons and places too; needs flywheel-rl[presidio]."
    )
    presidio_entities: list[str] = Field(
        default=["PERSON", "LOCATION"], description="What Presidio looks for, by its own names for it."
    )
    presidio_language: str = Field(default="en", description="Language of the texts that Presidio reads.")
    presidio_model: str = Field(
        default="en_core_web_sm",
        description="Installed spaCy pipeline that Presidio reads with, or a folder; '': its patterns alone.",
    )
    presidio_threshold: float = Field(
        default=0.5, ge=0, le=1, description="Least score at which an entity of Presidio's is replaced."
    )


class IngestConfig(Section):
    """Where logs come from and how much of them may be unreadable."""

    sources: list[str] = Field(
        default=["logs"],
        description="Files, folders or globs, also in a bucket (s3://...), read when no path is given.",
    )
    format: str = Field(default="auto", description="'auto' (detected from the content) or a reader's name.")
    readers: list[str] = Field(
        default=[], description="Readers of this project's own, besides the installed ones, as 'module:attribute'."
    )
    policy: str = Field(
        default="", description="Policy that acted in logs that do not name one; '': by model, run, file or folder."
    )
    max_quarantine: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of unreadable records above which a file is set aside, and a source is refused.",
    )
    max_record_mb: int = Field(default=64, ge=1, description="Largest single record or line, in MB.")
    max_expand_ratio: int = Field(default=500, ge=2, description="Largest decompressed/compressed ratio of a file.")
    workers: int = Field(default=0, ge=0, description="Processes that read; 0: one a core when there is much to read.")
    redact: RedactConfig = RedactConfig()


def _utc(time: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(time) if time else None
    except ValueError:
        raise ValueError("it is not a time: write 2026-10-04 or 2026-10-04T18:00:00Z") from None
    return parsed.replace(tzinfo=UTC) if parsed is not None and parsed.tzinfo is None else parsed


_Time = Annotated[str, AfterValidator(lambda time: time if _utc(time) else "")]


class BuildConfig(Section):
    """What the derived tables are made from."""

    as_of: _Time = Field(
        default="",
        description="ISO time: build as if nothing had been logged after it, late feedback too; '' takes everything.",
    )

    workers: int = Field(
        default=0, ge=0, description="Processes that build; 0: one a core when there is much to build. Changes no byte."
    )
    partitions: int = Field(
        default=4,
        ge=1,
        le=1024,
        description="Partitions of a new store, each a unit of memory and of parallel work: one for 250,000 episodes. "
        "`flywheel repartition` changes an existing store.",
    )
    engine: Literal["processes", "ray"] = Field(
        default="processes",
        description="Where ingest and build work: processes of this machine, or tasks on a Ray cluster that shares the "
        "store's folder; needs flywheel-rl[ray]. Changes no byte.",
    )
    address: str = Field(
        default="auto",
        description="The Ray cluster: 'auto' (of this machine, or RAY_ADDRESS), host:port, ray://host:port.",
    )

    @property
    def cutoff(self) -> datetime | None:
        """The time in UTC; a time without a zone is UTC."""
        return _utc(self.as_of)


class EpisodesConfig(Section):
    """How events become episodes."""

    holdout_share: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="Share of tasks never trained on; chosen by hash, so growing it only adds tasks.",
    )
    holdout_user_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of users never trained on, by hash; with it, only their held-out tasks are evaluated.",
    )
    holdout_after: _Time = Field(
        default="",
        description="ISO time: training uses what is before it, evaluation the rest; '' does not split by time.",
    )

    embedding: str = Field(
        default="",
        description="module:function from texts to vectors: joins requests in other words, too; '' for none.",
    )
    min_cosine: float = Field(default=0.9, gt=0, le=1, description="Cosine from which such requests are joined.")

    @property
    def holdout_from(self) -> datetime | None:
        """The time in UTC; a time without a zone is UTC."""
        return _utc(self.holdout_after)
