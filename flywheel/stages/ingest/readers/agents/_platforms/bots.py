"""Trackers of Rasa, messages of Botpress, transcripts of Voiceflow, conversations of Intercom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.feedback import Opinion
from flywheel.reading.messages import flat_text
from flywheel.reading.reader import has
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.stages.ingest.readers.agents._platforms.talk import STARS, Shapes, Talk, Turn, call_ran, words_said

_OWN_ACTIONS = (  # of Rasa: what its engine does by itself
    "action_listen", "action_restart", "action_session_start", "action_default_fallback", "action_deactivate_loop",
    "action_revert_fallback_events", "action_default_ask_affirmation", "action_default_ask_rephrase",
    "action_two_stage_fallback", "action_unlikely_intent", "action_back", "action_extract_slots",
    "action_run_slot_rejections", "action_clean_stack", "action_cancel_flow", "action_correct_flow_slot",
    "action_clarify_flows", "action_trigger_search", "action_trigger_chitchat",
)  # fmt: skip


def _rasa(record: Mapping[str, Any]) -> Talk:
    """Return a tracker of Rasa: an action of its own is a call, and the slots that it set are its result."""
    turns: list[Turn] = []
    sets = False
    for n, event in enumerate(map(as_dict, as_list(record.get("events")))):
        kind, at, name = event.get("event"), event.get("timestamp"), text(event.get("name")) or ""
        if kind in ("user", "bot"):
            turns += words_said("user" if kind == "user" else "assistant", event.get("text"), at)
        elif kind == "action" and (not name or name.startswith("action_")) and name not in _OWN_ACTIONS:
            turns += call_ran(f"{record.get('sender_id')}/{n}", name, None, None, at)
        elif kind == "action_execution_rejected" and sets:
            turns.append(_result(turns[-1], "rejected", at, FAILED))
        elif kind == "slot" and sets:
            told = {name: event.get("value")}
            if turns[-1]["role"] == "tool":
                turns[-1]["content"] = flat_text({**as_dict(embedded(turns[-1]["content"])), **told})
            else:
                turns.append(_result(turns[-1], flat_text(told), at, OK))
        sets = (
            bool(turns)
            and (bool(turns[-1].get("tool_calls")) or turns[-1]["role"] == "tool")
            and kind in ("action", "slot")
        )
    return Talk(turns, ident(record.get("sender_id")))


def _result(called: Turn, content: Any, at: Any, status: str) -> Turn:
    own = called["tool_calls"][0]["id"] if called.get("tool_calls") else called.get("tool_call_id")
    return {"role": "tool", "tool_call_id": own, "content": content, "status": status, "facts": present(ts=when(at))}


def _botpress(record: Mapping[str, Any]) -> Talk:
    role = "user" if record.get("direction") == "incoming" else "assistant"
    words = first(as_dict(embedded(record.get("payload"))), ("text", "markdown", "title"))
    turns = words_said(role, words, record.get("createdAt"))
    return Talk(
        turns,
        ident(record.get("conversationId")),
        ident(record.get("userId")) if role == "user" else None,
        is_piece=True,
    )


def _voiceflow(record: Mapping[str, Any]) -> Talk:
    transcript = as_dict(record["transcript"])
    logs = map(as_dict, as_list(transcript.get("logs")))
    turns = [
        turn
        for log in logs
        for turn in _traced(as_dict(log.get("data")), log.get("type") == "action", log.get("createdAt"))
    ]
    return Talk(turns, ident(first(transcript, ("sessionID", "id"))))


def _traced(data: Mapping[str, Any], is_users: bool, at: Any) -> list[Turn]:  # noqa: FBT001 - whose it is
    """Return what an action of the user or a trace of Voiceflow has in words."""
    payload = data.get("payload")
    inner = as_dict(payload)
    if is_users:
        return words_said("user", payload if isinstance(payload, str) else first(inner, ("query", "label", "text")), at)
    return words_said("assistant", inner.get("message"), at) if data.get("type") in ("text", "speak") else []


def _intercom(record: Mapping[str, Any]) -> Talk:
    """Return a conversation of Intercom in which its bot answers; a colleague's words are named context."""
    opening = {**as_dict(record.get("source")), "created_at": record.get("created_at")}
    parts = map(as_dict, as_list(as_dict(record["conversation_parts"]).get("conversation_parts")))
    turns: list[Turn] = []
    for part in (opening, *parts):
        by = as_dict(part.get("author"))
        role = {"bot": "assistant", "user": "user", "lead": "user", "contact": "user", "admin": "colleague"}.get(
            str(by.get("type"))
        )
        turns += words_said(role, part.get("body"), part.get("created_at")) if role else []
    rated = as_dict(record.get("conversation_rating"))
    stars = number(rated.get("rating"))
    opinion = Opinion("rating", value=stars, comment=text(rated.get("remark")), annotator="human", scale=STARS)
    by_bot = any(turn["role"] == "assistant" for turn in turns)
    return Talk(turns if by_bot else [], ident(record.get("id")), opinions=[opinion] if stars is not None else [])


def _is_rasa(record: Any) -> bool:
    fields = as_dict(record)
    return "sender_id" in fields and any("event" in as_dict(event) for event in as_list(fields.get("events")))


def _is_voiceflow(record: Any) -> bool:
    return isinstance(as_dict(as_dict(record).get("transcript")).get("logs"), list)


def _is_intercom(record: Any) -> bool:
    return "conversation_parts" in as_dict(as_dict(record).get("conversation_parts")) and "source" in record


SHAPES: Shapes = (
    (_is_rasa, _rasa),
    (has("conversationId", "direction", payload=dict), _botpress),
    (_is_voiceflow, _voiceflow),
    (_is_intercom, _intercom),
)
