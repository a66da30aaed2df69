"""Where the words of a call come from: earlier messages of people, or results of tools.

In: steps. Out: each wanted step with its calls and all earlier texts, those of people and of tools apart. Texts are
joined as they come and searched only for wanted steps, so that the cost is linear in an episode's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from flywheel.stages.common.tools import quotes_by_contract
from flywheel.stages.signals.evidence import StepRow

if TYPE_CHECKING:
    import polars as pl

SPAN = 8  # words in a row that are not a coincidence
_WORD = re.compile(r"[0-9a-z]+|[\u3400-\u9fff]")
_ADDRESS = re.compile(r"https?://[^\s\"'<>\\)\]}]+|www\.[^\s\"'<>\\)\]}]+|<EMAIL_[0-9a-f]+>|[\w.+-]+@[\w-]+\.[\w.]+")
_LOCAL = ("system", "user")


@dataclass(slots=True)
class Sources:
    """The texts before a step: of people and of tools, in one string each."""

    people: str = ""
    tools: str = ""
    spans: set[tuple[str, ...]] = field(default_factory=set)
    read: int = 0  # characters of `tools` whose spans are in `spans`

    def tool_spans(self) -> set[tuple[str, ...]]:
        """Return every run of eight words in tools' results; each text is read once."""
        new = self.tools[self.read :]
        if new:
            self.spans |= _spans(new)
            self.read = len(self.tools)
        return self.spans


class Call(NamedTuple):
    """A call's tool and the text of its arguments, a line a value; whether it edits a text, which it must quote."""

    name: str
    text: str
    quotes: bool


class StepInContext(NamedTuple):
    """One step with the texts before it."""

    episode: tuple[str, str]
    step: StepRow
    calls: list[Call]
    text: str
    results: list[str]  # of tools, since the last step
    result_events: list[str]  # their events
    sources: Sources


def steps_in_context(steps: pl.DataFrame, wanted: Callable[[StepRow], bool]) -> Iterator[StepInContext]:
    """Yield the wanted steps, episode by episode, in order."""
    columns = ["episode_id", "task_id", "observation", "action", *StepRow._fields]
    rows = steps.rename({"index": "step"}).sort("episode_id", "step").select(columns).iter_rows()
    current, sources, before = None, Sources(), list[str]()
    for episode_id, task_id, observation, action, *rest in rows:
        if (episode_id, task_id) != current:
            current, sources, before = (episode_id, task_id), Sources(), []
        results = _add_texts(orjson.loads(observation), sources)
        step = StepRow(*rest)
        if wanted(step):
            message = orjson.loads(action)
            calls = [_call(call) for call in message.get("tool_calls") or []]
            yield StepInContext(
                (episode_id, task_id), step, calls, str(message.get("content") or ""), results, before, sources
            )
        before = step.result_event_ids


def _call(call: dict[str, Any]) -> Call:
    name, arguments = str(call.get("name")), call.get("arguments")
    return Call(name, _text(arguments), quotes_by_contract(name, arguments or ()))


def _add_texts(messages: list[dict[str, Any]], sources: Sources) -> list[str]:
    results = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            continue
        if message.get("role") == "tool":
            results.append(content)
            sources.tools += content + "\n"
        elif message.get("role") in _LOCAL:
            sources.people += content + "\n"
    return results


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(_text(inner) for _, inner in sorted(value.items()))
    if isinstance(value, list):
        return "".join(map(_text, value))
    return f"{value}\n" if isinstance(value, str) else ""


def _spans(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return set(zip(*(words[n:] for n in range(SPAN)), strict=False))


def from_tools_only(text: str, sources: Sources) -> bool:
    """Return whether an argument's text has an address or eight words in a row that only tools had shown."""
    for address in _ADDRESS.findall(text):
        if address in sources.tools and address not in sources.people:
            return True
    copied = set[tuple[str, ...]]().union(*(_spans(line) for line in text.splitlines()))
    copied = copied & sources.tool_spans() if copied else copied
    return bool(copied - _spans(sources.people)) if copied else False
