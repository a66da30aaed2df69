"""Generated logs: episodes of five model calls at tasks of 20 attempts, and thumbs in a file of their own.

Half of the tasks are named by the log, the others found by their requests. 30 % of episodes get a thumb later, by the
id of a call: stage `links` has to join it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ATTEMPTS, CALLS = 20, 5
_START = datetime(2026, 10, 1, tzinfo=UTC)
_PLACES = ("Hanoi", "Lagos", "Lima", "Oslo", "Quito", "Riga", "Sofia", "Turin")
_THINGS = ("lamps", "chairs", "shelves", "desks", "rugs", "mirrors", "clocks", "vases", "stools", "beds", "sofas")


def write_logs(folder: Path, episodes: int, files: int = 8) -> None:
    """Write the logs of so many episodes; the same number gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    share = -(-episodes // files)
    for number in range(files):
        with (folder / f"agent-{number:02}.jsonl").open("w", encoding="utf-8") as log:
            for episode in range(number * share, min(episodes, (number + 1) * share)):
                log.writelines(json.dumps(event) + "\n" for event in _events(episode))
    with (folder / "thumbs.jsonl").open("w", encoding="utf-8") as log:
        log.writelines(json.dumps(row) + "\n" for episode in range(episodes) if (row := _thumb(episode)))


def _events(episode: int) -> Iterator[dict[str, Any]]:
    draw, task = random.Random(episode), episode // ATTEMPTS  # noqa: S311 - a world, not a secret
    began = _START + timedelta(seconds=97 * episode % 4_000_000)
    thing, place = _THINGS[task % len(_THINGS)], _PLACES[task // len(_THINGS) % len(_PLACES)]
    seq = 0

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        nonlocal seq
        seq += 1
        at = (began + timedelta(seconds=2 * seq)).isoformat()
        named = {"task_key": f"task-{task}"} if task % 2 else {}
        whole = {
            "conversation_id": f"talk-{episode}",
            "user": f"user{episode % 997}@shop.example",
            "policy": "agent-v1",
        }
        return {**whole, **named, "seq": seq, "ts": at, "kind": kind, **fields}

    request = f"How many {thing} were sent to {place} in order batch {task}, and what did customers write about them?"
    system = {"role": "system", "content": "Answer questions about a shop's database."}
    yield event("request", payload={"messages": [system, {"role": "user", "content": request}]})
    for call in range(CALLS - 1):
        name, name_id = f"tool_{draw.randrange(3)}", f"call_{episode}_{call}"
        made = {"id": name_id, "name": name, "arguments": {"batch": task, "page": draw.randrange(3)}}
        payload = {"message": {"role": "assistant", "tool_calls": [made]}, "output_tokens": 20, "latency_s": 0.8}
        yield event("model_call", model="shop-8b", payload=payload)
        failed = draw.random() < 0.15
        answer = {"content": "TimeoutError: no answer" if failed else f"[[{task % 7}, {call}]]"}
        answer |= {"status": "failed" if failed else "ok"}
        yield event("tool_result", tool_name=name, tool_call_id=name_id, payload=answer)
    payload = {"message": {"role": "assistant", "content": f"{task % 7} {thing}."}, "output_tokens": 30}
    yield event("model_call", model="shop-8b", payload=payload)
    if draw.random() < 0.5:
        verdict = {"name": "check", "value": float(draw.random() < 0.6), "scale": [0, 1], "source": "verifier"}
        yield event("outcome", payload=verdict)


def _thumb(episode: int) -> dict[str, Any] | None:
    draw = random.Random(-1 - episode)  # noqa: S311 - as above
    if draw.random() > 0.3:
        return None
    at = (_START + timedelta(days=50, seconds=episode)).isoformat()
    called = {"target": "call", "target_id": f"call_{episode}_0"}
    return {**called, "name": "thumbs", "value": float(draw.random() < 0.6), "annotator": "human", "ts": at}
