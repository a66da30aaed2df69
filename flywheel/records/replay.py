"""Records of the replay environment: recorded calls with their results, and turns with their known ends."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from flywheel.records.base import Json, Row
from flywheel.records.episodes import Split
from flywheel.records.events import ToolStatus


class Fixture(Row):
    """The recorded result of one call: in this task, after these acts, with these arguments."""

    table: ClassVar[str] = "fixtures"
    key: ClassVar[tuple[str, ...]] = ("fixture_id",)

    fixture_id: str = Field(description="Content id of task, split, state, tool and arguments.")
    task_id: str = Field(description="Task in which it was recorded; it answers in no other.")
    split: Split = Field(description="Side of the holdout; it answers on no other.")
    state: str = Field(description="The calls before it that may have changed something, in order, as a hash.")
    tool: str = Field(description="Tool called.")
    arguments: Json = Field(description='Its arguments, canonical; "*" where they are only words, as in a handover.')
    effect: Literal["reads", "changes", "unknown"] = Field(
        description="By the tool's name and [replay]: a call that reads leaves the state as it is; others do not."
    )
    result: str = Field(description="Its result.")
    status: ToolStatus = Field(description="How the call ended.")
    n_attempts: int = Field(ge=1, description="Attempts that made this call in this state.")
    n_agree: int = Field(ge=1, description="Those of them that got this result.")
    episodes: list[str] = Field(description="Some of those that got it, first by id.")
    event_ids: list[str] = Field(description="The events of their results: what the fixture rests on.")


class ReplayScenario(Row):
    """A turn from which a policy can be rolled out, with the ends that the log knows (suffix _E: one entry an end)."""

    table: ClassVar[str] = "scenarios"
    key: ClassVar[tuple[str, ...]] = ("scenario_id",)

    scenario_id: str = Field(description="Content id of task, split, tools, system prompt, turn and state.")
    task_id: str = Field(description="Its task.")
    split: Split = Field(description="Side of the holdout.")
    turn: int = Field(ge=1, description="How often the user had spoken.")
    state: str = Field(description="State in which the turn begins, as in the fixtures.")
    episode_id: str = Field(description="The attempt whose prompt is used, first by id of all that came here.")
    step: int = Field(ge=0, description="Its first action of the turn.")
    prompt: Json = Field(description="JSON list of messages before that action.")
    tools: Json | None = Field(default=None, description="JSON list of tool schemas.")
    judged_by: Literal["state", "answer"] = Field(
        description="What identifies an end: the state, or the state and the answer."
    )
    n_calls: int = Field(ge=0, description="Most calls that a recorded attempt made in this turn.")
    n_attempts: int = Field(ge=1, description="Recorded attempts behind the ends.")
    states_E: list[str] = Field(description="State at the end.")
    answers_E: list[str] = Field(description="The answer; '' where the state decides.")
    rewards_E: list[float] = Field(description="Mean return R of the attempts with this end, by their weight.")
    successes_E: list[float] = Field(description="Their mean probability of success, by their weight.")
    counts_E: list[int] = Field(description="How many they are.")
    episodes_E: list[list[str]] = Field(description="Some of them, first by id.")
