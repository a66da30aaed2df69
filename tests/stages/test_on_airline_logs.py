"""200 real attempts at 50 airline tasks, from messages to training rows: every count reproduced."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, GroupsConfig, PairsConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.records import LogEvent, Return, canonical_json, content_id
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.datasets.context import contexts
from flywheel.stages.datasets.examples import build_examples
from flywheel.stages.datasets.grounding import ungrounded
from flywheel.stages.datasets.groups import build_groups
from flywheel.stages.datasets.pairs import build_pairs, retry_fixed, sibling

SURE = 0.95  # what a recorded verdict is worth


class Airline(NamedTuple):
    """The judged tables of the airline log."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    returns: pl.DataFrame


def _message(raw: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": c["id"], "name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
        for c in raw.get("tool_calls") or []
    ]
    return {k: raw[k] for k in ("role", "content") if raw.get(k) is not None} | ({"tool_calls": calls} if calls else {})


def _event(conversation: str, task: str, seq: int, raw: dict[str, Any], tools: Any) -> dict[str, Any]:
    if raw["role"] == "assistant":
        kind, payload = "model_call", {"message": _message(raw), "tools": tools}
    elif raw["role"] == "tool":
        status = "failed" if raw["content"].startswith("Error") else "ok"
        kind, payload = "tool_result", {"content": raw["content"], "status": status}
    else:
        kind, payload = "request", {"messages": [_message(raw)]}
    return {
        "event_id": content_id(conversation, seq),
        "seq": seq,
        "conversation_id": conversation,
        "kind": kind,
        "policy": "gpt-4o",
        "task_key": task,
        "tool_name": raw.get("name"),
        "tool_call_id": raw.get("tool_call_id"),
        "payload": canonical_json(payload),
        "source_format": "tau",
        "source_file": "airline",
        "source_line": 1,
    }


@pytest.fixture(scope="module")
def airline(tau_airline: Path) -> Airline:
    with gzip.open(tau_airline, "rt", encoding="utf-8") as stream:
        records = json.load(stream)
    tools = json.loads((tau_airline.parent / "tools.airline.json").read_text(encoding="utf-8"))
    events, verdicts = [], {}
    for record in records:
        conversation = f"{record['task_id']}-{record['trial']}"
        verdicts[conversation] = SURE if record["reward"] == 1 else 1 - SURE
        messages = enumerate(record["traj"])
        events += [_event(conversation, str(record["task_id"]), seq, raw, tools) for seq, raw in messages]
    frame = pl.DataFrame(events, schema=polars_schema(LogEvent))
    episodes, steps = build_episodes(frame, EpisodesConfig(), Funnel())
    rows = [
        {"episode_id": e, "task_id": t, "p_success": verdicts[c], "value": 2 * verdicts[c] - 1, "weight": 0.9}
        for e, t, c in episodes.select("episode_id", "task_id", "conversation_id").iter_rows()
    ]
    fixed = {"cost": 0.0, "risk": 0.0, "luck": 0.0, "known": True, "n_support": 1}
    return Airline(episodes, steps, pl.DataFrame([r | fixed for r in rows], schema=polars_schema(Return)))


def test_anchor_states(airline: Airline) -> None:
    calling = airline.steps.filter(pl.col("action_key").is_not_null()).join(airline.returns, on="episode_id")
    actions = calling.group_by("state_key", "action_key").agg(pl.col("value").mean().round(9))
    states = actions.group_by("state_key").agg(n=pl.len(), spread=pl.col("value").max() - pl.col("value").min())
    branching = states.filter(pl.col("n") > 1)
    assert (calling.height, states.height, branching.height) == (1164, 708, 79)
    assert branching.filter(pl.col("spread") > 0).height == 32


def test_errors_and_what_followed_them(airline: Airline) -> None:
    calling = airline.steps.filter(pl.col("action_key").is_not_null()).sort("episode_id", "index")
    failed = pl.col("tool_status").list.contains("failed")
    next_tool = pl.col("tool_names").shift(-1).over("episode_id")
    assert calling.filter(failed).height == 73
    # 29 errors are followed by the same tool, mostly after a word with the user; 9 of them at once, 3 with success.
    assert calling.filter(failed & (pl.col("tool_names") == next_tool)).height == 29
    assert retry_fixed(*airline, PairsConfig()).height == 3


def test_pairs_and_what_became_of_the_candidates(airline: Airline) -> None:
    """The user is played by a model that words every request anew: no two attempts answer the same one."""
    funnel = Funnel()
    builders = {"retry_fixed": retry_fixed, "sibling": sibling}
    pairs = build_pairs(*airline, PairsConfig(), builders, funnel)
    funnel.check("pairs")
    assert pairs.height == 0
    assert (funnel.notes["candidates of retry_fixed"], funnel.dropped["retry_fixed: margin"]) == (3, 3)
    assert funnel.notes["candidates of sibling"] < 20  # 50 when neither the role nor the turn had to be the same
    assert funnel.dropped["sibling: other request"] >= 5


def test_nearly_every_call_of_a_real_agent_is_grounded(airline: Airline) -> None:
    """Test G refuses 41 calls: sums, dates, names and airport codes that the agent worked out by itself."""
    tools = airline.episodes["tools"][0]
    found = [(json.loads(c.completion)[0], c.prompt) for c in contexts(airline.steps).values()]
    calls = [(message, prompt) for message, prompt in found if message.get("tool_calls")]
    refused = [1 for message, prompt in calls if ungrounded(message, {"role": "assistant"}, prompt, tools)]
    assert len(calls) == 1164
    assert len(refused) == 41


def test_examples_and_groups(airline: Airline) -> None:
    funnel = Funnel()
    examples = build_examples(*airline, RewardsConfig(), funnel)
    funnel.check("examples")
    assert (funnel.considered, examples.height) == (2454, 2445)
    assert examples.filter("label")["p_success"].min() == SURE
    funnel = Funnel()
    groups = build_groups(*airline, GroupsConfig(), funnel)
    assert (groups.height, funnel.kept, funnel.dropped["no difference in the group"]) == (26, 104, 96)
