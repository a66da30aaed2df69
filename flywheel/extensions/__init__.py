"""The nine extension points: entry-point groups (or `module:function`) that give a callable, and its contract.

Built-ins are declared in our own pyproject.toml through the same groups. Three groups have none: the trainers of
the built-in methods are in the table `flywheel.records.METHODS`, and neither vectors nor worlds are built in. An
extension is loaded only when it is named, so a broken plugin fails only where it is named.

| group                | contract      | returns                                         | named in                |
|----------------------|---------------|-------------------------------------------------|-------------------------|
| flywheel.readers     | `Reader`      | events from one record of a log                 | detected, `--format`    |
| flywheel.embeddings  | `Embedding`   | vectors of requests                             | `episodes.embedding`    |
| flywheel.rewards     | `Signal`      | opinions on episodes and steps                  | `rewards.signals`       |
| flywheel.pairs       | `PairBuilder` | candidate preference pairs                      | `pairs.builders`        |
| flywheel.trainers    | `Trainer`     | an adapter, in a process of its own             | `train.trainer`         |
| flywheel.evaluators  | `Evaluator`   | scores of one policy, case by case              | `eval.suites`           |
| flywheel.gates       | `GateRule`    | one rule's verdict                              | `gate.rules`            |
| flywheel.checks      | `Check`       | whether an answer to a user's own case is right | `eval.checks`           |
| flywheel.worlds      | `World`       | a turn in which a policy attempts a task        | `train.world`           |
"""

from flywheel.extensions.contracts import (
    BadRecordError,
    CaseScore,
    Check,
    Drift,
    Embedding,
    Evaluator,
    GateInput,
    GateRule,
    Generation,
    Holdout,
    PairBuilder,
    Policy,
    Reader,
    Sample,
    Signal,
    Trainer,
    TrainResult,
    TrainSpec,
    Turn,
    World,
)
from flywheel.extensions.loading import GROUPS, Extension, list_extensions, load_extension, load_extensions

__all__ = [
    "GROUPS",
    "BadRecordError",
    "CaseScore",
    "Check",
    "Drift",
    "Embedding",
    "Evaluator",
    "Extension",
    "GateInput",
    "GateRule",
    "Generation",
    "Holdout",
    "PairBuilder",
    "Policy",
    "Reader",
    "Sample",
    "Signal",
    "TrainResult",
    "TrainSpec",
    "Trainer",
    "Turn",
    "World",
    "list_extensions",
    "load_extension",
    "load_extensions",
]
