"""Whether a round begins cold is asked where good attempts made a call: words are no fault of a policy elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.pipeline.train import plan
from flywheel.project import Project
from flywheel.stages.evaluate.probe import certain
from tests.projects import TINY_CONFIG

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}]


def talk(number: int, *, calls: bool) -> list[dict[str, Any]]:
    """One request; an answer in words, or a call and then an answer; a verifier's success."""
    name = f"talk-{number}"
    asked = {
        "messages": [{"role": "user", "content": f"Where is order {number} of {number * 7} today?"}],
        "tools": TOOLS,
    }
    call = {"id": f"c{number}", "name": "look", "arguments": {"order": number}}
    made: list[tuple[str, dict[str, Any]]] = [("request", {"payload": asked})]
    if calls:
        made += [
            ("model_call", {"payload": {"message": {"role": "assistant", "tool_calls": [call]}}}),
            ("tool_result", {"tool_name": "look", "tool_call_id": call["id"], "payload": {"content": f"at {number}"}}),
        ]
    answer = {"message": {"role": "assistant", "content": f"Order {number} is at place {number}."}}
    made += [("model_call", {"payload": answer}), ("outcome", {"payload": {"name": "check", "value": 1.0}})]
    return [{"conversation_id": name, "seq": seq, "kind": kind, **more} for seq, (kind, more) in enumerate(made)]


def planned(folder: Path, model: Path, *, calls: bool) -> str:
    config = TINY_CONFIG.format(model=model).replace('method = "sft"', 'method = "auto"')
    folder.mkdir()
    (folder / "flywheel.toml").write_text(config, encoding="utf-8")
    lines = [json.dumps(line) for number in range(40) for line in talk(number, calls=calls)]
    (folder / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    project = Project(folder)
    project.ingest([folder / "log.jsonl"])
    return project.plan().method_reason


def test_a_policy_that_only_talks_is_not_asked_for_calls(tmp_path: Path, tiny_model: Path) -> None:
    assert "rate of well-formed calls not measured" in planned(tmp_path / "talks", tiny_model, calls=False)
    assert "makes 0% well-formed calls" in planned(tmp_path / "calls", tiny_model, calls=True)


@pytest.mark.parametrize(("rows", "count", "lengths"), [(40, 8, [0, 2, 5, 7, 10, 12, 15, 17]), (3, 8, [0, 1, 2])])
def test_prompts_are_taken_evenly_from_the_shorter_half(rows: int, count: int, lengths: list[int]) -> None:
    made = [{"prompt": [{"role": "user", "content": "x" * n}], "tools": None} for n in range(rows)] * 2
    probe = plan._probe(made, count)
    assert sorted(len(prompt[0]["content"]) for prompt, _ in probe) == lengths


@pytest.mark.parametrize(
    ("good", "tried", "known"),
    [(0, 0, False), (0, 6, False), (0, 7, True), (1, 8, True), (2, 8, False), (25, 25, False), (26, 26, True)],
)
def test_the_probe_ends_where_the_others_cannot_change_the_decision(good: int, tried: int, *, known: bool) -> None:
    assert certain(good, tried, 32, 0.8) is known
    sides = {(good + rest) / 32 < 0.8 for rest in range(32 - tried + 1)}
    assert known == (tried > 0 and len(sides) == 1)
