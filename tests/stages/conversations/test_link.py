"""What belongs together is found by its names, in any order, and never by guessing."""

from __future__ import annotations

import tracemalloc
from itertools import islice, permutations
from time import process_time
from typing import Any

import polars as pl
import pytest
from flywheel.contracts import conform
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.records import Link
from flywheel.stages.conversations.link import build_links, follow_links, told_once

SCHEMA = {"ids": pl.List(pl.String())}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    blank: dict[str, Any] = {**dict.fromkeys(LINK_COLUMNS), "ids": [], "kind": "model_call"}
    told = [{**blank, "event_id": f"e{n}", **row} for n, row in enumerate(rows)]
    schema = {name: SCHEMA.get(name, pl.String()) for name in LINK_COLUMNS}
    return pl.DataFrame(told, schema=schema)


def said(conversation: str, *ids: str, **columns: Any) -> dict[str, Any]:
    return {"conversation_id": conversation, "ids": list(ids), **columns}


def judged(target: str, conversation: str = "", **columns: Any) -> dict[str, Any]:
    return {"conversation_id": conversation or target, "kind": "feedback", "target": target, **columns}


def homes(events: pl.DataFrame, funnel: Funnel | None = None) -> dict[str, str]:
    counts = funnel or Funnel()
    links = build_links(events, counts)
    counts.check("links")
    moved = follow_links(events.lazy(), conform(links, Link).collect()).collect()
    return dict(moved.select("event_id", "conversation_id").iter_rows())


def test_a_trace_belongs_to_the_session_that_any_of_its_events_names() -> None:
    events = frame(said("t1"), said("s", "trace:t1"), said("t2"), said("s", "trace:t2"), said("t3"))
    assert homes(events) == {"e0": "s", "e1": "s", "e2": "s", "e3": "s", "e4": "t3"}


def test_a_chain_of_responses_is_one_conversation() -> None:
    events = frame(
        said("response:r1", "response:r2"), said("response:r2", "response:r3"), said("response:r1", "response:r1")
    )
    assert set(homes(events).values()) == {"response:r1"}


@pytest.mark.parametrize(
    ("target", "home"),
    [
        ("trace:t", "s"), ("session:s", "s"), ("response:r", "s"), ("span:p", "s"), ("call:c", "s"), ("request:q", "s"),
        ("message:m", "s"), ("trace:other", "trace:other"),
    ],
)  # fmt: skip
def test_feedback_finds_what_it_judges_by_any_name(target: str, home: str) -> None:
    call = said("s", "trace:t", "response:r", "request:q", "message:m", span_id="p", tool_call_id="c")
    assert homes(frame(judged(target), call))["e0"] == home


def test_feedback_waits_for_what_it_judges() -> None:
    waits, found = Funnel(), Funnel()
    early = frame(judged("trace:t"))
    assert homes(early, waits) == {"e0": "trace:t"}
    assert waits.as_dict()["dropped: pending, what they judge is not read yet"] == 1
    assert homes(pl.concat([early, frame(said("t")).with_columns(event_id=pl.lit("late"))]), found)["e0"] == "t"
    assert (found.considered, found.kept) == (1, 1)


def test_what_fits_several_conversations_is_not_guessed() -> None:
    funnel = Funnel()
    events = frame(said("a", "response:r"), said("b", "response:r"), judged("response:r"), said("t"))
    assert homes(events, funnel) == {"e0": "a", "e1": "b", "e2": "response:r", "e3": "t"}
    assert funnel.dropped["ambiguous, several conversations fit"] == 1
    torn = frame(said("t"), said("a", "trace:t"), said("b", "trace:t"), judged("trace:t"))
    assert homes(torn) == {"e0": "t", "e1": "a", "e2": "b", "e3": "trace:t"}


def test_who_means_a_run_does_not_mean_an_agent_within_it() -> None:
    run = ("run", "run/helper", "run/helper/1", "run/other")
    events = frame(judged("session:trial"), said("trial"), *(said(name, "session:trial") for name in run))
    assert list(homes(events).values()) == ["run", "run", *run]
    several = frame(judged("session:trial"), *(said(name, "session:trial") for name in ("run/1", "run/2")))
    assert homes(several)["e0"] == "session:trial"


def test_feedback_that_stands_with_its_conversation_stays() -> None:
    funnel = Funnel()
    events = frame(said("a", "response:r"), said("b", "response:r"), judged("response:r", "b"))
    assert homes(events, funnel)["e2"] == "b"
    assert funnel.kept == 1


def test_a_circle_of_names_ends() -> None:
    assert set(homes(frame(said("a", "trace:b"), said("b", "trace:a"))).values()) == {"a"}


def test_the_order_of_events_is_irrelevant() -> None:
    events = frame(
        said("t1"),
        said("s", "trace:t1", "response:1"),
        judged("trace:t1"),
        judged("response:2"),
        said("response:1", "response:2"),
        said("u", "trace:t1", "trace:t2"),
    )
    expected = homes(events)
    for order in islice(permutations(range(events.height)), 0, None, 31):
        assert homes(events[list(order)]) == expected


def test_without_links_events_are_read_as_they_are() -> None:
    events = frame(said("a"), said("b")).lazy()
    assert follow_links(events, build_links(frame(said("a")), Funnel())) is events


def test_names_that_nobody_aims_at_take_no_memory_of_python() -> None:
    size, calls = 1500, 10
    talks = pl.DataFrame({"conversation_id": [f"talk {n // calls}" for n in range(size * calls)]}).with_columns(
        event_id=pl.int_range(pl.len()).cast(pl.String),
        ids=pl.concat_list("call:" + pl.int_range(pl.len()).cast(pl.String)),
    )
    blank = frame(said("a", "call:none"), judged("call:17", "late"))
    events = (
        pl.concat([talks, blank], how="diagonal")
        .select(blank.columns)
        .with_columns(pl.col("kind").fill_null("model_call"))
    )
    tracemalloc.start()
    links = build_links(events, Funnel())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert links.select("source", "conversation_id").rows() == [("late", "talk 1")]
    assert peak < 1000 * size


def test_ten_times_the_late_feedback_takes_ten_times_as_long() -> None:
    """Each was once compared with a set of all conversations that was made for it alone."""

    def seconds(conversations: int) -> float:
        names = [str(n) for n in range(conversations)]
        talks = [said(name, f"call:{name}") for name in names]
        events = frame(*talks, *(judged(f"call:{name}", f"late {name}") for name in names))
        began = process_time()
        links = build_links(events, Funnel())
        assert links["state"].unique().to_list() == ["joined"]
        return process_time() - began

    assert seconds(6000) < 40 * min(seconds(600) for _ in range(3))


@pytest.mark.parametrize(
    ("result", "home"),
    [
        ("run1/results.json", "own"),
        ("run1/evaluations/7.json", "own"),  # next to the folder of the talks
        ("run1/other/7.json", "late"),  # a folder of its own, whatever it is
        ("run2/results.json", "late"),
        ("results.json", "late"),  # of both runs: nothing shows which
    ],
)
def test_a_result_finds_the_attempt_at_its_task_nearby(result: str, home: str) -> None:
    talks = [
        said(run, task_key=f"suite/{task}" if task == "t8" else task, source_file=f"{folder}/traces/{task}-{n}.json")
        for n, (run, folder, task) in enumerate((("own", "run1", "t7"), ("near", "run1", "t8"), ("far", "run3", "t7")))
    ]
    late = [judged("beside:t7", "late", task_key="t7", source_file=result, kind="outcome"),
            judged("beside:t9", "later", source_file=result, kind="outcome")]  # fmt: skip
    assert homes(frame(*talks, *late))["e3"] == home


def test_ten_times_the_results_by_place_take_ten_times_as_long() -> None:
    """Each was once compared with all files around it: 15,000 tasks took half an hour."""

    def seconds(tasks: int) -> float:
        talks = [said(f"c{n}", task_key=f"t{n}", source_file=f"run/traces/{n}.json") for n in range(tasks)]
        late = [judged(f"beside:t{n}", source_file=f"run/evaluations/{n}.json") for n in range(tasks)]
        events = frame(*talks, *late)
        began = process_time()
        links = build_links(events, Funnel())
        assert links["state"].unique().to_list() == ["joined"]
        return process_time() - began

    assert seconds(4000) < 40 * min(seconds(400) for _ in range(3))


def test_a_result_that_two_files_have_counts_once() -> None:
    rows = [judged("beside:t1", "c", event_id=f"r{n}", payload='{"value":1}') for n in (2, 1)]
    rows += [judged("beside:t1", "c", event_id="r3", payload='{"value":0}'), judged("trace:t", "c", event_id="r4")]
    events = pl.DataFrame([{"payload": "{}", **row} for row in rows])
    assert told_once(events.lazy()).collect()["event_id"].to_list() == ["r1", "r3", "r4"]
