"""A conversation that succeeded with a turn in it that the user rejected: that turn teaches nothing that is copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.pipeline.build.tables import read_table
from flywheel.project import Project

WRONG, RIGHT = (
    "SELECT count(*) FROM orders WHERE day < '2025-08-13'",
    "SELECT count(*) FROM orders WHERE day >= '2025-08-13'",
)
ASKED = "How many mirror orders were there since 2025-08-13?"
REACTIONS = {
    "correction": f"No, I meant: {ASKED}",
    "complaint": "What a useless answer, I want a refund.",
    "retry": ASKED,
    "rephrase": "Since 2025-08-13, how many mirror orders were there?",
}


def call(number: int, sql: str, result: str) -> list[dict[str, Any]]:
    message = {"role": "assistant", "tool_calls": [{"id": f"c{number}", "name": "run_sql", "arguments": {"sql": sql}}]}
    return [
        {"kind": "model_call", "payload": {"message": message}},
        {"kind": "tool_result", "payload": {"call_id": f"c{number}", "content": result, "status": "ok"}},
    ]


def says(text: str) -> dict[str, Any]:
    return {"kind": "model_call", "payload": {"message": {"role": "assistant", "content": text}}}


def asks(text: str) -> dict[str, Any]:
    return {"kind": "request", "payload": {"messages": [{"role": "user", "content": text}]}}


def talk(name: str, reaction: str) -> list[dict[str, Any]]:
    """A wrong query and its answer, what the user says to that, the right query and its answer, success."""
    events = [asks(ASKED), *call(0, WRONG, "302"), says("There were 302."), asks(reaction)]
    events += [
        *call(1, RIGHT, "214"),
        says("There were 214 of them."),
        {"kind": "outcome", "payload": {"name": "resolved", "value": 1.0}},
    ]
    same = {"conversation_id": name, "policy": "agent", "user": "someone"}
    return [{**same, "seq": n, "ts": f"2026-11-02T09:18:{n:02}Z", **event} for n, event in enumerate(events)]


def built(folder: Path, *talks: list[dict[str, Any]]) -> Project:
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for events in talks for event in events))
    (folder / "project").mkdir()
    project = Project(folder / "project")
    project.ingest([log])
    project.build()
    return project


def labels(project: Project) -> dict[int, bool]:
    rows = read_table(project.store, "examples").collect()
    return dict(rows.select("step", "label").sort("step").iter_rows())


@pytest.mark.parametrize("kind", REACTIONS)
def test_what_the_user_rejected_is_no_demonstration_and_what_came_after_is(kind: str, tmp_path: Path) -> None:
    project = built(tmp_path, talk("a", REACTIONS[kind]))
    opinions = read_table(project.store, "opinions").collect()
    assert opinions.filter(signal=f"answered_{kind}")["step"].to_list() == [1], "the answer that the user came back to"
    assert labels(project) == {2: True, 3: True}
    returns = read_table(project.store, "returns").collect().sort("step", nulls_last=False)
    assert "steps 0 to 1, each: credit +0.000" in (told := "\n".join(project.explain(returns["episode_id"][0]).lines))
    assert "not imitated: the user rejected the turn" in told
    whole, *steps = returns["p_success"].to_list()
    assert whole == 0.97
    assert steps == [0.5, 0.5, 0.97, 0.97]


def test_another_request_rejects_nothing(tmp_path: Path) -> None:
    for number, text in enumerate(("And how many chairs?", "How many mirror orders were there since 2025-09-01?")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert labels(built(folder, talk("a", text))) == {0: True, 1: True, 2: True, 3: True}


def test_a_user_who_comes_back_to_an_earlier_answer_rejects_that_one(tmp_path: Path) -> None:
    events = talk("a", "And which products are there?")[:-1]
    again = [
        asks(ASKED),
        *call(2, RIGHT, "214"),
        says("214."),
        {"kind": "outcome", "payload": {"name": "resolved", "value": 1.0}},
    ]
    same = {"conversation_id": "a", "policy": "agent", "user": "someone"}
    events += [{**same, "seq": n, "ts": f"2026-11-02T09:18:{n:02}Z", **e} for n, e in enumerate(again, len(events))]
    assert labels(built(tmp_path, events)) == {2: True, 3: True, 4: True, 5: True}


def test_a_rejected_action_is_worth_what_its_turn_was(tmp_path: Path) -> None:
    """Of six attempts that all succeed, three took the wrong query first: it is not worth what the right one is."""
    talks = [talk(f"t{n}", REACTIONS["correction"]) for n in range(3)]
    straight = [[e for e in talk(f"s{n}", "") if e["seq"] in {0, 5, 6, 7, 8}] for n in range(3)]
    for n, events in enumerate([*talks, *straight]):
        for event in events:
            event["user"] = f"user{n}"
    project = built(tmp_path, *talks, *straight)
    returns = read_table(project.store, "returns").collect()
    steps = read_table(project.store, "steps").collect().filter(index=0)
    first = steps.select("episode_id", "action", step="index").join(returns, on=["episode_id", "step"])
    wrong = first.filter(pl.col("action").str.contains("day < "))
    right = first.filter(pl.col("action").str.contains("day >= "))
    assert (wrong.height, right.height) == (3, 3)
    assert max(wrong["value"].to_list()) < 0 < min(right["value"].to_list())
