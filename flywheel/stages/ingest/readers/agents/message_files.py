"""Messages that are records of their own: a file that is one chat, and tables of messages of many chats.

A file without ids is one conversation, in the order of its records: the tasks of Cline and Roo, message lists of
Pydantic AI, LangChain and AutoGen, chats of the Vercel AI SDK, sessions of Gemini CLI and goose. Rows of a table
name theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, source_of
from flywheel.reading.feedback import judgements
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes.chats import chat, speaks
from flywheel.reading.values import as_dict, embedded, ident
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_CONFIDENCE = 0.6
_UNKNOWN_CALL = "a tool's call or result in a shape that no reader knows"
_SPEAKING = {"user", "assistant"}


def _rows_share(sample: Sample) -> float:
    return _share(sample) * all(_named(record) for record in sample.records)


def _file_share(sample: Sample) -> float:
    return _share(sample) * (not any(_named(record) and speaks(record) for record in sample.records))


def _share(sample: Sample) -> float:
    """Return the confidence that records are messages of which some are the user's and some the agent's."""
    roles = [speaks(record) for record in sample.records]
    spoken = [role for role in roles if role is not None]
    others = len(roles) - len(spoken)
    return _CONFIDENCE if set(spoken) >= _SPEAKING and others <= len(spoken) else 0.0


def _named(record: Any) -> str | None:
    fields = as_dict(record)
    conversation: str | None = source_of(as_dict(embedded(fields.get("metadata"))), fields)["conversation_id"]
    return conversation


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the file as the conversation, within the folder in which programs keep one task."""
    stem = path.name.split(".json")[0]
    return {"scope": f"{path.parent.name}/{stem}" if path.parent.name else stem}


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of one message; a thought apart from its answer makes no step."""
    if record.get("type") == "reasoning" and "role" not in record:
        return
    if speaks(record) is None:
        if {"content", "parts"} & (record.keys() | as_dict(record.get("message")).keys()):
            raise BadRecordError("bad_record", "a message without a known role")
        if "tool" in str(record.get("type")):
            raise BadRecordError("bad_record", _UNKNOWN_CALL)
        return
    source = source_of(as_dict(embedded(record.get("metadata"))), record)
    history, facts = chat([record])
    if "tool" in str(record.get("type")) and not any(m.get("tool_calls") or m["role"] == "tool" for m in history):
        raise BadRecordError("bad_record", _UNKNOWN_CALL)
    rollout = Rollout(
        conversation=source["conversation_id"] or "chat",
        messages=history,
        task=source["task_key"],
        policy=source["policy"],
        facts=facts,
        first=line * LINE,
        started=source["ts"],
    )
    own = ident(record.get("id")) if history and history[-1]["role"] == "assistant" else None
    for event in rollout_events(rollout):
        yield {**event, "user": source["user"], "ids": [f"response:{own}"] if own else []}
    if own:
        yield from judgements(record, {**source, "conversation_id": rollout.conversation}, own)


FILES = reader(
    "message_files", 2, "files that are one chat, a message a record", sniff=_file_share, read=_read,
    from_path=_from_path,
)  # fmt: skip
ROWS = reader("message_rows", 2, "tables of messages that name their chats", sniff=_rows_share, read=_read)
