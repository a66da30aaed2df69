"""Needles of every family, in what users write and what tools get and give, in four formats: found in no byte.

From logs through ingest, build, export, report and pages. What redaction of a text alone leaves is measured by
`benchmarks/redaction.py`; here is what may go around it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.needles import FAMILIES, HELD_OUT, THIRD, Family
from flywheel.project import Project
from tests.cli.test_canaries import _leaks, _stored

KNOWN = (*FAMILIES, *HELD_OUT, *THIRD)
SHORTEST = 8  # characters of a needle that no hash or time holds by chance
MISSED = 0.02  # what the patterns leave in a text


def native(name: str, asked: str, given: Any, result: str) -> Iterator[Any]:
    call = {"role": "assistant", "tool_calls": [{"id": f"c-{name}", "name": "sh", "arguments": given}]}
    said = {"messages": [{"role": "user", "content": asked}]}
    done = {"message": {"role": "assistant", "content": "done"}}
    events: list[tuple[str, Any, dict[str, Any]]] = [("request", said, {}), ("model_call", {"message": call}, {})]
    events += [
        ("tool_result", {"content": result, "status": "ok"}, {"tool_call_id": f"c-{name}"}),
        ("model_call", done, {}),
    ]
    for seq, (kind, payload, more) in enumerate(events):
        yield {"conversation_id": name, "seq": seq, "kind": kind, "payload": payload, **more}


def openai(name: str, asked: str, given: Any, result: str) -> Iterator[Any]:
    call = {"id": f"c-{name}", "type": "function", "function": {"name": "sh", "arguments": json.dumps(given)}}
    history = [{"role": "user", "content": asked}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    history += [{"role": "tool", "tool_call_id": call["id"], "content": result}]
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}
    body = {"id": f"r-{name}", "object": "chat.completion", "model": "m", "choices": [choice]}
    yield {"metadata": {"session_id": name}, "request": {"model": "m", "messages": history}, "response": body}


def anthropic(name: str, asked: str, given: Any, result: str) -> Iterator[Any]:
    use = {"type": "tool_use", "id": f"c-{name}", "name": "sh", "input": given}
    history = [{"role": "user", "content": asked}, {"role": "assistant", "content": [use]}]
    history += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": result}]}]
    body = {"id": f"msg_{name}", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "done"}]}
    request = {"model": "m", "max_tokens": 9, "messages": history, "metadata": {"user_id": name}}
    yield {"request": request, "response": {**body, "model": "m", "stop_reason": "end_turn"}}


def claude_code(name: str, asked: str, given: Any, result: str) -> Iterator[Any]:
    use = {"type": "tool_use", "id": f"c-{name}", "name": "Bash", "input": given}
    turns = [("user", asked), ("assistant", [use])]
    turns += [("user", [{"type": "tool_result", "tool_use_id": use["id"], "content": result}])]
    turns += [("assistant", [{"type": "text", "text": "done"}])]
    for n, (role, content) in enumerate(turns):
        message = {"role": role, "content": content, **({"id": f"m{n}-{name}", "model": "m"} if role != "user" else {})}
        where = {"sessionId": name, "uuid": f"{name}-{n}", "parentUuid": f"{name}-{n - 1}" if n else None}
        yield {**where, "type": role, "timestamp": f"2026-10-01T09:00:0{n}Z", "message": message}


FORMATS: dict[str, Callable[..., Iterator[Any]]] = {
    "native": native, "openai": openai, "anthropic": anthropic, "claude_code": claude_code,
}  # fmt: skip


def planted(folder: Path, families: Sequence[Family], seed: int) -> dict[str, str]:
    """Write logs with three needles a conversation; return where each needle is."""
    rng, where = random.Random(seed), dict[str, str]()  # noqa: S311 - no keys
    (folder / "logs").mkdir()
    (folder / "flywheel.toml").write_text('[ingest]\nsources = ["logs"]\n', encoding="utf-8")
    for number, (name, write) in enumerate(FORMATS.items()):
        with (folder / "logs" / f"{name}.jsonl").open("w", encoding="utf-8") as log:
            own = families[number :: len(FORMATS)]
            for n in range(0, len(own) - 2, 3):
                made = [family.make(rng) for family in own[n : n + 3]]
                texts = [one.value if isinstance(one.value, str) else json.dumps(one.value) for one in made]
                given = {"command": made[1].value} if isinstance(made[1].value, str) else {"input": made[1].value}
                for record in write(f"{name}-{n}", f"please look at this: {texts[0]}", given, f"{texts[2]}\n"):
                    log.write(json.dumps(record) + "\n")
                for place, family, one in zip(("user", "arguments", "result"), own[n : n + 3], made, strict=True):
                    where |= {x: f"{family.name} in {place} of {name}" for x in one.needles if len(x) >= SHORTEST}
    return where


def found(folder: Path, families: Sequence[Family], seed: int) -> tuple[int, dict[str, str]]:
    """Plant, do all that users do with logs, and return how many needles there were and which were found again."""
    where = planted(folder, families, seed)
    project = Project(folder)
    project.ingest()
    project.export(folder / "datasets")
    project.view(bundle=folder / "pages")
    texts = [("report", project.report().model_dump_json())]
    return len(where), _leaks(iter([*texts, *_stored(folder)]), where)


@pytest.mark.slow
@pytest.mark.e2e
def test_needles_are_in_nothing_that_is_written(tmp_path: Path) -> None:
    count, left = found(tmp_path, random.Random(7).sample(KNOWN, 240), 7)  # noqa: S311
    assert count > 150
    assert len(left) <= MISSED * count, sorted(left.values())


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    families = random.Random(7).sample(KNOWN, 24)  # noqa: S311
    where = planted(tmp_path, families, 7)
    config = tmp_path / "flywheel.toml"
    config.write_text(config.read_text() + "[ingest.redact]\nkinds = []\n", encoding="utf-8")
    project = Project(tmp_path)
    project.ingest()
    assert len(_leaks(_stored(tmp_path), where)) >= 0.9 * len(where)


@pytest.mark.e2e
@pytest.mark.parametrize("seed", range(4))
def test_all_families_are_in_nothing_that_is_written(seed: int, tmp_path: Path) -> None:
    families = random.Random(seed).sample(KNOWN, len(KNOWN))  # noqa: S311
    count, left = found(tmp_path, families, seed)
    print(f"{count:,} planted, {len(left)} found: {sorted(left.values())}")  # noqa: T201
    assert len(left) <= MISSED * count, sorted(left.values())
