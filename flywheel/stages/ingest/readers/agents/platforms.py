"""Conversations as platforms for bots and workflows export them: a record is a conversation, a turn or a message.

Dify, Flowise, n8n, Langflow, AnythingLLM, FastGPT, RAGFlow, chat-ui, LibreChat, Rasa, Botpress, Copilot Studio, the Bot
Framework, Bedrock Agents, Voiceflow, Intercom, and the evaluations of Azure AI Foundry. Each has a function from its
record to a `Talk`, or to several; turns then become events in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from flywheel.reading.events import Event, attempt_of, source_of
from flywheel.reading.feedback import judgement
from flywheel.reading.messages import with_origins
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes import schemas
from flywheel.reading.shapes.whole import all_called
from flywheel.reading.values import as_dict, as_list, present
from flywheel.stages.ingest.readers.agents._platforms import bedrock, bots, chat_apps, microsoft, workflows
from flywheel.stages.ingest.readers.agents._platforms.talk import Talk, Turn
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_CONFIDENCE = 0.9  # above what reads any question and answer
_SHAPES = (*workflows.SHAPES, *bots.SHAPES, *microsoft.SHAPES, *bedrock.SHAPES, *chat_apps.SHAPES)


def _talk_of(record: Any) -> Callable[[Mapping[str, Any]], Talk | list[Talk]] | None:
    return next((told for fits, told in _SHAPES if fits(record)), None)


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record, or of each row of a page."""
    for n, row in enumerate(_rows(record)):
        told = _talk_of(row)
        if told is not None:
            talks = told(row)
            several = talks if isinstance(talks, list) else [talks]
            yield from all_called(row, (event for talk in several for event in _events(talk, row, (line + n) * LINE)))


def _events(talk: Talk, record: Mapping[str, Any], position: int) -> Iterator[Event]:
    history, origins = with_origins(_joined(talk.turns), lambda turn: [turn])
    if not history:
        alone = {"conversation_id": talk.conversation, "user": talk.user}
        yield from (event for opinion in talk.opinions for event in judgement(opinion, alone) if talk.conversation)
        return
    facts = {place: _facts(turn, history[place]["role"]) for place, turn in origins.items()}
    started: datetime | None = next((told["ts"] for told in facts.values() if "ts" in told), None)
    conversation = talk.conversation or attempt_of(record, history, source_of(record))
    rollout = Rollout(
        conversation=conversation,
        messages=history,
        facts=facts,
        first=position if talk.is_piece else 0,
        seen=talk.seen,
        tools=schemas(talk.tools),
        started=started,
    )
    for event in rollout_events(rollout):
        yield {**event, "user": talk.user}
    last = max((told["ts"] for told in facts.values() if "ts" in told), default=None)
    for opinion in talk.opinions:
        yield from judgement(opinion, {**rollout.columns(), "user": talk.user, "ts": last})


def _joined(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns in which messages of the agent in a row are one answer."""
    joined: list[Turn] = []
    for turn in turns:
        plain = turn.get("role") == "assistant" and isinstance(turn.get("content"), str) and not turn.get("tool_calls")
        before = joined[-1] if joined else {}
        if (
            plain
            and before.get("role") == "assistant"
            and isinstance(before.get("content"), str)
            and not before.get("tool_calls")
        ):
            joined[-1] = {**before, "content": f"{before['content']}\n{turn['content']}"}
        else:
            joined.append(turn)
    return joined


def _facts(turn: Turn, role: str) -> dict[str, Any]:
    told = turn.get("facts", {})
    return told if role == "assistant" else present(ts=told.get("ts"))


def _rows(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pages = (record.get("data"), as_dict(record.get("data")).get("list"), record.get("chats"), _flowise_export(record))
    rows = (list(map(as_dict, as_list(page))) for page in pages)
    return next((page for page in rows if page and all(_talk_of(row) for row in page)), [record])


def _flowise_export(record: Mapping[str, Any]) -> list[Any]:
    """Return the messages and the ratings of Flowise's export of everything."""
    return [*as_list(record.get("ChatMessage")), *as_list(record.get("ChatMessageFeedback"))]


def _is_known(record: Any) -> bool:
    return isinstance(record, dict) and all(_talk_of(row) for row in _rows(record))


READER = reader(
    "platforms",
    13,
    "conversations of platforms for bots and workflows",
    marks=[(_CONFIDENCE, _is_known)],
    needs=_is_known,
    refusal="no conversation of a platform that is known",
    read=_read,
)
