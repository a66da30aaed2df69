"""Redaction leaves alone what agents work with: figures on real logs, by kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import IngestConfig, RedactConfig
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from flywheel.stages.ingest.redaction.redact import Redactor
from tests.stages.ingest.conftest import Taken, collect

if TYPE_CHECKING:
    import polars as pl
    from flywheel.extensions import Reader

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
SHARED = ROOT.parent / "shared" / "data"
_IDS = ("conversation_id", "span_id", "parent_id", "tool_call_id", "target")

# What stands in the shared logs and is what it is taken for: addresses in commits and in mails, telephones of offices,
# the addresses of a container and of hosts that an agent pinged. In star customers say PINs and
# answers to security questions (`secret`) and numbers of accounts ("my number is": `phone`), and drivers have licence
# plates (`national_id`). The ids of intercode are
# a company's tax number in the name of a certificate.
FOUND = {
    "bfcl-tasks": {},
    "intercode": {"ip": 59, "national_id": 16},
    "langfuse-traces": {},
    "mini-swe-agent-deepseek": {"email": 250},
    "mint": {},
    "prime-environments": {"email": 155, "phone": 3},
    "star": {"account": 3, "national_id": 110, "phone": 55, "secret": 751},
    "tau-bench": {"email": 154, "phone": 1},
    "tau2-bench": {"email": 402, "phone": 12},
    "verifiers-wiki-search": {},
}
SLOW = {"intercode", "mini-swe-agent-deepseek", "mint", "star", "tau2-bench", "verifiers-wiki-search"}


def events(folder: Path, readers: Mapping[str, Reader], kinds: list[str]) -> pl.DataFrame:
    cfg = IngestConfig(workers=1, redact=RedactConfig(kinds=kinds))
    return collect(ingest(discover([folder]), root=folder, known={}, cfg=cfg, key=b"key", readers=readers)).events


def redacted(events: pl.DataFrame) -> dict[str, int]:
    r = Redactor(RedactConfig(), b"key")
    r.payloads(events["payload"].to_list())
    return dict(r.counts)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.e2e] if n in SLOW else []) for n in FOUND])
def test_shared_logs_hold_what_is_known_and_no_more(name: str, real: Callable[[str], Taken]) -> None:
    assert redacted(real(name).events) == FOUND[name]


@pytest.mark.parametrize(
    "folder",
    [
        ROOT / "sample_logs",
        pytest.param(ROOT / "tests" / "fixtures", marks=pytest.mark.e2e),
        SHARED / "langfuse-traces",
    ],
)
def test_ids_survive(folder: Path, readers: Mapping[str, Reader]) -> None:
    if not folder.is_dir():
        pytest.skip(f"no {folder} on this machine")
    raw, kept = (events(folder, readers, kinds) for kinds in ([], RedactConfig().kinds))
    assert [_ids(event) for event in kept.iter_rows(named=True)] == [_ids(event) for event in raw.iter_rows(named=True)]
    assert raw.height > 0


def _ids(event: Mapping[str, Any]) -> tuple[Any, ...]:
    payload = json.loads(event["payload"])
    calls = [c.get("id") for c in payload.get("tool_calls") or () if isinstance(c, dict)]
    return (*(event[name] for name in _IDS), tuple(event["ids"]), payload.get("response_id"), tuple(calls))


def test_sample_logs_hold_nothing(readers: Mapping[str, Reader]) -> None:
    assert redacted(events(ROOT / "sample_logs", readers, [])) == {}
