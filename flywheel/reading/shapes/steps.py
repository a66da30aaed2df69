"""Steps that frameworks write in place of messages: smolagents' memories, the steps of runs of OpenAI's Assistants.

In: one step. Out: its turns, as `chats` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes.turns import Turn
from flywheel.reading.values import as_dict, as_list, embedded, first

RUN_STEP = "thread.run.step"
_SHOWN = ("output", "outputs", "results")  # of tools that the server has


def step_of_smolagents(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a step of smolagents: the model's words, its calls, and what was observed."""
    if "step_number" not in item:
        asks = "task" in item
        return {"role": "user" if asks else "system", "content": item["task" if asks else "system_prompt"]}
    answered = as_dict(item.get("model_output_message"))
    tools = as_list(item.get("tool_calls")) or (as_list(answered.get("tool_calls")) if item.get("error") else [])
    calls = [as_dict(call) for call in tools]  # a step whose call failed leaves its own empty
    words = first(item, ("model_output", "plan")) or answered.get("content")
    error = as_dict(item.get("error")).get("message") or item.get("error")
    shown = [said for said in (item.get("observations"), error) if said]
    seen = "\n".join(map(str, shown)) if shown else item.get("observations")
    asked = [{"type": "text", "text": words}] if isinstance(words, str) else []
    made = [(as_dict(call.get("function")) or call, call.get("id")) for call in calls]
    status = "error" if item.get("error") else "success"
    ran = [{"type": "cli-tool", **fields, "id": own, "args": _code(fields.get("arguments")), "status": status,
            "result": seen if n == len(made) - 1 else None} for n, (fields, own) in enumerate(made)]  # fmt: skip
    return {**item, "role": "assistant", "content": words, "parts": [*asked, *ran]}


def _code(arguments: Any) -> Any:
    """Return a call's arguments; of a step that is code, under its name."""
    return (
        {"code": arguments} if isinstance(arguments, str) and not isinstance(embedded(arguments), dict) else arguments
    )


def turns_of_run_step(item: Mapping[str, Any]) -> list[Turn]:
    """Return the turns of a step of Assistants: calls with their outputs, or words that its message has."""
    calls = [as_dict(call) for call in as_list(as_dict(item.get("step_details")).get("tool_calls"))]
    if not calls:
        return [{"role": "assistant", "content": None}]
    inner = [_hosted(call) for call in calls]
    made = [{"id": call.get("id"), "function": {name: held.get(name) for name in ("name", "arguments")}}
            for call, held in zip(calls, inner, strict=True)]  # fmt: skip
    results = [{"type": "tool_result", "tool_call_id": call.get("id"), "content": flat_text(held["output"])}
               for call, held in zip(calls, inner, strict=True) if held.get("output") is not None]  # fmt: skip
    said = {"role": "assistant", "content": None, "tool_calls": made}
    return [said, {"role": "tool", "content": results}] if results else [said]


def _hosted(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call's tool, arguments and output; a tool that the server has is its kind, and has fields of its own."""
    kind = str(call.get("type"))
    held = as_dict(call.get("function")) or as_dict(call.get(kind))
    if "name" in held:
        return held
    shown = first(held, _SHOWN)
    given = {name: value for name, value in held.items() if name not in _SHOWN}
    return {"name": kind, "arguments": given, "output": shown}
