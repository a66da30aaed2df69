"""Continue's development data (`dev_data/*.jsonl`): chats, thumbs, and edits and completions that were taken or not.

In: one event; a prompt or an answer may be written as tagged messages (`<user>`), of an answer one a piece. Out: a call
of the session that the event names, or of its own, and what the user made of it. A thumb is about the call with the
same words, which it repeats. The other events (tokens, tools that ran) name no session and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.feedback import Opinion, judgement
from flywheel.reading.pairs import Pair
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, first, ident, present, text, when
from flywheel.records import content_id
from flywheel.stages.ingest.readers.apis._dialects.calls import call_events
from flywheel.stages.ingest.readers.apis._dialects.chat import CHAT

_TAG = re.compile(r"(?:\A|\n\n)<(system|user|assistant|tool|thinking)>\n")
_OTHERS = {"editInteraction", "quickEdit", "toolUsage", "tokensGenerated"}
_TAKEN = {"autocomplete", "editOutcome", "nextEditOutcome"}  # which the user took or not
_EVENTS = {"chatInteraction", "chatFeedback", *_TAKEN, *_OTHERS}


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the call of an event, and what its user made of it."""
    name, asked, answer = record["eventName"], text(record.get("prompt")), text(record.get("completion"))
    if asked is None or answer is None or name in _OTHERS:
        return
    session = ident(record.get("sessionId"))
    own = f"continue:{content_id(session, asked, answer)[:16]}"
    given = record.get("feedback") if name == "chatFeedback" else record.get("accepted")
    opinion = Opinion(
        name="thumbs" if name == "chatFeedback" else "accepted",
        aim=f"response:{own}",
        value=float(given) if isinstance(given, bool) else None,
        scale=(0, 1),
    )
    source = {"conversation_id": session or own, "ts": when(record.get("timestamp"))}
    yield from call_events(_pair(record, asked, answer, own), CHAT, line)  # a thumb's is in a file of its own, perhaps
    yield from judgement(opinion, source)


def _pair(record: Mapping[str, Any], asked: str, answer: str, own: str) -> Pair:
    """Return the request and the response of an event."""
    model = text(first(record, ("modelName", "modelTitle", "model")))
    said = _messages(answer) or [{"role": "assistant", "content": answer}]
    whole: dict[str, Any] = {}
    for piece in said:
        field = "reasoning" if piece["role"] == "thinking" else "content"
        whole[field] = whole.get(field, "") + piece["content"]
    request = {"messages": _messages(asked)} if _messages(asked) else {"prompt": asked}
    response = {"id": own, "choices": [{"message": {"role": "assistant", "content": None, **whole}}]}
    about = present(session_id=record.get("sessionId"), timestamp=record.get("timestamp"))
    return Pair(
        {**request, **present(model=model)}, response, {**about, "conversation_id": record.get("sessionId") or own}
    )


def _messages(written: str) -> list[dict[str, Any]]:
    """Return the messages in a text that begins with a tag; [] for any other text."""
    if not _TAG.match(written):
        return []
    roles, words = _TAG.findall(written), _TAG.split(written)[2::2]
    return [{"role": role, "content": said.removesuffix("\n\n")} for role, said in zip(roles, words, strict=True)]


def _is_event(record: Any) -> bool:
    fields = as_dict(record)
    return isinstance(fields.get("eventName"), str) and fields["eventName"] in _EVENTS and "schema" in fields


READER = reader("continue_dev", 3, "development data of Continue", marks=_is_event, read=_read,
                refusal="no event of Continue's")  # fmt: skip
