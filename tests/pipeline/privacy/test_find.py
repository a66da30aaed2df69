"""What is a user's, and what becomes of rounds that descend from theirs: small logs, made-up rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import RedactConfig
from flywheel.io import files
from flywheel.pipeline.copies import DEPLOYMENTS
from flywheel.pipeline.privacy.find import belongings
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.ingest.redaction.redact import Redactor
from tests.reports import manifest

pytestmark = pytest.mark.slow

ANN, BOB, EVE = (Redactor(RedactConfig(), b"test-key").user(name) for name in ("ann", "bob", "eve"))


def said(conversation: str, user: str | None, seq: int = 0, **rest: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"question {conversation} {seq}"}]
    return {"kind": "request", "conversation_id": conversation, "user": user, "seq": seq,
            "payload": {"messages": messages}, **rest}  # fmt: skip


def acted(conversation: str, seq: int = 1, **rest: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"answer {conversation}"}
    return {"kind": "model_call", "conversation_id": conversation, "seq": seq, "payload": {"message": message}, **rest}


def rated(conversation: str, user: str | None, seq: int = 2, **rest: Any) -> dict[str, Any]:
    return {"kind": "feedback", "conversation_id": conversation, "user": user, "seq": seq,
            "payload": {"name": "thumbs", "value": 1}, **rest}  # fmt: skip


def project_of(folder: Path, *events: dict[str, Any]) -> Project:
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    made = Project(folder)
    made.ingest([folder / "log.jsonl"])
    made.build()
    return made


def left(project: Project) -> list[str]:
    return sorted(project.query("SELECT conversation_id || ' ' || seq AS e FROM events")["e"].to_pylist())


@pytest.mark.e2e
def test_whole_conversations_and_own_judgements(tmp_path: Path) -> None:
    project = project_of(
        tmp_path,
        said("hers", "ann"), acted("hers"), rated("hers", "bob"),
        said("shared", "bob"), acted("shared"), said("shared", "ann", 2), acted("shared", 3), said("shared", "bob", 4),
        said("his", "bob"), acted("his"), rated("his", "ann"),
        said("nameless", None), acted("nameless"), rated("nameless", "ann"),
    )  # fmt: skip

    mine = belongings(project.context, ANN)

    assert sorted(mine.conversations) == ["hers", "nameless", "shared"]
    assert len(mine.events) == 1
    assert mine.counts["conversations"] == mine.counts["episodes"] == 3
    project.forget("ann")
    assert left(project) == ["his 0", "his 1"]
    assert belongings(project.context, ANN).counts == {}
    assert belongings(project.context, BOB).counts["conversations"] == 1


@pytest.mark.e2e
def test_what_was_recorded_under_another_name_goes_too(tmp_path: Path) -> None:
    """A trace that is part of her session, and a judgement that came by itself and found her trace."""
    project = project_of(
        tmp_path,
        said("session", "ann"),
        acted("trace-1", 1, ids=["session:session"]),
        {**rated("elsewhere", None), "target": "trace:trace-1"},
        {**rated("elsewhere", None, 3), "target": "trace:trace-9"},
        said("trace-9", "bob"),
        acted("trace-9"),
    )

    project.forget("ann")

    assert left(project) == ["elsewhere 3", "trace-9 0", "trace-9 1"]
    (tmp_path / "late.jsonl").write_text(json.dumps({**rated("new", None), "target": "trace:trace-1"}) + "\n")
    assert project.ingest([tmp_path / "late.jsonl"]).forgotten == 1
    (tmp_path / "other.jsonl").write_text(json.dumps({**rated("new", None), "target": "trace:trace-9"}) + "\n")
    assert project.ingest([tmp_path / "other.jsonl"]).kept == 1


def make_round(project: Project, number: int, users: list[str], parent: int | None = None) -> None:
    """Make a trained round with one row of each user's."""
    folder = project.registry.folder(number)
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / ADAPTER_WEIGHTS).write_text(f"weights {number}")
    rows = [{"id": f"row of {user}", "task_id": "t", "prompt": []} for user in users]
    origins = [{"id": f"row of {user}", "episodes": [], "users": [user]} for user in users]
    for name, lines in (("train", rows), ("origins", origins)):
        files.atomic_write(folder / "data" / f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    path = "data/train.jsonl"
    data = [{"path": path, "sha256": files.hash_file(folder / path), "size_bytes": 1}]
    sha256 = files.hash_file(folder / "adapter" / ADAPTER_WEIGHTS)
    project.registry.save(manifest(number, parent=parent, adapter_sha256=sha256, dataset=data, inputs={}))


@pytest.fixture
def turned(tmp_path: Path) -> Project:
    """Four rounds: 2 learnt from Ann, 3 descends from it, 4 from nobody of theirs; 1, 2 and 3 were champion in turn."""
    made = project_of(tmp_path / "shop", said("hers", "ann"), acted("hers"), said("his", "bob"), acted("his"))
    make_round(made, 1, [BOB])
    make_round(made, 2, [ANN, BOB], parent=1)
    make_round(made, 3, [BOB], parent=2)
    make_round(made, 4, [EVE])
    for number in (1, 2, 3):
        made.promote(number, force=True, reason="rehearsal")
    return made


def test_the_newest_clean_champion_takes_over(turned: Project) -> None:
    certificate = turned.forget("ann").certificate

    assert [(one.round, one.rows) for one in certificate.tainted] == [(2, 1), (3, 0)]
    assert certificate.tainted[1].why == "descends from round 2"
    assert (certificate.champion_before, certificate.champion_after, certificate.rebase_round) == (3, 1, 5)
    registry = turned.registry
    assert registry.aliases() == {"champion": 1, "challenger": None, "previous": None}
    assert (registry.root / "champion").resolve() == registry.adapter(1)
    assert [registry.manifest(n).state for n in (2, 3)] == ["retired", "retired"]
    assert (registry.folder(2) / "data/train.jsonl").read_text().count("row of") == 1
    assert registry.problems([1, 2, 3, 4]) == []
    second = turned.forget("bob").certificate
    assert [one.round for one in second.tainted] == [1, 2, 3]
    assert (second.champion_after, registry.champion) == (None, None)
    assert registry.tainted == {1, 2, 3}
    assert (second.rebase_round, turned.gc().rows[0].count) == (5, 3)
    assert registry.trained() == [4]


@pytest.mark.e2e
def test_a_round_begun_on_their_rows_is_begun_anew(turned: Project) -> None:
    make_round(turned, 5, [ANN])
    registry = turned.registry
    registry.save(registry.manifest(5).model_copy(update={"adapter_sha256": "", "state": "built"}))

    certificate = turned.forget("ann").certificate

    assert not registry.folder(5).exists()
    assert certificate.rebase_round == registry.next_number() == 5


@pytest.mark.e2e
def test_servers_that_still_serve_it_are_named(turned: Project) -> None:
    line = {"url": "http://gpu:8000", "name": "shop-round-3", "round": 3, "previous_sha256": ""}
    (turned.registry.root / DEPLOYMENTS).write_text(json.dumps(line) + "\n")

    notes = turned.forget("ann").certificate.notes

    assert notes == ["round 3 is deployed at http://gpu:8000: flywheel deploy vllm --url http://gpu:8000"]


@pytest.mark.e2e
def test_void_evaluations_are_named(tmp_path: Path) -> None:
    """With half of the held-out episodes gone, what was judged on them is void."""
    talks = [
        event
        for number in range(40)
        for user in ("ann", "bob")
        for event in (said(f"{user} {number}", user, task_key=f"{number}"), acted(f"{user} {number}"))
    ]
    project = project_of(tmp_path, *talks)
    make_round(project, 1, [BOB])
    from tests.reports import report, row

    project.registry.save_report(report(row(30, 1, 100), number=1))

    certificate = project.forget("ann").certificate

    assert (certificate.holdout_share, certificate.voided) == (0.5, [1])
    assert any("void" in line for line in project.explain("1").lines)


@pytest.mark.e2e
def test_audits_lose_what_was_drawn_and_answered(tmp_path: Path) -> None:
    project = project_of(tmp_path, said("hers", "ann"), acted("hers"), said("his", "bob"), acted("his"))
    project.audit(10, ask=lambda _: (1.0, "well done"), reviewer="eve")
    answers, draw = tmp_path / "audits" / "0001.answers.jsonl", tmp_path / "audits" / ".draws" / "0001.json"
    assert ('"hers"' in answers.read_text(), '"hers"' in draw.read_text()) == (True, True)

    removed = project.forget("ann").certificate.removed

    assert removed["audits"] == 1
    assert ('"hers"' in answers.read_text(), '"hers"' in draw.read_text()) == (False, False)
    assert ('"his"' in answers.read_text(), '"his"' in draw.read_text()) == (True, True)
    assert project.ingest([tmp_path / "audits"]).events == 0  # the answers that are left are known
    assert project.forget("eve").certificate.removed["audits"] == 1  # a reviewer's own answers
    assert answers.read_text() == ""
