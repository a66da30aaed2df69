"""What an agent saw before each action, put together again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import polars as pl
from flywheel.stages.datasets.context import call_id, contexts, episode_fragments
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]

TWO_CALLS = [
    {"user": "hi", "call": ("find", {"id": 7}), "result": "seven"},
    {"call": ("get", {"id": 8})},
    {"say": "there"},
]


def test_a_context_is_what_was_seen_and_done_before_the_action(frames: Make) -> None:
    _, steps, _ = frames([{"id": "e", "steps": TWO_CALLS}])
    found = contexts(steps)
    assert [m["role"] for m in json.loads(found["e", 2].prompt)] == [
        "system", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert json.loads(found["e", 2].completion) == [{"role": "assistant", "content": "there"}]
    assert json.loads(found["e", 0].prompt) == json.loads(steps["observation"][0])


def test_call_ids_are_numbered_in_order_and_results_follow_them(frames: Make) -> None:
    _, steps, _ = frames([{"id": "e", "steps": TWO_CALLS}])
    messages = json.loads(contexts(steps)["e", 2].prompt)
    assert [m["tool_calls"][0]["id"] for m in messages if m["role"] == "assistant"] == ["call00000", "call00001"]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ["call00000", "call00001"]
    assert [contexts(steps)["e", n].n_calls for n in range(3)] == [0, 1, 2]


def test_equal_conversations_with_other_call_ids_have_equal_contexts(frames: Make) -> None:
    _, steps, _ = frames([{"id": "a", "steps": TWO_CALLS}, {"id": "b", "steps": TWO_CALLS}])
    found = contexts(steps)
    assert all(found["a", n] == found["b", n] for n in range(3))


def test_an_id_that_is_used_again_means_the_newest_call(frames: Make) -> None:
    _, steps, _ = frames([{"id": "e", "steps": TWO_CALLS}])
    same = steps.with_columns(pl.col("action", "observation").str.replace_all("e-1", "e-0"))
    assert contexts(same) == contexts(steps)


def test_a_reset_forgets_what_came_before(frames: Make) -> None:
    _, steps, _ = frames([{"id": "e", "steps": [*TWO_CALLS[:1], {"user": "anew", "say": "ok", "resets": True}]}])
    _, alone, _ = frames([{"id": "e", "steps": [{"user": "anew", "say": "ok"}]}])
    reset = json.loads(contexts(steps)["e", 1].prompt)
    assert [m["role"] for m in reset] == ["tool", "user"]
    assert contexts(steps)["e", 1].completion == contexts(alone)["e", 0].completion


def test_only_what_is_wanted_is_put_together(frames: Make) -> None:
    _, steps, _ = frames([{"id": "a", "steps": TWO_CALLS}, {"id": "b", "steps": TWO_CALLS}])
    assert set(contexts(steps, {("a", 1), ("b", 9)})) == {("a", 1)}
    assert contexts(steps, set()) == {}
    assert contexts(steps.head(0)) == {}


def test_text_that_looks_like_a_call_stays_as_it_is(frames: Make) -> None:
    text = 'he wrote {"tool_call_id":"e-0","tool_calls":[{"id":"e-0"}]} and "quotes" \\ and ünïcode \u2028'
    _, steps, _ = frames([{"id": "e", "steps": [{"user": text, "call": ("f", {}), "result": text}, {"say": text}]}])
    messages = json.loads(contexts(steps)["e", 1].prompt)
    assert [m["content"] for m in messages if m["role"] in {"user", "tool"}] == [text, text]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["user", "say", "call"]), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_contexts_grow_and_do_not_depend_on_the_order_of_rows(frames: Make, kinds: list[str], random: Any) -> None:
    turns: dict[str, dict[str, Any]] = {
        "user": {"user": "u", "say": "s"},
        "say": {"say": "s"},
        "call": {"call": ("f", {"x": 1})},
    }
    _, steps, _ = frames([{"id": "e", "steps": [turns[kind] for kind in kinds]}])
    found = contexts(steps)
    rows = list(range(steps.height))
    random.shuffle(rows)
    assert contexts(steps[rows]) == found
    prompts = [json.loads(found["e", n].prompt) for n in range(len(kinds))]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(prompts))


def test_fragments_come_by_episode_in_order(frames: Make) -> None:
    _, steps, _ = frames([{"id": name, "steps": TWO_CALLS} for name in "ba"])
    assert [(episode, [p.step for p in parts]) for episode, parts in episode_fragments(steps)] == [
        ("a", [0, 1, 2]),
        ("b", [0, 1, 2]),
    ]
    assert call_id(12) == "call00012"
