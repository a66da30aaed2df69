"""The stages: what each needs and makes, how its rows are partitioned, and which configuration it depends on.

A stage is a pure function over the rows of one partition: all events of some conversations, or all rows of some tasks;
only `links` and `tasks`, which decide what a conversation and a task is, and `reliability`, which learns how far
signals are believed, see some columns of everything, and what they make is small. Partitions never depend on each
other, so a distributed engine can run the same functions. To add a stage, write its function and one line in `STAGES`;
raise `version` when the meaning of its output changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flywheel.config import Config
from flywheel.errors import ConfigError
from flywheel.extensions import Signal, list_extensions, load_extension, load_extensions
from flywheel.funnel import Funnel
from flywheel.stages.conversations.link import COLUMNS as LINKED
from flywheel.stages.labelling.build import EPISODE_COLUMNS, REWARD_COLUMNS
from flywheel.stages.tasks.build import COLUMNS as TASKED

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ACTIONS", "STAGES", "Frames", "Stage", "check_order", "stage_of", "stages_for"]

Frames = Mapping[str, "pl.DataFrame"]
StageFunction = Callable[[Frames, Config, Funnel, Path], Frames]


@dataclass(frozen=True)
class Stage:
    """One table-making stage."""

    name: str
    needs: tuple[str, ...]
    makes: tuple[str, ...]
    by: Literal["all", "conversation", "task"]
    run: StageFunction
    settings: Callable[[Config], dict[str, Any]]
    extensions: Callable[[Config], tuple[str, list[str]]] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # read of a table; the others whole
    version: int = 1
    remembers: tuple[str, ...] = ()  # tables of its own that it gets as the last build left them

    def extension_versions(self, config: Config) -> dict[str, str]:
        """Return name → distribution and version of every extension the stage would run."""
        if self.extensions is None:
            return {}
        group, names = self.extensions(config)
        installed = {e.name: f"{e.distribution} {e.version}" for e in list_extensions(group)}
        return {name: installed.get(name, "by path") for name in names}


def _links(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.conversations.link import build_links

    del config, project
    return {"links": build_links(frames["events"], funnel)}


def _episodes(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.conversations.episodes import build_episodes

    del project
    episodes, steps = build_episodes(frames["events"], config.episodes, funnel)
    return {"episodes": episodes, "steps": steps}


def _tasks(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.tasks.build import build_tasks

    name = config.episodes.embedding
    embed = load_extension("embeddings", name, search=project) if name else None
    return {"tasks": build_tasks(frames["episodes"], frames["previous tasks"], config.episodes, funnel, embed)}


def _opinions(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.signals.build import build_corrections, build_rewards, looks_at_tasks

    signals = {n: s for n, s in _signals(config, project).items() if not looks_at_tasks(s)}
    opinions = build_rewards(frames["episodes"], frames["steps"], frames["events"], config.rewards, signals, funnel)
    corrections = build_corrections(frames["episodes"], frames["steps"], frames["events"])
    return {"opinions": opinions, "corrections": corrections}


def _rewards(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.signals.build import compare_attempts, looks_at_tasks

    signals = {n: s for n, s in _signals(config, project).items() if looks_at_tasks(s)}
    args = (frames["episodes"], frames["steps"], frames["opinions"])
    return {"rewards": compare_attempts(*args, config.rewards, signals, funnel)}


def _signals(config: Config, project: Path) -> dict[str, Signal]:
    names = dict.fromkeys([*config.rewards.signals, "audit"])  # an answer that was asked for always counts
    return load_extensions("rewards", names, search=project)


def _reliability(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.labelling.build import build_reliability

    del project
    found = build_reliability(frames["episodes"], frames["rewards"], config.rewards, config.build.cutoff, funnel)
    return {"reliability": found}


def _returns(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.credit.build import build_returns

    del project
    args = (frames["episodes"], frames["steps"], frames["rewards"], config.rewards, funnel)
    return {"returns": build_returns(*args, reliability=frames["reliability"])}


def _corrected(frames: Frames) -> pl.DataFrame:
    """Return the steps with what users made of them: the columns `correction` and `editor`, mostly null."""
    edits = frames["corrections"].select("episode_id", index="step", correction="text", editor="user")
    return frames["steps"].join(edits, on=["episode_id", "index"], how="left", maintain_order="left")


def _examples(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.datasets.examples import build_examples

    del project
    args = (frames["episodes"], _corrected(frames), frames["returns"])
    return {"examples": build_examples(*args, config.pairs, funnel)}


def _pairs(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.datasets.pairs import build_pairs

    builders = load_extensions("pairs", config.pairs.builders, search=project)
    args = (frames["episodes"], _corrected(frames), frames["returns"])
    return {"pairs": build_pairs(*args, config.pairs, builders, funnel)}


def _groups(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.datasets.groups import build_groups

    del project
    judged = (frames["episodes"], frames["steps"], frames["returns"])
    return {"groups": build_groups(*judged, config.groups, funnel, config.rewards)}


def _built(config: Config) -> dict[str, Any]:
    return config.build.model_dump(mode="json", exclude={"workers"})  # who works changes nothing


def _fixtures(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    from flywheel.stages.datasets.replay.build import build_fixtures

    del project
    judged = (frames["episodes"], frames["steps"], frames["returns"])
    fixtures, scenarios = build_fixtures(*judged, config.replay, funnel)
    return {"fixtures": fixtures, "scenarios": scenarios}


_LOOKED_FOR = {"signals", "score_names", "judge"}  # what decides which rewards are found; the rest combines them
_LEARNED = {"fit", "scope", "prior_strength"}
_JUDGED = ("tasks", "episodes", "steps", "returns")
_ADVANTAGE = {"credit", "omega", "discount", "long_discount"}

STAGES: tuple[Stage, ...] = (
    Stage("links", ("events",), ("links",), "all", _links, lambda c: {"build": _built(c)},
          columns={"events": LINKED}),
    Stage("episodes", ("events", "links"), ("episodes", "steps"), "conversation", _episodes,
          lambda c: {"build": _built(c), "episodes": c.episodes.model_dump()}, version=5),
    Stage("tasks", ("episodes",), ("tasks",), "all", _tasks, lambda c: {"episodes": c.episodes.model_dump()},
          columns={"episodes": TASKED}, remembers=("tasks",)),
    Stage("opinions", ("events", "links", "episodes", "steps"), ("opinions", "corrections"), "conversation", _opinions,
          lambda c: {"build": _built(c), "rewards": c.rewards.model_dump(include=_LOOKED_FOR)},
          lambda c: ("rewards", c.rewards.signals), version=4),
    Stage("rewards", ("tasks", "episodes", "steps", "opinions"), ("rewards",), "task", _rewards,
          lambda c: {"rewards": c.rewards.model_dump(include=_LOOKED_FOR)},
          lambda c: ("rewards", c.rewards.signals), version=2),
    Stage("reliability", ("episodes", "rewards"), ("reliability",), "all", _reliability,
          lambda c: {"build": _built(c), "rewards": c.rewards.model_dump(include=_LEARNED)},
          columns={"episodes": EPISODE_COLUMNS, "rewards": REWARD_COLUMNS}),
    Stage("returns", ("tasks", "episodes", "steps", "rewards", "reliability"), ("returns",), "task", _returns,
          lambda c: {"rewards": c.rewards.model_dump(exclude={*_LOOKED_FOR, *_LEARNED} - {"scope"})}, version=3),
    Stage("examples", (*_JUDGED, "corrections"), ("examples",), "task", _examples,
          lambda c: {"pairs": c.pairs.model_dump(exclude={"builders"})}, version=2),
    Stage("pairs", (*_JUDGED, "corrections"), ("pairs",), "task", _pairs,
          lambda c: {"pairs": c.pairs.model_dump()}, lambda c: ("pairs", c.pairs.builders), version=2),
    Stage("groups", _JUDGED, ("groups",), "task", _groups,
          lambda c: {"groups": c.groups.model_dump(), "rewards": c.rewards.model_dump(include=_ADVANTAGE)}, version=3),
    Stage("fixtures", _JUDGED, ("fixtures", "scenarios"), "task", _fixtures,
          lambda c: {"replay": c.replay.model_dump(include={"reads", "acts", "min_agreement"})}),
)  # fmt: skip

# What a pipeline file may list besides table stages, and what each needs and makes.
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ingest": ((), ("events", "quarantine")),
    "train": (("examples", "pairs"), ("round",)),
    "eval": (("round", "episodes", "steps", "returns", "pairs"), ("eval_report",)),
    "gate": (("eval_report",), ("promotion",)),
    "report": (("eval_report",), ("page",)),
    "notify": ((), ("notification",)),
}


def stage_of(table: str) -> str:
    """Return the name of the stage that makes a table."""
    if table in {"events", "quarantine"}:
        return "ingest"
    return next(s.name for s in STAGES if table in s.makes)


def stages_for(table: str) -> list[Stage]:
    """Return the stages that a table is made by, directly and indirectly, in order."""
    wanted, found = {table}, []
    for stage in reversed(STAGES):
        if wanted & set(stage.makes):
            found.append(stage)
            wanted |= set(stage.needs)
    return found[::-1]


def check_order(names: list[str], file: str) -> None:
    """Check by data that every stage's needs are made before it.

    Raises:
        ConfigError: an unknown stage, a stage twice, or one whose input nobody makes before it.
    """
    flows = {s.name: (s.needs, s.makes) for s in STAGES} | ACTIONS
    made: set[str] = set()
    for position, name in enumerate(names):
        if name not in flows:
            raise ConfigError(f"`{file}`: unknown stage `{name}`", hint=f"stages: {', '.join(flows)}")
        if name in names[:position]:
            raise ConfigError(f"`{file}`: stage `{name}` stands twice", hint="remove one of them")
        needs, makes = flows[name]
        for table in needs:
            if table not in made:
                maker = next(n for n, (_, m) in flows.items() if table in m)
                raise ConfigError(
                    f"`{file}`: stage `{name}` needs {table}, which no stage before it makes",
                    hint=f"put `{maker}` before `{name}`",
                )
        made |= set(makes)
