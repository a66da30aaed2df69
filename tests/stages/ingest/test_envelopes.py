"""Logs in what ships, stores and queues them: each gives the events of the records inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.stages.ingest.framing.frames import rows_of
from tests.stages.ingest.formats import Sample, all_samples

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

LOGS = [sample for sample in all_samples() if all(isinstance(record, dict) for record in sample.records)]
Records = list[dict[str, Any]]
Pairs = Callable[..., Records]
PLAIN = "INFO server started on port 8080"
TIME = "2026-10-01T10:00:00.000000001Z"


def logged(records: Records, *, plain: bool = True) -> list[str]:
    return [*([PLAIN] if plain else []), *map(json.dumps, records)]


def each(wrap: Callable[[Any], Any], items: Any) -> str:
    return "".join(json.dumps(wrap(item)) + "\n" for item in items)


def cut(text: str, kinds: str = "PPF") -> Iterator[tuple[str, str]]:
    yield from zip(kinds, (text[:60], text[60:90], text[90:]), strict=True)


def mongo(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: mongo(held) for name, held in value.items()}
    if isinstance(value, list):
        return [mongo(held) for held in value]
    return {"$numberInt": str(value)} if isinstance(value, int) else value


def dynamo(value: Any) -> Any:
    if isinstance(value, dict):
        return {"M": {name: dynamo(held) for name, held in value.items()}}
    if isinstance(value, list):
        return {"L": [dynamo(held) for held in value]}
    return {"S": value} if isinstance(value, str) else {"NULL": True} if value is None else {"N": str(value)}


def of(records: Records) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


ENVELOPES: dict[str, Callable[[Records], str]] = {
    "Docker": lambda r: each(lambda t: {"log": t + "\n", "stream": "stdout", "time": TIME}, logged(r)),
    "Docker, cut": lambda r: each(
        lambda t: {"log": t, "stream": "stdout", "time": TIME},
        [piece for text in logged(r, plain=False) for _, piece in cut(text + "\n")],
    ),
    "Kubernetes": lambda r: "".join(f"{TIME} stdout F {t}\n" for t in logged(r)),
    "Kubernetes, cut": lambda r: "".join(
        f"{TIME} stderr {kind} {piece}\n" for t in logged(r, plain=False) for kind, piece in cut(t)
    ),
    "Fluent Bit": lambda r: each(
        lambda t: {"date": 1.5, "log": t, "kubernetes": {"labels": {"app": "shop"}}}, logged(r)
    ),
    "Fluentd": lambda r: "".join(f"{TIME}\tshop.agent\t{t}\n" for t in logged(r, plain=False)),
    "syslog": lambda r: "".join(f"Oct  1 10:00:00 host shop[12]: {t}\n" for t in logged(r)),
    "a program's own": lambda r: "".join(f"2026-10-01 10:00:00,123 INFO shop {t}\n" for t in logged(r)),
    "Filebeat": lambda r: each(lambda t: {"@timestamp": TIME, "message": t, "input": {"type": "log"}}, logged(r)),
    "journald": lambda r: each(lambda t: {"MESSAGE": t, "_PID": "1", "PRIORITY": "6"}, logged(r)),
    "CloudWatch": lambda r: json.dumps({"events": [{"timestamp": 1, "message": t, "eventId": "1"} for t in logged(r)]}),
    "CloudWatch, subscribed": lambda r: each(
        lambda t: {
            "messageType": "DATA_MESSAGE",
            "logEvents": [{"id": "1", "message": t}, {"id": "2", "message": PLAIN}],
        },
        logged(r, plain=False),
    ),
    "CloudWatch Insights": lambda r: json.dumps(
        {"results": [[{"field": "@message", "value": t}, {"field": "@ptr", "value": "x"}] for t in logged(r)]}
    ),
    "Google Cloud": lambda r: json.dumps(
        [{"insertId": "i", "jsonPayload": one, "resource": {"labels": {}}} for one in r]
    ),
    "Google Cloud, text": lambda r: each(lambda t: {"insertId": "i", "textPayload": t, "timestamp": TIME}, logged(r)),
    "Elasticsearch": lambda r: json.dumps(
        {"took": 1, "hits": {"total": 1, "hits": [{"_id": "e", "_source": o} for o in r]}}
    ),
    "Elasticsearch of Filebeat": lambda r: each(lambda t: {"_index": "i", "_source": {"message": t}}, logged(r)),
    "MongoDB": lambda r: each(lambda o: {"_id": {"$oid": "66fc"}, **mongo(o)}, r),
    "DynamoDB": lambda r: each(lambda o: {"Item": dynamo(o)["M"]}, r),
    "Kafka": lambda r: each(lambda t: {"topic": "llm", "offset": 1, "value": t, "headers": []}, logged(r, plain=False)),
    "SQS": lambda r: json.dumps({"Messages": [{"MessageId": "1", "Body": t} for t in logged(r, plain=False)]}),
    "SNS within SQS": lambda r: json.dumps(
        {"Records": [{"body": json.dumps({"Type": "Notification", "Message": t})} for t in logged(r, plain=False)]}
    ),
    "EventBridge": lambda r: each(lambda o: {"detail-type": "call", "source": "shop", "detail": o}, r),
    "Loki": lambda r: json.dumps({"data": {"result": [{"stream": {}, "values": [["1", t] for t in logged(r)]}]}}),
    "Splunk": lambda r: each(lambda t: {"preview": False, "result": {"_raw": t, "host": "h"}}, logged(r)),
    "Airbyte": lambda r: each(lambda o: {"_airbyte_raw_id": "1", "_airbyte_data": o}, r),
    "pandas, by columns": lambda r: json.dumps(
        {name: {f"{n}": o.get(name) for n, o in enumerate(r)} for name in of(r)}
    ),
    "pandas, split": lambda r: json.dumps(
        {"columns": of(r), "index": [*range(len(r))], "data": [[o.get(name) for name in of(r)] for o in r]}
    ),
    "lists": lambda r: json.dumps({name: [json.dumps(o.get(name)) for o in r] for name in of(r)}),
    "Debezium": lambda r: each(lambda t: {"payload": {"before": None, "after": {"doc": t}}}, logged(r, plain=False)),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_records_in_envelopes_give_their_events(name: str, tmp_path: Path, take: Take, pairs: Pairs) -> None:
    records = pairs()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "x.jsonl").write_text(each(lambda one: one, records))
    (tmp_path / "x.log").write_text(ENVELOPES[name](records))
    plain, wrapped = take(tmp_path / "plain", root=tmp_path / "plain"), take(tmp_path / "x.log")
    assert sorted(wrapped.events["event_id"]) == sorted(plain.events["event_id"])
    assert (wrapped.quarantined.height, wrapped.adds_up()) == (0, True)
    assert sum(wrapped.ignored.values()) == ENVELOPES[name](records).count(PLAIN)


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.name, marks=[pytest.mark.e2e] if number % 6 else [])
        for number, sample in enumerate(LOGS)
    ],
)
def test_any_log_is_found_in_a_search_engine(sample: Sample, tmp_path: Path, take: Take) -> None:
    plain = take(sample.write(tmp_path / "plain"), root=tmp_path / "plain")
    documents = [{"_index": "i", "_id": "1", "_source": record} for record in sample.records]
    wrapped = take(sample.write(tmp_path / "wrapped", documents), root=tmp_path / "wrapped")
    assert sorted(wrapped.events["event_id"]) == sorted(plain.events["event_id"])
    assert wrapped.quarantined.height == plain.quarantined.height


def columns(record: dict[str, Any]) -> dict[str, Any]:
    return {name: held for name, held in record.items() if held is not None}


ROWS = ("langfuse", "langsmith", "litellm", "mlflow", "native", "openai", "opik", "phoenix", "span_rows", "weave")
TABLES = [s for s in LOGS if s.name.startswith(ROWS) and all(len(columns(r)) > 1 for r in s.records)]


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, id=sample.name, marks=[pytest.mark.e2e] if number % 6 else [])
        for number, sample in enumerate(TABLES)
    ],
)
def test_rows_of_a_tracer_are_found_in_a_data_frame(sample: Sample, tmp_path: Path, take: Take) -> None:
    """The names of its columns are what the reader of its rows looks for, so that the whole may seem one of them."""
    rows = [columns(record) for record in sample.records]
    plain = take(sample.write(tmp_path / "plain", rows), root=tmp_path / "plain")
    frame = [{name: {f"{n}": row.get(name) for n, row in enumerate(rows)} for name in of(rows)}]
    wrapped = take(sample.write(tmp_path / "wrapped", frame), root=tmp_path / "wrapped")
    assert sorted(wrapped.events["event_id"]) == sorted(plain.events["event_id"])


@pytest.mark.parametrize(
    "value",
    [
        {"input": {"role": "user", "content": "a"}, "output": {"role": "assistant", "content": "b"}},
        {"messages": [{"role": "user"}, {"role": "assistant"}], "tools": [{"name": "f"}, {"name": "g"}]},
        {"input": ["a"], "output": ["b"]},
        {"columns": ["a", "a"], "data": [[1, 2]]},
        {"columns": ["a", "b"], "data": [[1]]},
    ],
)
def test_an_object_of_objects_or_lists_is_no_table(value: dict[str, Any]) -> None:
    assert rows_of(value) == []


def test_a_log_that_begins_with_other_lines_is_read(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    noise = [PLAIN, json.dumps({"level": "info", "msg": "GET /health", "status": 200})] * 200
    (tmp_path / "x.log").write_text(each(lambda t: {"log": t + "\n", "stream": "stdout"}, noise + logged(pairs())))
    taken = take()
    assert (taken.events.height, sum(taken.ignored.values()), taken.adds_up()) == (6, 401, True)


def test_a_log_that_has_grown_gives_what_is_new_once(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    log, records = tmp_path / "x.log", pairs(3, 1)
    log.write_text(ENVELOPES["Docker"](records[:1]))
    first = take()
    log.write_text(ENVELOPES["Docker"](records))
    again = take(known=first.states)
    assert set(first.events["event_id"]) <= set(again.events["event_id"])
    assert again.events.height == 3


def test_streams_that_are_cut_at_once_are_told_apart(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    one, two = (list(cut(json.dumps(record))) for record in pairs(2, 1))
    lines = [
        (name, *piece)
        for pieces in zip(one, two, strict=True)
        for name, piece in zip(("stdout", "stderr"), pieces, strict=True)
    ]
    (tmp_path / "x.log").write_text("".join(f"{TIME} {name} {kind} {text}\n" for name, kind, text in lines))
    taken = take()
    assert (taken.events.height, taken.quarantined.height) == (2, 0)


def test_what_else_a_service_logs_later_is_passed_over(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    other = {"level": "info", "msg": "GET /health", "status": 200}
    (tmp_path / "x.log").write_text(ENVELOPES["Docker"]([*pairs(20, 1), *[other] * 50]))
    taken = take()
    assert (taken.events.height, taken.quarantined.height, sum(taken.ignored.values())) == (20, 0, 51)


def test_a_malformed_record_among_a_services_lines_is_quarantined(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    """A record of the agent that cannot be read is none of the other lines, which stay ignored."""
    other = {"level": "info", "msg": "GET /health", "status": 200, "model": "gpt-4.1"}
    whole = pairs(3, 1)
    records = [*whole, other, {**whole[0], "request": 7, "response": "x"}, {**whole[1], "request": 7, "response": None}]
    (tmp_path / "x.log").write_text(ENVELOPES["Docker"](records))
    taken = take()
    assert (taken.events.height, sum(taken.ignored.values()), taken.adds_up()) == (3, 2, True)
    assert taken.quarantined["reason"].to_list() == ["bad_record", "bad_record"]


def test_a_record_that_is_cut_off_is_refused(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    whole = ENVELOPES["Docker"](pairs())
    (tmp_path / "x.log").write_text(whole + json.dumps({"log": '{"request": {"mess', "stream": "stdout"}) + "\n")
    taken = take()
    assert (taken.events.height, taken.quarantined["reason"].to_list()) == (6, ["truncated"])


def test_a_service_that_logs_nothing_of_an_agent_is_set_aside(tmp_path: Path, take: Take) -> None:
    (tmp_path / "x.log").write_text(each(lambda n: {"log": json.dumps({"msg": "GET /", "status": n})}, range(200, 206)))
    taken = take()
    assert (taken.events.height, taken.quarantined["reason"].to_list()) == (0, ["unknown_format"])


def test_an_object_with_words_beside_the_place_is_no_envelope(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    """Half a record is worse than none: what the unknown program calls its output would be lost."""
    (tmp_path / "x.jsonl").write_text(each(lambda one: {"data": one["request"], "output": "Paris"}, pairs()))
    assert take().events.height == 0


def test_envelopes_within_envelopes_come_to_an_end(tmp_path: Path, take: Take, pairs: Pairs) -> None:
    (deep,) = pairs(1, 1)
    for _ in range(150):
        deep = {"payload": deep}
    (tmp_path / "x.jsonl").write_text(json.dumps(deep) + "\n")
    taken = take()
    assert (taken.events.height, taken.adds_up()) == (0, True)


def test_the_session_around_a_record_is_the_records(write: Callable[..., Path], take: Take) -> None:
    asked = {"messages": [{"role": "user", "content": "Where is order 7?"}, {"role": "assistant", "content": "Here."}]}
    taken = take(write("log.jsonl", [{"session_id": f"s{n}", "data": asked} for n in range(2)]))
    assert set(taken.events["conversation_id"]) == {"s0", "s1"}


def test_one_record_with_something_inside_does_not_hide_the_others(write: Callable[..., Path], take: Take) -> None:
    begun = {
        "type": "SystemMessage",
        "subtype": "init",
        "data": {"type": "system", "subtype": "init", "session_id": "s"},
    }
    call = {"id": "c1", "name": "get_order", "input": {"id": 7}}
    lines = [
        begun,
        {"type": "AssistantMessage", "content": [{"text": "I look."}, call], "model": "m"},
        {"type": "UserMessage", "content": [{"tool_use_id": "c1", "content": "shipped", "is_error": None}]},
        {"type": "AssistantMessage", "content": [{"text": "On its way."}], "model": "m"},
    ]
    taken = take(write("log.jsonl", lines))
    assert taken.events["kind"].to_list().count("model_call") == 2


def test_a_call_that_an_api_refused_is_no_other_line_of_a_gateway(write: Callable[..., Path], take: Take) -> None:
    """Half of what a gateway logged was filtered: those calls are of the agent as the answered ones are."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    said = {"choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
    filtered = {"error": {"message": "the prompt was filtered", "type": None, "code": "content_filter"}}
    rows = [
        {"category": "GatewayLogs", "correlationId": f"c{n}", "time": f"2026-10-01T09:00:0{n}Z",
         "properties": {"apiId": "a", "requestBody": json.dumps(asked), "responseBody": json.dumps(answer)}}
        for n, answer in enumerate([said, filtered, filtered, said])
    ]  # fmt: skip
    taken = take(write("gateway.jsonl", rows))
    assert (taken.read, dict(taken.ignored), taken.quarantined.height) == (4, {}, 0)
    assert sorted(taken.events["kind"]) == ["model_call", "model_call", "request", "request"]
