"""mini-swe-agent runs: calls, code blocks, replies that did not parse, humans who step in, verdicts from a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.agents.mini_swe_agent import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "mini_swe_agent"
STATS = {"instance_cost": 0.0, "api_calls": 1}
TASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix it."}]


def block(command: str) -> dict[str, Any]:
    return {"role": "assistant", "content": f"Let me see.\n\n```bash\n{command}\n```"}


def run(*turns: dict[str, Any], status: str = "Submitted", **more: Any) -> dict[str, Any]:
    info = {"exit_status": status, "submission": "", "model_stats": STATS}
    return {"info": info, "messages": [*TASK, *turns], **more}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def results(record: Any) -> list[tuple[str, str]]:
    return [(e["payload"]["content"], e["payload"]["status"]) for e in read(record) if e["kind"] == "tool_result"]


@pytest.mark.parametrize("kind", ["native", "block", "items"])
def test_three_ways_of_acting_give_the_same_events(kind: str) -> None:
    record = json.loads((FIXTURES / "run-1" / f"acme__{kind}-1.traj.json").read_text(encoding="utf-8"))
    events = [e for e in read(record) if e["kind"] in {"model_call", "tool_result"} and "refused" not in e]
    calls = [e for e in events if e["kind"] == "model_call" and e["payload"]["message"]["content"] != "Oops."]
    made = [c["payload"]["message"]["tool_calls"][0] for c in calls]
    assert [(c["name"], c["arguments"]["command"]) for c in made] == [
        ("bash", "echo hello"),
        ("bash", "exit 3"),
        ("bash", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo the-patch"),
    ]
    ended = [e for e in events if e["kind"] == "tool_result"]
    assert [e["payload"]["status"] for e in ended] == ["ok", "failed", "ok"]
    assert [e["tool_call_id"] for e in ended] == [c["id"] for c in made]
    assert ended[-1]["payload"]["content"] == "the-patch\n"
    assert {c["payload"]["cost_usd"] for c in calls} == {1.0}
    assert calls[0]["ts"].isoformat() == "2026-10-01T10:20:02+00:00"
    assert all(c["payload"]["message"]["content"].startswith("Step") for c in calls)


def test_a_reply_that_did_not_parse_is_told_but_was_not_seen_again(take: Callable[..., Any]) -> None:
    taken = take(FIXTURES, root=FIXTURES)
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (3, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert set(episodes["conversation_id"]) == {f"run-1/acme__{kind}-1" for kind in ("native", "block", "items")}
    (episode,) = episodes.filter(pl.col("conversation_id") == "run-1/acme__native-1").iter_rows(named=True)
    path = steps.filter(pl.col("episode_id") == episode["episode_id"]).sort("index")
    assert path["malformed"].to_list() == [False, True, False, False]
    assert path["resets_context"].to_list() == [False, False, True, False]
    seen = json.loads(path["observation"][2])
    assert [m["role"] for m in seen] == ["system", "user", "assistant", "tool", "user"]
    assert "Oops." not in path["observation"][2]
    assert path["tool_status"].to_list() == [["ok"], ["unknown"], ["failed"], ["ok"]]
    assert episode["policy"] == "mini-swe-agent-2.4.6/deterministic_toolcall"


def test_what_a_reply_cost_and_how_it_was_drawn() -> None:
    response = {
        "id": "r1", "model": "m-1", "choices": [{"finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
    }  # fmt: skip
    config = {"model": {"model_name": "acme/m", "model_kwargs": {"temperature": 0.5, "drop_params": True}}}
    turn = block("ls") | {"extra": {"response": response, "cost": 0.25, "timestamp": 1790850000.5}}
    record = run(turn, instance_id="acme__a-1")
    record["info"] |= {"config": config, "mini_version": "2.0.0"}
    event = read(record)[2]
    assert {k: v for k, v in event["payload"].items() if k != "message"} == {
        "response_id": "r1", "finish_reason": "tool_calls", "input_tokens": 9, "output_tokens": 4, "cost_usd": 0.25,
        "sampling": {"temperature": 0.5},
    }  # fmt: skip
    assert (event["model"], event["policy"], event["task_key"]) == ("m-1", "mini-swe-agent-2.0.0/acme/m", "acme__a-1")


def test_older_runs_tell_statuses_in_text() -> None:
    told = [
        ("<returncode>0</returncode>\n<output>\na\n</output>", "ok"),
        ("<returncode>2</returncode>\n<output>\n</output>", "failed"),
        ("The last command <command>sleep</command> timed out and has been killed.", "failed"),
        ("Observation: something", "unknown"),
    ]
    turns = [turn for content, _ in told for turn in (block("x"), {"role": "user", "content": content})]
    assert results(run(*turns, block("submit"), {"role": "user", "content": "the patch"})) == [
        *told,
        ("the patch", "ok"),
    ]


def test_a_reply_without_one_command_is_answered_by_the_user() -> None:
    both = {"role": "assistant", "content": "```bash\na\n```\nor\n```bash\nb\n```"}
    record = run(both, {"role": "user", "content": "ONE action, please."}, status="LimitsExceeded")
    events = read(record)
    assert [e["kind"] for e in events] == ["request", "request", "model_call", "request", "request"]
    assert "tool_calls" not in events[2]["payload"]["message"]
    assert events[-1]["payload"] == {"messages": [], "tags": ["not_submitted"]}


def native(call_id: str, command: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {
        "role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}],
        "extra": {"actions": [{"command": command, "tool_call_id": call_id}]},
    }  # fmt: skip


def result(call_id: str, **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "output", "extra": extra}


NOT_RUN = {"returncode": -1, "exception_info": "action was not executed"}


def test_what_a_human_stops_did_not_fail() -> None:
    said = {"role": "user", "content": "Not that one.", "extra": {"interrupt_type": "UserRejection"}}
    events = read(run(native("c1", "rm a"), result("c1", **NOT_RUN), said))
    (stopped,) = [e for e in events if e["kind"] == "tool_result"]
    assert stopped["payload"]["status"] == "unknown"
    (feedback,) = [e for e in events if e["kind"] == "feedback"]
    assert feedback["payload"] == {
        "name": "reject", "comment": "Not that one.", "annotator": "human", "target": "call", "target_id": "c1",
    }  # fmt: skip
    assert events[-1]["payload"]["messages"] == [{"role": "user", "content": "Not that one."}]


def test_a_human_may_act_too_and_submissions_may_wait_for_him() -> None:
    typed = {"role": "user", "content": "User command: ls", "extra": {"actions": [{"command": "ls"}]}}
    shown = {"role": "user", "content": "a b", "extra": {"returncode": 0}}
    submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    ended = {"role": "exit", "content": "the patch", "extra": {"exit_status": "Submitted"}}
    record = run(typed, shown, native("c1", submit), result("c1", **NOT_RUN), ended)
    assert [e["kind"] for e in read(record)] == [
        "request", "request", "request", "request", "model_call", "tool_result", "tool_result",
    ]  # fmt: skip
    assert results(record)[-1] == ("the patch", "ok")


def test_a_timeout_is_named() -> None:
    extra = {"returncode": -1, "exception_type": "TimeoutExpired", "exception_info": "An error occurred"}
    (event,) = [e for e in read(run(native("c1", "sleep 99"), result("c1", **extra))) if e["kind"] == "tool_result"]
    assert (event["payload"]["status"], event["payload"]["error_type"]) == ("failed", "TimeoutExpired")


def test_runs_of_one_instance_have_the_runs_folder_as_their_scope() -> None:
    for path in ("logs/run-7/a-1/a-1.traj.json.gz", "logs/run-7/a-1.traj.json", "run-7/a-1.traj"):
        assert READER.from_path(PurePosixPath(path)) == {"scope": "run-7"}
    assert READER.from_path(PurePosixPath("a-1.traj.json")) == {}


def test_runs_without_a_name_are_told_apart() -> None:
    one, other = (run(block("ls"), {"role": "user", "content": text}) for text in ("a", "b"))
    names = {e["conversation_id"] for record in (one, other) for e in read(record)}
    assert len(names) == 2
    assert all(name.startswith("mini-swe-agent/") for name in names)


def test_detection_and_refusal() -> None:
    assert READER.sniff(Sample("a.traj.json", [{"trajectory_format": "mini-swe-agent-1.1", "messages": []}])) == 1
    assert READER.sniff(Sample("a.traj.json", [run()])) == 1
    assert READER.sniff(Sample("a.json", [{"messages": TASK}])) == 0
    assert read({"trajectory_format": "mini-swe-agent-1", "messages": []}) == []
    ended = {"messages": [], "instance_id": "acme__a-1", "info": {"exit_status": "RateLimitError"}}
    assert [(e["task_key"], e["payload"]["tags"]) for e in read(ended)] == [("acme__a-1", ["not_submitted"])]
    broken: list[Any] = [[], {}, {"messages": "none"}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)


@pytest.mark.e2e
def test_the_real_runs_have_their_known_counts(real: Callable[[str], Any]) -> None:
    taken = real("mini-swe-agent-deepseek")
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (74, 0, True)
    events = taken.events
    assert (events["conversation_id"].n_unique(), events["task_key"].n_unique()) == (69, 23)
    value = pl.col("payload").str.json_path_match("$.value").cast(pl.Float64)
    outcomes = events.filter(pl.col("kind") == "outcome").with_columns(won=value >= 1)
    runs = outcomes.group_by(pl.col("conversation_id").str.split("/").list.first()).agg(pl.col("won").sum())
    assert sorted(runs["won"]) == [5, 8, 8]
    tasks = outcomes.group_by("task_key").agg(pl.col("won").sum(), n=pl.len())
    assert tasks.filter((pl.col("won") > 0) & (pl.col("won") < pl.col("n"))).height == 4
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    assert (episodes.height, steps.height, episodes["n_tool_errors"].sum()) == (69, 5671, 549)
    assert steps["tool_status"].explode().value_counts().filter(pl.col("tool_status") == "ok")["count"].to_list() == [
        5122
    ]


def test_what_a_run_cost_counts_once() -> None:
    def told(record: dict[str, Any]) -> list[Any]:
        record["info"]["model_stats"] = {"instance_cost": 0.1, "api_calls": 1}
        return [e["payload"]["usage_so_far"] for e in read(record) if "usage_so_far" in e["payload"]]

    assert told(run(block("ls"))) == [{"cost_usd": 0.1}]
    assert told(run({**block("ls"), "extra": {"cost": 0.1}})) == []  # each answer has its own
