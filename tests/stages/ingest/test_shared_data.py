"""All the real logs at once, without an option: each file finds its reader, and what is no log is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stages.ingest.conftest import COUNTING
from tests.stages.ingest.test_every_call import check_calls

NO_LOGS = ("bfcl-tasks", ".chatml.json")  # task sets, and another program's own reading of the logs beside them
FORMATS = {
    "intercode": 33, "langfuse": 11, "mini_swe_agent": 69, "mint": 24, "swebench_report": 3, "tar of star": 1,
    "tau2_bench": 11, "tau_bench": 2, "verifiers": 27,
}  # fmt: skip
ATTEMPTS = {
    "intercode": 1778, "mini_swe_agent": 69, "mint": 1912, "star": 2311, "tau2_bench": 484, "tau_bench": 250,
    "verifiers": 729,
}  # fmt: skip
CALLS = 34_499  # of all steps


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    wanted = ("intercode", "langfuse-traces", "mini-swe-agent-deepseek", "mint", "star", "tau2-bench", "tau-bench")
    missing = [name for name in wanted if not (shared_data / name).is_dir()]
    if missing:
        pytest.skip(f"the real logs are not all here: {', '.join(missing)}")
    return shared_data


def test_every_file_is_read_or_named(folder: Path, take: Callable[..., Any]) -> None:
    taken = take(folder, root=folder, cfg=COUNTING)
    assert taken.adds_up()
    refused = taken.quarantined["source_file"].to_list()
    assert not [name for name in refused if not any(mark in name for mark in NO_LOGS)]
    formats = Counter(state.format for state in taken.states.values())
    assert {name: formats[name] for name in FORMATS} == FORMATS
    acted = taken.events.filter(taken.events["kind"] != "outcome").unique(["source_format", "conversation_id"])
    found = Counter(acted["source_format"].to_list())
    assert {name: found[name] for name in ATTEMPTS} == ATTEMPTS
    assert check_calls(taken.events)["n_tool_calls"].sum() == CALLS
