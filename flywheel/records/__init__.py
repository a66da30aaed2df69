"""The records that flow through flywheel: what one row of each table, and each JSON document, means.

LogEvent → Episode + Step → Reward → Return → PreferencePair / Example / Group → RoundManifest → EvalReport → Promotion

Names follow the OpenTelemetry GenAI conventions where one exists. Nested values (messages, tool calls, payloads) are
canonical JSON text in a table's column, because a log's nesting has no fixed schema; `Message` and `ToolCall` describe
them. Ids are lower-case hex prefixes of SHA-256 over canonical JSON, so the same content has the same id
everywhere. The field descriptions here are the JSON Schemas' descriptions.
"""

from __future__ import annotations

from flywheel.records.base import (
    ID_HEX,
    ID_KINDS,
    Document,
    Record,
    Row,
    canonical_json,
    content_id,
    has_no_floats,
    is_name,
    plain_value,
    texts_in,
)
from flywheel.records.candidates import GateEvidence, LedgerEntry, Outcome
from flywheel.records.cases import Asked, EvalCase, GoldenRow
from flywheel.records.datasets import Example, Group, PreferencePair
from flywheel.records.episodes import (
    ActionValue,
    Alternative,
    Correction,
    CrowdMember,
    Episode,
    Evidence,
    Labelled,
    Opinion,
    Reliability,
    Return,
    Reward,
    Split,
    Step,
    StopReason,
    Task,
)
from flywheel.records.estimates import OffPolicyEstimate, refused_alike
from flywheel.records.events import (
    ATTEMPT_DONE,
    ATTEMPT_STEP,
    OPENS,
    PART,
    SETTINGS,
    THREAD,
    Attachment,
    EventKind,
    Feedback,
    Link,
    LogEvent,
    Message,
    PolicyName,
    Quarantined,
    ToolCall,
    ToolStatus,
)
from flywheel.records.forgetting import Certificate, TaintedRound
from flywheel.records.methods import METHODS, TRAINED_TABLES, Method, MethodSetting
from flywheel.records.nights import Need, Night, NightStage
from flywheel.records.race import Race, RaceCandidate, RaceHeat
from flywheel.records.replay import Fixture, ReplayScenario
from flywheel.records.rounds import (
    FRESH,
    Agreement,
    BackendRun,
    BaselineRow,
    CaseGap,
    DataCard,
    EvalReport,
    FileHash,
    KlPoint,
    MeasureRow,
    MemoryEstimate,
    MetricRow,
    MonitorRow,
    Plan,
    Promotion,
    RoundManifest,
    RuleResult,
    ServedBy,
    Verdict,
)
from flywheel.records.token_rows import TokenRow

__all__ = [
    "ATTEMPT_DONE",
    "ATTEMPT_STEP",
    "FRESH",
    "ID_HEX",
    "ID_KINDS",
    "METHODS",
    "OPENS",
    "PART",
    "SETTINGS",
    "TABLES",
    "THREAD",
    "TRAINED_TABLES",
    "ActionValue",
    "Agreement",
    "Alternative",
    "Asked",
    "Attachment",
    "BackendRun",
    "BaselineRow",
    "CaseGap",
    "Certificate",
    "Correction",
    "CrowdMember",
    "DataCard",
    "Document",
    "Episode",
    "EvalCase",
    "EvalReport",
    "EventKind",
    "Evidence",
    "Example",
    "Feedback",
    "FileHash",
    "Fixture",
    "GateEvidence",
    "GoldenRow",
    "Group",
    "KlPoint",
    "Labelled",
    "LedgerEntry",
    "Link",
    "LogEvent",
    "MeasureRow",
    "MemoryEstimate",
    "Message",
    "Method",
    "MethodSetting",
    "MetricRow",
    "MonitorRow",
    "Need",
    "Night",
    "NightStage",
    "OffPolicyEstimate",
    "Opinion",
    "Outcome",
    "Plan",
    "PolicyName",
    "PreferencePair",
    "Promotion",
    "Quarantined",
    "Race",
    "RaceCandidate",
    "RaceHeat",
    "Record",
    "Reliability",
    "ReplayScenario",
    "Return",
    "Reward",
    "RoundManifest",
    "Row",
    "RuleResult",
    "ServedBy",
    "Split",
    "Step",
    "StopReason",
    "TaintedRound",
    "Task",
    "TokenRow",
    "ToolCall",
    "ToolStatus",
    "Verdict",
    "canonical_json",
    "content_id",
    "has_no_floats",
    "is_name",
    "plain_value",
    "refused_alike",
    "texts_in",
]

TABLES: dict[str, type[Row]] = {
    row.table: row
    for row in (
        LogEvent, Quarantined, Link, PolicyName, Episode, Step, Task, Opinion, Correction, CrowdMember, Reward,
        Reliability, Labelled, Evidence, ActionValue, Return, Alternative, PreferencePair, Example, Group, Fixture,
        ReplayScenario,
    )
}  # fmt: skip
