"""An audit from the draw to the probability: who is drawn, what a reviewer sees, and how answers come back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel import Project
from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.rewards.quality import transport

if TYPE_CHECKING:
    from flywheel.results.rewards import AuditQuestion

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    (folder / "logs").mkdir()
    for name in ("native.jsonl", "feedback.jsonl"):
        shutil.copy(sample_logs / name, folder / "logs")
    project = Project(folder)
    project.ingest()
    project.build()
    return folder


@pytest.fixture
def project(built: Path, tmp_path: Path) -> Project:
    shutil.copytree(built, tmp_path / "p")
    return Project(tmp_path / "p")


def table(project: Project, name: str, stage: str) -> pl.DataFrame:
    return project.store.table(name, stage).collect()


def answered(path: Path, *, says: Any = True, comment: str = "") -> Path:
    rows = [json.loads(line) | {"success": says, "comment": comment} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.e2e
def test_a_sample_stands_for_all_episodes(project: Project, tmp_path: Path) -> None:
    answer = project.audit(40, out=tmp_path / "q.jsonl")
    assert (answer.drawn, answer.answered) == (40, 0)
    stored = json.loads((project.folder / "audits" / ".draws" / "0001.json").read_text())
    assert sum(1 / row["inclusion"] for row in stored["rows"]) == pytest.approx(answer.eligible)
    questions = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert [q["episode_id"] for q in questions] == [row["episode_id"] for row in stored["rows"]]
    assert set(questions[0]) == {"draw", "episode_id", "success", "comment", "conversation"}, "a score would lead"
    assert project.audit(10).drawn == 40, "a draw that waits is gone on with"
    assert project.audit(10, new=True).drawn == 10


def test_answers_are_events_and_decide(project: Project, tmp_path: Path) -> None:
    before = table(project, "episodes", "episodes")
    project.audit(35, out=tmp_path / "q.jsonl")
    done = project.audit_answers(answered(tmp_path / "q.jsonl", says=False, comment="ask ada@example.org"))
    assert (done.recorded, done.answered, done.left_out) == (35, 35, {})
    assert project.audit_answers(tmp_path / "q.jsonl").answered == 35
    project.build()
    assert table(project, "episodes", "episodes").equals(before), "an answer changes no episode"
    events = table(project, "events", "ingest").filter(pl.col("source_file").str.starts_with("audits/"))
    assert events["payload"].str.contains("<EMAIL_", literal=True).all()
    rewards = table(project, "rewards", "rewards").filter(signal="audit")
    assert rewards.height == 35
    assert rewards["inclusion"].is_between(0, 1).all()
    returns = table(project, "returns", "returns").filter(pl.col("step").is_null())
    assert returns.filter(basis="audit")["p_success"].to_list() == pytest.approx([0.03] * 35)
    kinds = table(project, "reliability", "reliability")["kind"].to_list()
    assert "calibration" in kinds
    others = returns.filter((pl.col("basis") == "signals") & (pl.col("p_raw") > 0.7))
    assert (others["p_success"] < others["p_raw"]).all()
    report = project.rewards()
    assert (report.audited, sum(t.n for t in report.transport if t.by == "policy")) == (35, 35)
    assert {t.verdict for t in transport(project.context)["policy"]} <= {"PASS", "FAIL", "INCONCLUSIVE"}
    lost = Project(project.folder)
    shutil.rmtree(project.folder / ".flywheel")
    lost.ingest()
    lost.build()
    assert table(lost, "rewards", "rewards").filter(signal="audit").height == 35, "answers are read again like any log"


@pytest.mark.e2e
def test_a_plan_says_how_many_outcomes_are_unclear_until_enough_are_known(project: Project, tmp_path: Path) -> None:
    train = read_table(project.store, "episodes").filter(split="train").select("episode_id").collect()
    whole = table(project, "returns", "returns").filter(pl.col("step").is_null()).join(train, on="episode_id")
    clear = pl.col("known") & ((pl.col("p_success") <= 0.3) | (pl.col("p_success") >= 0.7))
    unclear = whole.filter(~clear).height
    assert project.plan(method="sft").unclear == unclear > 10
    project.audit(29, out=tmp_path / "good.jsonl")
    project.audit_answers(answered(tmp_path / "good.jsonl"))
    assert 0 < project.plan(method="sft").unclear < unclear, "who was audited has a known outcome"
    project.audit(30, new=True, out=tmp_path / "bad.jsonl")
    project.audit_answers(answered(tmp_path / "bad.jsonl", says=False))
    assert project.plan(method="sft").unclear == 0


def test_what_was_not_asked_is_refused(project: Project, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no sample yet"):
        project.audit_answers(tmp_path / "a.jsonl")
    project.audit(5, out=tmp_path / "q.jsonl")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        project.audit_answers(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(b'{"comment": "caf\xe9"}')
    with pytest.raises(UsageError, match="is not UTF-8, at byte 17"):
        project.audit_answers(tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "q.jsonl").read_text().splitlines()[0])
    lines = [
        first | {"success": True}, {"episode_id": "f" * 32, "success": True}, first | {"success": 2}, first,
        first | {"success": "yes"}, [1],
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(["{", "[" * 100_000, *map(json.dumps, lines), ""]))
    done = project.audit_answers(tmp_path / "a.jsonl")
    assert done.recorded == 1
    wrong = "`success` is not true, false, or a number from 0 to 1"
    assert done.left_out == {"not JSON": 2, "not answered": 1, "not in a sample": 2, wrong: 2}
    (tmp_path / "a.jsonl").write_text("\n\nyes\n")
    with pytest.raises(UsageError, match="has no answer to record: line 1: empty line, line 3: not JSON"):
        project.audit_answers(tmp_path / "a.jsonl")


class _KilledError(Exception):
    """What a kill leaves behind: nothing after it is done."""


def test_answers_of_a_session_that_was_killed_are_kept(project: Project) -> None:
    asked: list[str] = []

    def ask(question: AuditQuestion) -> tuple[float, str]:
        asked.append(question.episode_id)
        if len(asked) == 3:
            raise _KilledError
        return 1.0, ""

    with pytest.raises(_KilledError):
        project.audit(6, ask=ask)
    rest: list[str] = []

    def stop(question: AuditQuestion) -> tuple[float, str]:
        rest.append(question.episode_id)
        raise KeyboardInterrupt

    assert project.audit(6, ask=stop).answered == 2
    assert rest == asked[2:]


def test_asking_goes_on_where_it_stopped(project: Project) -> None:
    asked: list[str] = []

    def ask(question: AuditQuestion) -> tuple[float, str] | None:
        asked.append(question.episode_id)
        if len(asked) == 4:
            raise KeyboardInterrupt
        assert question.conversation[0].role == "user"
        return None if len(asked) == 2 else (1.0, "")

    done = project.audit(6, ask=ask)
    assert (done.recorded, done.answered) == (2, 2)
    rest: list[str] = []

    def refuse(question: AuditQuestion) -> tuple[float, str]:
        rest.append(question.episode_id)
        return 0.0, ""

    done = project.audit(6, ask=refuse)
    assert done.answered == 6
    assert rest == [asked[1], *rest[1:]]
    assert not {asked[0], asked[2]} & set(rest)


def test_suspect_episodes_are_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, tags in (("a", ["suspect"]), ("b", [])):
        payload = {"message": {"content": "Done."}, "tags": tags}
        line = {"conversation_id": name, "kind": "model_call", "seq": 1, "payload": payload}
        (tmp_path / "logs" / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    project = Project(tmp_path)
    project.ingest()
    assert project.audit(5, out=tmp_path / "q.jsonl").drawn == 1
    with pytest.raises(UsageError, match="no episode to audit"):
        project.audit(5, new=True)


@pytest.mark.e2e
def test_the_suspect_file_is_flagged_and_teaches_nothing(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copytree(shared_data / "tau-bench" / "suspect", tmp_path / "logs" / "suspect")
    project = Project(tmp_path)
    project.ingest()
    project.build()
    suspect = table(project, "episodes", "episodes").filter(pl.col("tags").list.contains("suspect"))["episode_id"]
    assert suspect.len() == 38
    returns = table(project, "returns", "returns").filter(pl.col("step").is_null())
    theirs = returns.filter(pl.col("episode_id").is_in(suspect.implode()))
    assert set(theirs["basis"]) == {"suspect"}
    assert not theirs["known"].any()
    assert theirs["cost"].sum() == 0
    examples = table(project, "examples", "examples")
    assert examples.filter(pl.col("episode_id").is_in(suspect.implode())).is_empty()
    assert project.rewards().suspect == 38
    assert "is implausible" in project.explain(suspect[0]).lines[1]


def test_questions_are_not_written_over_answers_or_anything_else(project: Project, tmp_path: Path) -> None:
    asked = tmp_path / "q.jsonl"
    project.audit(6, out=asked)
    project.audit(6, out=asked)  # nobody has answered yet
    answered(asked)
    for path, says in ((asked, "holds answers"), (project.folder / "logs" / "native.jsonl", "not a file of questions")):
        before = path.read_bytes()
        with pytest.raises(UsageError, match=says):
            project.audit(6, out=path)
        assert path.read_bytes() == before
