"""With which confidence the records of a file are messages: of one chat, or of a table that names its chats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flywheel.extensions import Sample
from flywheel.reading.shapes.actions import are_steps
from flywheel.reading.shapes.acts import is_act, said_in
from flywheel.reading.shapes.chats import chat, speaks
from flywheel.reading.shapes.entries import entry_of
from flywheel.reading.shapes.heard import as_heard, people_in
from flywheel.reading.shapes.items import IDS
from flywheel.reading.shapes.spoken import answered_field, asked_field, is_tested
from flywheel.reading.shapes.turns import ITEM_KINDS
from flywheel.reading.shapes.whole import is_other_line
from flywheel.reading.shapes.wrapped import is_exchange, is_sdk_step, unwrapped
from flywheel.reading.shapes.written import with_written_calls
from flywheel.reading.values import as_dict, as_list, first, ident, words_of
from flywheel.stages.ingest.framing.texts.prompts import is_prompt
from flywheel.stages.ingest.readers.agents._messages.record import (
    added_messages,
    is_notice,
    is_other,
    named_by,
    partner_of,
    source_of_record,
    step_counts,
    unwrapped_message,
)

_CALLED = ("tool", "tool_name", "toolName", "name")
CONFIDENCE = 0.6
SURER = 0.05  # than of a chat in words alone
_AGENTS = {"agent", "assistant", "bot", "ai"}
_ANSWERED = {"user", "tool"}  # one of whom speaks next to the agent
NUMBERED = re.compile(r"[a-z]*(?:message|msg|event|turn|entry)[_-]?\d+\Z", re.IGNORECASE)
_TELLING_APART = {
    "id", "user", "channel", "phone", "session", "conversation", "chat", "thread", "dialog", "dialogue", "uuid", "guid",
    "key", "hash", "ticket", "room", "call",
}  # fmt: skip
_LETTAS = {"otid", "message_type"}
_RIGHT = {"ground_truth", "gold"}


def rows_share(sample: Sample) -> float:
    """Return the confidence in rows that name their chats, or else whom the agent speaks with."""
    are_named = all(named_by(record) or is_other(record) for record in sample.records)
    return _share(sample) * (are_named or _are_with_partners(sample))


def _are_with_partners(sample: Sample) -> bool:
    """Whether rows are of several users who each speak with the agent, and none names a chat."""
    spoken = [(role, as_dict(record)) for record in sample.records if (role := speaks(record))]
    partners: dict[str | None, set[str]] = {}
    for role, record in spoken:
        partners.setdefault(partner_of(record), set()).add(role)
    both = sum({"user", "assistant"} <= roles for roles in partners.values())
    return (
        None not in partners
        and len(partners) > 1
        and both * 2 > len(partners)
        and not any(map(named_by, sample.records))
    )


def file_share(sample: Sample) -> float:
    """Return the confidence that a file is one chat, whose records name none."""
    if len(sample.records) == 1 and _is_numbered(sample):
        return CONFIDENCE * (speaks(unwrapped_message(sample.records[0])) is not None)
    spoken = [(role, as_dict(record)) for record in sample.records if (role := speaks(record))]
    are_several = _are_several(spoken) or _are_decisions(spoken) or _are_runs(sample.records)
    return _share(sample) * (not any(named_by(record) for _, record in spoken)) * (not are_several)


def _are_runs(records: Sequence[Any]) -> bool:
    """Whether steps of the AI SDK are of several runs, none of which knows of the one before."""
    asked = [unwrapped(record)[:-1] for record in records if is_sdk_step(record)]
    return sum(bool(said) and all(message.get("role") != "assistant" for message in said) for said in asked) > 1


def _are_decisions(spoken: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether messages are acts without a question, each next to what is right: tested apart."""
    is_tested = bool(spoken) and all(not _RIGHT.isdisjoint(record) for _, record in spoken)
    return is_tested and {role for role, _ in spoken} == {"assistant"}


def _are_several(spoken: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether messages are of several chats: under an id of each that flywheel does not know, two speak or more."""
    named = [{name for name, held in record.items() if held is not None} for _, record in spoken]
    common = set.intersection(*named) if named else set()
    if common >= _LETTAS:  # whose runs are turns of one chat
        return False
    for name in (name for name in common if words_of(name) & _TELLING_APART):
        by_value: dict[str, set[str]] = {}
        for role, record in spoken:
            by_value.setdefault(str(record[name]), set()).add(role)
        if len(by_value) > 1 and all({"user", "assistant"} <= roles for roles in by_value.values()):
            return True
    return False


def written_share(sample: Sample) -> float:
    """Return the confidence that a file is one chat whose calls are written in words, each with its observation."""
    share = file_share(sample)
    if not share or any(speaks(record) is None for record in sample.records):
        return 0.0
    history = chat(sample.records)[0]
    return share + SURER if with_written_calls(history) is not history else 0.0


def heard_share(sample: Sample) -> float:
    """Return the confidence that a file is one chat of agents by name, as one of them heard it."""
    if people_in(sample.records) is None or any(named_by(as_dict(record)) for record in sample.records):
        return 0.0
    heard = [as_heard(as_dict(record), n) for n, record in enumerate(sample.records)]
    return (CONFIDENCE + 2 * SURER) * ({"user", "assistant"} <= {speaks(message) for message in heard})


def _is_numbered(sample: Sample) -> bool:
    """Whether a file is one message of a chat that is a folder, by its name."""
    return NUMBERED.match(PurePath(sample.file_name).name.split(".json")[0]) is not None


def _share(sample: Sample) -> float:
    """Return the confidence that records are messages of which some are the agent's and some those of others."""
    added = [speaks(message) for record in sample.records for message in added_messages(record)]
    if added and all("event" in as_dict(record) or added_messages(record) for record in sample.records):
        return CONFIDENCE * ("assistant" in added)
    spoken = [role for record in sample.records if (role := speaks(record)) is not None]
    others = sum(speaks(record) is None and not _is_beside(record) for record in sample.records)
    is_said = any(_is_said(record) for record in sample.records) or _is_asked_and_done(sample.records)
    is_answered = bool(_ANSWERED & set(spoken)) or are_steps(sample.records) or any(map(step_counts, sample.records))
    is_answered = is_answered or any(map(is_sdk_step, sample.records))
    is_read = is_said and is_answered and others <= len(spoken) and not _is_doubled(sample.records)
    is_read = is_read and not is_prompt(sample.records)
    return CONFIDENCE if is_read else 0.0


def _is_asked_and_done(records: Sequence[Any]) -> bool:
    """Whether a program's events are what somebody wrote and the calls that followed, without words of the agent."""
    events = [(as_dict(record).get("event"), entry_of(record)) for record in records]
    kinds = {entry.kind for event, entry in events if event is not None and entry is not None}
    speaks_otherwise = any(words_of(str(event)) & _AGENTS for event, entry in events if entry is None)
    return "user" in kinds and not kinds.isdisjoint(("call", "result")) and not speaks_otherwise


def _is_doubled(records: Sequence[Any]) -> bool:
    """Whether calls are logged when asked for and when they begin, and no id shows that the two are one."""
    named: tuple[set[str], set[str]] = set(), set()
    for record in records:
        entry = entry_of(record)
        calls = entry.turn.get("tool_calls", ()) if entry is not None else as_list(as_dict(record).get("tool_calls"))
        begins = entry is not None and entry.kind == "call"
        alone = (as_dict(call) for call in calls)
        without_id = (first(call, _CALLED) for call in alone if not ident(first(call, IDS)))
        named[begins].update(name for name in without_id if isinstance(name, str) and name)
    return not named[False].isdisjoint(named[True])


def _is_beside(record: Any) -> bool:
    """Whether a record is one of a program that logs more than a talk."""
    return is_notice(record) or is_other_line(record)


def _is_said(record: Any) -> bool:
    """Whether the agent speaks in a record, and does not only call."""
    entry = entry_of(record)
    if is_sdk_step(record):
        return True
    if is_exchange(record):  # one with an id or a time of its own may be alone, and not one of a chat; so is a test's
        is_timed = source_of_record(record)["ts"] is not None and bool(asked_field(record) and answered_field(record))
        is_alone = is_timed or any(str(name).lower().endswith("id") for name in record)
        return not is_tested(record) and (named_by(record) is not None or not is_alone)
    if entry is not None:
        return entry.kind == "words"
    is_bare = is_act(record) and record.get("type") not in ITEM_KINDS and said_in(record) is None
    return speaks(record) == "assistant" and not is_bare
