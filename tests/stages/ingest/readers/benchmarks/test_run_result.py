"""Outcomes and settings in files beside transcripts find the conversation that they are about, or say why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, TrustConfig
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.pipeline.ingest.policies import policies_of
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.conversations.link import build_links, follow_links
from flywheel.stages.conversations.policies import acts, build_policies
from flywheel.stages.signals.rows import CLAIMED
from flywheel.stages.signals.sources import stated

UUID = "0b4e7d1e-0000-4000-8000-00000000000"
WHEN = "2026-10-01T09:00:00Z"


def claude(session: str, request: str = "mend it") -> list[Any]:
    base = {"sessionId": session, "timestamp": WHEN, "version": "2.1.0"}
    reply = {"id": "m", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "done"}]}
    asked = {
        **base,
        "type": "user",
        "uuid": f"{session}-1",
        "parentUuid": None,
        "message": {"role": "user", "content": request},
    }
    return [
        asked,
        {**base, "type": "assistant", "uuid": f"{session}-2", "parentUuid": f"{session}-1", "message": reply},
    ]


def codex(session: str) -> list[Any]:
    def item(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    parts = [("session_meta", {"id": session}), ("turn_context", {"model": "m"})]
    parts += [("response_item", item("user", "mend it")), ("response_item", item("assistant", "done"))]
    return [{"timestamp": WHEN, "type": kind, "payload": payload} for kind, payload in parts]


def chat(request: str) -> list[Any]:
    return [
        {"model": "m", "messages": [{"role": "user", "content": request}, {"role": "assistant", "content": "done"}]}
    ]


def native(conversation: str) -> list[Any]:
    base = {"conversation_id": conversation, "seq": 0}
    said = {"messages": [{"role": "user", "content": "mend it"}]}
    reply = {"message": {"role": "assistant", "content": "done"}}
    return [{**base, "kind": "request", "payload": said}, {**base, "seq": 1, "kind": "model_call", "payload": reply}]


def outcomes(events: pl.DataFrame) -> tuple[dict[str, float], Funnel]:
    """Return the outcome of each conversation, as the build joins them."""
    funnel = Funnel()
    joined = follow_links(events.lazy(), build_links(events.select(LINK_COLUMNS), funnel)).collect()
    rows = joined.filter(pl.col("kind") == "outcome").select("conversation_id", "payload").iter_rows()
    return {name: json.loads(payload)["value"] for name, payload in rows}, funnel


Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(name: str, *records: Any) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("logs", "sidecars", "found"),
    [
        ({"a.jsonl": claude("s1"), "b.jsonl": claude("s2")},
         {"results.jsonl": [{"session_id": "s1", "reward": 1}, {"session_id": "s2", "reward": 0}]}, {"s1": 1, "s2": 0}),
        ({"1/s.jsonl": claude("s1"), "2/s.jsonl": claude("s2")},
         {"1/metadata.json": [{"outcome": "success"}],
          "2/metadata.json": [{"outcome": "failed", "model": "m", "env": "x"}]},
         {"s1": 1, "s2": 0}),
        ({"a.jsonl": native("n1"), "b.jsonl": native("n2")},
         {"a.result.json": [{"passed": True}], "b_metadata.json": [{"evaluation": {"score": 0.5}}]},
         {"n1": 1, "n2": 0.5}),
        ({f"rollout-{UUID}1.jsonl": codex(f"{UUID}1"), f"rollout-{UUID}2.jsonl": codex(f"{UUID}2")},
         {"results.json": [{f"{UUID}1": {"reward": 1}, f"{UUID}2": {"reward": 0}}]},
         {f"{UUID}1/codex": 1, f"{UUID}2/codex": 0}),
        ({"t.1/agent/log.json": native("n1"), "t.2/agent/log.json": native("n2")},
         {"results.json": [{"results": [{"trial_name": "t.1", "is_resolved": True},
                                        {"trial_name": "t.2", "is_resolved": False},
                                        {"trial_name": "t.3", "is_resolved": None, "failure_mode": "parse_error"}]}]},
         {"n1": 1, "n2": 0}),
        ({"run/agent/log.jsonl": native("n1")}, {"run/result.json": [{"verifier_result": {"rewards": {"tests": 1}}}]},
         {"n1": 1}),
        ({"run/messages.jsonl": native("n1")},
         {"run/meta.json": [{"task_name": "t", "execution_result": {"success": True, "error": None}}]}, {"n1": 1}),
    ],
    ids=["ids", "folders", "names", "map", "trials", "below", "checked"],
)  # fmt: skip
def test_an_outcome_finds_its_conversation(
    logs: dict[str, Any], sidecars: dict[str, Any], found: dict[str, float], put: Put, take: Callable[..., Any]
) -> None:
    for name, records in (logs | sidecars).items():
        put(name, *records)
    taken = take()
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    values, funnel = outcomes(taken.events)
    assert values == found
    assert not funnel.dropped


def test_what_fits_several_or_nothing_waits_with_its_reason(put: Put, take: Callable[..., Any]) -> None:
    put("two/a.jsonl", *native("n1"))
    put("two/b.jsonl", *native("n2"))
    put("two/metadata.json", {"reward": 1})
    put("none/metadata.json", {"reward": 1, "session_id": "other"})
    put("many/results.jsonl", {"reward": 1, "temperature": 1}, {"reward": 0, "temperature": 1})
    taken = take()
    values, funnel = outcomes(taken.events)
    assert not {"n1", "n2"} & values.keys()
    assert sorted(funnel.dropped.values()) == [1, 1]
    assert taken.quarantined["source_file"].to_list() == ["many/results.jsonl"]


def test_a_result_may_come_before_its_log_and_is_stated_by_its_file(put: Put, take: Callable[..., Any]) -> None:
    put("1/metadata.json", {"reward": 1})
    early = take().events
    put("1/s.jsonl", *claude("s1"))
    values, _ = outcomes(take().events)
    assert (early.height, values) == (1, {"s1": 1})
    rules = TrustConfig(outcomes=["*", "!file:*/metadata.json"])
    assert stated(take().events, rules, Funnel()).filter(CLAIMED).height == 1


def test_settings_name_policies_where_they_tell_runs_apart(put: Put, take: Callable[..., Any]) -> None:
    for heat in (0.2, 1.0):
        for n in range(2):
            put(f"{heat}/{n}/s.jsonl", *claude(f"s{n}-{heat}"))
            put(f"{heat}/{n}/metadata.json", {"temperature": heat, "top_p": 1, "model": "m", "seed": n, "reward": n})
    events = take().events
    names = build_policies(acts(events)).select("policy", "rule").unique().sort("policy").rows()
    agent = "claude-code-2.1.0/m"
    assert names == [(f"{agent}/temperature=0.2", "settings"), (f"{agent}/temperature=1", "settings")]
    assert [row.policy for row in policies_of([events])] == [name for name, _ in names]


def test_settings_that_are_all_equal_name_nothing(put: Put, take: Callable[..., Any]) -> None:
    for n in range(2):
        put(f"{n}/s.json", *chat(f"mend {n}"))
        put(f"{n}/metadata.json", {"temperature": 1, "model": "m", "reward": n})
    assert build_policies(acts(take().events))["policy"].unique().to_list() == ["m"]


def test_lines_of_a_benchmark_are_results_of_their_own(put: Put, take: Callable[..., Any]) -> None:
    runs = [{"runId": f"r{n}", "model": f"m{n % 2}", "task": "sort", "solved": True} for n in range(4)]
    put("results.jsonl", runs)
    taken = take()
    assert (taken.events["conversation_id"].n_unique(), taken.events["task_key"].unique().to_list()) == (4, ["sort"])
    put("results.jsonl", [{"task_id": "sort", "model": f"m{n % 2}", "solved": True} for n in range(4)])
    again = take().events
    assert again["kind"].value_counts().sort("kind").rows() == [("feedback", 4), ("outcome", 4)]
    assert again.filter(kind="feedback")["model"].to_list() == ["m0", "m1", "m0", "m1"], "whose result each is"


CALLS = [{"trace_id": f"t{n}", "tool": "sum", "args": {"a": n}, "result": "3", "success": True} for n in range(4)]
SUMMARY = [{"model_id": "m", "total": 300, "correct": 171, "avg_steps": 4.5}]


COUNTED = {"result": {"reward": 1.0}, "run_id": "r", "per_step": [{"tool_calls": 2, "observation": None}]}


def test_counts_by_step_are_no_talk(put: Put, take: Callable[..., Any]) -> None:
    put("result.json", COUNTED)
    assert take().events["kind"].to_list() == ["outcome"]


TREE = [{"win": False, "query_id": 7, "run_id": "r", "trys": [{"chain": [{"node": "a", "observation": "none"}]}]}]


@pytest.mark.parametrize(("records", "calls"), [(CALLS, 4), (SUMMARY, 0), (TREE, 0)])
def test_calls_and_counts_are_no_results_of_runs(
    records: list[Any], calls: int, put: Put, take: Callable[..., Any]
) -> None:
    put("results.jsonl", records)
    assert take().events["kind"].to_list() == ["tool_call", "tool_result"] * calls


def test_single_lines_of_a_program_are_no_results_of_runs(tmp_path: Path, take: Callable[..., Any]) -> None:
    lines = [
        'INFO evaluated {"task_id": "t1", "success": true}',
        "INFO next",
        'INFO evaluated {"task_id": "t2", "success": true}',
    ]
    (tmp_path / "agent.log").write_text("".join(f"2026-10-01 10:00:00,000 - shop - {line}\n" for line in lines * 4))
    assert take().events.is_empty()


def test_whether_parts_of_a_run_succeeded_is_no_outcome(put: Put, take: Callable[..., Any]) -> None:
    rows = [
        {"task_id": f"t{n // 4}", "kind": ("llm_call", "validation")[n % 2], "success": n % 3 > 0} for n in range(8)
    ]
    put("run/spans.jsonl", *rows)
    assert take().events.is_empty()


def test_ratings_in_a_file_of_their_own_find_what_they_are_about(put: Put, take: Callable[..., Any]) -> None:
    put("run/talks.jsonl", *native("s1"), *native("s2"))
    put("run/feedback.jsonl", *({"session_id": f"s{n}", "query": "q", "rating": ("up", "down")[n % 2]} for n in (1, 2)))
    events = take().events
    given = events.filter(kind="feedback").select("target", "payload").sort("target").rows()
    assert [(target, json.loads(payload)["label"]) for target, payload in given] == [
        ("beside:s1", "down"),
        ("beside:s2", "up"),
    ]
    links = build_links(events.select(LINK_COLUMNS), Funnel())
    assert links["state"].to_list() == ["joined"] * 2


@pytest.mark.parametrize("beside", [{"reasoning_effort": "high"}, {}])
def test_the_model_in_a_runs_settings_names_its_episodes(
    beside: dict[str, Any], put: Put, take: Callable[..., Any]
) -> None:
    for model in ("m-large", "m-small"):
        talk = [{"role": "user", "content": "mend it"}, {"role": "assistant", "content": "done"}]
        put(f"{model}/t1/messages.jsonl", *talk)
        put(f"{model}/t1/meta.json", {"task_name": "t1", "model": model, "success": True, **beside})
    events = take().events
    links = build_links(events.select(LINK_COLUMNS), Funnel())
    episodes, _ = build_episodes(
        follow_links(events.lazy(), links).collect(), EpisodesConfig(), Funnel(), build_policies(acts(events))
    )
    assert sorted(episodes["policy"]) == ["m-large", "m-small"]


def test_a_programs_score_is_no_rating_too(put: Put, take: Callable[..., Any]) -> None:
    put("t1/messages.json", *chat("mend it"))
    put("t1/result.json", {"score": 0.0})
    kinds = take().events.filter(source_format="run_result")["kind"].to_list()
    assert kinds == ["outcome"]
