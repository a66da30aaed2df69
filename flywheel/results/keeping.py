"""Answers of the commands that keep a project in order: forget, gc, deploy."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records import Certificate, Document

__all__ = ["DeployAnswer", "ForgetAnswer", "GcAnswer", "GcRow", "MergeAnswer"]


class ForgetAnswer(Document):
    """`flywheel forget`."""

    document: ClassVar[str] = "cli/forget"

    user: str = Field(description="The user's pseudonym.")
    dry_run: bool = Field(description="Whether nothing was changed.")
    already: bool = Field(description="Whether the user had been forgotten before.")
    certificate: Certificate = Field(description="What went, or would go; with --dry-run it stands nowhere else.")


class GcRow(Document):
    """One kind of thing that nothing needs any more."""

    document: ClassVar[str] = "cli/gc_row"

    what: str
    count: int
    size_bytes: int
    why: str = Field(description="Why it can go.")


class GcAnswer(Document):
    """`flywheel gc`."""

    document: ClassVar[str] = "cli/gc"

    dry_run: bool = Field(description="Whether nothing was removed.")
    rows: list[GcRow]
    count: int = Field(description="Files and folders.")
    size_bytes: int


class DeployAnswer(Document):
    """`flywheel deploy vllm`: one line of rounds/deployments.jsonl."""

    document: ClassVar[str] = "cli/deploy_vllm"

    url: str = Field(description="The server, without credentials.")
    name: str = Field(description="What the server calls it; what logs should say as the policy.")
    round: int | None = Field(description="null: the base model serves.")
    adapter_sha256: str
    path: str = Field(description="The adapter's folder as the server was told.")
    previous: str = Field(description="What was served before and is still loaded, for a rollback; '' for none.")
    unloaded: list[str] = Field(description="What was unloaded.")
    probe: str = Field(description="Finish reason of the probe's answer.")
    at: str = Field(description="When; ISO time.")


class MergeAnswer(Document):
    """`flywheel deploy merge`."""

    document: ClassVar[str] = "cli/deploy_merge"

    folder: str
    round: int
    name: str
    base_model: str
    adapter_sha256: str
    weights_sha256: str = Field(description="Hash over the merged weight files.")
    size_bytes: int
    largest_difference: float = Field(description="Largest difference of any logit between merged and adapted model.")
    gguf: str = Field(default="", description="The GGUF file; '' where none was asked for.")
