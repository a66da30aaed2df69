"""The night's journal: told once, gone on with when cut off, whole or a stage a process; and what a night waits for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import load_config
from flywheel.errors import EvidenceError, FlywheelError, IngestError
from flywheel.pipeline.train.plan import make_plan
from flywheel.pipeline.train.readiness import lacks_rows, lacks_tasks, rebuild_is_due
from flywheel.project import Project
from flywheel.records import Certificate
from tests.nights import poison, write_night
from tests.projects import FLYWHEEL, write_config

if TYPE_CHECKING:
    from flywheel.results.operations import RunAnswer

_TABLES = [
    "links", "episodes", "tasks", "opinions", "rewards", "reliability", "returns", "examples", "pairs", "groups",
    "fixtures",
]  # fmt: skip
STAGES = ["ingest", *_TABLES, "notify"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose nightly pipeline trains nothing, with one night of logs and a hook."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "nightly.toml").write_text(f'name = "nightly"\nstages = {json.dumps(STAGES)}\n')
    hook = 'name = "shop"\n[notify]\ncommand = "tee -a told.jsonl"\non = ["done", "failed", "waiting"]\n'
    (tmp_path / "flywheel.toml").write_text(hook)
    write_night(tmp_path / "logs", 0)
    return tmp_path


def run(project: Path, stage: str | None = None) -> RunAnswer:
    return Project(project).run(since=stage, until=stage)


def told(project: Path) -> list[dict[str, Any]]:
    path = project / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def journal(project: Path) -> dict[str, Any]:
    night: dict[str, Any] = json.loads((project / ".flywheel" / "night.json").read_text())
    return night


def test_a_whole_night_is_told_once_and_over(project: Path) -> None:
    answer = run(project)

    assert (answer.exit_code, answer.text) == (0, "shop: done")
    assert [s.stage for s in answer.stages] == STAGES
    (night,) = told(project)
    assert (night["outcome"], night["exit_code"], night["project"]) == ("done", 0, "shop")
    assert [s["state"] for s in night["stages"]] == ["done"] * len(_TABLES) + ["done", "running"]
    assert journal(project)["ended_at"] is not None
    (project / "logs" / "broken.jsonl").write_text("not json\n")
    assert "1 file set aside" in run(project).text, "whoever is on call reads it in the sentence that is sent"
    assert journal(project)["night"] != night["night"]


def test_a_stage_a_process_is_the_same_night(project: Path) -> None:
    for stage in STAGES:
        assert run(project, stage).exit_code == 0

    (night,) = told(project)
    assert [s["stage"] for s in night["stages"]] == STAGES
    assert journal(project)["ended_at"] is not None


def only_bad(project: Path) -> Path:
    """Put the night's logs away, and one that cannot be read in their place."""
    (project / "logs").rename(project / "away")
    (project / "logs").mkdir()
    poison(project / "logs" / "bad.jsonl")
    return project / "away"


def test_a_bad_file_beside_the_logs_fails_no_night_and_is_told(project: Path) -> None:
    poison(project / "logs" / "bad.jsonl")
    assert run(project).exit_code == 0
    assert "1 file set aside" in json.dumps(journal(project))


def test_a_failed_night_is_told_with_its_stage_its_reason_and_no_text_of_the_log(project: Path) -> None:
    only_bad(project)
    with pytest.raises(IngestError):
        run(project)

    (night,) = told(project)
    assert (night["outcome"], night["exit_code"], night["failed_stage"]) == ("failed", 1, "ingest")
    assert "unreadable" in night["error"]
    assert "cut-off" not in json.dumps(night)
    assert journal(project)["ended_at"] is not None


def test_a_failed_stage_of_its_own_process_is_told_and_fails_the_last_task(project: Path) -> None:
    only_bad(project)
    with pytest.raises(IngestError):
        run(project, "ingest")
    assert journal(project)["ended_at"] is None
    answer = run(project, "notify")

    assert answer.exit_code == 1
    assert [n["failed_stage"] for n in told(project)] == ["ingest"]


@pytest.mark.e2e
def test_a_retried_stage_is_no_failure(project: Path) -> None:
    away = only_bad(project)
    with pytest.raises(IngestError):
        run(project, "ingest")
    shutil.rmtree(project / "logs")
    away.rename(project / "logs")
    for stage in STAGES:
        assert run(project, stage).exit_code == 0
    assert [n["outcome"] for n in told(project)] == ["done"]


def test_a_night_that_was_killed_goes_on_under_its_id(project: Path) -> None:
    run(project, "ingest")
    night = journal(project)
    night["stages"].append({"stage": "links", "state": "running", "outcome": "", "seconds": 0.0})
    (project / ".flywheel" / "night.json").write_text(json.dumps(night))

    assert run(project, "notify").exit_code == 1  # nobody ran it again
    assert [(n["failed_stage"], n["error"]) for n in told(project)] == [("links", "the process was cut off")]
    (project / ".flywheel" / "night.json").write_text(json.dumps(night))
    run(project)
    assert [(n["night"], n["outcome"]) for n in told(project)][1:] == [(night["night"], "done")]


def test_a_damaged_journal_is_no_obstacle(project: Path) -> None:
    run(project)
    (project / ".flywheel" / "night.json").write_text("{")
    assert run(project).exit_code == 0


def test_hooks_that_fail_do_not_fail_the_night(project: Path) -> None:
    text = (project / "flywheel.toml").read_text().replace("tee -a told.jsonl", "false")
    (project / "flywheel.toml").write_text(text)
    done = subprocess.run([FLYWHEEL, "-C", str(project), "run"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "nightly  shop: done")
    assert "notify    command: failed (exit 1)\n" in done.stderr


def test_parts_that_no_snapshot_names_are_swept_when_a_night_begins(project: Path) -> None:
    run(project)
    parts = sorted((project / ".flywheel" / "tables").rglob("*.parquet"))
    orphan = parts[0].with_name("part-" + "0" * 32 + ".parquet")
    orphan.write_bytes(b"left by a killed stage")
    run(project)
    assert sorted((project / ".flywheel" / "tables").rglob("*.parquet")) == parts


@pytest.fixture
def planned(project: Path, tiny_model: Path) -> Project:
    """The same project with its tables and a model to plan with."""
    write_config(project, tiny_model)
    for night in (1, 2, 3):
        write_night(project / "logs", night)
    run(project)
    return Project(project)


def missing(project: Project, **nightly: float) -> list[tuple[int, int]]:
    config = project.config.model_copy(update={"nightly": project.config.nightly.model_copy(update=nightly)})
    ctx = Project(project.folder, config=config).context
    return [(need.have, need.need) for need in lacks_rows(ctx, make_plan(ctx, 1)) + lacks_tasks(ctx)]


def test_a_night_waits_for_rows_and_for_held_out_tasks(planned: Project) -> None:
    """64 conversations, 3 in 4 with an outcome; 12 rows at most; of the held-out tasks what the hash gives."""
    have = Project(planned.folder).query(
        "SELECT count(DISTINCT e.task_id) AS n FROM episodes e JOIN returns r USING (episode_id)"
        " WHERE e.split = 'holdout' AND r.step IS NULL AND r.known AND NOT r.provisional"
    )["n"][0].as_py()  # fmt: skip
    assert missing(planned, min_new_rows=12) == ([(have, 5)] if have < 5 else [])
    assert missing(planned, min_new_rows=13)[0] == (12, 13)


@pytest.mark.e2e
def test_a_round_that_stands_in_for_tainted_ones_waits_for_nothing(planned: Project) -> None:
    made: dict[str, Any] = {
        "user_sha256": "u",
        "at": "2026-01-01T00:00:00Z",
        "by": "forget",
        "removed": {},
        "before": {},
        "after": {},
    }
    made |= {"champion_before": 1, "champion_after": None, "holdout_share": 0, "voided": []}
    seen = [{"round": 1, "adapter_sha256": "a", "rows": 1, "why": "it saw the user"}]
    planned.registry.certify(Certificate.model_validate({**made, "rebase_round": 2, "tainted": seen}))
    planned.registry.certify(Certificate.model_validate({**made, "rebase_round": 3, "tainted": []}))
    assert [rebuild_is_due(planned.context, number) for number in (1, 2, 3)] == [False, True, False]


def test_too_few_rows_for_any_round_say_how_many_there_are(planned: Project) -> None:
    config = load_config(planned.folder / "flywheel.toml")
    config = config.model_copy(update={"train": config.train.model_copy(update={"min_rows": 500})})
    with pytest.raises(EvidenceError) as caught:
        make_plan(Project(planned.folder, config=config).context, 1)
    assert (caught.value.have, caught.value.need) == (12, 500)
    assert isinstance(caught.value, FlywheelError)
