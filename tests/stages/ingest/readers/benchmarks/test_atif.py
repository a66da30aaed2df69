"""ATIF trajectories: what its own data classes checked, and the corners of every version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.atif import READER

JOB = Path(__file__).parents[4] / "fixtures" / "harbor"
ASKED = {"step_id": 1, "source": "user", "message": "Where is order 7?"}


def call(number: int) -> dict[str, Any]:
    return {"tool_call_id": f"c{number}", "function_name": "get", "arguments": {"id": number}}


def run(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    agent = {"name": "shop", "version": "2"}
    return {"schema_version": "ATIF-v1.5", "session_id": "s1", "agent": agent, "steps": [ASKED, *steps], **fields}


def acted(*calls: dict[str, Any], results: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"source": "agent", "message": "", "tool_calls": list(calls), "observation": {"results": results}, **fields}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def results(record: Any) -> list[tuple[Any, str, str]]:
    found = [e for e in read(record) if e["kind"] == "tool_result"]
    return [(e["tool_call_id"], e["payload"]["content"], e["payload"]["status"]) for e in found]


def test_a_run_with_a_helper(take: Callable[..., Any]) -> None:
    taken = take(JOB / "order-eta__a1" / "agent" / "trajectory.json", root=JOB)
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (1, {}, 0)
    assert taken.adds_up()
    assert set(taken.events["conversation_id"]) == {"atif/run-1", "atif/run-1/helper"}
    assert set(taken.events["policy"]) == {"support@1.0/qwen3-8b"}
    assert sum("session:run-1" in ids for ids in taken.events["ids"].to_list()) == taken.events.height - 2
    assert all("session:order-eta__a1" in ids for ids in taken.events["ids"].to_list()), "the trial's folder"
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes.sort("n_steps")["n_steps"].to_list() == [1, 3]
    main = steps.filter(episode_id=episodes.sort("n_steps")["episode_id"][1]).sort("index")
    assert main["tool_status"].to_list() == [["unknown", "failed"], ["unknown"], []]
    assert not main["resets_context"].any()
    last = json.loads(main["observation"][2])
    assert [m["role"] for m in last] == ["tool", "assistant"], "what no model said was seen, not done"


def test_what_a_step_cost_and_its_tokens_stay_with_it(take: Callable[..., Any]) -> None:
    taken = take(JOB / "order-eta__a1" / "agent" / "trajectory.json", root=JOB)
    first = next(p for p in taken.payloads() if p.get("message", {}).get("tool_calls"))
    assert (first["input_tokens"], first["output_tokens"], first["cost_usd"]) == (10, 9, 0.5)
    assert (first["prompt_token_ids"], first["completion_token_ids"]) == ([1, 2, 3], [4, 5])
    assert first["completion_logprobs"] == [-0.25, -0.5]
    assert first["message"]["reasoning"] == "two lookups"
    assert first["tools"][0]["function"]["name"] == "get_order"


def test_a_document_that_goes_on_is_the_same_conversation(take: Callable[..., Any]) -> None:
    taken = take(JOB / "order-eta__b2" / "agent", root=JOB)
    assert set(taken.events["conversation_id"]) == {"atif/run-2"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes.height, steps.height) == (1, 2), "what was copied is not done twice"
    assert json.loads(steps["action"][1])["content"] == "Order 7: Monday."


def test_results_without_a_call_id() -> None:
    one = [{"content": "screen"}]
    assert results(run(acted(call(1), call(2), results=one))) == [("c2", "screen", "unknown")]
    two = [{"content": "a"}, {"content": "b"}]
    assert results(run(acted(call(1), call(2), results=two))) == [("c1", "a", "unknown"), ("c2", "b", "unknown")]
    mixed = [{"content": "a", "source_call_id": "c2"}, {"content": "b"}]
    assert results(run(acted(call(1), call(2), results=mixed))) == [("c2", "a", "unknown"), ("c1", "b", "unknown")]


def test_what_comes_of_no_call_is_what_the_surroundings_say() -> None:
    events = read(run(acted(results=[{"content": "a shell is open"}, {"content": None}])))
    assert [(e["kind"], e["seq"]) for e in events] == [("request", 0), ("model_call", 1), ("request", 2)]
    assert events[2]["payload"]["messages"] == [{"role": "user", "content": "a shell is open"}]
    system = {"source": "system", "message": "", "observation": {"results": [{"content": "memory is short"}]}}
    assert read(run(system))[0]["payload"]["messages"][1]["content"] == "memory is short"


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        ({"tool_result_is_error": True}, "failed"),
        ({"is_error": False}, "ok"),
        ({"exit_code": 1}, "failed"),
        ({"status": "success"}, "ok"),
        ({"is_error": "no"}, "unknown"),
        (None, "unknown"),
    ],
)
def test_flags_stand_in_what_is_extra(extra: Any, status: str) -> None:
    result = {"source_call_id": "c1", "content": "text"}
    assert results(run(acted(call(1), results=[{**result, "extra": extra}])))[0][2] == status
    assert results(run(acted(call(1), results=[result], extra=extra)))[0][2] == status


def test_parts_and_empty_answers() -> None:
    parts = [{"type": "text", "text": "Look:"}, {"type": "image", "source": {"media_type": "image/png", "path": "x"}}]
    events = read(run({"source": "agent", "message": parts}, {"source": "agent", "message": ""}))
    assert [e["payload"]["message"].get("content") for e in events[1:]] == ["Look:\n[image]", ""]


def test_names_of_conversations() -> None:
    def conversation(**fields: Any) -> str:
        return str(read(run(**fields))[0]["conversation_id"])

    assert conversation() == "atif/s1"
    assert conversation(trajectory_id="t1") == "atif/s1/t1"
    assert conversation(trajectory_id="s1") == "atif/s1"
    assert conversation(session_id=None, trajectory_id="t1") == "atif/t1"
    unnamed = conversation(session_id=None)
    assert unnamed == conversation(session_id=None) != conversation(session_id=None, steps=[ASKED, ASKED])


@pytest.mark.parametrize(
    ("path", "trial"),
    [
        ("jobs/j1/order__a1/agent/trajectory.json", "order__a1"),
        ("j1/order__a1/steps/first/agent/trajectory.json", "order__a1"),
        ("order__a1/trajectory.json", None),
        ("agent/trajectory.json", None),
    ],
)
def test_the_trial_is_the_folder(path: str, trial: str | None) -> None:
    assert READER.from_path(PurePosixPath(path)).get("id") == (trial and f"session:{trial}")


def test_ids_that_are_none() -> None:
    strange = {"tool_call_id": {"a": 1}, "function_name": "get", "arguments": None}
    assert results(run(acted(strange, results=[{"source_call_id": ["x"], "content": "a"}]))) == []
    assert [e["kind"] for e in read(run(acted(strange, results=[{"content": "a"}])))][1:] == ["model_call", "request"]


def test_what_is_no_trajectory_is_refused() -> None:
    refused: list[Any] = [[], {"schema_version": "ATIF-v1.0"}, run({"source": "wizard", "message": "x"})]
    for record in refused:
        with pytest.raises(BadRecordError):
            read(record)
    assert read({"schema_version": "ATIF-v1.0", "steps": []}) == []


def test_detection() -> None:
    assert READER.sniff(Sample("x", [run()])) == 1
    assert READER.sniff(Sample("x", [{"schema_version": "2", "steps": []}, {"steps": []}, 7])) == 0
