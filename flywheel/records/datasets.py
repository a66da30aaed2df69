"""Training data: preference pairs, labelled actions, groups of attempts."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from flywheel.records.base import Json, Row
from flywheel.records.episodes import Split


class PreferencePair(Row):
    """A prompt with a better and a worse next action."""

    table: ClassVar[str] = "pairs"
    key: ClassVar[tuple[str, ...]] = ("pair_id",)

    pair_id: str = Field(description="Content id of task, prompt, chosen and rejected.")
    task_id: str = Field(description="Task of both sides.")
    split: Split = Field(description="Split of the task; only train pairs are trained on.")
    state_key: str = Field(description="Anchor state both sides leave from.")
    prompt: Json = Field(description="JSON list of messages before the action (the chosen side's context).")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    chosen: Json = Field(description="JSON list with the better assistant message.")
    rejected: Json = Field(description="JSON list with the worse assistant message.")
    margin: float = Field(description="Return of the chosen side minus that of the rejected one.")
    p_chosen: float | None = Field(
        default=None, ge=0, le=1, description="Probability that the chosen action's episodes succeed."
    )
    p_better: float = Field(ge=0, le=1, description="Probability that chosen is truly better.")
    weight: float = Field(ge=0, description="Training weight.")
    builder: str = Field(description="Builder that made it.")
    chosen_episode: str = Field(description="Episode of the chosen action.")
    chosen_step: int = Field(ge=0, description="Step of the chosen action.")
    rejected_episode: str = Field(description="Episode of the rejected action.")
    rejected_step: int = Field(ge=0, description="Step of the rejected action.")
    same_prefix_until: int = Field(ge=0, description="Steps for which both sides made the same calls.")
    users: list[str] = Field(default_factory=list, description="Pseudonyms of the users it comes from, sorted.")


class Example(Row):
    """One labelled action: a demonstration for SFT when the label is true, an unpaired row for KTO either way."""

    table: ClassVar[str] = "examples"
    key: ClassVar[tuple[str, ...]] = ("example_id",)

    example_id: str = Field(description="Content id of task, prompt, completion and tools.")
    task_id: str = Field(description="Task of the episode.")
    split: Split = Field(description="Split of the task; only train examples are trained on.")
    state_key: str = Field(description="Anchor state the action leaves from.")
    prompt: Json = Field(description="JSON list of messages before the action.")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    completion: Json = Field(description="JSON list with the assistant message.")
    label: bool = Field(description="Desirable (true) or undesirable (false).")
    p_success: float = Field(ge=0, le=1, description="Probability that its episode succeeded.")
    weight: float = Field(ge=0, description="Training weight.")
    episode_id: str = Field(description="Episode it comes from.")
    step: int = Field(ge=0, description="Step it comes from.")
    source: Literal["outcome", "correction"] = Field(
        default="outcome", description="What the label rests on: how the episode ended, or a user's edit."
    )
    user: str | None = Field(default=None, description="Pseudonym of the episode's user, or of the editor.")


class Group(Row):
    """G logged attempts at one task, with group-relative advantages (suffix _G: one entry a member)."""

    table: ClassVar[str] = "groups"
    key: ClassVar[tuple[str, ...]] = ("group_id",)
    version: ClassVar[int] = 2  # 2: without gradient_G, which nothing read

    group_id: str = Field(description="Content id of the task, the prompt's signature and the members.")
    task_id: str = Field(description="Task of all members.")
    split: Split = Field(description="Split of the task.")
    prompt: Json = Field(description="JSON list of messages before the first action (first member's).")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    mixed_policies: bool = Field(description="Whether more than one policy produced the members.")
    episodes_G: list[str] = Field(description="Episode ids.")
    completions_G: list[str] = Field(description="Each member's messages after the prompt, JSON.")
    rewards_G: list[float] = Field(description="Returns.")
    advantages_G: list[float] = Field(description="Leave-one-out advantages; they sum to 0.")
    policies_G: list[str] = Field(description="Policy of each member.")
    prompts_G: list[str] = Field(
        default_factory=list,
        description="Each member's own messages before its first action, JSON.",
    )
    behaviour_G: list[str] = Field(
        default_factory=list,
        description="Where each member's log-probabilities under the policy that acted come from: logged; rescore (the "
        "base or a round of this project acted, with plain sampling: its adapter can compute them); unknown.",
    )
    log_probs_G: list[Json | None] = Field(
        default_factory=list, description="Of each logged member, JSON list of {ids, log_probs}, one an action."
    )
    temperatures_G: list[float | None] = Field(
        default_factory=list,
        description="Sampling temperature of each member; null where it does not determine the probabilities.",
    )
    step_advantages_G: list[list[float]] = Field(
        default=[],
        description="Each member's training signal by step, what GRPO trains with: the credit of a step that other "
        "attempts can be compared with, else its attempt's advantage; plus groups.shift, the lowered baseline.",
    )
