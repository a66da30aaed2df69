"""Mined rows made by hand: calls with and without arguments, a ragged group, log-probabilities of some members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flywheel.config import ModelConfig
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.models.token_rows import attempt_rows, token_rows
from flywheel.pipeline.serve.targets.target import Mined
from flywheel.replay import START, call_text, next_state

Row = dict[str, Any]

TOOLS = [
    {"name": name, "description": f"{name} of the shop", "parameters": {"type": "object", "properties": properties}}
    for name, properties in (
        ("list_orders", {}),
        ("find_order", {"number": {"type": "string"}, "year": {"type": "integer"}}),
    )
]
PROMPT = [
    {"role": "system", "content": "You work in a shop."},
    {"role": "user", "content": "Where is order 7?"},
]
RESULT = {"role": "tool", "tool_call_id": "call00000", "name": "list_orders", "content": "order 7: sent on Monday"}
ASKING = {"role": "assistant", "content": "Which year was that order made in?"}


def call(name: str, **arguments: Any) -> Row:
    return {"role": "assistant", "tool_calls": [{"id": "call00000", "name": name, "arguments": arguments}]}


def say(text: str) -> Row:
    return {"role": "assistant", "content": text}


ATTEMPTS: list[list[Row]] = [
    [call("list_orders"), RESULT, say("It was sent on Monday.")],
    [call("find_order", number="7", year=2026), {**RESULT, "name": "find_order"}, say("It was sent.")],
    [ASKING],
]


def rows() -> dict[str, list[Row]]:
    """Return the rows of every form, without log-probabilities."""
    shared: Row = {"prompt": PROMPT, "tools": TOOLS, "task_id": "task"}
    pair = {"chosen": [call("list_orders")], "rejected": [call("find_order", number="8")]}
    facts = {"margin": 0.75, "p_better": 0.9, "weight": 0.5, "builder": "sibling"}
    episodes = {"chosen_episode": "e0", "rejected_episode": "e1"}
    single: Row = {"p_success": 0.8, "weight": 1.0, "episode_id": "e0"}
    later = [*PROMPT, *ATTEMPTS[0][:2]]
    return {
        "preference": [{**shared, "id": "pair", **pair, **facts, **episodes}],
        "unpaired": [
            {**shared, **single, "id": "good", "completion": [call("list_orders")], "label": True},
            {**shared, **single, "id": "bad", "prompt": later, "completion": [say("I do not know.")], "label": False},
        ],
        "sft": [{**shared, **single, "id": "good", "prompt": later, "completion": [ATTEMPTS[0][2]], "label": True}],
        "groups": [_group(shared, "group", 3), _group(shared, "small", 2)],
    }


def scenario() -> Row:
    """Return a turn whose recorded attempts listed the orders and answered, or answered at once and were wrong."""
    listed = call_text("list_orders", {})
    after = next_state(START, listed)
    return {
        "id": "where",
        "task_id": "task",
        "prompt": PROMPT,
        "tools": TOOLS,
        "state": START,
        "judged_by": "state",
        "endings": [[after, "", 1.0, 0.9, 3], [START, "", -0.5, 0.1, 1]],
        "calls": [[START, listed, RESULT["content"], "ok", True]],
        "n_calls": 1,
        "limits": {"min_alike": 0.8, "max_calls": 4},
        "end": "<|im_end|>",
    }


def _group(shared: Row, name: str, size: int) -> Row:
    attempts = ATTEMPTS[:size]
    return {
        **shared,
        "id": name,
        "completions": attempts,
        "rewards": [1.0, 0.25, -0.5][:size],
        "advantages": [1.125, 0.0, -1.125] if size == 3 else [0.75, -0.75],
        "policies": ["shop-agent@1", "shop-agent@1", "shop-agent@2"][:size],
        "episodes": [f"{name}-e{n}" for n in range(size)],
        "step_advantages": [[0.5 - 0.25 * n for n, m in enumerate(a) if m["role"] == "assistant"] for a in attempts],
        "log_probs": [None] * size,
        "temperatures": [1.0] * size,
    }


def mined(model: Path) -> Mined:
    """Return the rows with their tokens under a model's template; the first member of each group has log-probs."""
    chat = ChatFormat(load_tokenizer(ModelConfig(base=str(model))))
    every = rows()
    for group in every["groups"]:
        parts = attempt_rows(group["completions"][0], group["prompt"], group["tools"], chat)
        windows = [part.ids[a:b] for part in parts for a, b in part.windows]
        group["log_probs"][0] = [
            {"ids": list(ids), "log_probs": [-0.125 * (n + 1) for n in range(len(ids))]} for ids in windows
        ]
    policies: dict[str, str | None] = {"e0": "shop-agent@1", "e1": "shop-agent@1"}
    tokens = {form: [t for row in some for t in token_rows(form, row, chat, policies)] for form, some in every.items()}
    return Mined(every, tokens, chat, "tiny", str(model), "shop", base=model, scenarios=[scenario()])
