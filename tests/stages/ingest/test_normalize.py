"""Plugins are held to what they promised; a failure costs one record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import IngestConfig, RedactConfig
from flywheel.extensions import BadRecordError
from flywheel.records import LogEvent
from flywheel.stages.ingest.batches import Batch, Segment
from flywheel.stages.ingest.framing.framed import Framed, Record
from flywheel.stages.ingest.lost import LostFields
from flywheel.stages.ingest.normalize import Normalizer
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.stages.ingest.workers import Worker

if TYPE_CHECKING:
    from flywheel.extensions import Sample


class Plugin:
    """Yields the record's own events."""

    name = "plugin"
    version = 1

    def sniff(self, sample: Sample) -> float:
        return float(bool(sample.records))

    def read(self, record: Any, line: int) -> Iterator[dict[str, Any]]:
        assert line
        yield from record["events"]


def normalize(*records: Any, tags: tuple[str, ...] = (), file: str = "f") -> Batch:
    worker = Worker(IngestConfig(), b"k", {"plugin": Plugin()})
    found: list[Framed] = [Record(line, record, b"x", tags, line) for line, record in enumerate(records, 1)]
    return worker.work([Segment(file, "plugin", records=found)])


GOOD = {"conversation_id": "c", "kind": "request", "seq": 1, "payload": {"messages": []}}


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"conversation_id": None}, "the reader gave no conversation_id"),
        ({"kind": "nonsense"}, "the reader gave no known kind"),
        ({"seq": -1}, "the reader gave no seq from 0"),
        ({"ts": "today"}, "the reader gave a ts that is not a time with a zone"),
    ],
)
def test_an_event_that_breaks_the_protocol_is_refused(change: dict[str, Any], detail: str) -> None:
    batch = normalize({"events": [GOOD, GOOD | change]}, {"events": [GOOD]})
    assert (batch.read, batch.events.height, batch.quarantined["detail"].to_list()) == (2, 1, [detail])


def test_a_refusal_is_redacted_like_what_is_kept() -> None:
    class Quoting(Plugin):
        def read(self, record: Any, line: int) -> Iterator[dict[str, Any]]:
            raise BadRecordError("bad_record", f"{record}: unknown field {line}")

    worker = Worker(IngestConfig(), b"k", {"plugin": Quoting()})
    record: list[Framed] = [Record(1, "joe@example.com", b"x", (), 1)]
    (detail,) = worker.work([Segment("f", "plugin", records=record)]).quarantined["detail"]
    assert detail.startswith("<EMAIL_")


def test_a_reader_that_fails_costs_one_record_and_quotes_nothing() -> None:
    batch = normalize({"geheim": 1}, {"events": [GOOD]}, None)
    assert batch.events.height == 1
    assert [d.split(" at ")[0] for d in batch.quarantined["detail"]] == [
        "reader plugin fails: KeyError",
        "reader plugin fails: TypeError",
    ]
    assert "geheim" not in "".join(batch.quarantined["detail"])


def test_a_record_without_events_is_ignored() -> None:
    assert normalize({"events": []}).ignored == {"nothing of an agent in it": 1}


def test_ids_do_not_depend_on_file_or_line_and_do_on_everything_else() -> None:
    one = normalize({"events": []}, {"events": [GOOD]}, file="a").events["event_id"].to_list()
    assert one == normalize({"events": [GOOD]}, file="b").events["event_id"].to_list()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    others = [
        GOOD | {"conversation_id": "d"},
        GOOD | {"kind": "feedback"},
        GOOD | {"seq": 2},
        GOOD | {"ts": at},
        GOOD | {"span_id": "s"},
        GOOD | {"payload": {"messages": [1]}},
    ]
    ids = normalize({"events": [GOOD, *others]}).events["event_id"]
    assert ids.n_unique() == 7


def test_columns_and_payload_are_redacted_alike() -> None:
    event = GOOD | {"conversation_id": "joe@example.com", "user": "joe", "payload": {"x": "joe@example.com"}}
    row = normalize({"events": [event]}).events.row(0, named=True)
    assert row["conversation_id"].startswith("<EMAIL_")
    assert row["conversation_id"] in row["payload"]
    assert row["user"].startswith("user_")


def test_what_was_replaced_in_the_text_is_said_in_the_payload() -> None:
    batch = normalize({"events": [GOOD]}, tags=("broken_text",))
    assert '"tags":["broken_text"]' in batch.events["payload"][0]


@pytest.mark.parametrize(
    ("logged", "expected"), [(None, "mine"), ("m", "mine"), ("agent/m", "mine"), ("shop@3", "shop@3"), ("x/mm", "x/mm")]
)
def test_a_named_policy_comes_before_the_model_and_after_a_name_in_the_log(logged: str | None, expected: str) -> None:
    class Names:
        name, version = "names", 1

        def sniff(self, sample: object) -> float:
            del sample
            return 1.0

        def read(self, record: object, line: int) -> list[dict[str, object]]:
            del record, line
            payload = {"message": {"role": "assistant", "content": "yes"}}
            row: dict[str, object] = {
                "conversation_id": "c",
                "kind": "model_call",
                "model": "m",
                "policy": logged,
                "payload": payload,
            }
            return [row]

    rows = Normalizer(Names(), "a.jsonl", {"policy": "of the folder"}, "mine").rows(Record(1, {}, b"{}", (), 1))
    assert isinstance(rows, list)
    assert rows[0][list(LogEvent.model_fields).index("policy")] == expected


def test_fields_are_lost_whose_number_or_outcome_no_event_holds() -> None:
    value = {"turns": 3, "cost": 5, "success": True, "stream": True, "time": 12.5}
    kept = (None, None, 0, "c", None, None, "model_call", "5.0 of 13, 12.5", *[None] * 20)
    seen = LostFields()
    seen.look("openai", Record(1, value, None, (), 1), [kept])
    assert sorted(seen.counts(Redactor(RedactConfig(), b""))["openai"].by_path) == ["success", "turns"]
    seen.look("judged", Record(1, value, None, (), 1), [kept, (*kept[:6], "outcome", *kept[7:])])
    assert sorted(seen.counts(Redactor(RedactConfig(), b""))["judged"].by_path) == ["turns"]
