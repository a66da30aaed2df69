"""Samples of every format that our readers know: what the tests of detection, redaction and robustness go through.

A sample is the records of one small log. Those that real tools wrote stand in `tests/fixtures/`, in the folder of their
tool, and are named in `WRITTEN`; those made by hand stand in `tests/fixtures/formats/<reader>.json`, by shape.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from flywheel.stages.ingest.framing.framed import Raw, Record
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.opening import file_content

FIXTURES = Path(__file__).parents[2] / "fixtures"
WRITTEN: dict[str, tuple[str, ...]] = {
    "areal": ("trainers/areal/shop/rollout/7/0.jsonl", "trainers/areal/shop/rollout/7/1.jsonl"),
    "agent_lightning": (
        "agent_lightning/v0.jsonl",
        "agent_lightning/v1_events.json",
        "agent_lightning/v1_rollouts.json",
    ),
    "art": (
        "art/compact.json",
        "art/groups.jsonl",
        "art/logged.jsonl",
        "art/models/shop/trajectories/train/0004.parquet",
        "art/v1.parquet",
    ),
    "atif": ("harbor/order-eta__a1/agent/trajectory.json",),
    "harbor": ("harbor/order-eta__a1/result.json",),
    "inspect": ("inspect/shop.json", "inspect/shop.eval!/samples/order-eta_epoch_1.json"),
    "langfuse": (
        "langfuse/langgraph-rows.jsonl",
        "langfuse/observations-v2.json",
        "langfuse/openai-rows.jsonl",
        "langfuse/scores-v3.json",
        "langfuse/trace-v1.json",
    ),
    "langsmith": ("langsmith/feedback.jsonl", "langsmith/runs.jsonl"),
    "mini_swe_agent": (
        "mini_swe_agent/run-1/acme__block-1.traj.json",
        "mini_swe_agent/run-1/acme__items-1.traj.json",
        "mini_swe_agent/run-1/acme__native-1.traj.json",
    ),
    "mlflow": ("mlflow/traces.jsonl",),
    "langchain_events": ("langchain_events/objects.jsonl", "langchain_events/classes.jsonl"),
    "opik": ("opik/trace_1.json", "opik/trace_2.json"),
    "otel": (
        "otel/console.json",
        "otel/current.jsonl",
        "otel/legacy.jsonl",
        "otel/openinference.jsonl",
        "otel/openllmetry.jsonl",
        "otel/openllmetry_numbered.jsonl",
        "otel/pydantic_ai_v2.jsonl",
        "otel/pydantic_ai_v5.jsonl",
    ),
    "skyrl": ("trainers/skyrl/shop/dumped_evals/global_step_3_evals/shop.jsonl",),
    "swift": ("trainers/swift/shop/completions.jsonl",),
    "trl_completions": (
        "trl/shop-grpo/completions/completions_00010.parquet",
        "trl/shop-grpo/completions/completions_00020.parquet",
    ),
    "verl": ("trainers/verl/shop/3.jsonl",),
    "weave": ("weave/calls.jsonl", "weave/feedback.jsonl"),
}
BESIDE = {"inspect/shop.eval!/samples/order-eta_epoch_1.json": "inspect/shop.eval!/header.json"}


@dataclass(frozen=True)
class Sample:
    """One log: its records, where it would stand, and the files that would stand beside it."""

    reader: str
    shape: str
    path: str
    records: list[Any]
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How a test calls it."""
        return f"{self.reader}/{self.shape}"

    def write(self, folder: Path, records: list[Any] | None = None) -> Path:
        """Write it, or other records in its place, as lines in a folder with what stands beside it."""
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = self.records if records is None else records
        path.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        for name, content in self.beside.items():
            (path.parent / name).write_text(json.dumps(content), encoding="utf-8")
        return path


@cache
def samples() -> dict[str, list[Sample]]:
    """Return the samples of every reader; do not change them."""
    found: dict[str, list[Sample]] = {}
    for path in sorted((FIXTURES / "formats").glob("*.json")):
        for shape, records in json.loads(path.read_text(encoding="utf-8")).items():
            sample = Sample(path.stem, shape, f"{path.stem}/{shape}.jsonl", records)
            found.setdefault(path.stem, []).append(sample)
    for reader, names in WRITTEN.items():
        found.setdefault(reader, []).extend(_written(reader, name) for name in names)
    return found


def all_samples() -> list[Sample]:
    """Return the samples of all readers."""
    return [sample for shapes in samples().values() for sample in shapes]


def _written(reader: str, name: str) -> Sample:
    beside = FIXTURES / BESIDE[name] if name in BESIDE else None
    sidecar = {beside.name: json.loads(beside.read_text(encoding="utf-8"))} if beside is not None else {}
    where = name.replace("!", "").replace(".parquet", ".jsonl")
    return Sample(reader, Path(name).stem, f"{reader}/{where}", _records(FIXTURES / name), sidecar)


def _records(path: Path) -> list[Any]:
    """Return a fixture's records as ingest would frame them."""
    framing = Framing(file_content(path, path.stat().st_size), Limits(record_bytes=10**8, expand_ratio=100))
    found = [record.parse() if isinstance(record, Raw) else record for record in framing]
    return [record.value for record in found if isinstance(record, Record)]
