"""Every answer by the name of its schema."""

from __future__ import annotations

from flywheel.records import Document
from flywheel.results.data import (
    BuildAnswer,
    ExportAnswer,
    IngestAnswer,
    InitAnswer,
    QuarantineAnswer,
    QuarantineRetry,
    ReadersAnswer,
    StatusAnswer,
)
from flywheel.results.digest import DigestAnswer
from flywheel.results.keeping import DeployAnswer, ForgetAnswer, GcAnswer, MergeAnswer
from flywheel.results.looking import (
    ConfigAnswer,
    DoctorAnswer,
    ExplainAnswer,
    PluginsAnswer,
    QueryAnswer,
    ShowAnswer,
    ViewAnswer,
)
from flywheel.results.rewards import AuditAnswer, AuditQuestion, RewardsAnswer
from flywheel.results.rounds import (
    CanaryAnswer,
    ChampionAnswer,
    DiffAnswer,
    EvalAnswer,
    LogAnswer,
    LogsEvalAnswer,
    RunAnswer,
)

__all__ = ["ANSWERS"]

ANSWERS: dict[str, type[Document]] = {
    model.document: model
    for model in (
        InitAnswer, IngestAnswer, QuarantineAnswer, QuarantineRetry, ReadersAnswer, BuildAnswer, StatusAnswer,
        LogAnswer, EvalAnswer, LogsEvalAnswer, CanaryAnswer, ShowAnswer, ExplainAnswer, ExportAnswer, PluginsAnswer,
        RunAnswer, DoctorAnswer, ConfigAnswer, QueryAnswer, DiffAnswer, ChampionAnswer, RewardsAnswer, AuditAnswer,
        AuditQuestion, ForgetAnswer, GcAnswer, DeployAnswer, MergeAnswer, ViewAnswer, DigestAnswer,
    )
}  # fmt: skip
