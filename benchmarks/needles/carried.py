"""How logs carry needles: in what people write, in arguments of tools, in their results; and whether they are gone."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .made import Family


class Recall(NamedTuple):
    """Of the needles of a group how many are gone, and which families had some left."""

    hidden: int
    planted: int
    missed: Counter[str]

    @property
    def share(self) -> float:
        """The share of needles that are gone."""
        return self.hidden / self.planted


def payloads(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the payloads of events in which logs would carry a text or a JSON value."""
    if isinstance(value, str):
        yield {"messages": [{"role": "user", "content": value}]}
        yield _called({"command": value})
        yield _called(json.dumps({"input": value}))
        yield {"name": "bash", "content": value + "\n"}
        yield {"name": "bash", "content": json.dumps({"stdout": value, "code": 0}, indent=1)}
    else:
        yield _called(value)
        yield _called(json.dumps(value))
        yield {"messages": [{"role": "user", "content": "here: " + json.dumps(value, ensure_ascii=False, indent=2)}]}
        yield {"name": "read", "content": json.dumps(value)}
        yield {"name": "read", "content": repr(value)}


def _called(arguments: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "tool_calls": [{"id": "call_1", "name": "run", "arguments": arguments}]}}


def recall(
    families: Sequence[Family],
    times: int,
    seed: int,
    redact: Callable[[list[str]], list[str]],
    stays: Callable[[str, str], bool] | None = None,
) -> dict[str, Recall]:
    """Plant needles of each family and redact all payloads at once; return what is gone, by group.

    `stays`, if given, gets a needle and the texts of a payload, and decides what is left.
    """
    rng = random.Random(seed)  # noqa: S311 - no keys
    planted: list[tuple[Family, tuple[str, ...]]] = []
    texts: list[str] = []
    for family in families:
        for _ in range(times):
            made = family.make(rng)
            for payload in payloads(made.value):
                planted.append((family, made.needles))
                texts.append(json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    total, missed = Counter[str](), dict[str, Counter[str]]()
    for (family, needles), text in zip(planted, redact(texts), strict=True):
        total[family.group] += 1
        left = missed.setdefault(family.group, Counter())
        left[family.name] += any(
            stays(needle, "\n".join(_strings(json.loads(text)))) if stays else is_left(needle, text)
            for needle in needles
        )
    return {
        group: Recall(count - missed[group].total(), count, +missed[group]) for group, count in sorted(total.items())
    }


def is_left(needle: str, payload: str) -> bool:
    """Whether a needle is in a payload, also as JSON or Python would write it."""
    text = "\n".join(_strings(json.loads(payload)))
    once = json.dumps(needle)[1:-1]
    forms = {needle, once, json.dumps(once)[1:-1], json.dumps(needle, ensure_ascii=False)[1:-1], repr(needle)[1:-1]}
    return any(form in text for form in forms)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
