"""`python -m flywheel.stages.train.process.worker SPEC PARENT`: one training round in a process of its own."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from flywheel.errors import FlywheelError
from flywheel.extensions import Trainer, TrainSpec, load_extension
from flywheel.io.files import write_json
from flywheel.records import METHODS
from flywheel.records.backends import TRL
from flywheel.stages.train.process.distributed import die_with, first
from flywheel.stages.train.process.spec import read_spec, write_result

_OTHER_SYSTEM = "flywheel.stages.train.backends.rounds:train"


def _explained(error: Exception, log: Path) -> dict[str, str]:
    """Return the message and the hint for an error of the libraries: how to save memory, else where the log is."""
    words = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in words or "can't allocate memory" in words:
        hint = "lower train.batch_size or train.max_length, then type the command again; the last checkpoint is kept"
        return {"message": "training ran out of memory", "hint": hint}
    return {"message": f"training failed: {type(error).__name__}", "hint": f"see `{log}`"}


def trainer_of(spec: TrainSpec) -> Trainer:
    """Return what trains a round: the method's own trainer, or the one that the project names and that was approved.

    Raises:
        ExtensionError: nothing has that name, or importing it fails.
        ConfigError: the project's was not approved on this machine.
    """
    own = spec.config.train.trainer
    other = _OTHER_SYSTEM if spec.config.train.backend != TRL else ""
    name = own or other or METHODS[spec.method].trainer
    trainer: Trainer = load_extension("trainers", name, search=spec.project_dir if own else None)
    return trainer


def main(spec_path: Path, parent: int) -> int:
    """Train what the spec describes; leave result.json, or error.json with a message for the user."""
    die_with(parent)
    spec = read_spec(spec_path)
    try:
        result = trainer_of(spec)(spec)
    except FlywheelError as error:
        write_json(spec.work_dir / "error.json", {"message": error.message, "hint": error.hint})
        return 1
    except Exception as error:  # noqa: BLE001 - the process boundary: the log gets the trace, the user its kind
        traceback.print_exc()
        write_json(spec.work_dir / "error.json", _explained(error, spec.work_dir / "train.log"))
        return 1
    if first():
        write_result(result, spec.work_dir / "result.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
