"""Datasets and training methods, in one table that everything reads: planning, selection, cards, export, the worker.

A new method on one of these datasets is a row of `METHODS` and the module of its trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flywheel.records.base import Row
from flywheel.records.datasets import Example, Group, PreferencePair
from flywheel.records.replay import Fixture, ReplayScenario


@dataclass(frozen=True)
class TrainedTable:
    """A table that rounds take rows from.

    Attributes:
        record: what a row is.
        singular: what `flywheel show` calls a row.
        sides: columns with what the agent did, of one action each; none where rows hold whole attempts.
        episodes: columns with the episodes behind a row (an id, or a list of them), one a side.
        steps: columns with the steps of those episodes, one a side.
        users: columns with pseudonyms of the users behind a row.
        by_task: the row names only some of the episodes behind it; any attempt at its task may be another.
    """

    record: type[Row]
    singular: str
    episodes: tuple[str, ...]
    sides: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    by_task: bool = False

    @property
    def name(self) -> str:
        """The table's name."""
        return self.record.table

    @property
    def key(self) -> str:
        """The column with a row's id."""
        return self.record.key[0]


_EXAMPLES = TrainedTable(Example, "example", ("episode_id",), ("completion",), ("step",), ("user",))
_PAIRS = TrainedTable(
    PreferencePair,
    "pair",
    ("chosen_episode", "rejected_episode"),
    ("chosen", "rejected"),
    ("chosen_step", "rejected_step"),
    ("users",),
)
_GROUPS = TrainedTable(Group, "group", ("episodes_G",))
_SCENARIOS = TrainedTable(ReplayScenario, "scenario", ("episode_id",), by_task=True)
_FIXTURES = TrainedTable(Fixture, "fixture", ("episodes",))

TRAINED_TABLES: dict[str, TrainedTable] = {t.name: t for t in (_EXAMPLES, _PAIRS, _GROUPS, _SCENARIOS, _FIXTURES)}


@dataclass(frozen=True)
class Dataset:
    """What a method learns from.

    Attributes:
        name: what its rows are called in messages.
        table: the table that its rows come from.
        inputs: tables besides examples and pairs, on which every plan depends, that it is made of.
        sides: columns of a trained row with one action each; none where a row is a group or a scenario.
        exported: its form in `flywheel export`; "" where it has none.
    """

    name: Literal["examples", "pairs", "actions", "groups", "scenarios", "hints", "successes"]
    table: TrainedTable
    inputs: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    exported: str = ""


EXAMPLES = Dataset("examples", _EXAMPLES, sides=("completion",), exported="sft")
PAIRS = Dataset("pairs", _PAIRS, sides=("chosen", "rejected"), exported="preference")
ACTIONS = Dataset("actions", _EXAMPLES, sides=("completion",), exported="unpaired")
GROUPS = Dataset("groups", _GROUPS, inputs=("groups",), exported="groups")
SCENARIOS = Dataset("scenarios", _SCENARIOS, inputs=("fixtures", "scenarios"))

HINTS = Dataset("hints", _EXAMPLES, sides=("completion",))
SUCCESSES = Dataset("successes", _EXAMPLES, sides=("completion",))

DATASETS = (EXAMPLES, PAIRS, ACTIONS, GROUPS, SCENARIOS, HINTS, SUCCESSES)


@dataclass(frozen=True)
class TrainingMethod:
    """How a round is trained.

    Attributes:
        dataset: what it learns from.
        learns: the same in words, for `train.method`.
        trainer: `module:function`, a `flywheel.extensions.Trainer`; `train.trainer` names another.
        epochs: the key of [train] with the passes over the rows.
        rate: the key of [train] with the learning rate.
        peak: the learning rate where that is 0, at 4 rows a step and an alpha of 32.
        max_kl: nats a token from the parent at which training ends, where train.max_kl is 0.
        reference: whether there is a reference policy.
        behaviours: whether the trainer gets the adapters of earlier rounds, which may have served what was logged.
        many_processes: whether it may train on several devices.
    """

    dataset: Dataset
    learns: str
    trainer: str
    epochs: str
    rate: str
    peak: float
    max_kl: float
    reference: bool = True
    behaviours: bool = False
    many_processes: bool = True


METHODS: dict[str, TrainingMethod] = {
    "sft": TrainingMethod(
        EXAMPLES,
        "successful actions",
        "flywheel.stages.train.sft:train",
        epochs="sft_epochs",
        rate="sft_learning_rate",
        peak=1e-3,
        max_kl=12.0,
        reference=False,
    ),
    "expert": TrainingMethod(
        SUCCESSES,
        "the start policy's own successful actions (expert iteration)",
        "flywheel.stages.train.sft:train",
        epochs="sft_epochs",
        rate="sft_learning_rate",
        peak=1e-3,
        max_kl=12.0,
        reference=False,
    ),
    "dpo": TrainingMethod(
        PAIRS,
        "preference pairs",
        "flywheel.stages.train.dpo:train",
        epochs="dpo_epochs",
        rate="dpo_learning_rate",
        peak=2e-4,
        max_kl=0.25,
    ),
    "grpo": TrainingMethod(
        GROUPS,
        "groups of logged attempts",
        "flywheel.stages.train.grpo:train",
        epochs="grpo_epochs",
        rate="grpo_learning_rate",
        peak=1.5e-4,
        max_kl=0.25,
        behaviours=True,
    ),
    "kto": TrainingMethod(
        ACTIONS,
        "single good and bad actions",
        "flywheel.stages.train.kto:train",
        epochs="dpo_epochs",
        rate="dpo_learning_rate",
        peak=2e-4,
        max_kl=0.25,
    ),
    "grpo-replay": TrainingMethod(
        SCENARIOS,
        "the policy's own attempts in the replay environment",
        "flywheel.stages.train.replay_grpo:train",
        epochs="grpo_epochs",
        rate="grpo_learning_rate",
        peak=1e-4,
        max_kl=0.25,
        many_processes=False,
    ),
    "hindsight": TrainingMethod(
        HINTS,
        "the start policy's own actions and what was learned about them afterwards",
        "flywheel.stages.train.hindsight:train",
        epochs="grpo_epochs",
        rate="grpo_learning_rate",
        peak=1.5e-4,
        max_kl=0.25,
    ),
}

if TYPE_CHECKING:
    Method = str
    MethodSetting = str
else:
    Method = Literal[tuple(METHODS)]
    MethodSetting = Literal[("auto", *METHODS)]
