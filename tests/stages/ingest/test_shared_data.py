"""The real logs, a folder at once and without an option: each file finds its reader, and what is no log is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.stages.ingest.test_every_call import check_calls

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Taken

NO_LOGS = ("bfcl-tasks", ".chatml.json")  # task sets, and another program's own reading of the logs beside them
# Of each folder: its files by format, its attempts by format, and the calls of all steps.
KNOWN: dict[str, tuple[dict[str, int], dict[str, int], int]] = {
    "bfcl-tasks": ({"unknown": 3, "text": 2}, {}, 0),
    "intercode": ({"intercode": 33, "text": 2}, {"intercode": 1778}, 10_436),
    "langfuse-traces": ({"langfuse": 11, "unknown": 11, "text": 2}, {"langfuse": 8}, 9),
    "mini-swe-agent-deepseek": (
        {"mini_swe_agent": 69, "swebench_report": 3, "text": 2}, {"mini_swe_agent": 69}, 5671,
    ),
    "mint": ({"mint": 24, "text": 2}, {"mint": 1912}, 5212),
    "prime-environments": ({"verifiers": 10, "sidecar": 10, "text": 3}, {"verifiers": 150}, 239),
    "star": ({"star": 12, "tar of star": 1, "text": 2}, {"star": 2311}, 5494),
    "tau-bench": ({"tau_bench": 2, "tool_schemas": 1, "text": 2}, {"tau_bench": 250}, 1164),
    "tau2-bench": ({"tau2_bench": 11, "tool_schemas": 1, "text": 2}, {"tau2_bench": 484}, 4204),
    "verifiers-wiki-search": ({"verifiers": 17, "sidecar": 17, "text": 2}, {"verifiers": 579}, 2070),
}  # fmt: skip
LONG = {"intercode", "mini-swe-agent-deepseek", "mint", "star", "tau2-bench"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.e2e] if n in LONG else []) for n in KNOWN])
def test_every_file_is_read_or_named(name: str, real: Callable[[str], Taken]) -> None:
    taken = real(name)
    assert taken.adds_up()
    refused = taken.quarantined["source_file"].to_list()
    assert not [file for file in refused if not any(mark in file for mark in NO_LOGS)]
    events = taken.events
    acted = events.filter(events["kind"] != "outcome").unique(["source_format", "conversation_id"])
    formats = Counter(state.format for state in taken.states.values())
    calls = check_calls(events)["n_tool_calls"].sum()
    assert (formats, Counter(acted["source_format"].to_list()), calls) == KNOWN[name]
