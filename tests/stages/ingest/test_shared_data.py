"""All the real logs at once, without an option: each file finds its reader, and what is no log is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
from tests.stages.ingest.test_every_call import check_calls

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Taken

FOLDERS = (
    "bfcl-tasks", "intercode", "langfuse-traces", "mini-swe-agent-deepseek", "mint", "prime-environments", "star",
    "tau-bench", "tau2-bench", "verifiers-wiki-search",
)  # fmt: skip
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


def test_every_file_is_read_or_named(real: Callable[[str], Taken]) -> None:
    taken = [real(name) for name in FOLDERS]
    assert all(one.adds_up() for one in taken)
    refused = [name for one in taken for name in one.quarantined["source_file"]]
    assert not [name for name in refused if not any(mark in name for mark in NO_LOGS)]
    formats = Counter(state.format for one in taken for state in one.states.values())
    assert {name: formats[name] for name in FORMATS} == FORMATS
    events = pl.concat(one.events for one in taken)
    acted = events.filter(events["kind"] != "outcome").unique(["source_format", "conversation_id"])
    found = Counter(acted["source_format"].to_list())
    assert {name: found[name] for name in ATTEMPTS} == ATTEMPTS
    assert check_calls(events)["n_tool_calls"].sum() == CALLS
