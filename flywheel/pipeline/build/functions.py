"""The functions behind the stage table: each takes its tables and settings from the build and returns its rows.

In: the needed tables of one slice, the configuration, a funnel, the project's folder. Out: the tables that it makes.
Imported by name where a stage runs, so that `flywheel status` loads no stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.config import Config
from flywheel.extensions import Signal, load_extension, load_extensions
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import Frames
from flywheel.stages.common.pieces import Pieces
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.link import build_links, whole_series
from flywheel.stages.conversations.policies import acts, build_policies
from flywheel.stages.credit.build import Attempts, build_labels, credited
from flywheel.stages.credit.rejected import rejected_turns
from flywheel.stages.datasets.examples import build_examples
from flywheel.stages.datasets.groups import build_groups
from flywheel.stages.datasets.pairs import build_pairs
from flywheel.stages.datasets.pairs.believed import Shown
from flywheel.stages.datasets.replay.build import build_fixtures
from flywheel.stages.labelling.build import learned, shown_in
from flywheel.stages.signals.build import build_rewards, compare_attempts, looks_at_tasks
from flywheel.stages.signals.cohorts import by_account, of_established, without_strangers
from flywheel.stages.signals.corrections import build_corrections
from flywheel.stages.signals.crowds import crowd_table, find_crowds, surges_in
from flywheel.stages.signals.sources import stated, with_allowed_policies
from flywheel.stages.tasks.build import build_tasks
from flywheel.stages.values.alternatives import build_alternatives
from flywheel.stages.values.evidence import build_evidence
from flywheel.stages.values.fit import build_values
from flywheel.stages.values.model import Values

if TYPE_CHECKING:
    import polars as pl


def links(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Which conversations, calls and results belong together; which policies there are."""
    del project
    events = with_allowed_policies(frames["events"], config.trust, funnel)
    links = build_links(events, funnel)
    return {"links": links, "policies": build_policies(acts(whole_series(events, links)))}


def episodes(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Conversations as episodes of steps."""
    del project
    events = with_allowed_policies(frames["events"], config.trust, funnel)
    episodes, steps = build_episodes(events, config.episodes, funnel, frames["policies"])
    return {"episodes": episodes, "steps": steps}


def tasks(pieces: Pieces, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Which episodes are attempts at the same task."""
    name = config.episodes.embedding
    build_tasks(pieces, config.episodes, funnel, load_extension("embeddings", name, search=project) if name else None)
    return {}


def opinions(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """What each signal that looks at one episode shows; what users corrected."""
    signals = {n: s for n, s in _signals(config, project).items() if not looks_at_tasks(s)}
    events = without_strangers(stated(frames["events"], config.trust, funnel), frames["episodes"], funnel)
    opinions = build_rewards(frames["episodes"], frames["steps"], events, config.rewards, signals, funnel)
    corrections = build_corrections(frames["episodes"], frames["steps"], events)
    return {"opinions": opinions, "corrections": corrections}


def crowds(pieces: Pieces, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Which accounts came at once to an action, and like it as those before and after them do not."""
    del config, project
    shown = list(pieces.each(surges_in, [(piece,) for piece in pieces.pieces]))
    return {"crowds": crowd_table(find_crowds(shown, funnel))}


def rewards(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """The same rows with the signals that compare the attempts at a task."""
    signals = {n: s for n, s in _signals(config, project).items() if looks_at_tasks(s)}
    history = frames["tasks"].select("episode_id", "history")
    episodes = frames["episodes"].join(history, on="episode_id", how="left", maintain_order="left")
    steps = frames["steps"]
    crowd = dict(frames["crowds"].filter("aside").select("episode_id", "accounts").iter_rows())
    counted, opinions = by_account(episodes, steps, frames["opinions"], crowd, config.trust, funnel)
    return {"rewards": compare_attempts(counted, steps, opinions, config.rewards, signals, funnel)}


def _signals(config: Config, project: Path) -> dict[str, Signal]:
    names = dict.fromkeys([*config.rewards.signals, "audit"])  # an answer to an audit always counts
    return load_extensions("rewards", names, search=project)


def reliability(pieces: Pieces, config: Config, funnel: Funnel, project: Path) -> Frames:
    """How far each signal can be trusted."""
    del project
    shown = list(pieces.each(shown_in, [(piece, config.rewards) for piece in pieces.pieces]))
    return {"reliability": learned(shown, config.rewards, config.build.cutoff, funnel)}


def labels(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """P(success) and return of episodes; what they show about actions."""
    del project
    args = (frames["episodes"], frames["rewards"], config.rewards, funnel)
    labels = build_labels(*args, reliability=frames["reliability"])
    rejected = rejected_turns(frames["steps"], frames["rewards"])
    return {
        "labels": labels,
        "evidence": build_evidence(frames["episodes"], frames["steps"], labels, config.rewards, rejected),
    }


def values(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """What actions are worth, from every partition's attempts."""
    del config, project
    return {"values": build_values(frames["evidence"], funnel)}


def returns(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """P(success), return and credit of episodes and steps; actions that other tasks can be compared with."""
    del project
    attempts = Attempts(frames["episodes"], frames["steps"], frames["rewards"])
    return {
        "returns": credited(attempts, frames["labels"], frames["values"], config.rewards, funnel),
        "alternatives": build_alternatives(frames["episodes"], frames["steps"], frames["values"]),
    }


def _corrected(frames: Frames, config: Config, funnel: Funnel) -> pl.DataFrame:
    """Return the steps with users' corrections: the columns `correction` and `editor`, mostly null."""
    corrections = of_established(frames["corrections"], frames["episodes"], frames["tasks"], config.trust, funnel)
    edits = corrections.select("episode_id", index="step", correction="text", editor="user")
    return frames["steps"].join(edits, on=["episode_id", "index"], how="left", maintain_order="left")


def examples(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Demonstrations for SFT."""
    del project
    args = (frames["episodes"], _corrected(frames, config, funnel), frames["returns"])
    return {"examples": build_examples(*args, config.rewards, funnel)}


def pairs(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Preference pairs for DPO."""
    builders = load_extensions("pairs", config.pairs.builders, search=project)
    args = (frames["episodes"], _corrected(frames, config, funnel), frames["returns"])
    shown = Shown(Values.read(frames["values"]), frames["alternatives"], config.rewards)
    return {"pairs": build_pairs(*args, config.pairs, builders, funnel, shown)}


def groups(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Groups of attempts for GRPO."""
    del project
    attempts = (frames["episodes"], frames["steps"], frames["returns"])
    return {"groups": build_groups(*attempts, config.groups, funnel, config.rewards)}


def fixtures(frames: Frames, config: Config, funnel: Funnel, project: Path) -> Frames:
    """Recorded tool results, and the scenarios to replay them in."""
    del project
    attempts = (frames["episodes"], frames["steps"], frames["returns"])
    fixtures, scenarios = build_fixtures(*attempts, config.replay, funnel)
    return {"fixtures": fixtures, "scenarios": scenarios}
