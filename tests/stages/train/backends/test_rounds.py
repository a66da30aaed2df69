"""A round in another system: what it is given, what its first step must show, and which adapter is taken."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import Config, render_default_config
from flywheel.errors import ConfigError, TrainError
from flywheel.pipeline.train.plan import differing_keys, round_config
from flywheel.project import Project
from flywheel.records import BackendRun
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.commands import FLYWHEEL, flywheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.projects import Projects

TRAINER = Path(__file__).parents[4] / "examples" / "own_trainer" / "train.py"
CHEAT = """
import json, sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
Path("ran").touch()
{body}
"""
GOES_ON = """
import json, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import own

job = json.loads(Path(sys.argv[1]).read_text())
metrics, saved = Path(job["metrics"]), Path(job["checkpoints"]) / "step-2"
own.main({**job, "metrics": "all.jsonl"})  # its steps, as a checkpoint would go on from them
lines = Path("all.jsonl").read_text().splitlines(keepends=True)[-4:]
with metrics.open("a") as log:
    log.writelines(lines[2:] if saved.exists() else [*lines[:2], lines[2][:9]])
if not saved.exists():
    saved.touch()
    sys.exit(9)
"""
LORA = '{"peft_type": "LORA", "r": 16, "lora_alpha": 0}'


def configured(project: Path, method: str, command: list[str], **train: Any) -> Project:
    """Let a project's rounds be trained by a command."""
    path = project / "flywheel.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in train.items()]
    text = path.read_text(encoding="utf-8").replace('method = "sft"', f'method = "{method}"\nbackend = "mine"')
    text = text.replace("[train]", "\n".join(["[train]", *lines]), 1)
    path.write_text(f"{text}\n[train.backends.mine]\ncommand = {json.dumps(command)}\n", encoding="utf-8")
    return Project(project)


def forked(folder: Path, module: str) -> list[str]:
    """Return the command of a trainer that is spared the imports."""
    return ["env", f"PYTHONPATH={folder}", FLYWHEEL, "-m", module]


@pytest.fixture(scope="module")
def built(session_projects: Projects) -> Path:
    return session_projects.made("built")


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "agent", symlinks=True)


@pytest.mark.e2e  # the trainer that goes on after a kill, below, trains a round from the base too
def test_a_users_own_trainer_trains_rounds_from_the_base_and_from_the_champion(copied: Path) -> None:
    shutil.copy(TRAINER, copied / "my_trainer.py")
    project = configured(copied, "sft", [sys.executable, "my_trainer.py"])

    flywheel(copied, "train")

    manifest = project.registry.manifest(1)
    assert manifest.state == "trained"
    assert manifest.backend is not None
    assert manifest.backend.title == "a command of your own"
    assert manifest.backend.arguments["batch_size"] == 2
    assert manifest.checks["step0_gap"] < 1e-3
    assert manifest.kl is not None
    assert 0 < manifest.kl < manifest.max_kl
    folder = project.registry.folder(1)
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == manifest.base_model
    assert sorted(p.name for p in (folder / "adapter").iterdir()) == ["adapter_config.json", ADAPTER_WEIGHTS]
    assert [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 4]
    assert not (folder / "work").exists()

    flywheel(copied, "promote", "1", "--force", "--yes", "--reason", "rehearsal")
    text = (copied / "flywheel.toml").read_text(encoding="utf-8")
    (copied / "flywheel.toml").write_text(text.replace('"sft"', '"dpo"'), encoding="utf-8")
    flywheel(copied, "train")

    second = Project(copied).registry.manifest(2)
    assert second.parent == 1
    assert second.checks["loss_step0"] == pytest.approx(0.693147, abs=1e-4)  # the champion is start and reference


@pytest.mark.e2e
def test_a_killed_trainer_that_keeps_checkpoints_goes_on_and_its_first_step_stays_checked(copied: Path) -> None:
    shutil.copy(TRAINER, copied / "own.py")
    (copied / "goes_on.py").write_text(GOES_ON, encoding="utf-8")
    project = configured(copied, "sft", forked(copied, "goes_on"))

    assert "ended with status 9" in flywheel(copied, "train", check=False).stderr
    flywheel(copied, "train")

    manifest = project.registry.manifest(1)
    assert manifest.state == "trained"
    assert manifest.checks["step0_gap"] < 1e-3
    metrics = (project.registry.folder(1) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param("sys.exit(3)", "a command of your own ended with status 3", marks=pytest.mark.e2e),
        pytest.param("", "logged no first step", marks=pytest.mark.e2e),
        ('Path(job["metrics"]).write_text(\'{"step": 1, "of": 1, "loss": 0.25}\\n\')', "has loss = 0.25"),
        pytest.param(
            'Path(job["metrics"]).write_text(\'{"step": 1, "of": 1, "mine": 0.25}\\n\')',
            "logs none of loss",
            marks=pytest.mark.e2e,
        ),
    ],
)
def test_a_system_that_fails_or_shows_another_first_step_trains_no_round(copied: Path, body: str, says: str) -> None:
    (copied / "cheat.py").write_text(CHEAT.format(body=body), encoding="utf-8")
    project = configured(copied, "dpo", [sys.executable, "cheat.py"])

    done = flywheel(copied, "train", check=False)

    assert done.returncode == 1
    assert says in done.stderr
    assert project.registry.manifest(1).state == "failed"
    assert not (project.registry.folder(1) / "adapter").exists()


def test_an_adapter_of_another_scale_than_the_rounds_is_refused(copied: Path) -> None:
    later = """
path = Path(json.loads(Path(sys.argv[1]).read_text())["adapter"]) / "adapter_config.json"
path.write_text(json.dumps({**json.loads(path.read_text()), "lora_alpha": 640}))
"""
    (copied / "my_trainer.py").write_text(TRAINER.read_text(encoding="utf-8") + later, encoding="utf-8")
    project = configured(copied, "sft", forked(copied, "my_trainer"))

    done = flywheel(copied, "train", check=False)

    assert done.returncode == 1
    assert "lora_alpha is 640" in done.stderr
    assert project.registry.manifest(1).state == "failed"


def test_a_plan_shows_the_system_and_lists_no_row_that_it_cannot_mix(copied: Path) -> None:
    project = configured(copied, "dpo", [sys.executable, "cheat.py"])
    plan = project.plan()
    assert plan.backend == BackendRun(name="mine", title="a command of your own", command=[sys.executable, "cheat.py"])
    assert plan.config["train"]["backends"]["mine"]["command"] == [sys.executable, "cheat.py"]
    shown = flywheel(copied, "plan").stdout
    assert "trained in" in shown
    assert "a command of your own" in shown


def test_records_of_a_round_hide_tokens_and_do_not_depend_on_the_limit_of_distance(built: Path) -> None:
    """The distance of another system's adapter is measured after it was trained, so a new limit trains nothing anew."""
    plans = []
    for number in (1, 2):
        arguments = {"hub_token": f"hf_{number}", "rate": 1, "eos_token": "</s>", "hub": {"api_key": "k"}}
        own = {"command": ["true"], "arguments": arguments}
        base = Project(built).config.model_dump()
        train = {"method": "dpo", "backend": "mine", "backends": {"mine": own}, "max_kl": 0.1 * number}
        config = Config.model_validate({**base, "train": {**base["train"], **train}})
        plans.append(round_config(Project(built, config=config).context))
        written = tomllib.loads(render_default_config(config))["train"]["backends"]["mine"]["arguments"]
        assert written == {"hub_token": "***", "rate": 1, "eos_token": "</s>", "hub": {"api_key": "***"}}

    first, second = plans
    assert first["train"]["backends"]["mine"]["arguments"] == written
    assert differing_keys(first, second) == []
    earlier = {**first, "train": {**first["train"], "max_kl": 0.1}}  # as a round was begun before
    assert differing_keys(earlier, second) == []


def test_doctor_asks_the_interpreter_that_rounds_are_trained_in(built: Path) -> None:
    base = Project(built).config.model_dump()
    swift = {"backend": "swift", "backends": {"swift": {"python": sys.executable}}}
    config = Config.model_validate({**base, "train": {**base["train"], **swift}})
    (check,) = [one for one in Project(built, config=config).doctor().checks if one.name == "backend"]
    assert check.state == "failed"
    assert check.fix == f"`{sys.executable} -m pip install ms-swift==4.6.0`"


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ({"trl": {"loss_type": "ipo"}}, "does not follow train.trl"),
        ({"dpo_demonstrations": 2.0}, "does not follow train.dpo_demonstrations"),
        ({"backend": "verl"}, "it needs a GPU; `flywheel export --to verl`"),
        ({"backend": "other"}, r"needs `\[train.backends.other\]` with command"),
        ({"backend": "swift", "backends": {"swift": {"python": "no/such/python"}}}, "cannot be started"),
        ({"backend": "swift", "backends": {"swift": {"python": "/bin/true"}}}, "does not give the versions"),
        ({"backend": "swift", "backends": {"swift": {"python": sys.executable}}}, "ms-swift is not installed"),
        ({"method": "grpo"}, "`grpo` cannot be trained in a command of your own"),
    ],
)
def test_what_a_system_cannot_do_is_refused_by_the_plan(built: Path, train: dict[str, Any], says: str) -> None:
    own: dict[str, Any] = {"method": "dpo", "backend": "mine", "backends": {"mine": {"command": [sys.executable]}}}
    base = Project(built).config.model_dump()
    config = Config.model_validate({**base, "train": {**base["train"], **own, **train}})
    with pytest.raises((ConfigError, TrainError, Exception), match=says):
        Project(built, config=config).plan()


def test_a_base_with_code_of_its_own_is_not_given_to_a_system_that_would_run_it(
    built: Path, tiny_model: Path, tmp_path: Path
) -> None:
    base = shutil.copytree(tiny_model, tmp_path / "base")
    settings = json.loads((base / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["auto_map"] = {"AutoTokenizer": ["evil.Tokenizer", None]}
    (base / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    known = Project(built).config.model_dump()
    swift = {"method": "dpo", "backend": "swift", "backends": {"swift": {"python": sys.executable}}}
    changed = {"model": {**known["model"], "base": str(base)}, "train": {**known["train"], **swift}}
    with pytest.raises(ConfigError, match=r"tokenizer_config.json names code of its own"):
        Project(built, config=Config.model_validate({**known, **changed})).plan()


def test_what_a_trainer_started_ends_with_flywheel(tmp_path: Path) -> None:
    guard = [sys.executable, "-P", "-m", "flywheel.stages.train.backends.job"]
    trainer = ["sh", "-c", "sleep 60 & echo $! > pid; wait"]
    starts = f"import os, subprocess; subprocess.Popen([*{guard}, str(os.getpid()), *{trainer}]).wait()"
    with subprocess.Popen([sys.executable, "-c", starts], cwd=tmp_path, start_new_session=True) as flywheels:
        pid = tmp_path / "pid"
        wait_for(lambda: pid.is_file() and pid.read_text().strip())
        os.killpg(flywheels.pid, signal.SIGKILL)  # as a scheduler ends a job: every process of flywheel's at once
    started = Path("/proc", pid.read_text().strip(), "stat")
    wait_for(lambda: not started.exists() or started.read_text().split()[2] == "Z")


def wait_for(happened: Callable[[], object]) -> None:
    for _ in range(300):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError
