"""The pipeline: which stages exist, what is stale, and the runner that alone reads and writes for them."""

from flywheel.pipeline.build.registry import ACTIONS, STAGES, Stage, check_order
from flywheel.pipeline.build.run import StageStatus, build, explain_stage, select_stages, statuses
from flywheel.pipeline.ingest.run import IngestResult, ingest_logs

__all__ = [
    "ACTIONS",
    "STAGES",
    "IngestResult",
    "Stage",
    "StageStatus",
    "build",
    "check_order",
    "explain_stage",
    "ingest_logs",
    "select_stages",
    "statuses",
]
