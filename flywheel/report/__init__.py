"""Pages from plain values: a round's report (`ReportData` → `build_report`), the episodes' viewer (`bundle_pages`)."""

from __future__ import annotations

from flywheel.report.build import build_report
from flywheel.report.bundle import BundleData, bundle_pages, episode_page
from flywheel.report.data import (
    SCORE_EDGES,
    Agreement,
    CaseRow,
    EpisodeView,
    Histogram,
    PairView,
    PastRound,
    ReportData,
    SignalRow,
    SignalView,
    StepView,
    TrainedView,
)
from flywheel.report.home import home_page
from flywheel.report.home_data import (
    HomeData,
    Mark,
    Point,
    PolicyLine,
    Rate,
    RoundRow,
    Verdict,
    Waiting,
)

__all__ = [
    "SCORE_EDGES",
    "Agreement",
    "BundleData",
    "CaseRow",
    "EpisodeView",
    "Histogram",
    "HomeData",
    "Mark",
    "PairView",
    "PastRound",
    "Point",
    "PolicyLine",
    "Rate",
    "ReportData",
    "RoundRow",
    "SignalRow",
    "SignalView",
    "StepView",
    "TrainedView",
    "Verdict",
    "Waiting",
    "build_report",
    "bundle_pages",
    "episode_page",
    "home_page",
]
