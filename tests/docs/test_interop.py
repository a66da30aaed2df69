"""The page on systems is made of the last results, and has a row for every system."""

from __future__ import annotations

import json

from flywheel.pipeline.serve.targets.table import TARGETS
from tests.interop.table import JSON, PAGE, page


def test_the_page_is_that_of_the_recorded_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(JSON.read_text(encoding="utf-8")))


def test_every_system_has_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in TARGETS if name != "jsonl")
