"""Calls of unnamed conversations: people who begin alike, samples of one prompt, retries, second tellings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from flywheel.contracts import polars_schema
from flywheel.records import LogEvent, canonical_json, content_id
from flywheel.stages.conversations.unnamed import part_unnamed
from tests.stages.talks import START, user

NAME = "chat-00ff"
SYSTEM = {"role": "system", "content": "You are the shop's helper."}
HI, HELLO = user("Hi"), {"role": "assistant", "content": "Hello! What can I do for you?"}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def acted(name: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": f"c-{name}", "name": name, "arguments": {}}]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


class Log:
    """Records of a proxy, one a minute."""

    def __init__(self, conversation: str = NAME) -> None:
        self.conversation = conversation
        self.rows: list[dict[str, Any]] = []

    def record(self, kind: str, payload: dict[str, Any], **columns: Any) -> str:
        line = len(self.rows) + 1
        row: dict[str, Any] = {
            **dict.fromkeys(LogEvent.model_fields),
            "ids": [],
            "seq": len(payload.get("input", [])),
            "kind": kind,
        }
        row |= {"event_id": content_id(line), "ts": START + timedelta(minutes=line), "payload": canonical_json(payload)}
        row |= {"conversation_id": self.conversation, "source_file": "log.jsonl", "source_line": line}
        self.rows.append(row | {"source_format": "openai", "signed": False} | columns)
        return str(row["event_id"])

    def call(
        self, *history: dict[str, Any], answer: dict[str, Any], response: str | None = None, **columns: Any
    ) -> str:
        payload = {"input": [SYSTEM, *history], "message": answer} | ({"response_id": response} if response else {})
        return self.record("model_call", payload, **columns)

    def failed(self, *history: dict[str, Any]) -> str:
        return self.record("request", {"messages": [SYSTEM, *history], "tags": ["call_failed"]})

    def attempts(self) -> list[list[str]]:
        """Return the events of each conversation, conversations by their first event."""
        events = pl.DataFrame(self.rows, schema=polars_schema(LogEvent))
        parted = part_unnamed(events)
        assert parted.drop("conversation_id").equals(events.drop("conversation_id"))
        assert parted["conversation_id"][0] == self.rows[0]["conversation_id"], "the earliest keeps the name"
        shuffled = part_unnamed(events.sample(fraction=1.0, shuffle=True, seed=1)).sort("source_line")
        assert shuffled["conversation_id"].equals(parted["conversation_id"])
        return parted.group_by("conversation_id", maintain_order=True).agg("event_id")["event_id"].to_list()


def test_people_who_begin_alike_are_conversations_of_their_own() -> None:
    log = Log()
    first = [log.call(HI, answer=HELLO) for _ in range(2)]
    one = log.call(HI, HELLO, user("Cancel my order"), answer=said("Done."), response="r1")
    three = log.call(HI, answer=HELLO)
    two = log.call(HI, HELLO, user("Where is my refund?"), answer=said("Here."))
    four = log.call(HI, HELLO, user("Reset it"), answer=said("Reset."))
    told = log.record("feedback", {"name": "thumbs", "value": 0}, target="response:r1")
    log.conversation = "named"
    log.call(HI, answer=HELLO)

    found = log.attempts()
    assert sorted(map(len, found)) == [1, 2, 2, 3]
    assert [one in attempt and told in attempt for attempt in found].count(True) == 1
    assert {next(n for n, ids in enumerate(found) if e in ids) for e in (one, two, four)} == {0, 1, 2}
    assert [e for e in (*first, three) if [e] in found] == []


def test_samples_of_one_prompt_are_attempts_also_where_they_say_the_same() -> None:
    log = Log()
    asked = user("Cancel order W1")
    begun = [log.call(asked, answer=acted(name), response=f"r-{n}") for n, name in enumerate("aba")]
    done = [log.call(asked, acted(name), result("ok"), answer=said("Refunded.")) for name in "ab"]
    found = log.attempts()
    assert [begun[1], done[1]] in found
    assert sorted(map(len, found)) == [1, 2, 2]


def test_what_goes_on_in_another_way_is_the_same_attempt() -> None:
    log = Log()
    asked = user("Find it")
    ids = [log.failed(asked), log.call(asked, answer=acted("find"))]
    ids.append(log.call(asked, acted("find"), result("a long page"), answer=acted("open")))
    # the program cleared an old result
    cleared = (asked, acted("find"), result("[cleared]"), acted("open"), result("here"))
    ids.append(log.call(*cleared, answer=said("Found."), response="r"))
    ids.append(log.call(*cleared, answer=said("Found."), response="r", source_file="again.jsonl"))
    assert log.attempts() == [ids]


def test_a_call_that_names_the_response_before_it_is_of_its_attempt() -> None:
    """A server that keeps the history is given only what is new, which begins like nothing before."""
    log = Log()
    ids = [log.call(HI, answer=HELLO, response="r1"), log.call(HI, answer=HELLO, response="s1")]
    for before, own in (("s1", "s2"), ("r1", "r2"), ("r2", "r3")):
        ids.append(log.record("request", {"messages": [user("And?")], "follows": before}))
        payload = {"message": said(own), "response_id": own, "follows": before}
        ids.append(log.record("model_call", payload, source_line=log.rows[-1]["source_line"]))
    first, second = log.attempts()
    assert (first, second) == ([ids[0], *ids[4:]], [ids[1], *ids[2:4]])


@pytest.mark.parametrize("conversation", ["session-7", "response:1"])
def test_what_the_log_names_stays(conversation: str) -> None:
    log = Log(conversation)
    ids = [log.call(HI, answer=HELLO) for _ in range(2)]
    assert log.attempts() == [ids]


def test_a_conversation_with_a_call_of_unknown_input_stays() -> None:
    log = Log()
    ids = [log.call(HI, answer=HELLO), log.record("model_call", {"message": HELLO}), log.call(HI, answer=said("x"))]
    assert log.attempts() == [ids]
