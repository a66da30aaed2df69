"""Thirty nights with all that goes wrong in a month; at the end every invariant holds. Long: `make e2e`.

The model is a small random one that can learn, trained for eight steps a round; the gate is the shipped one, judging by
how likely the policy finds good actions of held-out states. What it promotes, it promotes on evidence: no force.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.pipeline.train.provenance import ORIGINS, read_origins
from flywheel.records import Night
from flywheel.registry.registry import Registry
from flywheel.store import Store
from tests.projects import champion_is_valid, make_tiny_model
from tests.soak import EVENTS, KILLED, NIGHTS, Soak

pytestmark = pytest.mark.e2e

NORMAL = {0, 3, 99}


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """The project after thirty nights."""
    model = make_tiny_model(tmp_path_factory.mktemp("able"), hidden=64, sharpness=20.0)
    lived = Soak(tmp_path_factory.mktemp("soak") / "shop", model)
    for night in range(NIGHTS):
        record = lived.live(night)
        assert champion_is_valid(lived.project), record
    print("\n".join(figures(lived)))  # noqa: T201 - `pytest -s` shows them
    return lived


def figures(soak: Soak) -> list[str]:
    """Return the soak's figures, a line a night."""
    rows = [
        f"{r.night:>3}  {r.event or '-':<30} {r.codes!s:<9} {r.outcome:<9} {r.seconds:>6.1f} s  logs {r.log_bytes:>8,}"
        f"  tables {r.live_bytes:>10,}  store {r.store_bytes:>11,}  rounds {r.rounds_bytes:>11,}  {r.text}"
        for r in soak.records
    ]
    total = sum(r.seconds for r in soak.records)
    return [*rows, f"{len(rows)} nights in {total:.0f} s"]


def test_each_night_ends_as_it_should(soak: Soak) -> None:
    by_event = {r.event: r for r in soak.records}
    assert set(by_event) == {"", KILLED, *EVENTS.values()}
    assert all(r.codes[-1] in NORMAL for r in soak.records), [r.codes for r in soak.records]
    assert by_event["no logs"].codes[-1] in {0, 3, 99}
    assert by_event[KILLED].codes[0] == -9
    assert by_event["poisoned log"].codes[0] == 1
    assert by_event["full disk"].codes[0] == 1
    assert by_event["a round that learns nothing"].outcome == "held"
    assert by_event["hooks fail"].codes[-1] in NORMAL
    decisions = [p.decision for p in Registry(soak.project / "rounds").promotions()]
    assert {"promoted", "held", "rolled_back"} == set(decisions)


def test_the_hook_was_told_every_night_but_the_one_it_failed(soak: Soak) -> None:
    """The poisoned night twice, as failed and as mended; on the full disk the hook's own file could not grow either."""
    told = [Night.model_validate_json(line) for line in (soak.project / "told.jsonl").read_text().splitlines()]
    assert len(told) == NIGHTS - 1 + 1
    assert len({n.night for n in told}) == len(told)
    assert [n.failed_stage for n in told if n.outcome == "failed"][:1] == ["ingest"]


def test_the_counts_add_up(soak: Soak) -> None:
    store = Store(soak.project / ".flywheel")
    for stage in (p.name for p in (store.root / "snapshots").iterdir()):
        for number in store.numbers(stage):
            funnel = store.snapshot(stage, number).funnel
            dropped = sum(n for reason, n in funnel.items() if reason.startswith("dropped: "))
            assert funnel["considered"] == funnel["kept"] + dropped, stage
    ingest = store.current("ingest")
    assert ingest is not None
    assert ingest.rows("events") == soak.lines  # the world's logs have an event a line, and none twice
    assert ingest.rows("quarantine") == 0


def test_every_round_and_the_whole_chain_is_sound(soak: Soak) -> None:
    registry = Registry(soak.project / "rounds")
    assert registry.problems(registry.trained()) == []
    assert registry.trained() == registry.numbers()
    assert {registry.manifest(n).state for n in registry.numbers()} <= {"promoted", "held", "retired"}
    assert all((registry.folder(n) / "report.html").is_file() for n in registry.numbers())


def test_no_file_is_left_that_nobody_names(soak: Soak) -> None:
    store = Store(soak.project / ".flywheel")
    stages = [p.name for p in (store.root / "snapshots").iterdir()]
    named = {p.path for s in stages for n in store.numbers(s) for p in store.snapshot(s, n).parts}
    assert {p.relative_to(store.root).as_posix() for p in store.root.rglob("*.parquet")} == named
    assert list(soak.project.rglob("*.partial")) == []
    rounds = [p for p in (soak.project / "rounds").iterdir() if p.is_dir() and not p.is_symlink()]
    assert {int(p.name) for p in rounds} == set(Registry(soak.project / "rounds").numbers())
    assert [p for p in rounds if (p / "work").exists()] == []
    assert not (store.root / "lock.json").exists()


def test_the_disk_grows_with_the_logs_and_no_faster(soak: Soak) -> None:
    """Tables by the byte of logs, at the end beside the middle; the store keeps 20 versions of each and no more."""
    half, last = soak.records[NIGHTS // 2], soak.records[-1]
    assert last.live_bytes / last.log_bytes <= 1.1 * half.live_bytes / half.log_bytes
    assert last.store_bytes <= 22 * last.live_bytes
    assert last.rounds_bytes / last.rounds <= 1.5 * half.rounds_bytes / half.rounds


def test_every_promoted_byte_is_traceable_to_lines_of_the_logs(soak: Soak) -> None:
    """Adapter → manifest → dataset → rows → examples → episode → events → file and line, for every promoted round."""
    registry, project = Registry(soak.project / "rounds"), soak.project
    lines = {p: p.read_text().splitlines() for p in (project / "logs").glob("*.jsonl")}
    promoted = [p.round for p in registry.promotions() if p.decision == "promoted"]
    assert promoted
    for number in promoted:
        assert registry.problems([number]) == []  # the adapter is the manifest's
        where = _events_of(project, registry, number)
        for row in _rows(registry, number):
            (call,) = row["completion"][-1]["tool_calls"]
            found = [json.loads(lines[project / file][line - 1]) for file, line in where[row["id"]]]
            assert any(_calls(event) == call["arguments"] for event in found), (number, row["id"])


def _rows(registry: Registry, number: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (registry.folder(number) / "data" / "train.jsonl").read_text().splitlines()]


def _calls(event: dict[str, Any]) -> dict[str, Any] | None:
    calls = event["payload"].get("message", {}).get("tool_calls") or [{}]
    found: dict[str, Any] | None = calls[0].get("arguments")
    return found


def _events_of(project: Path, registry: Registry, number: int) -> dict[str, list[tuple[str, int]]]:
    """Return row id → (file, line) of every event of the conversation that it comes from.

    Later nights may have taken an example out of the tables: the round's own file leads to its episode.
    """
    import polars as pl

    store = Store(project / ".flywheel")
    origins = read_origins(registry.folder(number) / ORIGINS)
    ids = [row["id"] for row in _rows(registry, number)]
    assert set(origins) == set(ids)
    of_rows = [(name, episode) for name in ids for episode in origins[name].episodes]
    examples = pl.DataFrame(of_rows, schema=["example_id", "episode_id"], orient="row").lazy()
    episodes = store.table("episodes", "episodes").select("episode_id", "conversation_id")
    events = store.table("events", "ingest").select("conversation_id", "source_file", "source_line")
    found = examples.join(episodes, on="episode_id").join(events, on="conversation_id").collect()
    assert set(found["example_id"]) == set(ids)
    where: dict[str, list[tuple[str, int]]] = {}
    for row in found.iter_rows(named=True):
        where.setdefault(row["example_id"], []).append((row["source_file"], row["source_line"]))
    return where


def test_the_one_who_flooded_is_one_voice(soak: Soak) -> None:
    registry = Registry(soak.project / "rounds")
    for number in registry.trained():
        rows = _rows(registry, number)
        loud = sum("gold" in json.dumps(row["completion"]) for row in rows)
        assert loud <= max(20, len(rows) // 4), number
