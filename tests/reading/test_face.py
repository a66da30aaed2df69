"""The kit as a plugin gets it: complete, light, and enough for a reader of thirty lines."""

from __future__ import annotations

import pickle
import subprocess
import sys
from textwrap import dedent
from typing import Any

import flywheel.reading
import pytest
from flywheel.extensions import BadRecordError, Reader, Sample
from flywheel.reading import has, reader

TICKET: dict[str, Any] = {
    "ticket": "T-1", "at": "2026-03-02T09:00:00Z", "bot": "bot-3", "solved": True,
    "turns": [{"from": "customer", "text": "The door is stuck."}, {"from": "bot", "text": "Hold the key for 5 s."}],
}  # fmt: skip


def is_long(record: Any) -> bool:
    return isinstance(record, list) and len(record) > 2


def read(record: Any) -> list[dict[str, Any]]:
    return [{"kind": "request", "of": record}]


def read_with_line(record: Any, line: int) -> list[dict[str, Any]]:
    return [{"kind": "request", "of": record, "seq": line}]


@pytest.fixture(scope="module")
def helpdesk() -> Reader:
    """The reader that the kit's own documentation shows, run as it is written there."""
    text = str(flywheel.reading.__doc__)
    code = dedent(text[text.index("    # our_helpdesk") : text.index("What there is")])
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    space: dict[str, Any] = {}
    exec(code, space)  # noqa: S102 - our own documentation
    made: Reader = space["READER"]
    return made


def test_every_published_name_is_there() -> None:
    assert [name for name in flywheel.reading.__all__ if not hasattr(flywheel.reading, name)] == []
    assert len(set(flywheel.reading.__all__)) == len(flywheel.reading.__all__)


def test_it_needs_no_stage_and_nothing_heavy() -> None:
    heavy = "'flywheel.stages', 'flywheel.pipeline', 'polars', 'torch', 'pyarrow', 'numpy'"
    code = f"import sys, flywheel.reading; assert not [n for n in ({heavy},) if n in sys.modules], sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_documented_reader_knows_its_records(helpdesk: Reader) -> None:
    assert isinstance(helpdesk, Reader)
    assert helpdesk.sniff(Sample("t.jsonl", [TICKET, {"ticket": "T-2", "turns": "none"}])) == 0.5


def test_the_documented_reader_gives_the_events_of_a_ticket(helpdesk: Reader) -> None:
    events = list(helpdesk.read(TICKET, 1))
    assert [event["kind"] for event in events] == ["request", "model_call", "outcome"]
    assert {(event["conversation_id"], event["policy"]) for event in events} == {("T-1", "bot-3")}
    assert events[-1]["payload"] == {"name": "solved", "value": 1.0, "source": "recorded", "scale": [0, 1]}
    assert [event["seq"] for event in events] == [0, 1, 2]


def test_the_documented_reader_refuses_other_records(helpdesk: Reader) -> None:
    with pytest.raises(BadRecordError, match="no turns"):
        list(helpdesk.read({"ticket": "T-1"}, 1))


@pytest.mark.parametrize(
    ("record", "fits"),
    [({"a": 1, "b": []}, True), ({"a": 1, "b": {}}, False), ({"b": []}, False), ([1, 2, 3], True), ([1], False)],
)
def test_marks_are_fields_types_or_another_predicate(record: Any, *, fits: bool) -> None:
    assert (has("a", b=list) | is_long)(record) is fits


def test_a_reader_without_a_refusal_reads_every_object() -> None:
    made = reader("plain", 1, marks=has("a"), read=read)
    assert list(made.read({"b": 1}, 1)) == [{"kind": "request", "of": {"b": 1}}]
    with pytest.raises(BadRecordError, match="no JSON object"):
        made.read([1], 1)


def test_fields_that_a_reader_needs_word_its_refusal() -> None:
    made = reader("needy", 1, marks=has("a"), needs=has("a", "b", c=list), read=read)
    with pytest.raises(BadRecordError, match=r"no object with a, b and c\Z"):
        made.read({"a": 1, "b": 2, "c": 3}, 1)


def test_weighted_marks_give_the_greatest_share() -> None:
    made = reader("weighted", 1, marks=[(0.9, has("a")), (0.5, has("b"))], read=read)
    assert made.sniff(Sample("f", [{"b": 1}, {"a": 1, "b": 1}])) == 0.5
    assert made.sniff(Sample("f", [{"a": 1}, {"a": 1}])) == 0.9
    assert made.sniff(Sample("f", [])) == 0.0


def test_a_reader_can_be_sent_to_another_process() -> None:
    made = reader("sent", 1, marks=has("a") | is_long, read=read_with_line)
    again: Reader = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own object
    assert list(again.read({"a": 1}, 7)) == [{"kind": "request", "of": {"a": 1}, "seq": 7}]
