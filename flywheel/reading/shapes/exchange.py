"""A whole model call, from its input and its output.

In: both as they were logged. Out: the payload of a model call. `exchange` is for readers that know nothing else of a
call; the others put the pieces together themselves.
"""

from __future__ import annotations

from typing import Any

from flywheel.reading.events import answer_from
from flywheel.reading.shapes.about import about_answer
from flywheel.reading.shapes.answers import answered
from flywheel.reading.shapes.asked import asked
from flywheel.reading.shapes.schemas import schemas
from flywheel.reading.values import as_dict, embedded, text


def exchange(given: Any, said: Any) -> dict[str, Any]:
    """Return a model call's payload from its input and output, and the `model` that the response names.

    Without any output the message is empty and tagged `content_missing`, as everywhere.
    """
    payload = answer_from(answered(said), []) | about_answer(said)
    response = as_dict(embedded(said))
    echo = response if response.get("object") == "response" else {}  # the Responses API repeats what it was asked
    begins = asked(given)
    tools = (begins.tools if begins else None) or schemas(echo.get("tools"))
    if tools:
        payload["tools"] = tools
    if begins is None:
        return payload
    instructions = text(echo.get("instructions"))
    if instructions and not any(m["role"] == "system" for m in begins.messages):
        begins.messages.insert(0, {"role": "system", "content": instructions})
    return payload | {"input": begins.messages}
