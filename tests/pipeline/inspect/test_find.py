"""Every id that a command prints, or its beginning, is accepted by show, explain and view."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.inspect.find import find
from flywheel.pipeline.pages.views import Shower
from flywheel.project import Project

ONE_OF = {  # kind → a table and the column with its ids
    "episode": ("episodes", "episode_id"),
    "pair": ("pairs", "pair_id"),
    "example": ("examples", "example_id"),
    "group": ("groups", "group_id"),
    "fixture": ("fixtures", "fixture_id"),
    "scenario": ("scenarios", "scenario_id"),
    "task": ("episodes", "task_id"),
    "case": ("steps", "state_key"),
    "event": ("events", "event_id"),
}


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    return Project(projects("built"))


def ids(project: Project, kind: str) -> list[str]:
    table, column = ONE_OF[kind]
    frame = read_table(project.context.store, table).select(pl.col(column).unique().sort()).collect()
    found: list[str] = frame[column].to_list()
    return found


@pytest.mark.parametrize("kind", ONE_OF)
def test_each_kind_of_id_resolves_whole_and_by_its_beginning(project: Project, kind: str) -> None:
    known = ids(project, kind)
    if not known:
        pytest.skip(f"these logs give no {kind}")
    for wanted in (known[0], known[0][:20]):
        assert project.show(wanted).kind == kind
        lines = project.explain(wanted).lines
        assert lines[0].startswith(f"{kind} {known[0]}")
    if kind not in {"fixture", "event"}:
        assert Path(project.view(known[0]).page).is_file()


def test_a_recorded_outcome_is_explained_as_a_fact_and_not_as_a_probability(tmp_path: Path) -> None:
    events = [
        {"conversation_id": f"c{n}", "policy": "p", "seq": seq, "task_key": "airline/4", **event}
        for n in range(4)
        for seq, event in enumerate(
            [
                {"kind": "request", "payload": {"messages": [{"role": "user", "content": "Change flight 4."}]}},
                {"kind": "model_call", "payload": {"message": {"role": "assistant", "content": f"Done {n}."}}},
                {"kind": "outcome", "payload": {"name": "check", "value": float(n > 0)}},
            ]
        )
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "log.jsonl"])
    project.build()
    task = project.explain("airline/4").lines
    assert task[1] == "  p: 4 attempts, 3 of 4 succeeded, recorded"
    assert sorted(line.partition(": ")[2] for line in task[2:]) == ["failed, recorded", *["succeeded, recorded"] * 3]
    example = project.explain(ids(project, "example")[0]).lines[0]
    assert example.endswith("recorded).")
    state = project.store.table("steps", "episodes").select("state_key").collect()["state_key"][0]
    assert "recorded" in project.explain(state).lines[1]
    assert not any("0.97" in line for line in (*task, example))


def test_a_step_is_its_episode_and_its_place(project: Project) -> None:
    episode = ids(project, "episode")[0]
    for name in (f"{episode[:12]}:0", f"{episode}/0", f"{episode[:8]}#0"):
        answer = project.show(name)
        assert (answer.kind, answer.record["episode_id"], answer.record["index"]) == ("step", episode, 0)
    assert project.explain(f"{episode[:12]}:0").lines[0].startswith(f"step 0 of episode {episode}")
    with pytest.raises(UsageError, match="has no step 99"):
        project.show(f"{episode}:99")


def test_a_task_has_the_name_that_its_log_gives_it(tmp_path: Path) -> None:
    events = [
        {"conversation_id": f"c{n}", "policy": "p", "seq": seq, "task_key": f"airline/{n // 2}", **event}
        for n in range(4)
        for seq, event in enumerate(
            [
                {"kind": "request", "payload": {"messages": [{"role": "user", "content": f"Change flight {n // 2}."}]}},
                {"kind": "model_call", "payload": {"message": {"role": "assistant", "content": f"Done {n}."}}},
            ]
        )
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "log.jsonl"])
    project.build()
    answer = project.show("airline/1")
    assert (answer.kind, answer.record["names"], len(answer.record["attempts"])) == ("task", ["airline/1"], 2)
    assert ", in the log airline/1: 2 attempts" in project.explain("airline/1").lines[0]
    shown = Shower(project.context, None).episodes([row["episode_id"] for row in answer.record["attempts"]])
    assert {(one["task_name"], *one["alike"]) for one in shown} == {("airline/1", "airline/0")}


def test_an_evaluations_case_resolves_with_its_metric(project: Project) -> None:
    state = ids(project, "case")[0]
    assert find(project.context, f"executed_success:{state}") == ("case", state, None)


def test_an_own_case_is_found_by_its_name(projects: Callable[[str], Path]) -> None:
    folder = projects("built")
    (folder / "evals").mkdir()
    case = {"id": "no-cash", "prompt": "Pay me in cash.", "checks": [{"check": "exact", "any_of": ["no"]}]}
    (folder / "evals" / "refunds.jsonl").write_text(json.dumps(case) + "\n")
    answer = Project(folder).show("no-cash")
    assert (answer.kind, answer.record["file"], answer.record["rounds"]) == ("case", "refunds", {})
    assert "one of the project's own" in Project(folder).explain("no-cash").lines[0]


def test_every_id_that_explain_and_show_print_is_accepted(project: Project) -> None:
    episode = ids(project, "episode")[0]
    printed = set(re.findall(r"\b[0-9a-f]{8,32}\b", "\n".join(project.explain(episode).lines)))
    printed |= set(re.findall(r"\b[0-9a-f]{8,32}\b", "\n".join(project.explain(ids(project, "pair")[0]).lines)))
    assert len(printed) > 3
    for one in printed:
        assert project.show(one).record


def test_an_ambiguous_beginning_names_the_candidates(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flywheel.pipeline.inspect.find.LEAST_ID", 1)
    first = next(d for d in "0123456789abcdef" if sum(e.startswith(d) for e in ids(project, "episode")) > 1)
    with pytest.raises(UsageError, match="is ambiguous: ") as caught:
        find(project.context, first)
    assert "episode " in caught.value.hint
    assert "more" in caught.value.hint


@pytest.mark.parametrize("wanted", ["nothing-like-it", "ffffffffffffffffffffffffffffffff", "abc"])
def test_what_is_not_there_says_what_would_be(project: Project, wanted: str) -> None:
    for command in (project.show, project.explain, project.view):
        with pytest.raises(UsageError, match="there is no object") as caught:
            command(wanted)
        assert "EPISODE:STEP" in caught.value.hint


def test_digits_are_a_round_unless_they_begin_an_id(project: Project) -> None:
    with pytest.raises(UsageError, match="there is no round 7"):
        project.show("7")
    with pytest.raises(UsageError, match="there is no object `777777777`"):
        project.show("777777777")


def test_a_row_that_no_table_holds_any_more_is_found_in_its_round(projects: Callable[[str], Path]) -> None:
    """Later evidence takes an example out of the tables; what a round was trained on still leads to its log lines."""
    folder = projects("trained")
    project = Project(folder)
    data = folder / "rounds" / "0001" / "data"
    row, origin = (json.loads((data / name).read_text().splitlines()[0]) for name in ("train.jsonl", "origins.jsonl"))
    gone = "feedfacefeedfacefeedfacefeedface"
    for name, line in (("train.jsonl", row), ("origins.jsonl", origin)):
        with (data / name).open("a") as file:
            file.write(json.dumps({**line, "id": gone}) + "\n")
    (episode,) = origin["episodes"][:1]
    answer = project.show(gone[:12])
    assert (answer.kind, answer.record["rounds"], answer.record["episodes"]) == ("row", [1], origin["episodes"])
    assert answer.record["prompt"] == row["prompt"]
    lines = project.explain(gone).lines
    assert lines[0].startswith(f"row {gone}: what round 1 was trained on.")
    assert lines[1] == f"  from episode {episode[:12]}"
    assert Path(project.view(gone).page).is_file()
    assert project.show(row["id"]).kind != "row"
