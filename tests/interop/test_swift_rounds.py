"""Rounds that ms-swift trains in its own environment: start, reference, resume and gate; run by `make interop`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.io.files import write_json
from flywheel.project import Project
from tests.commands import REAL, flywheel
from tests.interop.environments import HOME, python_of
from tests.projects import HELD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flywheel.records import RoundManifest
    from tests.projects import Projects

pytestmark = pytest.mark.interop
WANTED = os.environ.get("SYSTEM", "").split() or ["swift"]
PROOF = (
    "SFT, DPO and KTO from the champion, with the losses of our own scoring at step 0, to the gate; a round that is "
    "killed with all of flywheel goes on from ms-swift's checkpoint; one too far is taken under a higher limit"
)


@pytest.fixture(scope="module", autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep for the table whether all tests of this file passed."""
    failed = request.session.testsfailed
    yield
    if "swift" in WANTED and python_of("swift").is_file():
        cell = {"passed": request.session.testsfailed == failed, "proof": PROOF}
        write_json(HOME / "rounds" / "swift.json", {"rounds": cell})


@pytest.fixture(scope="module")
def agent(session_projects: Projects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "swift" not in WANTED or not python_of("swift").is_file():
        pytest.skip("there is no .interop/swift")
    return session_projects.copy("built", tmp_path_factory.mktemp("swift") / "agent")


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def configured(agent: Path, method: str, **train: object) -> Project:
    path = agent / "flywheel.toml"
    settings: dict[str, object] = {"max_rows": 12, "min_rows": 4, "batch_size": 2, "threads": 1}
    settings |= {"method": method, "backend": "swift", "seed": len(list((agent / "rounds").glob("0*"))), **train}
    lines = ["[train]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    before, _, _ = path.read_text(encoding="utf-8").partition("[train")
    text = [before, *lines, "[train.backends.swift]", f"python = {json.dumps(str(python_of('swift')))}"]
    text += ["[eval]", 'suites = ["next_action"]', "max_cases = 5", "max_new_tokens = 4"]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return Project(agent)


def trained(agent: Path, method: str, **train: object) -> RoundManifest:
    project = configured(agent, method, max_steps=2, checkpoint_every=1, **train)
    flywheel(agent, "train")
    manifest = project.registry.manifest(project.registry.numbers()[-1])
    assert manifest.state == "trained"
    assert manifest.backend is not None
    assert manifest.backend.versions["ms-swift"]
    assert manifest.checks["step0_gap"] < 1e-3
    assert manifest.kl is not None
    assert manifest.kl > 0
    return manifest


def test_rounds_of_every_method_start_where_the_plan_names_and_reach_the_gate(agent: Path) -> None:
    first = trained(agent, "sft")
    assert first.checks["loss_step0"] > 0
    assert flywheel(agent, "eval", "--promote", check=False).returncode in {0, HELD}
    flywheel(agent, "promote", "1", "--force", "--yes", "--reason", "rehearsal", check=False)

    second = trained(agent, "dpo")
    assert second.parent == 1
    assert second.checks["loss_step0"] == pytest.approx(0.693147, abs=1e-4)
    assert second.checks["rewards_chosen_step0"] == pytest.approx(0.0, abs=1e-4)
    base = trained(agent, "dpo", reference="base")
    assert base.checks["loss_step0"] != pytest.approx(0.693147, abs=1e-4)  # another reference, and the same start

    third = trained(agent, "kto")
    given = third.backend.arguments if third.backend is not None else {}
    heaviest = max(given["desirable_weight"], given["undesirable_weight"])
    assert third.checks["loss_step0"] == pytest.approx(0.5, abs=0.5 * (heaviest - 1) + 1e-4)


def test_a_killed_round_goes_on_from_ms_swifts_checkpoint(agent: Path) -> None:
    project = configured(agent, "dpo", max_steps=6, checkpoint_every=1)
    number = project.registry.next_number()
    log = project.registry.folder(number) / "work" / "backend" / "out" / "logging.jsonl"
    process = subprocess.Popen([REAL, "-C", str(agent), "train"], stdout=subprocess.DEVNULL, start_new_session=True)
    while not (log.exists() and log.read_text().count("\n") >= 3):
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(60):
        left = [one for one in Path("/proc").glob("[0-9]*") if str(log.parent.parent) in _command(one)]
        if not left:
            break
        time.sleep(0.5)
    assert not left, "ms-swift goes on without flywheel"

    flywheel(agent, "train")

    manifest = Project(agent).registry.manifest(number)
    assert manifest.steps_taken == 6
    rows = (project.registry.folder(number) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 6]


def test_a_step_of_three_rows_is_predicted_and_an_adapter_too_far_is_taken_under_a_higher_limit(
    session_projects: Projects, tmp_path: Path
) -> None:
    """Two batches of two and one: the loss is the mean of their means. And nothing is trained a second time."""
    agent = session_projects.copy("promoted", tmp_path / "agent")
    small = {"seed": 7, "reference": "base", "max_rows": 3, "min_rows": 3, "accumulation": 2, "max_steps": 1}
    project = configured(agent, "dpo", **small, max_kl=1e-9)
    assert "the limit is 1e-09" in flywheel(agent, "train", check=False).stderr
    configured(agent, "dpo", **small, max_kl=1.0)
    flywheel(agent, "train")

    manifest = Project(agent).registry.manifest(2)
    assert (manifest.state, manifest.steps_taken, manifest.max_kl) == ("trained", 1, 1.0)
    assert manifest.counts["kept"] == 3
    assert manifest.checks["step0_gap"] < 1e-3
    assert manifest.checks["loss_step0"] != pytest.approx(0.693147, abs=1e-5)
    text = (project.registry.folder(2) / "train.log").read_text(errors="replace")
    assert text.count("Global seed set to") == 1  # ms-swift was started once


def test_what_the_plan_decides_cannot_be_passed_to_ms_swift(agent: Path) -> None:
    path = configured(agent, "dpo").folder / "flywheel.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n[train.backends.swift.arguments]\nbeta = 0.5\n", encoding="utf-8")
    done = flywheel(agent, "train", check=False)
    assert "arguments.beta` cannot be set" in done.stderr
    shutil.rmtree(agent / "rounds" / f"{Project(agent).registry.numbers()[-1]:04d}")
