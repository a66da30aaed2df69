"""What decides whether a stage is fresh: contents, settings and versions, never where code is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flywheel.config import Config
from flywheel.pipeline.build.registry import STAGES, Stage
from flywheel.pipeline.build.run import fingerprint
from flywheel.store import Store


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_fingerprint_holds_no_module_path(stage: Stage, tmp_path: Path) -> None:
    """A store stays fresh when modules move: extensions are known by distribution and version."""
    components = json.dumps(fingerprint(stage, Store(tmp_path), Config()))

    assert "flywheel." not in components
    assert ":" not in "".join(stage.extension_versions(Config()).values())


def test_the_function_of_every_stage_is_there() -> None:
    assert all(callable(stage.function()) for stage in STAGES)
