"""A round's report: one self-contained HTML page from plain values (`ReportData` → `build_report`)."""

from __future__ import annotations

from flywheel.report.build import build_report
from flywheel.report.data import (
    CaseRow,
    EpisodeView,
    Histogram,
    PairView,
    PastRound,
    ReportData,
    SignalRow,
    SignalView,
    StepView,
)

__all__ = [
    "CaseRow",
    "EpisodeView",
    "Histogram",
    "PairView",
    "PastRound",
    "ReportData",
    "SignalRow",
    "SignalView",
    "StepView",
    "build_report",
]
