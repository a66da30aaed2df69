"""No tool call of any reader's sample is lost without a word: it is in a step, or counted by the reason why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.funnel import Funnel, errors_in
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.conversations.thread import follow_threads
from flywheel.stages.conversations.transcript import AGAIN, IN_MESSAGE, NAMELESS, PIECES, UNSTEPPED
from tests.stages.ingest.formats import Sample, all_samples
from tests.stages.talks import Talk, call, events_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["check_calls"]


def built(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, Funnel]:
    """Return the events as they belong together, episodes, steps and counts, as `flywheel build` makes them."""
    links, funnel = build_links(events.select(LINK_COLUMNS), Funnel()), Funnel()
    whole = follow_threads(follow_links(events.lazy(), links).collect())
    return whole, *build_episodes(whole, EpisodesConfig(), funnel), funnel


def calls_of(event: dict[str, Any]) -> Iterator[Any]:
    """Yield an event's calls that name a tool, read without our own code."""
    if event["kind"] == "tool_call":
        yield event
    message = json.loads(event["payload"]).get("message") if event["kind"] == "model_call" else None
    for one in (message or {}).get("tool_calls") or ():
        if one.get("name"):
            yield one


def check_calls(events: pl.DataFrame) -> pl.DataFrame:
    """Build the episodes of events, compare the calls of both, and return the episodes."""
    whole, episodes, steps, funnel = built(events)
    assert list(errors_in(funnel.as_dict())) == []
    made = funnel.notes["tool calls of steps"]
    assert made == steps["tool_names"].list.len().sum() == episodes["n_tool_calls"].sum()
    reasons = sum(funnel.notes[f"tool calls {reason}"] for reason in (PIECES, AGAIN, IN_MESSAGE, NAMELESS))
    logged = sum(1 for event in whole.select("kind", "payload").iter_rows(named=True) for _ in calls_of(event))
    assert logged == funnel.notes["tool calls of events"] == made + reasons
    return episodes


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.name)
def test_every_call_is_in_a_step_or_counted(sample: Sample, tmp_path: Path, take: Callable[..., Any]) -> None:
    check_calls(take(sample.write(tmp_path)).events)


def test_why_a_call_is_in_no_step() -> None:
    found = call("find", {"id": 7}, "c1")
    talk = Talk("t").ask("where is 7?").act(calls=[found], response_id="r").act(calls=[found], response_id="r")
    talk.event("tool_call", {"arguments": {"id": 7}}, tool_call_id="c1", tool_name="find")
    talk.event("tool_call", {"arguments": {}}, tool_call_id="c2").result("shipped", call_id="c1")
    _, _, _, funnel = built(events_of([talk]))
    assert {name: n for name, n in funnel.notes.items() if name.startswith("tool call")} == {
        "tool calls of events": 4, "tool calls of steps": 1, f"tool calls {PIECES}": 0, f"tool calls {AGAIN}": 1,
        f"tool calls {IN_MESSAGE}": 1, f"tool calls {NAMELESS}": 1,
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
