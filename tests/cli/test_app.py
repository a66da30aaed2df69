"""Global options, errors as two lines, exit codes: each as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flywheel import __version__
from flywheel.cli.app import hoist_globals
from flywheel.errors import UsageError
from flywheel.project import Project
from flywheel.records import Promotion
from tests.projects import FLYWHEEL
from tests.report.sample import manifest


def flywheel(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLYWHEEL, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


def snapshot(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"


@pytest.mark.parametrize(
    ("typed", "moved"),
    [
        (["status", "--json"], ["--json", "status"]),
        (["train", "-C", "x", "--round", "1"], ["-C", "x", "train", "--round", "1"]),
        (["ingest", "--project=x", "a"], ["--project=x", "ingest", "a"]),
        (["ingest", "--", "-q"], ["ingest", "--", "-q"]),
        (["-C"], ["-C"]),
    ],
)
def test_global_options_work_before_and_after_the_command(typed: list[str], moved: list[str]) -> None:
    assert hoist_globals(typed) == moved


def test_version(tmp_path: Path) -> None:
    assert snapshot(flywheel("--version", cwd=tmp_path)) == f"exit 0\n--- stdout\nflywheel {__version__}\n--- stderr\n"


def test_a_variable_of_another_program_changes_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = flywheel("schema", "--help", cwd=tmp_path)
    for name in ("VERSION", "SHOW_COMPLETION", "QUIET", "SCHEMA_NAME"):
        monkeypatch.setenv(f"FLYWHEEL_{name}", "0.1.0")
    assert flywheel("schema", "--help", cwd=tmp_path).stdout == plain.stdout
    monkeypatch.setenv("FLYWHEEL_PROJECT", str(tmp_path / "agent"))
    assert str(tmp_path / "agent") in flywheel("status", "--json", cwd=tmp_path).stdout


def test_help_does_not_depend_on_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = flywheel("--help", cwd=tmp_path).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    assert flywheel("--help", cwd=tmp_path).stdout == plain


def test_training_a_round_too_far_says_which_is_next(tmp_path: Path) -> None:
    assert snapshot(flywheel("train", "--round", "12", cwd=tmp_path)) == (
        "exit 1\n--- stdout\n--- stderr\n"
        "error: round 12 cannot be trained: no round has been trained yet, the next is 1\n\n"
        "hint: flywheel train --round 1\n"
    )


def test_evaluating_before_training_says_so(tmp_path: Path) -> None:
    assert snapshot(flywheel("eval", "--promote", cwd=tmp_path)) == (
        "exit 1\n--- stdout\n--- stderr\n"
        "error: no round has been trained yet\n\nhint: `flywheel train` makes the first one\n"
    )


def test_an_empty_project(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    done = flywheel("-C", "agent", "status", cwd=tmp_path)
    assert snapshot(done) == (
        "exit 0\n--- stdout\n"
        "project  agent   store .flywheel (0 B)\n"
        "rounds   champion base model   challenger none   next 1\n"
        "logs     0 files ingested, 0 new or grown\n"
        "tables   none yet\n"
        "next     flywheel ingest LOGS\n"
        "--- stderr\n"
    )
    assert flywheel("-C", "agent", "log", cwd=tmp_path).stdout == "no rounds yet\nnext  flywheel ingest LOGS\n"
    for command in ("plan", "train"):
        told = "error: no logs were ingested yet: nothing to train on\n\nhint: flywheel ingest LOGS\n"
        assert flywheel("-C", "agent", command, cwd=tmp_path).stderr == told
    built = "no episodes: all tables are empty\nnext  flywheel ingest LOGS\n"
    assert flywheel("-C", "agent", "build", cwd=tmp_path).stdout == built
    report = flywheel("-C", "agent", "report", cwd=tmp_path).stdout
    assert report == "agent, no episodes\nnext  flywheel ingest LOGS\n"
    assert "tables   empty: there are no episodes\n" in flywheel("-C", "agent", "status", cwd=tmp_path).stdout
    with pytest.raises(UsageError) as refused:
        Project(tmp_path / "agent").rewards()
    assert refused.value.hint == "flywheel ingest LOGS, then flywheel build"


def test_a_wrong_configuration_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text("[pairs]\nmin_marign = 1\n")
    assert snapshot(flywheel("status", cwd=tmp_path)) == (
        "exit 1\n--- stdout\n--- stderr\n"
        "error: `flywheel.toml` line 2: unknown key `pairs.min_marign`\n\nhint: did you mean `min_margin`?\n"
    )


@pytest.mark.parametrize(
    ("written", "error", "hint"),
    [
        (None, "`p.json` cannot be read: No such file or directory", "check the path and who may read it"),
        (b"\xff", "`p.json` is not UTF-8, at byte 1", "save it as UTF-8"),
        (b'{"round": 1}', "`p.json`: method: Field required", "`flywheel plan --out FILE` saves one"),
    ],
)
def test_a_plan_that_is_none_is_named(tmp_path: Path, written: bytes | None, error: str, hint: str) -> None:
    if written is not None:
        (tmp_path / "p.json").write_bytes(written)
    told = f"exit 1\n--- stdout\n--- stderr\nerror: {error}\n\nhint: {hint}\n"
    assert snapshot(flywheel("train", "--plan", "p.json", cwd=tmp_path)) == told


def test_a_plan_is_written_over_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text("[pairs]\n")
    done = flywheel("plan", "--out", "flywheel.toml", cwd=tmp_path)
    assert (done.returncode, "is not a plan" in done.stderr) == (1, True)
    assert (tmp_path / "flywheel.toml").read_text() == "[pairs]\n"


@pytest.mark.parametrize("share", ["2", "1", "-0.5", "nan", "inf"])
def test_a_share_of_a_canary_is_one_of_its_users(tmp_path: Path, share: str) -> None:
    done = flywheel("canary", "--old", "a", "--new", "b", "--share", share, cwd=tmp_path)
    assert (done.returncode, "is not a share of users" in done.stderr) == (1, True)


def test_a_canary_is_not_compared_with_itself(tmp_path: Path) -> None:
    done = flywheel("canary", "--old", "a", "--new", "a", cwd=tmp_path)
    assert (done.returncode, "--old and --new are both `a`" in done.stderr) == (1, True)


def test_a_mistyped_command_is_a_usage_error(tmp_path: Path) -> None:
    done = flywheel("ingets", cwd=tmp_path)
    assert done.returncode == 2
    assert "ingest" in done.stderr


def test_rollback_without_a_terminal_needs_yes_and_asks_only_where_there_is_a_way_back(tmp_path: Path) -> None:
    done = flywheel("rollback", cwd=tmp_path)
    assert (done.returncode, "there is no champion" in done.stderr, "--yes" in done.stderr) == (1, True, False)
    registry, at = Project(tmp_path).registry, datetime(2026, 1, 1, tzinfo=UTC)
    registry.save(manifest(round=1, parent=None))
    registry.decide(Promotion(round=1, decision="forced", champion_before=None, champion_after=1, by="test", at=at))
    done = flywheel("rollback", cwd=tmp_path)
    assert done.returncode == 2
    assert "from round 1 to the base? There is no terminal" in done.stderr
    assert "--yes" in done.stderr


def test_nothing_to_read_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for typed in (["ingest"], ["ingest", "missing/"]):
        done = flywheel(*typed, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert "\nhint: " in done.stderr
        assert "Traceback" not in done.stderr


def test_init_writes_the_defaults_once(tmp_path: Path) -> None:
    done = flywheel("init", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["made"] == ["flywheel.toml", "pipelines/nightly.toml", ".gitignore"]
    again = flywheel("init", cwd=tmp_path)
    assert again.returncode == 1
    assert "already exists" in again.stderr


@pytest.mark.parametrize("command", ["status", "log", "plugins"])
def test_json_answers_fit_their_published_schema(command: str, tmp_path: Path, root: Path) -> None:
    import jsonschema

    done = flywheel(command, "--json", cwd=tmp_path)
    schema = json.loads((root / "schemas" / "cli" / command / "v1.json").read_text())
    jsonschema.validate(json.loads(done.stdout), schema)


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        (["train", "--round", "12", "--json"], 1, "round 12 cannot be trained: no round has been trained yet"),
        (["--json", "ingets"], 2, "No such command 'ingets'"),
        (["--json", "plan", "--round", "x"], 2, "Invalid value for '--round'"),
        (["explain", "--json"], 2, "Missing argument 'SUBJECT'"),
        (["--json", "deploy"], 2, "Missing command."),
        (["rollback", "--json"], 1, "there is no champion: the base model serves"),
    ],
)
def test_with_json_an_error_is_a_document_too(
    typed: list[str], code: int, message: str, tmp_path: Path, root: Path
) -> None:
    import jsonschema

    done = flywheel(*typed, cwd=tmp_path)
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, json.loads((root / "schemas" / "cli" / "error" / "v1.json").read_text()))
    assert (done.returncode, answer["error"]["exit_code"], done.stderr) == (code, code, "")
    assert answer["error"]["message"].startswith(message)
    assert answer["error"]["hint"]


def test_the_environment_may_ask_for_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_JSON", "1")
    assert json.loads(flywheel("explain", "nothing", cwd=tmp_path).stdout)["error"]["exit_code"] == 1
    assert json.loads(flywheel("status", cwd=tmp_path).stdout)["next_round"] == 1
    assert "FLYWHEEL_JSON" in flywheel("--help", cwd=tmp_path).stdout


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flywheel", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == f"flywheel {__version__}\n"


def test_whoever_reads_the_output_may_stop(tmp_path: Path) -> None:
    command = [FLYWHEEL, "query", "SELECT range FROM range(1000000)", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"range\n"
        running.stdout.close()
        assert (running.wait(), running.stderr.read()) == (141, b"")
