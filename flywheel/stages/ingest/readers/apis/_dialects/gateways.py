"""All dialects that gateways log calls in, and which of them a response is written in.

In: a response. Out: its `Dialect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import Message
from flywheel.stages.ingest.readers.apis._dialects.calls import Dialect
from flywheel.stages.ingest.readers.apis._dialects.chat import CHAT
from flywheel.stages.ingest.readers.apis._dialects.claude import CLAUDE, claude_history
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES


def _history(asked: Mapping[str, Any]) -> list[Message]:
    return claude_history(asked) if "messages" in asked else CHAT.history(asked)


# A gateway may log a request as it was sent, in any API's words, and the answer in those of OpenAI.
GATEWAY_CHAT = CHAT._replace(history=_history)


def dialect_of(response: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect of a response; None when it is none, or no talk at all."""
    return next((d for d in (GATEWAY_CHAT, RESPONSES, CLAUDE) if d.completed(response)), None)
