"""flywheel doctor: a sound project passes, and each thing that is wrong is named with a fix."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.pipeline.inspect.doctor import doctor as checks_of
from flywheel.project import KEY_FILE, Project
from tests.projects import TINY_CONFIG

if TYPE_CHECKING:
    from flywheel.results.setup import DoctorCheck


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path, tiny_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "flywheel.toml").write_text(TINY_CONFIG.format(model=tiny_model))
    (folder / "logs").mkdir()  # where its nights read
    made = Project(folder)
    made.key()
    made.ingest([sample_logs])
    made.build()
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "project"))


def wrong(folder: Path) -> dict[str, DoctorCheck]:
    return {check.name: check for check in Project(folder).doctor().checks if check.state != "ok"}


def test_a_sound_project_is_healthy(folder: Path) -> None:
    answer = Project(folder).doctor()

    assert answer.healthy
    assert {check.name for check in answer.checks} >= {"python", "disk", "key", "store", "clock", "model", "rounds"}
    assert all(check.fix == "" for check in answer.checks if check.state == "ok")


def test_a_key_that_others_can_read_is_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYWHEEL_KEY", raising=False)
    (folder / KEY_FILE).write_text("test-key\n")
    (folder / KEY_FILE).chmod(0o644)

    assert wrong(folder)["key"].state == "warning"
    assert "chmod 600" in wrong(folder)["key"].fix


@pytest.mark.parametrize(("table", "fix"), [("events", "backup"), ("episodes", "--full-refresh")])
def test_a_part_that_is_missing_or_cut_off_is_a_failure(folder: Path, table: str, fix: str) -> None:
    first, second, *_ = sorted((folder / ".flywheel" / "tables" / table).rglob("*.parquet"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    failed = [c for c in Project(folder).doctor().checks if c.name == "store"]

    assert [c.state for c in failed] == ["failed", "failed"]
    assert all(fix in c.fix for c in failed)


def test_a_part_with_other_bytes_is_found_and_ends_no_check(folder: Path) -> None:
    for part in (folder / ".flywheel" / "tables" / "events").rglob("*.parquet"):
        whole = bytearray(part.read_bytes())
        whole[::37] = bytes(len(whole[::37]))
        part.write_bytes(whole)
    checks = Project(folder).doctor().checks
    assert {c.name for c in checks if c.state == "failed"} == {"store", "clock"}
    assert checks[-1].name == "sources"
    assert all("changed since it was written" in c.says for c in checks if c.name == "store")


def test_a_model_that_is_not_there_is_a_failure(folder: Path) -> None:
    (folder / "flywheel.toml").write_text('[model]\nbase = "nowhere/nothing"\n')

    assert wrong(folder)["model"].state == "failed"
    assert not Project(folder).doctor().healthy


def test_events_from_the_future_are_a_warning(folder: Path) -> None:
    ctx = Project(folder).context
    early = type(ctx)(ctx.project, ctx.config, ctx.store, ctx.registry, clock=lambda: datetime(2020, 1, 1, tzinfo=UTC))
    (clock,) = [check for check in checks_of(early, folder / KEY_FILE).checks if check.name == "clock"]

    assert clock.state == "warning"
    assert "ahead of this machine's clock" in clock.says


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        ('command = "no-such-program --x"', "not found"),
        ('webhook = "https://x/"\ntoken_env = "NOT_SET_HERE"', "not set"),
    ],
)
def test_a_hook_that_could_not_tell_anybody_is_a_warning(folder: Path, hook: str, says: str) -> None:
    with (folder / "flywheel.toml").open("a") as file:
        file.write(f"\n[notify]\n{hook}\n")
    assert wrong(folder)["hooks"].state == "warning"
    assert says in wrong(folder)["hooks"].says


def test_a_hook_that_is_there_is_named(folder: Path) -> None:
    with (folder / "flywheel.toml").open("a") as file:
        file.write('\n[notify]\ncommand = "cat -"\nwebhook = "https://x/"\n')
    (found,) = [check for check in Project(folder).doctor().checks if check.name == "hooks"]
    assert (found.state, found.says) == ("ok", "notifications by command and webhook")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ('[ingest.redact]\nkinds = ["emails"]', "unknown kind `emails`"),
        ('[ingest.redact]\ndeny = ["(["]', "regular expression"),
        ('[ingest]\nformat = "nosuch"', "no readers extension named `nosuch`"),
        ('[rewards]\nsignals = ["nosuch"]', "no rewards extension named `nosuch`"),
        ('[gate]\nrules = ["nosuch"]', "no gates extension named `nosuch`"),
        ('[eval]\nsuites = ["nosuch"]', "no evaluators extension named `nosuch`"),
    ],
)
def test_a_name_in_the_settings_that_nothing_has_is_a_failure(tmp_path: Path, setting: str, says: str) -> None:
    (tmp_path / "flywheel.toml").write_text(f"{setting}\n", encoding="utf-8")
    assert wrong(tmp_path)["settings"].state == "failed"
    assert says in wrong(tmp_path)["settings"].says


def test_a_source_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text('[ingest]\nsources = ["nolog"]\n', encoding="utf-8")
    assert (wrong(tmp_path)["sources"].state, "nolog" in wrong(tmp_path)["sources"].says) == ("failed", True)
