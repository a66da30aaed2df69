"""Sections on how a round is evaluated, and when it may become champion."""

from __future__ import annotations

import ipaddress
import urllib.parse
from pathlib import PurePath
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from flywheel.config._section import Section

SliceColumn = Literal["policy", "model", "user", "source_format", "tool_signature", "started"]


class SliceRule(Section):
    """A declared slice of tasks: all conditions must hold; patterns are shell patterns, except `request`.

    Columns are those of the table episodes that are known before the policy acts: policy, model, user, source_format,
    tool_signature, started (2026-11-21T08:00:00).
    """

    name: str = Field(min_length=1, description="Name of the slice.")
    task: str = Field(default="", description="Pattern of the task's name in the source; '' for any.")
    tool: str = Field(default="", description="Pattern of a tool that the old policy called; '' for any.")
    tier: str = Field(default="", description="Pattern of the user's tier; '' for any.")
    request: str = Field(default="", description="Regular expression found in the first request; '' for any.")
    language: str = Field(default="", description="Pattern of the request's language (en, de, ...); '' for any.")
    intent: str = Field(default="", description="Pattern of the found cluster that the request is in; '' for any.")
    tag: str = Field(default="", description="Pattern of a tag of the episode; '' for any.")
    where: dict[SliceColumn, str] = Field(default={}, description="Column of the episode = pattern; all must hold.")
    guarded: bool = Field(default=True, description="Whether it can hold a promotion; false: shown only.")


ServerKind = Literal["auto", "vllm", "sglang", "llama.cpp", "transformers", "openai"]


class ServerConfig(Section):
    """The server at `eval.endpoint`: what it is, how it is asked, and how its adapters are named."""

    kind: ServerKind = Field(default="auto", description="What the server is; auto: found out from what it lists.")
    model: str = Field(default="", description="The base model's name there; '': the only model that it lists.")
    models: dict[str, str] = Field(
        default={},
        description="Rounds that the server has under a name (llama.cpp: the adapter's file), '3' = 'shop-round-3'; "
        "others are loaded and unloaded by its own route.",
    )
    paths: dict[str, str] = Field(
        default={}, description="Folders here = where the server sees them, for adapters that it loads from a mount."
    )
    api: Literal["completions", "chat"] = Field(
        default="completions",
        description="completions: prompts are rendered and calls parsed here, as in training; chat: by the server.",
    )
    key_env: str = Field(default="", description="Environment variable with the API key; '': none is sent.")
    at_once: int = Field(default=16, ge=1, le=1024, description="Most requests at a time.")
    timeout_s: float = Field(default=120.0, gt=0, description="Seconds that an answer may take.")
    retries: int = Field(
        default=6, ge=0, le=20, description="Times that a request is repeated, waiting twice as long each time."
    )
    agreement: int = Field(
        default=0,
        ge=0,
        description="Prompts on which the candidate's greedy answers are compared with those of transformers in this "
        "process; 0: none.",
    )


class EvalConfig(Section):
    """How a round is evaluated."""

    suites: list[str] = Field(
        default=["next_action", "preference", "replay", "cases", "safety", "forgetting"],
        description="Suites: names in the flywheel.evaluators group, module:function, or files of own cases. The first "
        "is primary, the others are guardrails.",
    )
    max_cases: int = Field(
        default=200, ge=1, description="Most new cases of a suite that one look scores; chosen by hash, stable."
    )
    samples: int = Field(
        default=1,
        ge=1,
        description="Attempts at a case: 1 is the greedy one; more are sampled, and a case's score is their mean.",
    )
    temperature: float = Field(default=1.0, gt=0, description="Temperature at which attempts are sampled.")
    baselines: list[Literal["base", "few_shot"]] = Field(
        default=["base", "few_shot"],
        description="Scored for reference: the base model, and the base with successes of training tasks as examples.",
    )
    baseline_cases: int = Field(
        default=40, ge=1, description="Most cases of a suite that such a baseline is scored on."
    )
    few_shot: int = Field(default=3, ge=0, description="Successes in the prompt of the baseline few_shot.")
    off_policy_cases: int = Field(
        default=100, ge=0, description="Most held-out attempts for off-policy estimates; 0: no estimates."
    )
    replay_cases: int = Field(default=50, ge=1, description="Most turns in which a policy is rolled out in the replay.")
    max_new_tokens: int = Field(default=96, ge=1, description="Longest generated action in tokens.")
    batch_size: int = Field(default=8, ge=1, description="Prompts generated or scored together.")
    seed: int = Field(default=0, ge=0, description="Seed of everything sampled.")
    endpoint: str = Field(
        default="",
        description="OpenAI-compatible server that answers for the policies, http://localhost:8000/v1 say; '': a "
        "model in this process.",
    )
    endpoint_hosts: list[str] = Field(
        default=[], description="Hosts other than this machine that `endpoint` may name: prompts are sent there."
    )
    server: ServerConfig = ServerConfig()
    slices: list[SliceRule] = Field(default=[], description="Declared slices, in addition to those that are found.")
    user_tiers: str = Field(default="", description="CSV file with the columns user and tier, for slices by tier.")
    cases: str = Field(default="evals/*.jsonl", description="Files with the project's own cases, a pattern.")
    checks: dict[str, str] = Field(
        default={}, description="Functions that own cases may name in a `python` check: name = 'module:function'."
    )

    @field_validator("cases")
    @classmethod
    def _within_the_project(cls, value: str) -> str:
        """Refuse a pattern that leads out of the project: cases are committed with it."""
        if PurePath(value).is_absolute() or ".." in PurePath(value).parts or not value:
            raise PydanticCustomError("outside", "must be a pattern of files within the project, evals/*.jsonl say")
        return value

    @model_validator(mode="after")
    def _is_sent_to_a_named_host(self) -> Self:
        """Refuse an address of another machine that the configuration does not allow by name."""
        if not self.endpoint:
            return self
        try:
            parts = urllib.parse.urlsplit(self.endpoint)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            host = ""
        written = self.endpoint.isascii() and self.endpoint.isprintable() and " " not in self.endpoint
        named = host and written and parts.scheme in {"http", "https"}
        if not named or "@" in parts.netloc or parts.query or parts.fragment:
            raise PydanticCustomError("address", "eval.endpoint must be an address like http://localhost:8000/v1")
        if not _is_local(host) and host not in {name.lower() for name in self.endpoint_hosts}:
            raise PydanticCustomError(
                "host", "eval.endpoint sends prompts to another machine; allow it with endpoint_hosts = ['{host}']",
                {"host": host},
            )  # fmt: skip
        return self


def _is_local(host: str) -> bool:
    """Return whether a host is this machine, by its name or as a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


ASKED_BY = frozenset({"endpoint", "endpoint_hosts", "server"})  # who answers; not what is asked


class GateConfig(Section):
    """When a round may become champion."""

    rules: list[str] = Field(
        default=["validity", "superiority", "non_inferior", "slices", "no_deterioration", "off_policy"],
        description="Rules, all of which must pass: names in the flywheel.gates group or module:function. off_policy "
        "applies even if it is not listed.",
    )
    alpha: float = Field(
        default=0.05, gt=0, lt=1, description="Share of false promotions over the project's life, all candidates."
    )
    horizon: int = Field(
        default=30, ge=1, description="Looks that a candidate may still need before it is given up as futile."
    )
    min_effect: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="Smallest gain of interest: a candidate that likely has less is given up, so that another is "
        "trained; 0: none is given up for that.",
    )
    margin: float = Field(default=0.03, gt=0, lt=1, description="Non-inferiority margin of guardrail metrics.")
    strict: list[str] = Field(
        default=[],
        description="Metrics that must be shown not to have lost `margin`, however many cases that takes: harm, say.",
    )
    slice_margin: float = Field(
        default=0.1, gt=0, lt=1, description="Largest loss that may remain possible for a declared slice."
    )
    found_margin: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Loss of a found slice; a slice that looks more like this loss than none holds the round.",
    )
    found_share: float = Field(
        default=0.05, ge=0, le=1, description="Least share of the cases for a found slice to hold a round by that."
    )
    min_cases: int = Field(default=5, ge=1, description="Fewest units (users, else tasks) on the primary metric.")
    max_gap: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the old policy's cases that the new one's logs may lack."
    )
    limits: dict[str, float] = Field(
        default={"kl_to_base": 1.0, "perplexity_ratio": 2.0},
        description="Largest value of a measure, by its name; a candidate above it is rejected.",
    )
    growth: dict[str, float] = Field(
        default={"tokens": 0.1},
        description="Share by which a measure may exceed that of a champion round; a candidate clearly above is held.",
    )


class CanaryConfig(Section):
    """When a canary continues, is promoted or is rolled back."""

    margin: float = Field(default=0.03, gt=0, lt=1, description="Harm to detect: worse by this much.")
    alpha: float = Field(default=0.05, gt=0, lt=1, description="Chance of a false promotion, over all nights.")
    share: float = Field(default=0.0, ge=0, lt=1, description="Share of users the canary should get; 0: not checked.")
    least: int = Field(
        default=100, ge=1, description="Fewest attempts of the canary, with an outcome, before it is promoted."
    )
