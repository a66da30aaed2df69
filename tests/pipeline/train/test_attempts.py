"""Attempts that the champion makes for a round: at training tasks, kept where they succeed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import Config
from flywheel.funnel import Funnel
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.train.attempts import _by_need, _kept, _mastered, _older, _Task
from flywheel.pipeline.train.backend import write_files
from flywheel.pipeline.train.plan import PlannedRound, make_plan
from flywheel.pipeline.train.spec import train_spec
from flywheel.project import Project
from flywheel.stages.evaluate.play import Place
from flywheel.stages.selection.mix import Before
from tests.projects import train

WORLD = '''
import hashlib


class Turn:
    """Over after one action. A hard task succeeds once in four seeds, an easy one always; some are not known."""

    def __init__(self, prompt, seed):
        self.hard = int(hashlib.sha256(prompt[-1]["content"].encode()).hexdigest(), 16) % 2
        self.right, self.over, self.success = not self.hard or seed % 4 == 3, False, None

    def take(self, message):
        self.over, self.success = True, float(self.right)
        return [{"role": "assistant", "content": "It is done."}]

    def stop(self, why):
        self.over, self.success = True, 0.0


def shop(prompt, seed):
    with open("{seen}", "a") as seen:
        seen.write(prompt[-1]["content"] + chr(10))
    return None if "lamp" in prompt[-1]["content"] else Turn(prompt, seed)
'''
ATTEMPTS = {"attempts": 4, "attempt_tasks": 20, "world": "small_world:shop", "max_rows": 12}


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    folder = projects("promoted")
    (folder / "small_world.py").write_text(WORLD.replace("{seen}", str(folder / "seen.txt")), encoding="utf-8")
    return Project(folder)


def planned(project: Project, **settings: Any) -> PlannedRound:
    config = project.config.model_dump()
    config["train"] |= {"method": "sft"} | settings
    return make_plan(replace(project.context, config=Config.model_validate(config)), 2)


def rows_of(found: PlannedRound) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, found.dataset.splitlines()) if row.get("mix") == "attempted"]


def test_successes_at_training_tasks_join_the_round(project: Project) -> None:
    found = planned(project, **ATTEMPTS)
    counts, rows = found.plan.counts, rows_of(found)

    assert counts["note: tasks attempted"] + counts["note: tasks that the world does not know"] == 20
    hard = counts["note: attempts"] / 2 - counts["note: tasks attempted"]  # an easy task is left after two successes
    assert 0 < hard < counts["note: tasks attempted"]
    assert counts["note: attempts that succeeded"] == 2 * counts["note: tasks attempted"] - hard
    assert counts["note: tasks attempted without a success"] == 0
    assert counts["considered"] == counts["kept"] + sum(n for k, n in counts.items() if k.startswith("dropped: "))
    assert len(rows) == found.plan.card.mix["attempted"] > 0
    tasks = dict(read_table(project.store, "episodes").select("task_id", "split").unique().collect().iter_rows())
    assert {tasks[row["task_id"]] for row in rows} == {"train"}
    asked = set((project.folder / "seen.txt").read_text(encoding="utf-8").splitlines())
    held_out = read_table(project.store, "episodes").filter(pl.col("split") != "train").collect()["request"]
    assert asked
    assert not asked & set(held_out)


def test_a_row_leads_to_its_attempt_and_to_a_log_line(project: Project) -> None:
    found = planned(project, **ATTEMPTS)
    origins = {line["id"]: line for line in map(json.loads, found.origins.splitlines())}
    events = read_table(project.store, "events").select("conversation_id", "source_file", "source_line").collect()
    episodes = dict(read_table(project.store, "episodes").select("episode_id", "conversation_id").collect().iter_rows())

    for row in rows_of(found):
        line = origins[row["id"]]
        assert line["attempt"] == row["attempt"]
        assert line["attempt"]["policy"] == 1
        assert line["attempt"]["success"] == 1.0
        lines = events.filter(pl.col("conversation_id") == episodes[line["episodes"][0]])
        assert lines.height
        assert lines["source_line"].null_count() == 0


def test_the_same_attempts_are_made_once_and_give_the_same_bytes(project: Project) -> None:
    first = planned(project, **ATTEMPTS)
    asked = (project.folder / "seen.txt").stat().st_size
    pieces = sorted((project.store.root / "cache" / "attempts").iterdir())
    pieces[0].unlink()  # killed before this piece was remembered

    assert planned(project, **ATTEMPTS) == first
    again = (project.folder / "seen.txt").stat().st_size - asked
    assert 0 < again < asked
    assert rows_of(planned(project, **ATTEMPTS | {"seed": 1})) != rows_of(first)


def test_equal_successes_count_once_and_the_next_round_has_them_too(project: Project) -> None:
    found = planned(project, **ATTEMPTS)
    passed = Counter(row["task_id"] for row in rows_of(found))
    assert set(passed.values()) == {1}

    toml = project.folder / "flywheel.toml"
    settings = '[train]\nattempts = 4\nattempt_tasks = 20\nworld = "small_world:shop"'
    toml.write_text(toml.read_text(encoding="utf-8").replace("[train]", settings), encoding="utf-8")
    manifest = train(project, "--round", "2")
    assert manifest.counts["note: attempts"] == found.plan.counts["note: attempts"]
    later = planned(Project(project.folder), attempts=1, attempt_tasks=1, world="small_world:shop")
    assert {row["id"] for row in rows_of(found)} & {row["id"] for row in rows_of(later)}


def test_another_trainer_gets_them_as_rows_like_others_and_none_is_made_for_pairs(
    project: Project, tmp_path: Path
) -> None:
    mine: dict[str, Any] = {"backend": "mine", "backends": {"mine": {"command": ["true"]}}, "dpo_demonstrations": 0.0}
    found = planned(project, **ATTEMPTS, **mine)
    assert rows_of(found)
    config = Config.model_validate({**project.config.model_dump(), "train": found.plan.config["train"]})
    ctx = replace(project.context, config=config)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text(found.dataset, encoding="utf-8")
    write_files(ctx, train_spec(ctx, 2, "sft", 1, tmp_path))
    tokens = (tmp_path / "work" / "backend" / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(tokens) == found.plan.rows

    asked = (project.folder / "seen.txt").stat().st_size
    pairs = planned(project, **{**ATTEMPTS, "seed": 3}, **mine, method="dpo")
    assert pairs.plan.counts["note: no attempts: train.backend does not mix their demonstrations with pairs"] == 1
    assert (project.folder / "seen.txt").stat().st_size == asked


def test_without_a_champion_nobody_attempts(projects: Callable[[str], Path]) -> None:
    project = Project(projects("built"))
    config = project.config.model_dump()
    config["train"] |= {"attempts": 2}
    counts = make_plan(replace(project.context, config=Config.model_validate(config)), 1).plan.counts
    assert counts["note: no attempts: there is no champion that could make them"] == 1


def test_a_hard_task_keeps_more_of_its_successes_than_an_easy_one() -> None:
    def kept(successes: list[bool]) -> int:
        tried = [
            [[{"role": "assistant", "content": f"way {n}"}], [0], float(won), n] for n, won in enumerate(successes)
        ]
        task = _Task("place", "task", "episode", Place([{"role": "user", "content": "?"}], None, lambda _: None))
        return len(list(_kept(task, tried, 1, {}, Funnel())))

    assert [kept([True] * won + [False] * (8 - won)) for won in range(9)] == [0, 1, 2, 3, 2, 2, 1, 1, 1]


def test_what_attempts_taught_is_rehearsed_with_each_new_row() -> None:
    rows = [{"id": f"row {n}", "prompt": [], "attempt": {"place": f"task {n // 2}", "number": 0}} for n in range(20)]

    def older(new: int, start: int = 1, share: float = 0.5) -> dict[str, dict[str, Any]]:
        cfg = Config.model_validate({"train": {"older_rows": share}}).train
        return _older(rows, new, cfg, Before(start))

    assert {row["mix"] for row in older(8).values()} == {"older"}
    assert [len(older(new)) for new in (0, 8, 100)] == [0, 4, 20]
    assert len({row["attempt"]["place"] for row in older(8).values()}) == 2  # whole attempts
    assert older(8) == older(8) != older(8, start=2)
    assert older(8, share=0) == {}


def test_tasks_that_the_champion_mastered_in_the_log_come_last() -> None:
    logged = [("a", "round 1", 0.9), ("a", "round 1", 0.6), ("b", "round 1", 0.8), ("b", "round 1", 0.1)]
    logged += [("c", "agent", 0.9), ("d", "round 1", 0.2)]
    rows: list[dict[str, Any]] = [
        {"episode_id": str(n), "task_id": t, "policy": p, "p_success": x, "request": "?"}
        for n, (t, p, x) in enumerate(logged)
    ]
    steps = [row | {"step": 0, "p_success": 1.0} for row in rows]
    episodes, returns = pl.LazyFrame(rows), pl.LazyFrame([row | {"step": None} for row in rows] + steps)

    assert _mastered({"round 1", "shop-round-1"}, episodes, returns) == {"a"}
    assert _mastered(set(), episodes, returns) == set()


def test_tasks_of_kinds_that_the_champion_fails_at_come_first_and_of_those_it_masters_last() -> None:
    asked = {"sum": "What is the revenue in city {}?", "join": "Which products cost more than {} in the shop?"}
    own = pl.DataFrame(
        [
            {"episode_id": f"{kind} {n}", "task_id": f"{kind} {n}", "request": words.format(n), "p_success": p}
            for kind, words, p in (("sum", asked["sum"], 0.8), ("join", asked["join"], 0.4))
            for n in range(6)
        ]
    )
    place = Place([{"role": "user", "content": "?"}], None, lambda _: None)
    tasks = [
        _Task(name, name, f"of {name}", place) for name in ("sum 7", "join 8", "sum 3", "new 1", "sum 9", "join 9")
    ]
    requests = {"of sum 7": asked["sum"].format(7), "of join 8": asked["join"].format(8), "of new 1": "Hello there!",
                "of sum 3": asked["sum"].format(3), "of sum 9": asked["sum"].format(9),
                "of join 9": asked["join"].format(9)}  # fmt: skip

    found = [task.id for task in _by_need(tasks, own, requests)]
    assert found == ["join 8", "join 9", "sum 3", "new 1", "sum 7", "sum 9"]  # at `sum 3` it was seen what it does
    assert [task.id for task in _by_need(tasks, own.filter(pl.col("episode_id").str.ends_with("1")), {})] == [
        task.id for task in tasks
    ]
