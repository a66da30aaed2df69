"""What a tool gave back, whatever its framework wraps it in.

In: a result as it was logged. Out: its text, and how the call ended and which it was where the wrapping shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import Message, flat_text, is_mcp_result
from flywheel.reading.shapes.inputs import transcript
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, as_list, embedded

_DEEPEST = 4
_OF_RUNS = {"output", "kwargs"}  # LangChain's callback as OpenLLMetry writes it; LangSmith's and others' output alone
_CONVERSE = {"text", "json", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint",
             "citationsContent", "guardContent"}  # fmt: skip
_AGNOS = re.compile(r"status='(success|failure)' result=(.*) error=(.*) updated_session_state=.*", re.DOTALL)


def returned(result: Any, depth: int = 0) -> Message:
    """Return `content` of a tool's result, and its `status` and `tool_call_id` where what wraps it has them."""
    parsed = parts_of(result) or embedded(result)
    if isinstance(parsed, list) or is_mcp_result(parsed):
        return {"content": flat_text(parsed)}
    fields = as_dict(parsed)
    if "output" in fields and fields.keys() <= _OF_RUNS and depth < _DEEPEST:
        return returned(fields["output"], depth + 1)
    if fields.keys() == {"_value"} and depth < _DEEPEST:  # of MLflow, for smolagents
        return returned(fields["_value"], depth + 1)
    if isinstance(fields.get("tool_output"), dict) and depth < _DEEPEST:  # LlamaIndex, as OpenLLMetry writes it
        return {"tool_call_id": fields.get("tool_id")} | returned(fields["tool_output"], depth + 1)
    return _as_message(fields) or _flagged(fields) or _of_agno(result) or {"content": flat_text(result)}


def parts_of(content: Any) -> list[Any]:
    """Return the parts of Bedrock's Converse API that a JSON text holds; of any other text none."""
    if not isinstance(content, str) or not content.startswith("[{"):
        return []
    parts = as_list(embedded(content))
    return parts if all(as_dict(part).keys() <= _CONVERSE for part in parts) else []


def _as_message(fields: Mapping[str, Any]) -> Message:
    """Return a framework's message of a tool, in which LangChain may have its fields as `data`."""
    data = as_dict(fields.get("data"))
    message = {**data, "type": "tool"} if fields.get("type") == "tool" and data else fields
    message = {**fields, "type": "tool"} if fields.get("_class_name") == "ToolMessage" else message  # Weave's
    turns = transcript([message]) if message else None
    return turns[0] if turns and len(turns) == 1 and turns[0]["role"] == "tool" else {}


def _flagged(fields: Mapping[str, Any]) -> Message:
    """Return LlamaIndex' result, which has a flag for errors."""
    if "raw_output" not in fields or not isinstance(fields.get("is_error"), bool):
        return {}
    said = flat_text(fields.get("blocks")) or flat_text(fields["raw_output"])
    return {"content": said, "status": FAILED if fields["is_error"] else OK}


def _of_agno(result: Any) -> Message:
    """Return a result of Agno's as it shows itself: how it ended, what it gave or else the error."""
    shown = _AGNOS.fullmatch(result) if isinstance(result, str) else None
    if shown is None:
        return {}
    ended, gave, error = shown.groups()
    said = gave if ended == "success" else error
    quoted = len(said) >= len("''") and said[0] == said[-1] == "'"
    return {"content": said[1:-1] if quoted else said, "status": OK if ended == "success" else FAILED}
