"""The stages: what each needs and makes, how its rows are partitioned, and which configuration it depends on.

A stage is a pure function over the rows of one partition: all events of some conversations, or all rows of some tasks;
only `links` and `tasks`, which decide what a conversation and a task is, `crowds`, which compares how accounts come,
`reliability`, which learns how far signals are trusted, and `values`, which adds up what actions are worth, see some
columns of everything, and their output is small. Partitions never depend on each other, so a distributed engine can run
the same functions. To add a stage, write its function and one line in `STAGES`; raise `version` when the meaning of its
output changes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flywheel.config import Config
from flywheel.errors import ConfigError
from flywheel.extensions import list_extensions
from flywheel.funnel import Funnel

if TYPE_CHECKING:
    import polars as pl

    from flywheel.stages.common.pieces import Pieces

Frames = Mapping[str, "pl.DataFrame"]
StageFunction = Callable[[Frames, Config, Funnel, Path], Frames]
PiecesFunction = Callable[["Pieces", Config, Funnel, Path], Frames]
_FUNCTIONS = "flywheel.pipeline.build.functions"


@dataclass(frozen=True)
class Stage:
    """One table-making stage."""

    name: str
    needs: tuple[str, ...]
    makes: tuple[str, ...]
    by: Literal["all", "conversation", "task"]
    run: str  # name of its function in `flywheel.pipeline.build.functions`
    settings: Callable[[Config], dict[str, Any]]
    extensions: Callable[[Config], tuple[str, list[str]]] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # columns read of a table; of others all
    version: int = 1
    brings: tuple[str, ...] = ()  # stages that run before it where a selection or a pipeline leaves them out
    remembers: tuple[str, ...] = ()  # tables of its own that it gets as the last build left them
    pieced: bool = False  # it reads everything in pieces, and is given these instead of tables

    def function(self) -> StageFunction:
        """Return the stage's function; its module, and with it polars and every stage, is imported now."""
        function: StageFunction = getattr(importlib.import_module(_FUNCTIONS), self.run)
        return function

    def in_pieces(self) -> PiecesFunction:
        """Return the function of a stage that reads everything in pieces."""
        function: PiecesFunction = getattr(importlib.import_module(_FUNCTIONS), self.run)
        return function

    def extension_versions(self, config: Config) -> dict[str, str]:
        """Return name → distribution and version of every extension the stage would run."""
        if self.extensions is None:
            return {}
        group, names = self.extensions(config)
        installed = {e.name: f"{e.distribution} {e.version}" for e in list_extensions(group)}
        return {name: installed.get(name, "by path") for name in names}


def _built(config: Config) -> dict[str, Any]:
    return config.build.model_dump(mode="json", include={"as_of"})  # who builds changes nothing, partitions no row


def _trust(config: Config, *fields: str) -> dict[str, Any]:
    return config.trust.model_dump(mode="json", include={*fields})


# Columns that the stages that see everything read.
LINK_COLUMNS = (
    "event_id", "conversation_id", "kind", "span_id", "tool_call_id", "ids", "target",
    "model", "policy", "task_key", "source_file", "source_format", "signed",
)  # fmt: skip
TASK_COLUMNS = ("episode_id", "task_id", "task_rule", "request", "tool_signature", "user", "started", "source_format")
LABEL_COLUMNS = ("episode_id", "user", "policy", "source_format", "started", "ended", "tags")
_CROWD_COLUMNS = {
    "tasks": ("episode_id", "task_id"),
    "episodes": ("episode_id", "policy", "user", "started"),
    "steps": ("episode_id", "tool_names"),
    "opinions": ("episode_id", "family", "kind", "score", "weight"),
}
_ACCOUNTS = {"tasks": ("episode_id", "history")}
VOTE_COLUMNS = ("episode_id", "step", "signal", "family", "kind", "score", "weight", "arrived", "inclusion")

_FINDING = {
    "signals",
    "score_names",
    "success_at",
    "judge",
}  # settings of which rewards are found; the others combine them
_LEARNED = {"fit", "scope"}
_LABELLED = ("tasks", "episodes", "steps", "returns")
_CREDITED = {"shrinkage", "credit", "min_support", "stratum", "omega", "discount"}
_SCALE = {"scheme", "alpha", "rules"}
_ADVANTAGE = {"credit", "omega", "discount"}

STAGES: tuple[Stage, ...] = (
    Stage("links", ("events",), ("links", "policies"), "all", "links",
          lambda c: {"build": _built(c), "trust": _trust(c, "policies")},
          columns={"events": LINK_COLUMNS}, version=7),
    Stage("episodes", ("events", "links", "policies"), ("episodes", "steps"), "conversation", "episodes",
          lambda c: {"build": _built(c), "episodes": c.episodes.model_dump(), "trust": _trust(c, "policies")},
          version=20),
    Stage("tasks", ("episodes",), ("tasks",), "all", "tasks", lambda c: {"episodes": c.episodes.model_dump()},
          columns={"episodes": TASK_COLUMNS}, remembers=("tasks",), pieced=True, version=6),
    Stage("opinions", ("events", "links", "episodes", "steps"), ("opinions", "corrections"), "conversation", "opinions",
          lambda c: {"build": _built(c), "rewards": c.rewards.model_dump(include=_FINDING),
                     "trust": _trust(c, "outcomes", "audits", "feedback")},
          lambda c: ("rewards", c.rewards.signals), version=13),
    Stage("crowds", ("tasks", "episodes", "steps", "opinions"), ("crowds",), "all", "crowds", lambda _: {},
          columns=_CROWD_COLUMNS, pieced=True),
    Stage("rewards", ("tasks", "episodes", "steps", "opinions", "crowds"), ("rewards",), "task", "rewards",
          lambda c: {"rewards": c.rewards.model_dump(include=_FINDING),
                     "trust": _trust(c, "new_account", "established", "burst_h")},
          lambda c: ("rewards", c.rewards.signals), columns=_ACCOUNTS, version=6,
          brings=("crowds",)),
    Stage("reliability", ("tasks", "episodes", "rewards"), ("reliability",), "all", "reliability",
          lambda c: {"build": _built(c), "rewards": c.rewards.model_dump(include=_LEARNED)},
          columns={"tasks": ("episode_id", "task_id"), "episodes": LABEL_COLUMNS, "rewards": VOTE_COLUMNS},
          pieced=True, version=7),
    Stage("labels", ("tasks", "episodes", "steps", "rewards", "reliability"), ("labels", "evidence"), "task", "labels",
          lambda c: {"rewards": c.rewards.model_dump(exclude={*_FINDING, *_LEARNED, *_CREDITED} - {"scope"})},
          version=7),
    Stage("values", ("evidence",), ("values",), "all", "values", lambda _: {}, version=7),
    Stage("returns", ("tasks", "episodes", "steps", "rewards", "labels", "values"), ("returns", "alternatives"), "task",
          "returns", lambda c: {"rewards": c.rewards.model_dump(exclude={*_FINDING, *_LEARNED})}, version=10,
          brings=("labels", "values")),
    Stage("examples", (*_LABELLED, "corrections"), ("examples",), "task", "examples",
          lambda c: {"rewards": c.rewards.model_dump(include={*_SCALE, "gamma"}), "trust": _trust(c, "established")},
          columns=_ACCOUNTS, version=13),
    Stage("pairs", (*_LABELLED, "corrections", "values", "alternatives"), ("pairs",), "task", "pairs",
          lambda c: {"pairs": c.pairs.model_dump(), "rewards": c.rewards.model_dump(include=_SCALE),
                     "trust": _trust(c, "established")},
          lambda c: ("pairs", c.pairs.builders), columns=_ACCOUNTS, version=18),
    Stage("groups", _LABELLED, ("groups",), "task", "groups",
          lambda c: {"groups": c.groups.model_dump(), "rewards": c.rewards.model_dump(include=_ADVANTAGE)}, version=7),
    Stage("fixtures", _LABELLED, ("fixtures", "scenarios"), "task", "fixtures",
          lambda c: {"replay": c.replay.model_dump(include={"reads", "acts", "min_agreement"})}, version=2),
)  # fmt: skip
STAGE_NAMES = ("ingest", *(stage.name for stage in STAGES))  # all that have snapshots

# What a pipeline file may list besides table stages, and what each needs and makes.
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ingest": ((), ("events", "quarantine")),
    "train": (("examples", "pairs"), ("round",)),
    "eval": (("round", "episodes", "steps", "returns", "pairs"), ("eval_report",)),
    "gate": (("eval_report",), ("promotion",)),
    "report": (("eval_report",), ("page",)),
    "notify": ((), ("notification",)),
}


_BROUGHT = {stage.name: stage.brings for stage in STAGES}


def made_by(table: str) -> str:
    """Return how the rows of a table are partitioned: by conversation, by task, or not at all ("all")."""
    return next((s.by for s in STAGES if table in s.makes), "conversation")


def stage_of(table: str) -> str:
    """Return the name of the stage that makes a table."""
    if table in {"events", "quarantine"}:
        return "ingest"
    return next(s.name for s in STAGES if table in s.makes)


def stage_named(name: str) -> Stage:
    """Return the stage of a name."""
    return next(stage for stage in STAGES if stage.name == name)


def stages_for(table: str) -> list[Stage]:
    """Return the stages that a table is made by, directly and indirectly, in order."""
    wanted, stages = {table}, list[Stage]()
    for stage in reversed(STAGES):
        if wanted & set(stage.makes):
            stages.append(stage)
            wanted |= set(stage.needs)
    return stages[::-1]


def check_order(names: list[str], file: str) -> None:
    """Check by data that every stage's needs are made before it.

    Raises:
        ConfigError: an unknown stage, a stage twice, or one whose input no stage makes before it.
    """
    flows = {s.name: (s.needs, s.makes) for s in STAGES} | ACTIONS
    available: set[str] = set()
    for position, name in enumerate(names):
        if name not in flows:
            raise ConfigError(f"`{file}`: unknown stage `{name}`", hint=f"stages: {', '.join(flows)}")
        if name in names[:position]:
            raise ConfigError(f"`{file}`: stage `{name}` is listed twice", hint="remove one of them")
        needs, makes = flows[name]
        available |= {table for stage in STAGES if stage.name in _BROUGHT.get(name, ()) for table in stage.makes}
        for table in needs:
            if table not in available:
                maker = next(n for n, (_, m) in flows.items() if table in m)
                raise ConfigError(
                    f"`{file}`: stage `{name}` needs {table}, which no stage before it makes",
                    hint=f"put `{maker}` before `{name}`",
                )
        available |= set(makes)
