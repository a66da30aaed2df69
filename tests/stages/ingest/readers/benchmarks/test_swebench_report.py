"""SWE-bench reports: whom the verdicts are for, and which say nothing of the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.benchmarks.swebench_report import READER

REPORT = {
    "total_instances": 6, "schema_version": 2, "submitted_ids": ["a-1", "a-2", "a-3", "a-4", "a-5"],
    "resolved_ids": ["a-1"], "unresolved_ids": ["a-2", "a-5"], "empty_patch_ids": ["a-3"], "error_ids": ["a-4"],
    "infra_failure_ids": ["a-5"], "incomplete_ids": ["a-6"],
}  # fmt: skip
OLDER = {
    "no_generation": ["a-3"], "generated": ["a-1", "a-2", "a-4"], "with_logs": ["a-1", "a-2"], "install_fail": ["a-4"],
    "reset_failed": [], "applied": ["a-1", "a-2"], "resolved": ["a-1"],
}  # fmt: skip
ONE = {"a-1": {"patch_exists": True, "patch_successfully_applied": True, "resolved": True, "tests_status": {}}}


def verdicts(record: Any) -> dict[str, float]:
    return {e["conversation_id"]: e["payload"]["value"] for e in READER.read(record, 1)}


def test_every_judged_instance_has_an_outcome() -> None:
    assert verdicts(REPORT) == {"a-1": 1, "a-2": 0, "a-3": 0}
    event = next(iter(READER.read(REPORT, 1)))
    assert (event["kind"], event["task_key"]) == ("outcome", "a-1")
    assert event["payload"] == {"name": "resolved", "value": 1, "scale": [0, 1], "source": "verifier"}


def test_other_reports_say_the_same() -> None:
    assert verdicts(OLDER) == {"a-1": 1, "a-2": 0, "a-3": 0}
    assert verdicts(ONE) == {"a-1": 1}
    assert verdicts({"a-1": {**ONE["a-1"], "resolved": False, "infra_failure": True}}) == {}


@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("acme__m.run_7.json", "run_7"),
        ("acme__m-4.1.run-7.json.gz", "run-7"),
        ("logs/run_evaluation/run-7/acme__m/a-1/report.json", "run-7"),
        ("out/run-7/results.json", "run-7"),
    ],
)
def test_the_run_stands_in_the_path(path: str, run: str) -> None:
    assert READER.from_path(PurePosixPath(path)) == {"scope": run}


def test_detection_and_refusal() -> None:
    for record in (REPORT, OLDER, ONE):
        assert READER.sniff(Sample("report.json", [record])) == 1
    assert READER.sniff(Sample("x.json", [{"resolved": True}, {}])) == 0
    broken: list[Any] = [[], "resolved"]
    for record in broken:
        with pytest.raises(BadRecordError):
            verdicts(record)


def test_predictions_beside_them_are_ignored_not_refused(tmp_path: Path, take: Callable[..., Any]) -> None:
    one = {"model_name_or_path": "m", "instance_id": "a-1", "model_patch": "diff"}
    (tmp_path / "preds.json").write_text(json.dumps({"a-1": one}), encoding="utf-8")
    (tmp_path / "all_preds.jsonl").write_text(json.dumps(one) + "\n", encoding="utf-8")
    (tmp_path / "m.run-7.json").write_text(json.dumps(REPORT, indent=1), encoding="utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (3, 0, True)
    assert sorted(taken.events["conversation_id"]) == ["run-7/a-1", "run-7/a-2", "run-7/a-3"]


def test_a_prediction_that_holds_a_run_is_not_ignored(tmp_path: Path, take: Callable[..., Any]) -> None:
    run = [{"type": "item.completed", "item": {"type": "command_execution", "command": "ls"}}]
    record = {"instance_id": "django__django-1", "model_patch": "diff", "samples": [{"events": run}]}
    (tmp_path / "a.json").write_text(json.dumps(record), encoding="utf-8")
    taken = take(tmp_path / "a.json")
    assert (taken.ignored, taken.quarantined.height) == ({}, 1)
