"""An action as a user's edit would have it.

In: an assistant message and the edited text. Out: the corrected message, or None where the edit does not change it.
"""

from __future__ import annotations

import json
from typing import Any

from flywheel.stages.common.canonical import action_key, call_key


def corrected(message: dict[str, Any], text: str) -> dict[str, Any] | None:
    """Return an action as a user's edit would have it; None where the edit does not change it.

    The edit of a call is a JSON object, its arguments; of several calls it is not known which one is meant.
    """
    calls = message.get("tool_calls") or []
    if not calls:
        return {"role": "assistant", "content": text} if text.strip() else None
    if len(calls) > 1:
        return None
    try:
        arguments = json.loads(text)
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    call = {key: value for key, value in calls[0].items() if key != "arguments_raw"} | {"arguments": arguments}
    same = action_key([call_key(call)]) == action_key([call_key(calls[0])])
    return None if same else {**message, "tool_calls": [call]}
