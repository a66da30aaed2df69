"""A user is forgotten: nothing of theirs is left, and what is trained next is what would have been without them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from flywheel.errors import UsageError
from flywheel.io import files, hash_chain
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.copies import note_copy
from flywheel.pipeline.privacy.find import belongings
from flywheel.project import Project
from flywheel.store import FORGETTING
from tests.projects import REAL, digest, flywheel, train, write_config

USER = "user04@shop.example"
LOGS = ("native.jsonl", "feedback.jsonl", "otel.jsonl.gz")
SAID = {"messages": [{"role": "user", "content": "How many orders came from Oslo?"}]}
TABLES = (
    "episodes",
    "steps",
    "rewards",
    "reliability",
    "returns",
    "examples",
    "pairs",
    "groups",
    "fixtures",
    "scenarios",
)


def lines_of(path: Path) -> list[bytes]:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines(keepends=True)


def of_the_user(project: Project) -> dict[str, set[int]]:
    """Return the lines of each log that are the user's, as the store says before anything is forgotten."""
    mine = belongings(project.context, pseudonym())
    gone = pl.col("conversation_id").is_in(mine.conversations) | pl.col("event_id").is_in(mine.events)
    found: dict[str, set[int]] = defaultdict(set)
    where = project.store.table("events", "ingest").filter(gone).select("source_file", "source_line").unique()
    for file, line in where.collect().iter_rows():
        found[file].add(line)
    return found


def pseudonym() -> str:
    from flywheel.config import RedactConfig
    from flywheel.stages.ingest.redaction.redact import Redactor

    return Redactor(RedactConfig(), b"test-key").user(USER)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path, tiny_model: Path) -> Path:
    """A project whose champion was trained on everybody's logs, and `minus`, the logs without the user's."""
    folder = tmp_path_factory.mktemp("forget")
    project, minus, theirs = folder / "p", folder / "minus", folder / "theirs"
    shutil.copytree(sample_logs, project / "logs", ignore=lambda _, names: [n for n in names if n not in LOGS])
    write_config(project, tiny_model)
    config = project / "flywheel.toml"
    config.write_text(config.read_text().replace("max_rows = 12", "max_rows = 500"))
    opened = Project(project)
    opened.ingest()
    opened.build()
    train(opened)
    opened.promote(1, force=True, reason="rehearsal")
    opened.push(str(folder / "hub"), dataset=True)
    lines = of_the_user(opened)
    for log in sorted((project / "logs").iterdir()):
        out = lines.get(f"logs/{log.name}", set())
        for target, inside in ((minus, False), (theirs, True)):
            kept = [line for number, line in enumerate(lines_of(log), 1) if (number in out) == inside]
            target.mkdir(exist_ok=True)
            (target / log.name.removesuffix(".gz")).write_bytes(b"".join(kept))
    return project


@pytest.fixture(scope="module")
def forgotten(trained: Path) -> Path:
    """The same project after the user was forgotten, by the id as logs write it."""
    project = trained.parent / "forgotten"
    shutil.copytree(trained, project, symlinks=True)
    flywheel(project, "forget", "--user", USER, "--yes")
    return project


@pytest.fixture
def open_again(forgotten: Path, tmp_path: Path) -> Project:
    """A copy of it, to go on with."""
    shutil.copytree(forgotten, tmp_path / "p", symlinks=True)
    return Project(tmp_path / "p")


def everything(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield every file of a folder as text, tables row by row."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".parquet":
            yield path, json.dumps(pl.read_parquet(path).to_dicts(), default=str)
        else:
            yield path, path.read_bytes().decode("utf-8", "replace")


def test_nothing_of_the_user_is_left(trained: Path, forgotten: Path) -> None:
    mine = belongings(Project(trained).context, pseudonym())
    marks = [mine.user, USER, *mine.conversations, *mine.episodes]
    before = {p.relative_to(trained) for p, text in everything(trained / ".flywheel") if mine.user in text}
    assert len(before) > 3
    assert (trained / "rounds/0001/data/train.jsonl").read_text() != (
        forgotten / "rounds/0001/data/train.jsonl"
    ).read_text()

    left = [
        (path.name, mark)
        for folder in (".flywheel", "rounds")
        for path, text in everything(forgotten / folder)
        for mark in marks
        if mark in text
    ]

    assert left == []
    assert Project(forgotten).store.orphans() == []
    assert not (forgotten / ".flywheel" / FORGETTING).exists()


@pytest.mark.e2e
def test_the_next_round_is_the_one_that_would_have_been(trained: Path, open_again: Project, tmp_path: Path) -> None:
    shutil.copytree(trained.parent / "minus", tmp_path / "never" / "logs")
    shutil.copy(trained / "flywheel.toml", tmp_path / "never")
    never = Project(tmp_path / "never")
    never.ingest()
    never.build()
    project = open_again
    stage = {table: s.name for s in STAGES for table in s.makes}

    def content(opened: Project, table: str) -> str:
        snapshot = opened.store.current(stage[table])
        assert snapshot is not None
        return snapshot.table_sha256(table)

    assert {t: content(project, t) for t in TABLES} == {t: content(never, t) for t in TABLES}
    plan = project.plan()
    assert (plan.round, plan.parent) == (2, None)
    assert "a user was forgotten" in plan.start_reason

    after, without = train(project), train(never)

    assert after.adapter_sha256 == without.adapter_sha256
    assert after.dataset[0].sha256 == without.dataset[0].sha256
    assert after.adapter_sha256 != Project(trained).registry.manifest(1).adapter_sha256


def test_a_tainted_round_is_no_champion_again(forgotten: Path) -> None:
    project = Project(forgotten)

    assert project.registry.tainted == {1}
    assert project.registry.manifest(1).state == "retired"
    assert project.registry.aliases() == {"champion": None, "challenger": None, "previous": None}
    assert not (forgotten / "rounds" / "champion").exists()
    last = project.registry.promotions()[-1]
    assert (last.decision, last.champion_before, last.champion_after) == ("forgotten", 1, None)
    with pytest.raises(UsageError, match="forgotten"):
        project.promote(1, force=True, reason="please")
    assert project.registry.problems([]) == []


def test_the_certificate_says_what_went(trained: Path, forgotten: Path) -> None:
    before, project = Project(trained), Project(forgotten)
    (certificate,) = project.registry.certificates()

    assert certificate.removed["conversations"] > 5
    assert certificate.removed["round 1"] == certificate.tainted[0].rows > 0
    assert certificate.before["round 1"] == before.registry.manifest(1).dataset[0].sha256
    assert certificate.after["round 1"] == files.hash_file(forgotten / "rounds/0001/data/train.jsonl")
    assert certificate.after["events"] != certificate.before["events"]
    assert (certificate.champion_before, certificate.champion_after, certificate.rebase_round) == (1, None, 2)
    assert hash_chain.breaks(forgotten / "rounds" / "forgotten.jsonl", head=None) == []
    again = project.forget(USER)
    assert (again.already, again.certificate) == (True, certificate)
    assert len(project.registry.certificates()) == 1


def test_copies_that_hold_the_users_rows_are_named_until_they_are_gone(forgotten: Path, open_again: Project) -> None:
    hub = forgotten.parent / "hub"
    (copy,) = open_again.registry.certificates()[0].notes
    today = f"{open_again.registry.promotions()[0].at:%Y-%m-%d}"
    rows = len(lines_of(hub / "data" / "train.jsonl"))
    assert copy == f"round 1 was pushed to {hub} on {today} with {rows} rows: remove it"
    assert open_again.status().left_elsewhere == [copy]
    hub.rename(hub.with_name("moved"))
    assert open_again.status().left_elsewhere == []
    hub.with_name("moved").rename(hub)
    note_copy(open_again.context, "pushed to", "https://hub.example/a/b", {"round": 1, "adapter_sha256": "x"})
    assert open_again.status().left_elsewhere[-1].endswith(": remove it, from its history too")


def test_the_user_is_refused_from_now_on(trained: Path, open_again: Project) -> None:
    project = open_again
    theirs = trained.parent / "theirs"
    lines = sum(len(lines_of(path)) for path in theirs.iterdir())
    new = trained.parent / "new.jsonl"
    request = {"kind": "request", "conversation_id": "brand new", "user": USER, "seq": 0, "payload": SAID}
    late = {"kind": "outcome", "conversation_id": "brand new", "seq": 1, "payload": {"name": "reward", "value": 1.0}}
    new.write_text(f"{json.dumps(late)}\n{json.dumps(request)}\n")
    events = project.store.current("ingest")

    read = project.ingest([theirs])
    unseen = project.ingest([new])

    assert (read.forgotten, read.kept, read.events) == (lines, 0, 0)
    assert (unseen.forgotten, unseen.kept) == (2, 0)
    now = project.store.current("ingest")
    assert events is not None
    assert now is not None
    assert now.funnel["dropped: of a forgotten user"] == 2
    assert now.table_sha256("events") == events.table_sha256("events")


def test_a_conversation_that_shows_late_whose_it_is_goes_too(open_again: Project, tmp_path: Path) -> None:
    project = open_again
    before = project.store.current("ingest")
    assert before is not None
    call = {"kind": "outcome", "conversation_id": "slow", "seq": 1, "payload": {"name": "reward", "value": 1.0}}
    request = {"kind": "request", "conversation_id": "slow", "user": USER, "seq": 0, "payload": SAID}
    for name, event in (("first.jsonl", call), ("second.jsonl", request)):
        (tmp_path / name).write_text(json.dumps(event) + "\n")
        project.ingest([tmp_path / name])

    now = project.store.current("ingest")

    assert now is not None
    assert now.table_sha256("events") == before.table_sha256("events")


def test_a_dry_run_changes_nothing(trained: Path) -> None:
    def state() -> dict[str, str]:
        paths = (p for p in trained.rglob("*") if p.is_file() and not p.name.startswith("lock"))
        return {str(p): files.hash_file(p) for p in paths}

    before = state()

    answer = Project(trained).forget(USER, dry_run=True)

    assert answer.dry_run
    assert [one.round for one in answer.certificate.tainted] == [1]
    assert state() == before


def test_nobody_is_no_user(trained: Path) -> None:
    with pytest.raises(UsageError, match="the store has no data of this user"):
        Project(trained).forget("nobody@example.com")
    assert "forgotten" not in (Project(trained).store.current("ingest") or pytest.fail("no snapshot")).extra


@pytest.mark.e2e  # `tests/crash/test_kill_operations.py` kills it at every place
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0, 2.0])
def test_killed_while_forgetting(trained: Path, forgotten: Path, tmp_path: Path, seconds: float) -> None:
    """That many seconds after it has written down what it is to remove."""
    project = tmp_path / "p"
    shutil.copytree(trained, project, symlinks=True)
    command = [REAL, "-C", str(project), "forget", "--user", USER, "--yes"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not (project / ".flywheel" / FORGETTING).exists():
        time.sleep(0.005)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not (project / ".flywheel" / FORGETTING).exists():
        flywheel(project, "forget", "--user", USER, "--yes")

    flywheel(project, "build")  # any command goes on with it first

    reference, found = digest(forgotten), digest(project)
    assert found["tables"].keys() == reference["tables"].keys()
    assert found["aliases"] == reference["aliases"]
    assert found["rounds"] == reference["rounds"]
    assert found["decisions"] == reference["decisions"]
    assert {t: v["content"] for t, v in found["tables"].items()} == {
        t: v["content"] for t, v in reference["tables"].items()
    }
    assert len(Project(project).registry.certificates()) == 1
    assert Project(project).registry.certificates()[0].after == Project(forgotten).registry.certificates()[0].after


def test_a_round_that_nobody_can_tell_whose_rows_it_has_is_tainted(trained: Path, tmp_path: Path) -> None:
    """As rounds of a version are that did not write down origins, once their tables are gone."""
    shutil.copytree(trained, tmp_path / "p", symlinks=True)
    project = Project(tmp_path / "p")
    data = project.registry.folder(1) / "data"
    (data / "origins.jsonl").unlink()
    known = project.forget(USER, dry_run=True).certificate
    assert not any("unknown" in note for note in known.notes)  # the tables that they came from still say it
    rows = (data / "train.jsonl").read_text().splitlines()
    strange = json.dumps({**json.loads(rows[0]), "id": "0" * 32})
    (data / "train.jsonl").write_text("\n".join([*rows, strange]) + "\n")

    certificate = project.forget(USER, dry_run=True).certificate

    assert certificate.tainted[0].rows == known.tainted[0].rows + 1
    assert "1 rows of unknown owner" in certificate.notes[0]
