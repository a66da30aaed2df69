"""Stages over everything see it in pieces: rows are the same however many partitions there are, and whoever works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.pipeline.build import workers
from flywheel.pipeline.build.registry import STAGE_NAMES
from flywheel.pipeline.build.run import build, select_stages
from flywheel.stages.tasks import requests
from polars.testing import assert_frame_equal

THINGS = ("lamp", "chair", "shelf", "desk", "rug", "mirror", "clock", "vase", "stool", "bed", "sofa", "bench")
EPISODES, LATER = 260, 40
STAGES_SEEN = select_stages(None)[: STAGE_NAMES.index("reliability")]  # the names begin with ingest


def asked(number: int) -> str:
    """Return one of twelve requests in some wordings, all of which name an order of their own."""
    soon = ("", " today", " quickly today")[number % 3]
    thing = THINGS[number // 3 % len(THINGS)]
    return f"please look up why the {thing} of order {number} has not come yet and send me a new one to my house{soon}"


def log(first: int, last: int) -> list[dict[str, Any]]:
    """Return episodes of users who come back; some have a task's name, a thumb or a verdict."""
    events = []
    for number in range(first, last):
        day, month = 1 + number % 28, 1 + number % 3
        common = {
            "conversation_id": f"talk-{number}", "user": f"user{number % 23}", "policy": f"v{number % 2}",
            "ts": f"2026-{month:02}-{day:02}T08:00:00Z",
        }  # fmt: skip
        if number % 5 == 0:
            common["task_key"] = f"job {number // 5 % 20}"
        failed = number % 4 == 0
        payloads: list[tuple[str, dict[str, Any]]] = [
            ("request", {"messages": [{"role": "user", "content": asked(number)}]}),
            ("model_call", {"message": {"role": "assistant", "tool_calls": [
                {"id": "k", "name": f"tool{number % 7 // 6}", "arguments": {}}]}}),
            ("tool_result", {"content": "TimeoutError" if failed else "done", "status": "failed" if failed else "ok"}),
        ]  # fmt: skip
        if number % 2:
            verdict = {"name": "reward", "value": number % 3 % 2, "scale": [0, 1], "source": "verifier"}
            payloads.append(("outcome", verdict))
        if number % 3:
            payloads.append(("feedback", {"name": "thumbs", "value": float(not failed), "annotator": "human"}))
        for seq, (kind, payload) in enumerate(payloads):
            call = {"tool_call_id": "k"} if kind == "tool_result" else {}
            events.append({**common, "seq": seq, "kind": kind, "payload": payload, **call})
    return events


def built(folder: Path, **settings: Any) -> dict[str, pl.DataFrame]:
    """Build a log that comes in two nights, the later one with the older requests; return what both nights made."""
    folder.mkdir()
    made = {}
    project = Project(folder, config=Config.model_validate({"build": settings, "rewards": {"fit": "always"}}))
    for night, events in enumerate((log(LATER, EPISODES), log(0, LATER))):
        file = folder / f"{night}.jsonl"
        file.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        project.ingest([file])
        build(project.store, project.config, folder, stages=STAGES_SEEN)
        for stage in ("tasks", "crowds", "reliability"):
            rows = project.store.table(stage, stage).collect()
            made[f"{stage} {night}"] = rows.sort([name for name in rows.columns if rows[name].dtype != pl.List])
            snapshot = project.store.current(stage)
            assert snapshot is not None
            counts = pl.DataFrame(sorted(snapshot.funnel.items()), schema=["name", "count"], orient="row")
            made[f"funnel of {stage} {night}"] = counts
    return made


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    made = built(tmp_path_factory.mktemp("once") / "p", partitions=1, workers=1)
    tasks = made["tasks 1"]
    assert {"train", "holdout"} <= {*tasks["split"]}
    assert 1 < tasks["cluster_id"].n_unique() < tasks["request_id"].n_unique()
    assert (tasks["history"] > 0).any()
    return made


@pytest.mark.parametrize(("partitions", "processes"), [(1, 1), (4, 1), (16, 1), (4, 2)])
def test_partitions_and_processes_change_no_row(
    once: dict[str, pl.DataFrame], partitions: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SLICE", 0)  # as if there were many rows
    monkeypatch.setattr(workers, "TOGETHER", 1)  # a partition at a time
    monkeypatch.setattr(requests, "_COMPARED", 50)
    made = built(tmp_path / "p", partitions=partitions, workers=processes)
    for name, rows in once.items():
        assert_frame_equal(made[name], rows, check_exact=True)
