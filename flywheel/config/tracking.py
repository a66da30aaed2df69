"""Sections on where else rounds are written down."""

from __future__ import annotations

from pydantic import Field

from flywheel.config._section import Section


class MlflowConfig(Section):
    """MLflow, as the extra `mlflow` installs it: each round a run and a version of one registered model."""

    tracking_uri: str = Field(
        default="",
        description="Where MLflow is: http://..., or sqlite:///mlflow.db in the project; '' for no MLflow.",
    )
    experiment: str = Field(default="", description="Experiment of the runs; '' takes the project's name.")
    model: str = Field(default="", description="Registered model; '' takes the project's name.")
    adapters: bool = Field(
        default=True, description="Whether adapters are copied there; without it a version names the folder here."
    )


class PushConfig(Section):
    """Where `flywheel push --to hf:OWNER/NAME` may send an adapter; nothing else sends anything there."""

    host: str = Field(default="", description="Address of the hub, as https://huggingface.co; '' allows none.")
