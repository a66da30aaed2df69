"""Evaluations behind real servers: `transformers serve` and llama.cpp's, with SmolLM2 and adapters; one is killed.

`FLYWHEEL_SERVING` names a Python with transformers[serving] (this one, if it has the extra), `LLAMA_SERVER` the program
of llama.cpp (`llama-server`, if it is on the PATH). `LLAMA_LORA` may name an adapter as a GGUF file.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EvalConfig, ModelConfig
from flywheel.errors import EvalError
from flywheel.models.load import base_folder, base_identity
from flywheel.models.policy import PolicySet
from flywheel.models.scoring import Draw
from flywheel.models.served.policy import ServedSet
from flywheel.project import Project
from tests.projects import make_tiny_model

pytestmark = pytest.mark.e2e

SERVING = os.environ.get("FLYWHEEL_SERVING") or (sys.executable if importlib.util.find_spec("fastapi") else "")
LLAMA = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server") or ""
LORA = os.environ.get("LLAMA_LORA", "")
PROMPTS: list[list[dict[str, Any]]] = [
    [{"role": "system", "content": "You are a shop's agent."}, {"role": "user", "content": question}]
    for question in ("Where is order A-7?", "What is the capital of France?", "List three fruits.", "Say hello.")
]
NONE: list[None] = [None] * len(PROMPTS)
SHA256 = "b" * 64


@contextmanager
def running(*command: str | Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server on a free port, which follows the command; yield its endpoint when it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked, env = [*map(str, command), str(port)], {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        _await(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.kill()
        process.wait()


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 - this machine's
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise AssertionError(url)


def transformers_serve() -> Sequence[str]:
    if not SERVING:
        pytest.skip("transformers[serving] is not installed; FLYWHEEL_SERVING may name a Python that has it")
    main = "from transformers.cli.transformers import main; main()"
    return (SERVING, "-c", main, "serve", "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA of SmolLM2 with random weights on both sides."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(base_folder(ModelConfig()), dtype=torch.float32)
    made = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", init_lora_weights=False))
    made.save_pretrained(folder)
    return folder


def _answers(endpoint: str, adapter: Path, **server: Any) -> tuple[list[Any], list[Any], ServedSet]:
    cfg = EvalConfig.model_validate({"endpoint": endpoint, "server": {"at_once": 2, "timeout_s": 600, **server}})
    with ServedSet(ModelConfig(dtype="float32"), cfg) as owner:
        answers = [
            owner.policy(folder, "round 3", SHA256 if folder else "").generate(PROMPTS, NONE, max_new_tokens=12)
            for folder in (None, adapter)
        ]
    return answers[0], answers[1], owner


def test_transformers_serve_answers_as_transformers_here(adapter: Path) -> None:
    with running(*transformers_serve()) as (endpoint, _):
        base, adapted, owner = _answers(endpoint, adapter)
    assert owner.identity["kind"] == "transformers"
    with PolicySet(ModelConfig(dtype="float32"), EvalConfig()) as here:
        for folder, told in ((None, base), (adapter, adapted)):
            meant = here.policy(folder, "round 3").generate(PROMPTS, NONE, max_new_tokens=12)
            assert [(a.message, a.tokens) for a in told] == [(a.message, a.tokens) for a in meant]
    assert [a.message for a in base] != [a.message for a in adapted]


def test_transformers_serve_samples_by_the_seed(tiny_model: Path) -> None:
    with running(*transformers_serve()) as (endpoint, _):
        cfg = EvalConfig.model_validate({"endpoint": endpoint, "server": {"at_once": 1}})
        with ServedSet(ModelConfig(base=str(tiny_model), dtype="float32"), cfg) as owner:
            policies = [owner.policy(None, "base").drawing(Draw(1.5, n)) for n in (1, 1, 2)]
            drawn = [[a.text for a in p.generate(PROMPTS, NONE, max_new_tokens=6)] for p in policies]
    assert drawn[0] == drawn[1] != drawn[2]


def test_transformers_serve_samples_from_the_models_own_distribution(tmp_path: Path) -> None:
    """No default of the server, or of the model's makers, cuts or sharpens it."""
    from benchmarks.served import chi_square

    model = ModelConfig(base=str(make_tiny_model(tmp_path / "tiny", sharpness=20.0, tokens=4096)), dtype="float32")
    with running(*transformers_serve()) as (endpoint, _):
        cfg = EvalConfig.model_validate({"endpoint": endpoint})
        with ServedSet(model, cfg) as owner, PolicySet(model, EvalConfig()) as here:
            assert chi_square(owner, here, PROMPTS[0], 200) < 24.3  # p = 0.001


def test_llama_cpp_answers_with_and_without_an_adapter(adapter: Path) -> None:
    """Its weights have four bits and its activations eight: answers are close to, not equal to those of float32."""
    if not LLAMA:
        pytest.skip("llama-server is not here; LLAMA_SERVER may name it")
    lora = ("--lora", LORA, "--lora-init-without-apply") if LORA else ()
    model = ("-m", base_identity(ModelConfig()).path, "-np", "2", "-c", "4096", "-t", "2")
    with running(LLAMA, *model, *lora, "--port") as (endpoint, _):
        if not LORA:
            with pytest.raises(EvalError, match="has no adapter"):
                _answers(endpoint, adapter)
            return
        base, adapted, owner = _answers(endpoint, adapter, models={"3": Path(LORA).name})
    assert owner.identity["kind"] == "llama.cpp"
    assert [a.message for a in base] != [a.message for a in adapted]
    assert all(0 < a.tokens <= 12 for a in (*base, *adapted))


def test_a_server_that_is_killed_midway_is_gone_on_with_to_the_same_verdict(
    projects: Callable[[str], Path], tmp_path: Path
) -> None:
    trained = projects("trained")
    local = Project(shutil.copytree(trained, tmp_path / "local", symlinks=True)).evaluate(1)
    folder = shutil.copytree(trained, tmp_path / "served", symlinks=True)
    config = folder / "flywheel.toml"
    plain = config.read_text()

    def pointed_to(endpoint: str) -> Project:
        lines = [*plain.splitlines(), "[eval.server]", "retries = 0", "at_once = 1"]
        lines.insert(lines.index("[eval]") + 1, f'endpoint = "{endpoint}"')
        config.write_text("\n".join(lines) + "\n")
        return Project(folder)

    with running(*transformers_serve()) as (endpoint, process):
        project, killer = pointed_to(endpoint), threading.Event()

        def kill(_what: str, done: int, _of: int) -> None:
            if done == 2 and not killer.is_set():
                killer.set()
                process.send_signal(signal.SIGKILL)

        with pytest.raises(EvalError, match="does not answer"):
            project.evaluate(1, on_progress=kill)
    assert killer.is_set()
    assert project.registry.report(1) is None
    with running(*transformers_serve()) as (endpoint, _):
        report = pointed_to(endpoint).evaluate(1).report
    assert [m.model_dump() for m in report.metrics] == [m.model_dump() for m in local.report.metrics]
    assert report.evidence == local.report.evidence
