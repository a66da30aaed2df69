"""Where the words of a call come from: what people said before it and what tools had shown.

In: steps. Out: each wanted step with its calls and with everything heard until then, people and tools apart. Texts are
joined as they come and looked at only for wanted steps, so that an episode costs its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from flywheel.stages.signals.evidence import StepRow

if TYPE_CHECKING:
    import polars as pl

SPAN = 8  # words in a row that are no accident
_WORD = re.compile(r"[0-9a-z]+|[\u3400-\u9fff]")
_ADDRESS = re.compile(r"https?://[^\s\"'<>\\)\]}]+|www\.[^\s\"'<>\\)\]}]+|<EMAIL_[0-9a-f]+>|[\w.+-]+@[\w-]+\.[\w.]+")
_LOCAL = ("system", "user")


@dataclass(slots=True)
class Heard:
    """What was heard until a step, in one string each; tools' results by the step that saw them."""

    people: str = ""
    tools: str = ""
    spans: set[tuple[str, ...]] = field(default_factory=set)
    read: int = 0  # characters of `tools` that stand in `spans`

    def tool_spans(self) -> set[tuple[str, ...]]:
        """Return every run of eight words that tools have shown; each text is cut into them once."""
        new = self.tools[self.read :]
        if new:
            self.spans |= _spans(new)
            self.read = len(self.tools)
        return self.spans


class Call(NamedTuple):
    """A call's tool and the text of its arguments, a line a value."""

    name: str
    text: str


class Deed(NamedTuple):
    """One step with what it had heard."""

    episode: tuple[str, str]
    step: StepRow
    calls: list[Call]
    said: str
    results: list[str]  # what tools showed since the last step
    before: list[str]  # the events that brought them
    heard: Heard


def deeds(steps: pl.DataFrame, wanted: Callable[[StepRow], bool]) -> Iterator[Deed]:
    """Yield the wanted steps, episode by episode, in order."""
    columns = ["episode_id", "task_id", "observation", "action", *StepRow._fields]
    rows = steps.rename({"index": "step"}).sort("episode_id", "step").select(columns).iter_rows()
    current, heard, before = None, Heard(), list[str]()
    for episode_id, task_id, observation, action, *rest in rows:
        if (episode_id, task_id) != current:
            current, heard, before = (episode_id, task_id), Heard(), []
        results = _hear(orjson.loads(observation), heard)
        step = StepRow(*rest)
        if wanted(step):
            message = orjson.loads(action)
            calls = [Call(str(c.get("name")), _text(c.get("arguments"))) for c in message.get("tool_calls") or []]
            yield Deed((episode_id, task_id), step, calls, str(message.get("content") or ""), results, before, heard)
        before = step.result_event_ids


def _hear(messages: list[dict[str, Any]], heard: Heard) -> list[str]:
    results = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            continue
        if message.get("role") == "tool":
            results.append(content)
            heard.tools += content + "\n"
        elif message.get("role") in _LOCAL:
            heard.people += content + "\n"
    return results


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(_text(inner) for _, inner in sorted(value.items()))
    if isinstance(value, list):
        return "".join(map(_text, value))
    return f"{value}\n" if isinstance(value, str) else ""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _spans(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    return set(zip(*(words[n:] for n in range(SPAN)), strict=False))


def foreign(text: str, heard: Heard) -> bool:
    """Return whether an argument's text has an address or eight words in a row that tools showed and nobody said."""
    for address in _ADDRESS.findall(text):
        if address in heard.tools and address not in heard.people:
            return True
    copied = set[tuple[str, ...]]().union(*(_spans(line) for line in text.splitlines()))
    copied = copied & heard.tool_spans() if copied else copied
    return bool(copied - _spans(heard.people)) if copied else False
