"""flywheel.toml and pipelines/*.toml as frozen models; every value has a default, a description and an origin.

Precedence, lowest first: the defaults here, the project's flywheel.toml, a pipeline's [overrides]. Unknown keys are
errors with the line and the nearest known key. A field's description is its JSON Schema description and its line in
docs/reference/config.md. Each module holds the sections on one subject; `files` reads and writes them.
"""

from __future__ import annotations

from flywheel.config.datasets import GroupsConfig, PairsConfig, ReplayConfig
from flywheel.config.evaluation import CanaryConfig, EvalConfig, GateConfig, SliceRule
from flywheel.config.files import (
    CONFIG_FILE,
    load_config,
    load_pipeline,
    merge_overrides,
    origins,
    render_default_config,
)
from flywheel.config.ingest import BuildConfig, EpisodesConfig, IngestConfig, RedactConfig
from flywheel.config.monitors import MonitorsConfig
from flywheel.config.nightly import NightlyConfig, NotifyConfig
from flywheel.config.rewards import RewardsConfig, RulesConfig
from flywheel.config.root import Config, Pipeline
from flywheel.config.tracking import MlflowConfig
from flywheel.config.training import BackendConfig, LoraConfig, ModelConfig, TrainConfig, masked
from flywheel.config.trust import TrustConfig

__all__ = [
    "CONFIG_FILE",
    "BackendConfig",
    "BuildConfig",
    "CanaryConfig",
    "Config",
    "EpisodesConfig",
    "EvalConfig",
    "GateConfig",
    "GroupsConfig",
    "IngestConfig",
    "LoraConfig",
    "MlflowConfig",
    "ModelConfig",
    "MonitorsConfig",
    "NightlyConfig",
    "NotifyConfig",
    "PairsConfig",
    "Pipeline",
    "RedactConfig",
    "ReplayConfig",
    "RewardsConfig",
    "RulesConfig",
    "SliceRule",
    "TrainConfig",
    "TrustConfig",
    "load_config",
    "load_pipeline",
    "masked",
    "merge_overrides",
    "origins",
    "render_default_config",
]
