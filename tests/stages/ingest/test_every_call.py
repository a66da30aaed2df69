"""No tool call of any reader's sample is lost without a word: it is in a step, or counted by the reason why not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.funnel import Funnel, errors_in
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.conversations.thread import follow_threads
from flywheel.stages.conversations.transcript import AGAIN, IN_MESSAGE, JUDGED, NAMELESS, PIECES, UNSTEPPED
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from tests.stages.ingest.conftest import COUNTING, KEY, Taken, collect
from tests.stages.ingest.formats import Sample, all_samples, samples
from tests.stages.talks import Talk, call, events_of

if TYPE_CHECKING:
    from flywheel.extensions import Reader
    from flywheel.stages.ingest.batches import Batch

__all__ = ["check_calls"]


def built(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Funnel]:
    """Return the events as they belong together, episodes, steps and counts, as `flywheel build` makes them."""
    links, funnel = build_links(events.select(LINK_COLUMNS), Funnel()), Funnel()
    whole = follow_threads(follow_links(events.lazy(), links).collect())
    return whole, *build_episodes(whole, EpisodesConfig(), funnel), funnel


def calls_of(event: dict[str, Any]) -> Iterator[Any]:
    """Yield an event's calls, read without our own code."""
    if event["kind"] == "tool_call":
        yield event
    payload = json.loads(event["payload"]) if event["kind"] == "model_call" else {}
    pieces = payload.get("fragment") == "delta"  # of which the first has the name
    calls = payload.get("message", {}).get("tool_calls") or ()
    yield from (one for one in calls if one.get("name") or one.get("id") or not pieces)


def check_calls(events: pl.DataFrame, *, understood: bool = True) -> pl.DataFrame:
    """Build the episodes of events, compare the calls of both, and return the episodes."""
    whole, episodes, steps, funnel = built(events)
    assert list(errors_in(funnel.as_dict())) == [] or not understood
    made = funnel.notes["tool calls of steps"]
    assert made == steps["tool_names"].list.len().sum() == episodes["n_tool_calls"].sum()
    reasons = sum(funnel.notes[f"tool calls {reason}"] for reason in (PIECES, AGAIN, IN_MESSAGE, NAMELESS))
    logged = sum(1 for event in whole.select("kind", "payload").iter_rows(named=True) for _ in calls_of(event))
    assert logged == funnel.notes["tool calls of events"]
    assert logged + funnel.notes.get("tool calls that a later input alone shows", 0) == made + reasons
    return episodes


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.name, marks=[pytest.mark.e2e] if number % 3 else [])
        for number, sample in enumerate(all_samples())
    ],
)
def test_every_call_is_in_a_step_or_counted(sample: Sample, tmp_path: Path, take: Callable[..., Any]) -> None:
    check_calls(take(sample.write(tmp_path)).events)


IDS = {
    "id", "call_id", "callId", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "span_id", "spanId",
    "trace_id", "traceId", "run_id", "uuid", "session_id", "sessionId", "conversation_id", "response_id",
}  # fmt: skip
NAMES = {"name", "toolName", "tool_name", "function_name"}
ABOVE = {"parent_id", "parentId", "parent_span_id", "parentSpanId", "parent_run_id", "parentUuid"}
TIMES = {"timestamp", "ts", "start_time", "startTime", "startTimeUnixNano", "created_at", "createdAt", "created"}
Fields = dict[str, Any]
WAYS: dict[str, Callable[[Fields], Fields]] = {
    "ids null": lambda fields: {**fields, **dict.fromkeys(fields.keys() & IDS)},
    "names null": lambda fields: {**fields, **dict.fromkeys(fields.keys() & NAMES)},
    "neither": lambda fields: {name: value for name, value in fields.items() if name not in IDS | NAMES},
    "roles null": lambda fields: {**fields, **dict.fromkeys(fields.keys() & {"role"})},
    "one id": lambda fields: fields | {n: "dup" for n in fields.keys() & IDS if isinstance(fields[n], str)},
    "no place": lambda fields: {
        name: value for name, value in {**fields, "x": {"a": 1}}.items() if name not in {"arguments", *ABOVE, *TIMES}
    },
}  # fmt: skip


def otherwise(value: Any, way: Callable[[Fields], Fields]) -> Any:
    """Return a value with all its objects changed, also those in texts."""
    if isinstance(value, list):
        return [otherwise(item, way) for item in value]
    if isinstance(value, dict):
        return way({name: otherwise(item, way) for name, item in value.items()})
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):
            return json.dumps(otherwise(json.loads(value), way))
    return value


def calls_by_record(events: pl.DataFrame) -> Counter[tuple[str, int]]:
    """Return the calls that records have, by file and line; a summary repeats others."""
    rows = events.select("source_file", "source_line", "kind", "payload").iter_rows(named=True)
    own = (row for row in rows if '"summary":true' not in row["payload"])
    return Counter((row["source_file"], row["source_line"]) for row in own for _ in calls_of(row))


def read_all(folder: Path, readers: Mapping[str, Reader], way: Callable[[Fields], Fields] | None) -> Taken:
    """Read the samples of all readers, changed in one way, each as what it is."""
    batches: list[Batch] = []
    for name, shapes in samples().items():
        changed = [(one, otherwise(one.records, way) if way else one.records) for one in shapes]
        files = discover([one.write(folder, records) for one, records in changed])
        cfg = COUNTING.model_copy(update={"format": name})
        batches += ingest(files, root=folder, known={}, cfg=cfg, key=KEY, readers=readers)
    return collect(iter(batches))


@pytest.fixture(scope="module")
def logged_calls(tmp_path_factory: pytest.TempPathFactory, readers: Mapping[str, Reader]) -> Counter[tuple[str, int]]:
    return calls_by_record(read_all(tmp_path_factory.mktemp("all"), readers, None).events)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.e2e] if n % 2 else []) for n, way in enumerate(WAYS)]
)
def test_strange_records_lose_no_call_in_silence(
    way: str, tmp_path: Path, readers: Mapping[str, Reader], logged_calls: Counter[tuple[str, int]]
) -> None:
    taken = read_all(tmp_path, readers, WAYS[way])
    assert taken.adds_up()
    assert not [detail for detail in taken.quarantined["detail"] if " fails: " in detail]
    check_calls(taken.events.unique("event_id", keep="first", maintain_order=True), understood=False)
    kept = calls_by_record(taken.events)
    tagged = taken.events.filter(pl.col("payload").str.contains("unreadable_content"))
    stated = {*taken.quarantined.select("source_file", "source_line").rows()}
    stated |= {*tagged.select("source_file", "source_line").rows()}
    lost = {place: n - kept[place] for place, n in logged_calls.items() if kept[place] < n and place not in stated}
    assert not {place: n for place, n in lost.items() if (place[0], 0) not in stated}


def test_why_a_call_is_in_no_step() -> None:
    found = call("find", {"id": 7}, "c1")
    talk = Talk("t").ask("where is 7?").act(calls=[found], response_id="r").act(calls=[found], response_id="r")
    talk.event("tool_call", {"arguments": {"id": 7}}, tool_call_id="c1", tool_name="find")
    talk.event("tool_call", {"arguments": {}}, tool_call_id="c2").result("shipped", call_id="c1")
    _, _, _, funnel = built(events_of([talk]))
    assert {name: n for name, n in funnel.notes.items() if name.startswith("tool call")} == {
        "tool calls of events": 4, "tool calls of steps": 1, f"tool calls {PIECES}": 0, f"tool calls {AGAIN}": 1,
        f"tool calls {IN_MESSAGE}": 1, f"tool calls {NAMELESS}": 1, f"tool calls {JUDGED}": 0,
    }  # fmt: skip


def given_calls() -> Talk:
    """A log in which the agent's calls came out as something that it was given."""
    turns = [{"role": "assistant", "tool_calls": [call("find", {"id": 7}, "c1")]}]
    return Talk("t", task="7").ask("where is 7?", *turns).outcome(0)


def only_results() -> Talk:
    return Talk("t", task="7").ask("where is 7?").result("shipped", call_id="c1", name="find")


@pytest.mark.parametrize("talk", [given_calls(), only_results()], ids=["calls", "results"])
def test_a_log_with_calls_and_no_step_is_an_error(talk: Talk) -> None:
    _, episodes, steps, funnel = built(events_of([talk]))
    assert UNSTEPPED in episodes["tags"].item()
    assert steps.height == 0
    assert [n for _, n in errors_in(funnel.as_dict())] == [1]


def test_a_call_that_failed_is_no_error() -> None:
    talk = Talk("t").ask("hi", {"role": "assistant", "tool_calls": [call("find", {}, "c1")]}, tags=["call_failed"])
    assert list(errors_in(built(events_of([talk]))[-1].as_dict())) == []
