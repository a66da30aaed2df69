"""Logs that name no tasks, from files to pairs: attempts meet, keep their task, and the holdout stays held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel import Project
from flywheel.config import Config
from flywheel.pipeline.build.tables import read_table

if TYPE_CHECKING:
    import polars as pl

ASKED = "please cancel the order number 4711 of my sister and send the money back to her card today"


def attempt(number: int, asked: str, tool: str, reward: float, day: int) -> list[dict[str, Any]]:
    common = {
        "conversation_id": f"c{number}",
        "user": f"user{number}",
        "policy": "p",
        "ts": f"2026-01-{day:02}T08:00:00Z",
    }
    call = {"id": "k", "name": tool, "arguments": {}}
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("request", {"messages": [{"role": "user", "content": asked}]}),
        ("model_call", {"message": {"role": "assistant", "tool_calls": [call]}}),
        ("tool_result", {"content": "done", "status": "ok"}),
        ("outcome", {"name": "reward", "value": reward, "scale": [0, 1], "source": "verifier"}),
    ]
    return [
        {**common, "seq": n, "kind": kind, "payload": payload}
        | ({"tool_call_id": "k"} if kind == "tool_result" else {})
        for n, (kind, payload) in enumerate(payloads)
    ]


def built(folder: Path, name: str, *attempts: list[dict[str, Any]], **episodes: Any) -> Project:
    folder.mkdir(exist_ok=True)
    log = folder / name
    log.write_text("".join(json.dumps(event) + "\n" for events in attempts for event in events), encoding="utf-8")
    project = Project(folder, config=Config.model_validate({"episodes": {"holdout_share": 0.0, **episodes}}))
    project.ingest([log])
    project.build()
    return project


def rows(project: Project, table: str) -> pl.DataFrame:
    return read_table(project.store, table).collect()


GOOD = attempt(1, ASKED, "cancel", 1.0, 5)
BAD = attempt(2, ASKED.replace("4711", "99"), "refuse", 0.0, 6)
LATE = attempt(3, ASKED.replace("today", "now"), "cancel", 1.0, 1)


def test_attempts_that_ask_the_same_make_pairs_and_groups(tmp_path: Path) -> None:
    again = [attempt(n, ASKED.replace("4711", str(n)), *(("cancel", 1.0) if n % 2 else ("refuse", 0.0)), 5)
             for n in range(10, 22)]  # fmt: skip
    project = built(tmp_path / "p", "a.jsonl", GOOD, BAD, *again)
    episodes = rows(project, "episodes")
    assert (episodes["task_id"].n_unique(), episodes["task_rule"].unique().to_list()) == (1, ["first_request"])
    assert rows(project, "steps")["state_key"].n_unique() == 1
    pairs = rows(project, "pairs")
    assert (pairs["task_id"].unique().to_list(), set(pairs["users"].list.len())) == ([episodes["task_id"][0]], {2})
    (group,) = rows(project, "groups").to_dicts()
    assert len(set(group["prompts_G"])) == 14


def test_one_attempt_against_one_shows_nothing(tmp_path: Path) -> None:
    assert rows(built(tmp_path / "p", "a.jsonl", GOOD, BAD), "pairs").is_empty()


def test_older_logs_that_come_later_change_no_task(tmp_path: Path) -> None:
    before = set(rows(built(tmp_path / "p", "a.jsonl", GOOD, BAD), "episodes")["task_id"])
    project = built(tmp_path / "p", "b.jsonl", LATE)
    assert set(rows(project, "episodes")["task_id"]) == before
    assert [stage.state for stage in project.build().stages if stage.stage == "tasks"] == ["fresh"]
    fresh = built(tmp_path / "q", "all.jsonl", LATE, GOOD, BAD)
    assert set(rows(fresh, "episodes")["task_id"]) != before


def test_the_order_of_files_matters_only_where_logs_come_late(tmp_path: Path) -> None:
    built(tmp_path / "p", "a.jsonl", GOOD)
    one, other = built(tmp_path / "p", "b.jsonl", BAD), built(tmp_path / "q", "all.jsonl", BAD, GOOD)
    assert rows(one, "tasks").equals(rows(other, "tasks"))


def test_time_splits_what_is_trained_on_from_what_is_judged_by(tmp_path: Path) -> None:
    project = built(tmp_path / "p", "a.jsonl", GOOD, BAD, holdout_after="2026-01-06", holdout_share=0.999999)
    episodes = rows(project, "episodes").sort("started")
    assert episodes["split"].to_list() == ["between", "holdout"]
    assert rows(project, "pairs").is_empty()
    assert rows(project, "examples").sort("split")["split"].to_list() == ["between", "holdout"]
