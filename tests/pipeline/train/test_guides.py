"""Attempts that begin as another task's success, where the champion's own all failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import Config
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.train.guides import Wanted, guides
from flywheel.pipeline.train.plan import make_plan
from flywheel.project import Project

WORLD = '''
class Turn:
    """Succeeds where a query names the city that was asked about; what is no query ends it."""

    def __init__(self, asked):
        self.city, self.over, self.success = asked.split()[-1].rstrip("?"), False, 0.0

    def take(self, message):
        calls = message.get("tool_calls") or []
        if any(f"'{self.city}'" in str(call.get("arguments")) for call in calls):
            self.success = 1.0
        else:
            self.over = not calls or any(call["name"] != "list_tables" for call in calls)
        results = [{"role": "tool", "tool_call_id": c["id"], "name": c["name"], "content": "[[7]]"} for c in calls]
        return [{**message, "role": "assistant"}, *results]

    def stop(self, why):
        self.over = True


def shop(prompt, seed):
    return Turn(prompt[-1]["content"]) if "orders came from" in prompt[-1]["content"] else None
'''
SETTINGS = {"method": "sft", "attempts": 4, "attempt_tasks": 40, "world": "city_world:shop", "max_rows": 12}


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    folder = projects("promoted")
    (folder / "city_world.py").write_text(WORLD, encoding="utf-8")
    return Project(folder)


def test_where_all_attempts_failed_a_demonstration_begins_the_next(project: Project) -> None:
    config = project.config.model_dump()
    config["train"] |= SETTINGS
    found = make_plan(replace(project.context, config=Config.model_validate(config)), 2)
    counts = found.plan.counts
    began, won = (
        counts["note: attempts that began as another task's success"],
        counts["note: attempts that began so and succeeded"],
    )
    assert began >= won > 0

    rows = [row for row in map(json.loads, found.dataset.splitlines()) if row.get("mix") == "attempted"]
    assert rows
    assert all("guide" in row["attempt"] for row in rows)
    queries = [row for row in rows if "'" in json.dumps(row["completion"][0].get("tool_calls"))]
    assert queries
    for row in queries:
        asked = next(message["content"] for message in row["prompt"] if message["role"] == "user")
        assert f"'{asked.split()[-1].rstrip('?')}'" in json.dumps(row["completion"])

    episodes = read_table(project.store, "episodes").select("episode_id", "task_id", "split", "user").collect()
    of = {row["episode_id"]: row for row in episodes.iter_rows(named=True)}
    for line in map(json.loads, found.origins.splitlines()):
        if "attempt" in line:
            guide = line["attempt"]["guide"]
            assert guide in line["episodes"]
            assert of[guide]["user"] in line["users"]  # who asks to be forgotten is found
            assert of[guide]["split"] == "train"


def test_a_guide_is_of_the_policy_that_does_best_at_the_kind(project: Project) -> None:
    wanted = Wanted("here", "no such task", "How many orders came from Atlantis?")
    (found,) = guides(project.context, [wanted], 1).values()
    assert "Atlantis" in json.dumps(found[0].actions)
    assert guides(project.context, [wanted], 0) == guides(project.context, [], 4) == {}
    assert guides(project.context, [wanted._replace(request="Please write me a poem.")], 4) == {}

    whole = read_table(project.store, "returns").filter(pl.col("step").is_null()).select("episode_id", "p_success")
    kind = pl.col("request").str.starts_with("How many orders came from") & (pl.col("split") == "train")
    logged = read_table(project.store, "episodes").filter(kind).join(whole, on="episode_id").collect()
    means: dict[Any, float] = dict(logged.group_by("policy").agg(pl.col("p_success").mean()).iter_rows())
    policy = logged.filter(pl.col("episode_id") == found[0].episode_id)["policy"][0]
    able = logged.filter(pl.col("p_success") >= 0.7)["policy"].unique().to_list()
    assert means[policy] == max(means[one] for one in able)
