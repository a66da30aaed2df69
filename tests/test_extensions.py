"""The eight groups: listed without loading, loaded by name or path, clear when they fail."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import flywheel
import pytest
from flywheel.config import TrainConfig
from flywheel.errors import ExtensionError
from flywheel.extensions import (
    GROUPS,
    Check,
    Embedding,
    Evaluator,
    GateRule,
    PairBuilder,
    Reader,
    Signal,
    Trainer,
    World,
    list_extensions,
    load_extension,
)
from flywheel.records import METHODS

PROTOCOLS = {
    "embeddings": Embedding,
    "rewards": Signal,
    "pairs": PairBuilder,
    "trainers": Trainer,
    "evaluators": Evaluator,
    "gates": GateRule,
    "checks": Check,
    "worlds": World,
}


def test_every_group_has_built_ins_through_the_same_door() -> None:
    ours = [e for e in list_extensions() if e.distribution == "flywheel-rl"]
    assert {e.group for e in ours} == set(GROUPS) - {"embeddings", "trainers", "worlds"}
    assert {*PROTOCOLS, "readers"} == set(GROUPS)


@pytest.mark.parametrize("method", METHODS)
def test_every_methods_trainer_loads_and_has_the_protocols_signature(method: str) -> None:
    trainer = load_extension("trainers", METHODS[method].trainer)
    assert list(inspect.signature(trainer).parameters) == ["spec"]
    assert METHODS[method].epochs in TrainConfig.model_fields


def test_every_group_that_is_loaded_is_listed() -> None:
    """Each call in the source names its group as a literal."""
    source = "".join(path.read_text() for path in Path(flywheel.__file__).parent.rglob("*.py"))
    assert set(re.findall(r'load_extensions?\("(\w+)"', source)) == set(GROUPS)


@pytest.mark.parametrize("extension", list_extensions(), ids=lambda e: f"{e.group}.{e.name}")
def test_every_installed_extension_loads_and_has_the_protocols_signature(extension: object) -> None:
    group, name = getattr(extension, "group"), getattr(extension, "name")  # noqa: B009 - pytest passes an object
    found = load_extension(group, name)
    if group == "readers":
        assert isinstance(found, Reader)
        return
    wanted = inspect.signature(PROTOCOLS[group].__call__)
    positional = [p for p in wanted.parameters if p != "self"]
    assert list(inspect.signature(found).parameters)[: len(positional)] == positional


def test_the_protocols_are_pinned() -> None:
    signatures = {g: list(inspect.signature(p.__call__).parameters)[1:] for g, p in PROTOCOLS.items()}
    assert signatures == {
        "embeddings": ["texts"],
        "rewards": ["episodes", "steps", "events", "cfg"],
        "pairs": ["episodes", "steps", "returns", "cfg"],
        "trainers": ["spec"],
        "evaluators": ["policy", "holdout", "cfg"],
        "gates": ["inputs", "cfg"],
        "checks": ["answer", "case"],
        "worlds": ["prompt", "seed"],
    }


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ExtensionError, match="no gates extension named `nope`") as caught:
        load_extension("gates", "nope")
    assert "superiority" in caught.value.hint


def test_a_broken_plugin_fails_only_who_names_it(tmp_path: Path) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('at import')\n")

    with pytest.raises(ExtensionError, match="does not load: RuntimeError"):
        load_extension("gates", "broken_plugin:rule", search=tmp_path)
    with pytest.raises(ExtensionError, match="AttributeError"):
        load_extension("gates", "flywheel.errors:nothing")
    assert load_extension("gates", "flywheel.errors:ExitCode.HELD") == 3


def test_listing_imports_no_extension() -> None:
    code = "import sys; from flywheel.extensions import list_extensions; list_extensions(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "polars", "flywheel.stages.gate"} & set(loaded)
