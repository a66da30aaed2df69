"""A project that somebody else wrote runs nothing, sends nothing and writes nowhere else before it is approved."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.config.approval import MADE
from flywheel.errors import ConfigError, FlywheelError
from flywheel.extensions import load_extension
from flywheel.project import Project
from tests.commands import flywheel

NAMED = '[gate]\nrules = ["validity", "superiority", "our_gate:rule"]\n'
RULE = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n\ndef rule(inputs, cfg):\n    return 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project from elsewhere that names a rule of its own, on a machine that trusts nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FLYWHEEL_TRUST")
    made = tmp_path / "p"
    made.mkdir()
    (made / "flywheel.toml").write_text(NAMED)
    (made / "our_gate.py").write_text(RULE)
    return made


def test_code_is_refused_until_it_is_approved_and_again_when_it_changes(folder: Path) -> None:
    def refused() -> str:
        with pytest.raises(
            ConfigError, match=r"code that (was not|has changed since it was) approved.*: our_gate:rule"
        ) as caught:
            Project(folder)
        return caught.value.hint

    assert f"flywheel -C {folder} trust" in refused()
    assert Project.trust(folder, dry_run=True).names == ["our_gate:rule"]
    refused()
    answer = Project.trust(folder)
    assert Project(folder).status().next
    assert load_extension("gates", "our_gate:rule", search=folder)(None, None) == 1

    (folder / "our_gate.py").write_text(RULE + "# changed\n")
    refused()
    Project.trust(folder)
    Project(folder)
    Path(answer.record).unlink()
    refused()


@pytest.mark.parametrize(
    "toml",
    [
        '[train]\ntrainer = "evil:run"',
        '[rewards]\nsignals = ["outcome", "evil:signal"]',
        '[pairs]\nbuilders = ["evil:build"]',
        '[eval]\nsuites = ["evil:suite"]',
        '[eval.checks]\nours = "evil:check"',
        '[episodes]\nembedding = "evil:embed"',
        '[ingest]\nformat = "evil:READER"',
        '[notify]\ncommand = "sh evil.sh"',
        '[notify]\nwebhook = "https://evil.example/"',
        '[mlflow]\ntracking_uri = "https://evil.example/"',
        '[mlflow]\ntracking_uri = "postgresql://evil.example/x"',
        '[mlflow]\ntracking_uri = "databricks"',
        '[mlflow]\ntracking_uri = "sqlite:////elsewhere/mlflow.db"',
        '[mlflow]\ntracking_uri = "sqlite:///../mlflow.db"',
        '[rewards.judge]\nurl = "https://evil.example/v1"',
        '[eval]\nendpoint = "https://evil.example/v1"\nendpoint_hosts = ["evil.example"]',
        '[train.backends.mine]\ncommand = ["sh", "evil.sh"]',
        f'[train.backends.mine]\ncommand = ["sh", "-c", "{"true; " * 60}"]',
        '[train.backends.swift]\npython = "evil/python"',
        "[train.backends.swift.arguments]\npush_to_hub = true",
        'store = "../elsewhere"',
        'rounds = "/elsewhere"',
    ],
)
def test_whatever_runs_sends_or_writes_elsewhere_is_asked_about(folder: Path, toml: str) -> None:
    (folder / "flywheel.toml").write_text(toml)
    with pytest.raises(ConfigError, match=r"not approved here|outside of the project"):
        Project(folder)
    Project.trust(folder, outside=True)
    Project(folder)


def test_what_another_trainer_is_given_is_asked_about_and_the_files_that_it_names_by_content(folder: Path) -> None:
    """ms-swift imports its `external_plugins`, and sends an adapter to a hub when asked to."""
    other = '[train.backends.swift]\npython = "/opt/swift/bin/python"\n[train.backends.swift.arguments]\n'
    (folder / "flywheel.toml").write_text(other)
    Project.trust(folder)
    Project(folder)

    (folder / "plugin.py").write_text("")
    (folder / "flywheel.toml").write_text(f'{other}external_plugins = ["plugin.py"]\n')
    with pytest.raises(ConfigError, match="external_plugins"):
        Project(folder)
    Project.trust(folder)
    Project(folder)
    (folder / "plugin.py").write_text("import evil\n")
    with pytest.raises(ConfigError, match="has changed since it was approved"):
        Project(folder)


def test_a_store_outside_needs_its_own_switch_and_a_link_is_no_way_around(folder: Path, tmp_path: Path) -> None:
    (folder / "flywheel.toml").write_text("")
    (tmp_path / "victim").mkdir()
    (folder / ".flywheel").symlink_to(tmp_path / "victim")
    for switch in (False, False):
        with pytest.raises(ConfigError, match="outside of the project"):
            Project(folder)
        Project.trust(folder, outside=switch)
    Project.trust(folder, outside=True)
    assert Project(folder).gc().count == 0


def test_a_name_from_a_round_a_case_or_a_pipeline_is_refused_too(folder: Path) -> None:
    """The configuration names nothing; `load_extension` is the door for all of them."""
    (folder / "flywheel.toml").write_text("")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "nightly.toml").write_text(
        'name = "nightly"\nstages = ["notify"]\n[overrides.notify]\ncommand = "touch ran"\n'
    )
    for name in ("our_gate:rule", "os:system"):
        with pytest.raises(FlywheelError, match="was not approved here"):
            load_extension("checks", name, search=folder)
    with pytest.raises(ConfigError, match=r"notify\.command = touch ran"):
        Project(folder).run("nightly")
    assert Project.trust(folder, dry_run=True).names == ["notify.command = touch ran"]
    assert not (folder / "ran").exists()


def test_another_owners_project_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in a parent folder, as git's `safe.directory` has it; without any code in it."""
    (folder / "flywheel.toml").write_text("")
    mine = os.getuid()
    monkeypatch.setattr("flywheel.config.approval.os.getuid", lambda: mine + 1)
    owner = (folder / "flywheel.toml").stat().st_uid
    if owner == 0:  # what the administrator wrote is trusted
        Project(folder)
        os.chown(folder / "flywheel.toml", 12345, -1)
        owner = 12345
    with pytest.raises(ConfigError, match=f"belongs to another user \\(uid {owner}\\)"):
        Project(folder)
    assert Project.trust(folder).owner == owner
    Project(folder)


def _own(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    Project.init(folder)
    (folder / "flywheel.toml").write_text(NAMED)
    (folder / "our_gate.py").write_text(RULE)


def _in_ci(_folder: Path) -> None:
    os.environ["FLYWHEEL_TRUST"] = "1"


@pytest.mark.parametrize("make", [_own, _in_ci, lambda folder: (folder / "flywheel.toml").write_text("[build]\n")])
def test_own_projects_plain_ones_and_ci_are_not_bothered(
    folder: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_TRUST", "")
    make(folder)
    assert Project(folder).status().next


def test_a_folder_in_the_place_of_an_own_project_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    _own(folder)
    folder.rename(tmp_path / "own")
    shutil.copytree(tmp_path / "own", folder)
    assert Project(folder), "restored from a copy, it is the same project"
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "own", folder, ignore=shutil.ignore_patterns(MADE))  # a file system may reuse the inode
    with pytest.raises(ConfigError, match="not approved here"):
        Project(folder)


def test_the_command_shows_what_it_approves_and_asks(folder: Path) -> None:
    done = flywheel(folder, "status", check=False)
    assert (done.returncode, "our_gate:rule" in done.stderr) == (1, True)
    done = flywheel(folder, "trust", check=False)
    assert (done.returncode, "runs      our_gate:rule" in done.stdout, "--yes" in done.stderr) == (2, True, True)
    assert not (folder / "ran").exists()
    assert "approved" in flywheel(folder, "trust", "--yes").stdout
    flywheel(folder, "status")


def test_what_python_loads_in_place_of_the_source_is_no_way_around_the_approval(folder: Path) -> None:
    """A cached compilation is not read, a compiled module next to the source asks again."""
    Project.trust(folder)
    source, other = folder / "our_gate.py", folder / "other.py"
    other.write_text(RULE.replace("'ran'", "'other'"))
    cached = Path(importlib.util.cache_from_source(str(source)))
    py_compile.compile(str(other), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    load = "from flywheel.extensions import load_extension as load; from pathlib import Path as P; import sys\n"
    load += "load('gates', 'our_gate:rule', search=P(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", load, folder], check=True)
    assert [path.name for path in folder.iterdir() if path.name in {"ran", "other"}] == ["ran"]

    (folder / f"our_gate{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    with pytest.raises(ConfigError, match="has changed since it was approved"):
        Project(folder)


def test_packages_of_an_environment_inside_the_project_are_not_compiled_again_by_each_command(tmp_path: Path) -> None:
    venv.create(tmp_path / ".venv")
    (packages,) = (tmp_path / ".venv" / "lib").glob("python*/site-packages")
    (packages / "of_this_one.pth").write_text("\n".join(path for path in sys.path if path))
    (packages / "installed_there.py").write_text("")
    (tmp_path / "our_gate.py").write_text("")
    load = (
        "import sys; from pathlib import Path; from flywheel.io import safe_path; safe_path.search(Path(sys.argv[1]))"
    )
    load += "; import installed_there, our_gate"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    python = tmp_path / ".venv" / "bin" / "python"
    subprocess.run([python, "-P", "-c", load, tmp_path], check=True, env=environment)
    assert {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")} >= {"installed_there"}
    assert not (tmp_path / "__pycache__").exists()


def test_a_configuration_of_another_name_is_approved_with_its_own(folder: Path) -> None:
    named = folder.with_name("other.toml")
    named.write_text('[notify]\ncommand = "true"\n')
    other = ("--config", str(named))
    assert flywheel(folder, *other, "status", check=False).returncode == 1
    flywheel(folder, *other, "trust", "--yes")
    flywheel(folder, *other, "status")
    flywheel(folder, "status")


def test_only_what_was_seen_is_approved(folder: Path) -> None:
    seen = Project.trust(folder, dry_run=True).sha256
    (folder / "our_gate.py").write_text(RULE + "\n")
    with pytest.raises(ConfigError, match="changed while it was looked at"):
        Project.trust(folder, seen=seen)
