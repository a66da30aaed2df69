"""A lost or another redaction key is never silent, and a user is known however a log writes the name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.config import RedactConfig
from flywheel.errors import StoreError, UsageError
from flywheel.pipeline import redaction_key
from flywheel.project import KEY_FILE, Project
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.stages.ingest.redaction.users import Users, normal_form
from hypothesis import given
from hypothesis import strategies as st
from tests.reports import manifest

USER = "Ann.Lee@Shop.example"
SAID = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Four."}]


def _logged(folder: Path, *users: str) -> Project:
    (folder / "logs").mkdir(exist_ok=True)
    requests = [
        {
            "conversation_id": f"c{number}", "event": "request", "user": user, "messages": SAID, "model": "m",
            "user_id": user, "at": "2026-01-01T00:00:00Z",
        }
        for number, user in enumerate(users)
    ]  # fmt: skip
    (folder / "logs" / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests))
    project = Project(folder)
    project.ingest()
    return Project(folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a key file and one user."""
    monkeypatch.delenv("FLYWHEEL_KEY", raising=False)
    return _logged(tmp_path, USER)


def _key_check(project: Project) -> str:
    (check,) = (check for check in Project(project.folder).doctor().checks if check.name == "key")
    return f"{check.state}: {check.says}; {check.fix}"


@pytest.mark.parametrize("lost", ["missing", "another", "in the environment", "empty"])
def test_a_lost_key_is_refused_by_whatever_needs_it(
    project: Project, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.folder / KEY_FILE
    before = path.read_text()
    if lost == "missing":
        path.unlink()
    elif lost == "in the environment":
        monkeypatch.setenv("FLYWHEEL_KEY", "another")
    else:
        path.write_text("another\n" if lost == "another" else "\n")

    with pytest.raises(StoreError, match=r"key|empty") as caught:
        Project(project.folder).forget(USER)
    assert "FLYWHEEL_KEY" in caught.value.hint
    commands: tuple[Callable[[Project], object], ...] = (
        lambda p: p.forget(USER, dry_run=True),
        lambda p: p.ingest(),
        lambda p: p.run(),
        lambda p: p.evaluate(),
        lambda p: p.context.key() if p.context.key else None,
    )
    for command in commands:
        with pytest.raises(StoreError, match=r"key|empty"):
            command(Project(project.folder))
    assert "failed" in _key_check(project)
    assert path.exists() == (lost != "missing")

    monkeypatch.delenv("FLYWHEEL_KEY", raising=False)
    path.write_text(before)
    assert Project(project.folder).forget(USER).certificate.removed["conversations"] == 1


def test_forgetting_in_an_empty_project_makes_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYWHEEL_KEY", raising=False)
    with pytest.raises(UsageError, match="no data of this user"):
        Project(tmp_path).forget(USER)
    assert not (tmp_path / KEY_FILE).exists()


def test_the_store_keeps_no_key_and_an_older_store_takes_the_fingerprint_at_first_use(project: Project) -> None:
    header, key = project.store.root / "store.json", redaction_key.given(project.folder / KEY_FILE)
    assert key is not None
    assert key.decode() not in header.read_text()
    kept = json.loads(header.read_text())
    assert kept.pop("key") == redaction_key.fingerprint(key)
    header.write_text(json.dumps(kept))

    (project.folder / KEY_FILE).unlink()
    with pytest.raises(StoreError, match="the redaction key of this store is missing"):
        Project(project.folder).forget(USER)
    (project.folder / KEY_FILE).write_text("another")
    with pytest.raises(UsageError) as caught:
        Project(project.folder).forget("nobody@shop.example", dry_run=True)
    assert "does not know its redaction key yet" in str(caught.value.hint)
    (project.folder / KEY_FILE).write_text(key.decode())
    Project(project.folder).ingest(dry_run=True)
    assert "key" not in json.loads(header.read_text()), "a dry run takes nothing down"
    Project(project.folder).ingest()
    assert json.loads(header.read_text())["key"] == redaction_key.fingerprint(key)


WRITTEN = ("ann.lee@shop.example", "ANN.LEE@SHOP.EXAMPLE", "ann\u200b.lee@shop.example", "ａｎｎ.lee@shop.example")  # noqa: RUF001


def test_a_user_stays_forgotten_in_a_store_that_is_made_anew(project: Project) -> None:
    project.forget(USER)
    shutil.rmtree(project.store.root)
    assert Project(project.folder).ingest().forgotten
    assert Project(project.folder).store.table("events", "ingest").collect().is_empty()


def test_forget_knows_a_user_however_the_log_writes_the_name(tmp_path: Path) -> None:
    project = _logged(tmp_path, *WRITTEN, "ann.leigh@shop.example")

    answer = project.forget("\ufeffAnn.Lee@shop.EXAMPLE ")

    assert answer.certificate.removed["conversations"] == len(WRITTEN)
    with pytest.raises(UsageError, match="no data of this user"):
        project.forget("ann.le@shop.example")


def test_forget_also_finds_what_an_earlier_version_stored_under_the_name_as_written(tmp_path: Path) -> None:
    legacy = Users(b"test-key", plus_addressing=False).pseudonyms(USER)[1]
    project = _logged(tmp_path, legacy, USER)

    assert project.forget(USER).certificate.removed["conversations"] == 2  # under either pseudonym
    with pytest.raises(UsageError, match="no data of this user"):
        project.forget("somebody@else.example")
    assert project.forget(USER).already
    assert project.forget(legacy).already


def test_forget_counts_and_removes_all_pseudonyms_of_a_user_also_behind_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legacy = Users(b"test-key", plus_addressing=False).pseudonyms("Ann")[1]
    project = _logged(tmp_path, legacy, "Ann", "bob")
    assert project.forget("Ann", dry_run=True).certificate.removed["conversations"] == 2

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flywheel.pipeline.privacy.erase.cleanse_pages", killed)
        with pytest.raises(KeyboardInterrupt):
            project.forget("Ann")
    Project(project.folder).build()
    assert project.store.table("events", "ingest").collect()["conversation_id"].n_unique() == 1
    assert len(project.registry.certificates()) == 2


def test_forget_shows_the_rounds_that_saw_a_user_under_any_pseudonym(tmp_path: Path) -> None:
    legacy = Users(b"test-key", plus_addressing=False).pseudonyms("Ann")[1]
    project = _logged(tmp_path, legacy, "Ann", "bob")
    project.registry.save(manifest(1))
    data = tmp_path / "rounds" / "0001" / "data"
    data.mkdir()
    (data / "train.jsonl").write_text('{"id": "one"}\n')
    (data / "origins.jsonl").write_text(json.dumps({"id": "one", "episodes": [], "users": [legacy]}) + "\n")
    certificate = Project(tmp_path).forget("Ann", dry_run=True).certificate
    assert certificate.removed["conversations"] == 2
    assert [taint.round for taint in certificate.tainted] == [1]


def test_a_user_of_an_earlier_version_stays_forgotten_when_this_version_reads_their_logs(tmp_path: Path) -> None:
    legacy = Users(b"test-key", plus_addressing=False).pseudonyms("Ann")[1]
    project = _logged(tmp_path, legacy, "bob")
    project.forget("Ann")
    log = tmp_path / "logs" / "a.jsonl"
    (tmp_path / "logs" / "b.jsonl").write_text(log.read_text().replace(legacy, "Ann").replace('"c', '"later c'))

    assert Project(tmp_path).ingest().forgotten
    users = set(Project(tmp_path).store.table("events", "ingest").collect()["user"].drop_nulls())
    assert users == {Users(b"test-key", plus_addressing=False).pseudonym("bob")}


@pytest.mark.parametrize(("plus", "same"), [(False, False), (True, True)])
def test_plus_addressing_is_a_setting(plus: bool, same: bool) -> None:  # noqa: FBT001 - a parameter of the test
    redactor = Redactor(RedactConfig(plus_addressing=plus), b"key")
    assert (redactor.user("ann+shop@x.example") == redactor.user("ann@x.example")) is same
    assert redactor.user("+x@y.example") != redactor.user("@y.example")


@given(st.text())
def test_the_normal_form_is_one(name: str) -> None:
    form = normal_form(name)
    assert normal_form(form) == form or form == name
    assert normal_form(name.upper()) == normal_form(name.upper().casefold())
    assert bool(form) == bool(name)
    if name.isascii() and name == name.lower().strip():
        assert form == name
