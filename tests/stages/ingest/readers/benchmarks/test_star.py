"""STAR dialogues: what the wizard did and saw, what people said afterwards, and which no is no failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.benchmarks.star import READER

EVENTS: list[dict[str, Any]] = [
    {"Agent": "UserGuide", "Action": "instruct", "Text": "Be in a hurry.", "UnixTime": 1590000000},
    {"Agent": "User", "Action": "utter", "Text": "A ride, please.", "UnixTime": 1590000010},
    {
        "Agent": "Wizard", "Action": "query", "APIName": "ride_book", "UnixTime": 1590000020, "Constraints": [
            {"From": '"Mill Lane"'}, {"By": 'api.is_one_of(["Uber","Lyft"])'}, {"When": '"now"'}, {"When": '"soon"'},
        ],
    },
    {"Agent": "KnowledgeBase", "Action": "return_item", "APIName": "ride_book", "Item": {"id": 3}, "TotalItems": 2},
    {"Agent": "Wizard", "Action": "request_suggestions", "Text": "found one", "UnixTime": 1590000030},
    {"Agent": "Wizard", "Action": "pick_suggestion", "Text": "I found a ride.", "UnixTime": 1590000040},
    {"Agent": "User", "Action": "complete", "UnixTime": 1590000050},
]  # fmt: skip
HELPFUL = {"Question": "Did the assistant stay calm and helpful throughout the dialogue?", "Answer": True}
DONE = {"Question": "Did the assistant find you a suitable ride?", "Answer": False}
MIND = {"Question": "Did the user change his/her mind about what he/she wants at any time?", "Answer": True}


def dialogue(events: list[dict[str, Any]] | None = None, *, task: str = "ride_book", **changed: Any) -> dict[str, Any]:
    scenario = {
        "Happy": changed.pop("happy", True), "UserTask": "You need a ride.", "WizardTask": "Help the user.",
        "WizardCapabilities": [{"Domain": "ride", "Task": task}],
    }  # fmt: skip
    return {
        "DialogueID": 7, "Events": EVENTS if events is None else events, "Scenario": scenario,
        "CompletionLevel": "Complete", "AnonymizedUserWorkerID": "u-1",
        "UserQuestionnaire": [HELPFUL, DONE], "WizardQuestionnaire": [MIND], **changed,
    }  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_the_wizard_acts_and_the_base_answers() -> None:
    events = read(dialogue())
    assert [e["kind"] for e in events][:5] == ["request", "request", "model_call", "tool_result", "model_call"]
    assert events[0]["payload"]["messages"] == [{"role": "system", "content": "Help the user."}]
    (call,) = events[2]["payload"]["message"]["tool_calls"]
    assert (call["name"], call["arguments"]) == (
        "ride_book",
        {"From": "Mill Lane", "By": 'api.is_one_of(["Uber","Lyft"])', "When": ["now", "soon"]},
    )
    assert (events[3]["tool_call_id"], events[3]["ts"], events[3]["payload"]["status"]) == (call["id"], None, "ok")
    assert json.loads(events[3]["payload"]["content"]) == {"Item": {"id": 3}, "TotalItems": 2}
    assert events[4]["payload"]["message"]["content"] == "I found a ride."
    assert events[4]["ts"].isoformat() == "2020-05-20T18:40:40+00:00"
    assert {(e["conversation_id"], e["policy"], e["user"]) for e in events} == {("star/7", "human", "u-1")}
    assert not {"hurry", "found one"} & set(str(events).split())


def test_a_query_without_what_it_needs_failed() -> None:
    refused = {**EVENTS[3], "Item": {"Message": "You must provide a name to proceed."}}
    assert read(dialogue([*EVENTS[:3], refused]))[3]["payload"]["status"] == "failed"
    nothing = {k: v for k, v in EVENTS[3].items() if k != "Item"} | {"TotalItems": 0}
    assert read(dialogue([*EVENTS[:3], nothing]))[3]["payload"]["status"] == "ok"


def judged(record: Any) -> list[tuple[str, str, float]]:
    found = [e for e in read(record) if e["kind"] in {"feedback", "outcome"}]
    return [(e["kind"], e["payload"]["name"], e["payload"]["value"]) for e in found]


def test_what_people_said_afterwards() -> None:
    assert judged(dialogue()) == [
        ("feedback", "user_feedback", 1), ("outcome", "task_done", 0), ("feedback", "user_changed_mind", 1),
    ]  # fmt: skip


def test_a_no_is_no_failure_where_the_request_could_not_be_met_or_another_thing_was_asked() -> None:
    assert judged(dialogue(happy=False))[1] == ("feedback", "task_done", 0)
    other = {"Question": "Did the assistant reserve your hotel?", "Answer": False}
    assert judged(dialogue(task="hotel_search", UserQuestionnaire=[other]))[0] == ("feedback", "task_done", 0)
    assert judged(dialogue(task="hotel_book", UserQuestionnaire=[other]))[0] == ("outcome", "task_done", 0)


def test_a_task_that_only_refers_to_the_guide_is_named_by_what_he_says_first() -> None:
    other = [{**EVENTS[0], "Text": "You lost your card."}, *EVENTS[1:]]
    assert read(dialogue())[0]["task_key"] != read(dialogue(other))[0]["task_key"]


def test_a_lost_connection_is_told_and_an_empty_dialogue_gives_nothing() -> None:
    assert read(dialogue(CompletionLevel="EarlyDisconnectDuringDialogue"))[0]["payload"]["tags"] == ["disconnected"]
    assert "tags" not in read(dialogue(CompletionLevel="DisconnectDuringQuestionnaire"))[0]["payload"]
    assert read(dialogue([])) == []
    assert read(dialogue(EVENTS[:1])) == []


def test_detection_refusal_and_steps(tmp_path: Path, take: Callable[..., Any]) -> None:
    others: list[Any] = [[], {"DialogueID": 1}]
    for other in others:
        assert READER.sniff(Sample("x.json", [other])) == 0
        with pytest.raises(BadRecordError):
            read(other)
    (tmp_path / "7.json").write_text(json.dumps(dialogue(), indent=1), encoding="utf-8")
    api = {
        "db": "rides",
        "function": "generic_sample",
        "input": [],
        "output": [],
        "required": [],
        "returns_count": True,
    }
    (tmp_path / "ride_book.json").write_text(json.dumps(api, indent=1), encoding="utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (2, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes["stop_reason"].item(), steps["tool_status"].to_list()) == ("answered", [["ok"], []])


@pytest.mark.e2e
def test_the_real_dialogues_have_their_known_counts(real: Callable[[str], Any]) -> None:
    taken = real("star")
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (2497, 0, True)  # with LICENSE and SOURCE.md
    events = taken.events
    kinds = dict(events.group_by("kind").len().iter_rows())
    assert (kinds["tool_result"], kinds["feedback"] + kinds["outcome"]) == (5494, 10466)
    spoken = events.filter(pl.col("kind") == "model_call")["payload"].str.contains('"tool_calls"')
    assert ((~spoken).sum(), spoken.sum()) == (15600, 5494)
    assert events["conversation_id"].n_unique() == 2483 - taken.ignored["nothing of an agent in it"] + 12
