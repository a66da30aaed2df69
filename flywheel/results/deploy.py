"""Results of deploy: what to serve, what is served, and a canary's decision."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records import Document, FileHash


class ChampionAnswer(Document):
    """`flywheel champion`: what to serve."""

    document: ClassVar[str] = "cli/champion"

    round: int | None = Field(description="Its number; null while the base model serves.")
    name: str = Field(description="Name for servers, which logs should give as the policy.")
    base_model: str = Field(description="Base model as configured.")
    base_model_sha256: str
    adapter: str = Field(description="Folder of the adapter; '' while the base model serves.")
    adapter_sha256: str = Field(description="Hash over the adapter's weight file.")
    method: str
    parent: int | None
    decision: str = Field(description="The decision that made it champion: promoted, forced, rolled_back, or ''.")
    decided_at: str = Field(description="When; ISO time, or ''.")
    reason: str = Field(description="The gate's verdict, or the given reason.")
    decisions_sha256: str = Field(
        default="", description="Hash of the last decision; kept elsewhere, it shows a rewrite."
    )


class CanaryAnswer(Document):
    """`flywheel canary`: what to do with a canary tonight."""

    document: ClassVar[str] = "cli/canary"

    decision: str = Field(description="continue (exit 3), promote (exit 0) or roll_back (exit 5).")
    reasons: list[str]
    night: int = Field(description="Looks so far, this one included.")
    looked: bool = Field(description="Whether there were new attempts; if not, this is the last look's result.")
    old: str
    new: str
    n_old: int = Field(description="Attempts of the old policy with a known outcome, over all looks.")
    n_new: int
    pairs: int = Field(description="Differences between blocks of users, in the order they were looked at.")
    users: int = Field(description="Users of both sides; attempts where users are unknown.")
    users_before: int = Field(description="Those of them with an outcome from before the canary; like pair with like.")
    mean_old: float
    mean_new: float
    delta: float
    low: float = Field(description="Lower end of the 95 % confidence sequence of delta, valid at every look.")
    high: float
    log_e_harm: float = Field(description="Largest log E of 'worse by the margin' so far.")
    log_e_better: float = Field(description="Largest log E of 'better' so far.")
    sample_ratio_p: float | None = Field(description="p-value of the canary's share of users; null when not checked.")
    notes: list[str]


class DeployVllmAnswer(Document):
    """`flywheel deploy vllm`: one line of rounds/deployments.jsonl."""

    document: ClassVar[str] = "cli/deploy_vllm"

    url: str = Field(description="The server, without credentials.")
    name: str = Field(description="Model name on the server, which logs should give as the policy.")
    round: int | None = Field(description="null: the base model serves.")
    adapter_sha256: str
    path: str = Field(description="The adapter's folder as the server sees it.")
    previous: str = Field(description="Earlier adapter that is still loaded, for a rollback; '' for none.")
    unloaded: list[str] = Field(description="Adapters that were unloaded.")
    probe: str = Field(description="Finish reason of the probe's completion.")
    at: str = Field(description="When; ISO time.")


class DeployMergeAnswer(Document):
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


class PushAnswer(Document):
    """`flywheel push`: an adapter with its card, in the form of a model hub."""

    document: ClassVar[str] = "cli/push"

    to: str = Field(description="The folder, or the repository's address.")
    round: int
    name: str
    base_model: str = Field(description="Without a path of this machine.")
    licence: str = Field(description="The base model's, as its own card states; '' where it states none.")
    adapter_sha256: str
    rows: int | None = Field(description="Rows of the dataset that went along; null for none.")
    files: list[FileHash] = Field(description="What was written, without `flywheel.json`, which lists it.")
    commit: str = Field(default="", description="The hub's commit; '' for a folder.")
