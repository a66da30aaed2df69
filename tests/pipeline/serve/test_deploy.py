"""Deploying to a server that speaks vLLM's API: what is loaded, what stays, what is refused and why."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.io import files, hash_chain
from flywheel.pipeline.copies import DEPLOYMENTS
from flywheel.project import Project
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.projects import FLYWHEEL
from tests.reports import manifest
from tests.vllm_server import VLLM, serving


@pytest.fixture
def server() -> Iterator[VLLM]:
    with serving(VLLM()) as state:
        yield state


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Four trained rounds; the second is champion."""
    (tmp_path / "shop").mkdir()
    made = Project(tmp_path / "shop")
    for number, rank in ((1, 8), (2, 8), (3, 8), (4, 64)):
        weights = made.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
        weights.parent.mkdir(parents=True)
        weights.write_text(f"weights {number}")
        (weights.parent / "adapter_config.json").write_text(json.dumps({"r": rank}))
        made.registry.save(manifest(number, adapter_sha256=files.hash_file(weights), state="promoted"))
    made.promote(1, force=True, reason="first")
    made.promote(2, force=True, reason="second")
    return made


def test_the_champion_is_loaded_and_has_answered(project: Project, server: VLLM) -> None:
    answer = project.deploy_vllm(f"{server.url}/v1/")

    adapter = str(project.registry.folder(2) / "adapter")
    assert server.adapters == {"shop-round-2": adapter}
    assert ("/v1/load_lora_adapter", {"lora_name": "shop-round-2", "lora_path": adapter}) in server.seen
    assert [path for path, _ in server.seen] == ["/v1/models", "/v1/load_lora_adapter", "/v1/chat/completions"]
    assert (answer.name, answer.round, answer.probe, answer.previous) == ("shop-round-2", 2, "length", "")
    assert answer.adapter_sha256 == project.registry.manifest(2).adapter_sha256
    assert answer.name == project.champion().name


def test_typed_again_nothing_is_loaded_again(project: Project, server: VLLM) -> None:
    project.deploy_vllm(server.url)
    server.seen.clear()

    project.deploy_vllm(server.url)

    assert [path for path, _ in server.seen] == ["/v1/models", "/v1/chat/completions"]


def test_the_one_before_stays_and_older_ones_go(project: Project, server: VLLM) -> None:
    server.adapters["somebody else's"] = "/elsewhere"
    for target in ("1", "2"):
        project.deploy_vllm(server.url, target=target)

    answer = project.deploy_vllm(server.url, target="3")

    assert (answer.previous, answer.unloaded) == ("shop-round-2", ["shop-round-1"])
    assert list(server.adapters) == ["somebody else's", "shop-round-2", "shop-round-3"]
    lines = (project.registry.root / DEPLOYMENTS).read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert hash_chain.breaks(project.registry.root / DEPLOYMENTS, head=None) == []


def test_after_a_rollback_it_goes_back_without_loading(project: Project, server: VLLM) -> None:
    project.deploy_vllm(server.url, target="1")
    project.deploy_vllm(server.url)
    project.rollback(None, reason="bad")
    server.seen.clear()

    answer = project.deploy_vllm(server.url)

    assert answer.name == "shop-round-1"
    assert "/v1/load_lora_adapter" not in [path for path, _ in server.seen]
    assert list(server.adapters) == ["shop-round-1"]  # what was rolled back does not stay for a rollback


def test_when_the_base_is_champion_adapters_go(project: Project, server: VLLM) -> None:
    project.deploy_vllm(server.url)
    project.rollback("base", reason="bad")

    answer = project.deploy_vllm(server.url)

    assert (answer.round, answer.name, answer.path, answer.unloaded) == (None, server.base, "", ["shop-round-2"])
    assert server.adapters == {}


def test_what_does_not_answer_is_unloaded_and_not_recorded(project: Project, server: VLLM) -> None:
    project.deploy_vllm(server.url, target="1")
    server.broken = True

    with pytest.raises(FlywheelError, match="EngineCore"):
        project.deploy_vllm(server.url)

    assert list(server.adapters) == ["shop-round-1"]
    assert len((project.registry.root / DEPLOYMENTS).read_text().splitlines()) == 1


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    ("state", "target", "says", "hint"),
    [
        ({"runtime_updating": False}, "2", "404: Not Found", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        ({"enable_lora": False}, "2", "LoRA is not enabled", "--enable-lora"),
        ({}, "4", "LoRA rank 64 is greater than max_lora_rank 16", "--max-lora-rank"),
        ({"api_key": "secret"}, "2", "401: Unauthorized", "--token-env"),
    ],
)
def test_refusals_say_what_helps(  # noqa: PLR0913 - one a case
    project: Project, server: VLLM, state: dict[str, object], target: str, says: str, hint: str, *, flat: bool
) -> None:
    for name, value in ({"flat_errors": flat} | state).items():
        setattr(server, name, value)

    with pytest.raises(FlywheelError, match=says) as refused:
        project.deploy_vllm(server.url, target=target)

    assert hint in refused.value.hint
    assert server.adapters == {}
    assert not (project.registry.root / DEPLOYMENTS).exists()


def test_a_folder_that_the_server_does_not_see(project: Project, server: VLLM, tmp_path: Path) -> None:
    with pytest.raises(FlywheelError, match="No adapter found for /mnt/nowhere") as refused:
        project.deploy_vllm(server.url, path="/mnt/nowhere")
    assert "--path" in refused.value.hint

    (tmp_path / "mnt").symlink_to(project.registry.folder(2) / "adapter")
    assert project.deploy_vllm(server.url, path=str(tmp_path / "mnt")).path == str(tmp_path / "mnt")
    with pytest.raises(UsageError, match="another model named"):
        project.deploy_vllm(server.url)


def test_the_token_comes_from_the_environment_and_is_written_nowhere(project: Project, server: VLLM) -> None:
    server.api_key = "secret-token"
    url = server.url.replace("//", "//someone:password@")
    command = [FLYWHEEL, "-C", str(project.folder), "deploy", "vllm", "--url", url, "--token-env", "MY_TOKEN"]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "MY_TOKEN": "secret-token"}
    )

    assert done.returncode == 0, done.stderr
    assert "serving" in done.stdout
    written = "".join(p.read_text() for p in project.folder.rglob("*.json*")) + done.stdout + done.stderr
    assert "secret-token" not in written
    assert "password" not in written
    assert server.url in written


def test_without_a_chat_template_a_plain_completion_is_asked_for(project: Project, server: VLLM) -> None:
    server.template = False

    assert project.deploy_vllm(server.url).probe == "length"
    assert server.seen[-1][0] == "/v1/completions"


def test_no_server_and_no_url(project: Project) -> None:
    with pytest.raises(FlywheelError, match="does not answer"):
        project.deploy_vllm("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="neither http nor https"):
        project.deploy_vllm("file:///etc/passwd")


def test_a_changed_adapter_is_not_served(project: Project, server: VLLM) -> None:
    (project.registry.folder(2) / "adapter" / ADAPTER_WEIGHTS).write_text("other weights")

    with pytest.raises(StoreError, match="not the one its manifest names"):
        project.deploy_vllm(server.url)
    assert server.seen == []
