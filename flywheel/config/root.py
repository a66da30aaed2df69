"""The whole of flywheel.toml, and a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from flywheel.config._section import Section
from flywheel.config.datasets import GroupsConfig, PairsConfig, ReplayConfig
from flywheel.config.evaluation import CanaryConfig, EvalConfig, GateConfig
from flywheel.config.ingest import BuildConfig, EpisodesConfig, IngestConfig
from flywheel.config.monitors import MonitorsConfig
from flywheel.config.nightly import NightlyConfig, NotifyConfig
from flywheel.config.rewards import RewardsConfig
from flywheel.config.tracking import MlflowConfig, PushConfig
from flywheel.config.training import ModelConfig, TrainConfig
from flywheel.config.trust import TrustConfig


class Config(Section):
    """Everything in flywheel.toml."""

    name: str = Field(default="", description="Project name; '' takes the folder's.")
    store: str = Field(
        default=".flywheel",
        description="Folder of the store, relative to the project; or its place in a bucket, such as "
        "s3://bucket/project, which several machines may share: needs flywheel-rl[bucket].",
    )
    rounds: str = Field(default="rounds", description="Folder of the rounds, relative to the project.")
    model: ModelConfig = ModelConfig()
    ingest: IngestConfig = IngestConfig()
    build: BuildConfig = BuildConfig()
    episodes: EpisodesConfig = EpisodesConfig()
    trust: TrustConfig = TrustConfig()
    rewards: RewardsConfig = RewardsConfig()
    pairs: PairsConfig = PairsConfig()
    groups: GroupsConfig = GroupsConfig()
    replay: ReplayConfig = ReplayConfig()
    monitors: MonitorsConfig = MonitorsConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    gate: GateConfig = GateConfig()
    canary: CanaryConfig = CanaryConfig()
    mlflow: MlflowConfig = MlflowConfig()
    push: PushConfig = PushConfig()
    nightly: NightlyConfig = NightlyConfig()
    notify: NotifyConfig = NotifyConfig()

    def placed_in(self, folder: Path) -> Self:
        """Return the same configuration, as a project's in a folder: its base model's files are looked for there."""
        return self.model_copy(update={"model": self.model.placed_in(folder)})

    @property
    def secret_variables(self) -> set[str]:
        """Names of environment variables with keys of services, which another trainer does not need."""
        return {self.rewards.judge.key_env, self.eval.server.key_env, self.notify.token_env} - {""}

    @model_validator(mode="after")
    def _cost_only_breaks_ties(self) -> Self:
        """Refuse a weight of cost by which a cheap failure could be preferred to an expensive success."""
        if self.rewards.scheme == "signals" and self.rewards.beta >= self.pairs.min_margin:
            raise PydanticCustomError(
                "lexicographic",
                "rewards.beta {beta} is not below pairs.min_margin {margin}: cost alone could make a preference",
                {
                    "beta": self.rewards.beta,
                    "margin": self.pairs.min_margin,
                    "at": ["rewards", "beta"],
                    "hint": "lower rewards.beta or raise pairs.min_margin: the highest cost is 1, and costs more than "
                    "a pair's least margin must not",
                },
            )
        return self

    @model_validator(mode="after")
    def _enough_cases_for_the_gate(self) -> Self:
        """Refuse an evaluation of fewer cases than the gate asks for: every round would be held for ever."""
        if self.eval.max_cases < self.gate.min_cases:
            raise PydanticCustomError(
                "too_few_cases",
                "eval.max_cases {most} is below gate.min_cases {least}: no round could ever be promoted",
                {
                    "most": self.eval.max_cases,
                    "least": self.gate.min_cases,
                    "at": ["eval", "max_cases"] if "max_cases" in self.eval.model_fields_set else ["gate", "min_cases"],
                    "hint": "raise eval.max_cases or lower gate.min_cases",
                },
            )
        return self


class Pipeline(Section):
    """A recipe: which stages run, in which order, with which overrides."""

    name: str = Field(description="Name used by `flywheel run NAME`.")
    description: str = Field(default="", description="One sentence.")
    stages: list[str] = Field(min_length=1, description="Stages in order; each one's needs must be made before it.")
    overrides: dict[str, Any] = Field(default={}, description="Configuration values for this recipe, by section.")
