"""Acts that a run's result keeps apart from its answer: LangChain's intermediate steps, DSPy's trajectory.

In: an object that has them, and the question and answer next to them. Out: messages; none where it has no such steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes.actions import answer_of
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, text


def acted(outer: Mapping[str, Any]) -> list[Any]:
    """Return the messages in a question, an answer, and the actions in between, each with what was observed."""
    held = (as_dict(value) for value in outer.values() if isinstance(value, dict) and "intermediate_steps" in value)
    places = (outer, *(as_dict(embedded(outer.get(name))) for name in ("output", "outputs")), *held)
    steps = next((made for place in places if (made := as_list(embedded(place.get("intermediate_steps"))))), [])
    pairs = [(_plain(step[0]), step[-1]) for step in steps if isinstance(step, list) and step]
    if not pairs or len(pairs) < len(steps) or not all("tool" in action for action, _ in pairs):
        return []
    begun = next((place for place in places if "intermediate_steps" in place), outer)
    around = outer if "inputs" in outer or "input" in outer else begun
    question = next(
        (as_dict(embedded(around.get(name))) or around for name in ("inputs", "input") if name in around), outer
    )
    items: list[Any] = [{"role": "user", "content": flat_text(first(question, ("input", "question", "query")))}]
    for n, (action, seen) in enumerate(pairs):
        named = ident(action.get("tool_call_id")) or f"step_{n}"
        call = {"id": named, "name": action["tool"], "arguments": _given(action.get("tool_input"))}
        log = text(action.get("log"))  # LangChain's own words, where the model called a tool without any
        words = None if log and log.lstrip().startswith("Invoking: ") else log
        items.append({"role": "assistant", "content": words, "tool_calls": [call]})
        items.append({"role": "tool", "tool_call_id": named, "content": flat_text(seen)})
    answer = next((first(place, ("output", "answer", "result")) for place in reversed(places) if place), None)
    return [*items, {"role": "assistant", "content": flat_text(answer)}] if answer is not None else items


def _plain(action: Any) -> Mapping[str, Any]:
    """Return an action, which LangChain may write as an object's class and fields."""
    fields = as_dict(action)
    return as_dict(fields.get("kwargs")) if "lc" in fields else fields


def numbered(outer: Mapping[str, Any]) -> list[Any]:
    """Return the messages in a trajectory of DSPy: fields of one object whose names end in the number of their step."""
    held = as_dict(embedded(outer.get("trajectory"))) or outer
    items: list[Any] = []
    while text(tool := held.get(f"tool_name_{len(items) // 2}")):
        n = len(items) // 2
        call = {"id": f"step_{n}", "name": tool, "arguments": held.get(f"tool_args_{n}")}
        items.append({"role": "assistant", "content": held.get(f"thought_{n}"), "tool_calls": [call]})
        items.append({"role": "tool", "tool_call_id": f"step_{n}", "content": flat_text(held.get(f"observation_{n}"))})
    answer = answer_of(outer) if items else None
    said = {"role": "assistant", "content": answer, "reasoning": outer.get("reasoning")}
    return [*items, said] if answer else items


def _given(value: Any) -> Any:
    """Return a tool's input; a text alone is the input of a tool that has one."""
    return {"input": value} if isinstance(value, str) and not isinstance(embedded(value), dict) else value
