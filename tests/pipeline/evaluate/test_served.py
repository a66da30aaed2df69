"""An evaluation through a server: the same scores and verdict as in this process, and what it says of the server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.errors import EvalError
from flywheel.project import Project
from tests.policy_server import BASE, PolicyServer, serving

if TYPE_CHECKING:
    from flywheel.records import EvalReport


@pytest.fixture(scope="module")
def trained(projects: Callable[[str], Path]) -> Path:
    return projects("trained")


@pytest.fixture
def server(tiny_model: Path) -> Iterator[PolicyServer]:
    with serving(PolicyServer(tiny_model)) as state:
        yield state


def _project(trained: Path, folder: Path, endpoint: str = "", **server: object) -> Project:
    """Return a copy of the project whose policies a server answers for."""
    shutil.copytree(trained, folder, symlinks=True)
    config = folder / "flywheel.toml"
    lines = config.read_text().splitlines()
    if endpoint:
        settings = {"retries": 1, **server}
        lines.insert(lines.index("[eval]") + 1, f'endpoint = "{endpoint}"')
        lines += ["[eval.server]", *(f"{name} = {value!r}".replace("'", '"') for name, value in settings.items())]
    config.write_text("\n".join(lines) + "\n")
    return Project(folder)


def _scores(report: EvalReport, *suites: str) -> list[dict[str, object]]:
    return [m.model_dump() for m in report.metrics if m.suite in suites]


@pytest.mark.e2e
def test_scores_are_those_of_this_process(trained: Path, server: PolicyServer, tmp_path: Path) -> None:
    suites = ["next_action", "preference", "replay"]
    local = _project(trained, tmp_path / "local").evaluate(1, suites=suites)
    project = _project(trained, tmp_path / "served", server.url, agreement=4)
    report = project.evaluate(1, suites=suites).report

    assert _scores(report, *suites) == _scores(local.report, *suites)
    served, manifest = report.served, project.registry.manifest(1)
    assert served is not None
    assert (served.kind, served.version, served.endpoint) == ("vllm", "0.20.0", server.url)
    assert (served.candidate, served.baseline) == (f"flywheel-{manifest.adapter_sha256[:16]}", BASE)
    assert served.agreement is not None
    assert served.agreement.prompts == served.agreement.same > 0
    assert server.adapters == {}
    assert local.report.served is None
    seen = len(server.seen)
    assert project.evaluate(1, suites=suites).report == report
    assert all(path in {"/v1/models", "/version", "/openapi.json"} for path, _ in server.seen[seen:])


@pytest.mark.e2e
def test_suites_that_need_log_probabilities_say_that_there_are_none(
    trained: Path, server: PolicyServer, tmp_path: Path
) -> None:
    server.kind = "llama.cpp"
    server.adapters["mine"] = str(Project(trained).registry.folder(1) / "adapter")
    project = _project(trained, tmp_path / "served", server.url)
    text = (project.folder / "flywheel.toml").read_text()
    (project.folder / "flywheel.toml").write_text(text + '[eval.server.models]\n1 = "mine"\n')
    suites = ["next_action", "preference", "safety", "forgetting"]
    report = Project(project.folder).evaluate(1, suites=suites).report
    why = "llama.cpp gives no log-probabilities of a prompt"
    missing = {name: n for name, n in report.coverage.items() if why in name}
    assert missing
    assert any(name.startswith("preference") for name in missing)
    assert any(name.startswith("safety") for name in missing)
    assert any(name.startswith("forgetting") and "distributions" in name for name in report.coverage)
    assert _scores(report, "next_action")


@pytest.mark.e2e
def test_a_server_that_dies_leaves_nothing_that_is_judged(trained: Path, server: PolicyServer, tmp_path: Path) -> None:
    server.dies_after = 3
    project = _project(trained, tmp_path / "served", server.url, at_once=1)
    with pytest.raises(EvalError, match="does not answer"):
        project.evaluate(1)
    assert project.registry.report(1) is None
    assert not project.registry.candidates.candidates()[0].looks

    server.dies_after = -1
    report = project.evaluate(1).report
    whole = _project(trained, tmp_path / "whole", server.url).evaluate(1).report
    assert _scores(report, "next_action", "preference") == _scores(whole, "next_action", "preference")
