"""Where a round's metrics also go: TensorBoard, Weights & Biases or MLflow, if the user has and asks for them.

They write into the round's folder `tracking/` and stay offline: a server is only spoken to where the user's own
environment names it (WANDB_MODE, MLFLOW_TRACKING_URI). They get numbers and settings, never rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from flywheel.errors import ConfigError

__all__ = ["environment"]

_PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}


def environment(report_to: Sequence[str], folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that lead the trackers into a folder; the user's own win.

    Raises:
        ConfigError: a tracker is not installed.
    """
    for name in report_to:
        if not any(find_spec(package) for package in _PACKAGES[name]):
            raise ConfigError(f"train.report_to: {name} is not installed", hint=f"pip install {name}")
    if report_to:
        folder.mkdir(parents=True, exist_ok=True)
    wanted = {"WANDB_DISABLED": "true"} if "wandb" not in report_to else {}
    own = {
        "TENSORBOARD_LOGGING_DIR": str(folder / "tensorboard"),
        "WANDB_DIR": str(folder),
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": "flywheel",
    }
    return wanted | {k: given.get(k, v) for k, v in own.items()}
