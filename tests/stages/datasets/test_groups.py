"""Groups: who belongs together, and advantages with known answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import GroupsConfig, RewardsConfig
from flywheel.contracts import conform
from flywheel.funnel import Funnel
from flywheel.records import Group
from flywheel.stages.datasets.groups import advantages, build_groups, step_advantages
from hypothesis import given
from hypothesis import strategies as st

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]


def run(made: Frames, **cfg: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    funnel = Funnel()
    groups = build_groups(*made, GroupsConfig(**cfg), funnel)
    funnel.check("groups")
    conform(groups, Group).collect()
    return groups.to_dicts(), {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v}


def attempt(name: str, p: float | None, **more: Any) -> dict[str, Any]:
    steps = [{"user": "go", "call": ("f", {"x": name})}, {"say": "there"}]
    return {"id": name, "steps": steps, **({} if p is None else {"p": p})} | more


def test_known_advantages() -> None:
    assert advantages([0.9, 0.2, 0.4]) == pytest.approx([0.6, -0.45, -0.15], abs=1e-6)


def test_the_published_vectors(shared_data: Path) -> None:
    known = json.loads((shared_data.parent / "vectors" / "known_answers.json").read_text(encoding="utf-8"))["grpo"]
    assert advantages(known["rewards2"]) == pytest.approx(known["rloo2"], abs=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=16))
def test_advantages_sum_to_nothing_and_are_leave_one_out(rewards: list[float]) -> None:
    found = advantages(rewards)
    assert math.fsum(found) == pytest.approx(0, abs=1e-12)
    others = [(math.fsum(rewards) - r) / (len(rewards) - 1) for r in rewards]
    assert found == pytest.approx([r - b for r, b in zip(rewards, others, strict=True)], abs=1e-9)


def test_a_group_is_the_known_attempts_at_a_task(frames: Make) -> None:
    attempts = [attempt("a", 0.95), attempt("b", 0.05), attempt("c", None), attempt("d", 0.9, task="other")]
    (group,), counts = run(frames(attempts))
    assert group["episodes_G"] == ["a", "b"]
    assert group["rewards_G"] == pytest.approx([0.9, -0.9])
    assert group["advantages_G"] == pytest.approx([1.8, -1.8])
    assert not group["mixed_policies"]
    assert counts == {"considered": 4, "kept": 2, "unknown outcome": 1, "too few attempts": 1, "note: groups": 1}


def test_prompt_and_completions_make_up_the_conversation(frames: Make) -> None:
    (group,), _ = run(frames([attempt("a", 0.95), attempt("b", 0.05)]))
    assert [m["role"] for m in json.loads(group["prompt"])] == ["system", "user"]
    for text, name in zip(group["completions_G"], "ab", strict=True):
        messages = json.loads(text)
        assert [m["role"] for m in messages] == ["assistant", "tool", "assistant"]
        assert messages[0]["tool_calls"][0]["arguments"] == {"x": name}
        assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"] == "call00000"


@pytest.mark.parametrize("different", [{"tools": "[]"}, {"system": "Be rude."}, {"task": "other"}])
def test_members_share_task_tools_and_system_prompt(frames: Make, different: dict[str, Any]) -> None:
    groups, counts = run(frames([attempt("a", 0.95), attempt("b", 0.05, **different)]))
    assert (groups, counts["too few attempts"]) == ([], 2)


def test_mixed_policies_are_marked(frames: Make) -> None:
    (group,), _ = run(frames([attempt("a", 0.95, policy="r1"), attempt("b", 0.05, policy="r2")]))
    assert group["mixed_policies"]
    assert group["policies_G"] == ["r1", "r2"]


@pytest.mark.parametrize(
    ("attempts", "reason", "count"),
    [
        ([attempt("a", 0.95), attempt("b", 0.93)], "no difference in the group", 2),
        ([attempt("a", 0.95), attempt("b", 0.05, steps=[])], "no action", 1),
        ([attempt("a", 0.95), attempt("b", 0.05, steps=[{"say": "x"}, {"say": "y", "resets": True}])],
         "context rewritten", 1),
    ],
)  # fmt: skip
def test_what_is_no_group(frames: Make, attempts: list[dict[str, Any]], reason: str, count: int) -> None:
    groups, counts = run(frames(attempts))
    assert (groups, counts[reason]) == ([], count)


def test_a_large_group_keeps_its_first_members_by_id(frames: Make) -> None:
    made = frames([attempt(name, p) for name, p in zip("dbca", (0.9, 0.1, 0.8, 0.2), strict=True)])
    (group,), counts = run(made, max_size=3)
    assert group["episodes_G"] == ["a", "b", "c"]
    assert counts["over groups.max_size"] == 1


def test_no_rows_give_no_groups_and_order_does_not_matter(frames: Make) -> None:
    assert run(frames([])) == ([], {})
    made = frames([attempt(name, p) for name, p in zip("dbca", (0.9, 0.1, 0.8, 0.2), strict=True)])
    assert run(made) == run((made[0].reverse(), made[1].reverse(), made[2].reverse()))


def test_users_and_policies_have_their_places(frames: Make) -> None:
    crowd = [attempt(name, p, user="ann") for name, p in zip("abc", (0.95, 0.05, 0.95), strict=True)]
    (group,), counts = run(frames([*crowd, attempt("d", 0.05, user="bo")]))
    assert (group["episodes_G"], counts["over groups.max_per_user"]) == (["a", "b", "d"], 1)
    mixed = frames([attempt("a", 0.95, policy="x"), attempt("b", 0.05, policy="y")])
    assert run(mixed, by_policy=True)[1]["too few attempts"] == 2


def test_one_user_alone_makes_no_group(frames: Make) -> None:
    alone = [attempt("a", 0.95, user="ann"), attempt("b", 0.05, user="ann")]
    assert run(frames(alone)) == ([], {"considered": 2, "too few users": 2})
    assert len(run(frames(alone), min_users=1)[0]) == 1
    for company in (attempt("c", 0.05, user="bo"), attempt("c", 0.05)):
        (group,), _ = run(frames([*alone, company]))
        assert group["episodes_G"] == ["a", "b", "c"]
    crowd = [attempt(n, p, user=n) for n, p in (("d", 0.95), ("e", 0.05))]
    assert run(frames(crowd), min_users=3)[1]["too few users"] == 2


def test_members_of_two_splits_are_no_group(frames: Make) -> None:
    assert run(frames([attempt("a", 0.95), attempt("b", 0.05, split="holdout")]))[0] == []


def test_every_member_has_its_own_prompt(frames: Make) -> None:
    other = attempt("b", 0.05)
    other["steps"] = [{**other["steps"][0], "user": "in other words"}, *other["steps"][1:]]
    (group,), _ = run(frames([attempt("a", 0.95), other]))
    assert ["in other words" in prompt for prompt in group["prompts_G"]] == [False, True]
    assert group["prompts_G"][0] == group["prompt"]


def test_where_the_behaviours_log_probabilities_come_from(frames: Make) -> None:
    (group,), _ = run(frames([attempt("a", 0.95), attempt("b", 0.05)]))
    assert group["behaviour_G"] == ["unknown", "unknown"]
    (group,), _ = run(frames([attempt("a", 0.95, policy="round 3"), attempt("b", 0.05, policy="round 3")]))
    assert group["behaviour_G"] == ["rescore"] * 2
    assert [signal[0] for signal in group["step_advantages_G"]] == pytest.approx([1.9, -1.7]), "with groups.shift"


def served_as(name: str, p: float, policy: str, *turns: dict[str, Any]) -> dict[str, Any]:
    made = attempt(name, p, policy=policy)
    made["steps"] = [{**step, "served": told} for step, told in zip(made["steps"], turns, strict=True)]
    return made


TOKENS: dict[str, Any] = {"ids": [1, 2], "log_probs": [-0.5, -1.0]}
COOL = {"sampling": {"temperature": 0.7, "top_p": 1, "seed": 3}}


@pytest.mark.parametrize(
    ("policy", "turns", "behaviour", "temperature"),
    [
        ("gpt", (TOKENS, TOKENS), "logged", 1.0),
        ("gpt", (TOKENS, {**TOKENS, "sampling": {"temperature": 1, "max_tokens": 9}}), "logged", 1.0),
        ("gpt", (TOKENS, {}), "unknown", 1.0),
        ("gpt", (COOL | TOKENS, COOL | TOKENS), "unknown", 0.7),  # of the draw or of the model: nobody can tell
        ("round 2", (COOL | TOKENS, COOL | TOKENS), "rescore", 0.7),
        ("base", (COOL, COOL), "rescore", 0.7),
        ("base", ({}, {}), "rescore", 1.0),
        ("base", (COOL, {}), "unknown", None),
        *(
            ("base", ({"sampling": bent}, {"sampling": bent}), "unknown", None)
            for bent in (
                {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}, {"frequency_penalty": 0.1}, {"presence_penalty": 1},
                {"repetition_penalty": 1.1}, {"temperature": 0}, {"temperature": "hot"},
            )
        ),
        ("base", ({"sampling": {"top_p": 1.0, "top_k": -1}},) * 2, "rescore", 1.0),
    ],
)  # fmt: skip
def test_what_is_known_of_the_draw_decides_what_may_be_pushed_down(
    frames: Make, policy: str, turns: Any, behaviour: str, temperature: float | None
) -> None:
    (group,), _ = run(frames([served_as("a", 0.95, policy, *turns), served_as("b", 0.05, policy, *turns)]))
    assert group["behaviour_G"] == [behaviour] * 2
    assert group["temperatures_G"] == [temperature] * 2
    told = [None if text is None else json.loads(text) for text in group["log_probs_G"]]
    assert told == ([[TOKENS, TOKENS]] * 2 if behaviour == "logged" else [None, None])


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        (-0.1, (0.095238, 0.628571, 0.171429, 0.104762)),
        (0.0, (0.0, 0.705882, 0.176471, 0.117647)),
        (0.2, (0.0, 0.918519, 0.051852, 0.02963)),
    ],
)
def test_the_shift_is_asymres_baseline(baseline: float, expected: tuple[float, ...]) -> None:
    """The policy that these weights lead to is AsymRE's closed form (mu (r - V) - t)+ / (V_mu - V)."""
    share, reward = (10, 6, 3, 1), (0.0, 1.0, 0.5, 1.0)
    sample = [r for n, r in zip(share, reward, strict=True) for _ in range(n)]
    mean = sum(sample) / len(sample)
    of_mean = (len(sample) - 1) / len(sample)  # an advantage over the others, as one over all
    weights = [advantage * of_mean + mean - baseline for advantage in advantages(sample)]
    pull = [sum(w for w, r in zip(weights, sample, strict=True) if r == x) / 20 for x in (0.0, 0.5)]
    good = next(w for w, r in zip(weights, sample, strict=True) if r == 1.0) / 20
    by_action = [pull[0], 6 * good, pull[1], good]
    low, high = -1.0, 1.0
    for _ in range(80):
        t = (low + high) / 2
        total = sum(max(p - t, 0.0) for p in by_action) / (mean - baseline)
        low, high = (t, high) if total > 1 else (low, t)
    assert [max(p - low, 0.0) / (mean - baseline) for p in by_action] == pytest.approx(expected, abs=2e-6)


def test_a_steps_signal_is_its_episodes_advantage_and_its_own_credit() -> None:
    tree = RewardsConfig(credit="prefix_tree")
    assert step_advantages(0.5, [0.0, -0.3, 0.6], tree) == pytest.approx([0.5, 0.2, 1.1])
    valued = step_advantages(0.5, [None, -0.3, 0.0], RewardsConfig())
    assert valued == pytest.approx([0.5, -0.3, 0.0]), "what others show of a step, else its attempt's advantage"
    assert step_advantages(0.5, [0.0, -0.3], RewardsConfig(omega=0.0)) == [0.5, 0.5]
    assert step_advantages(0.5, [None] * 11, RewardsConfig())[0] == pytest.approx(0.5 * 0.99**10)
    assert step_advantages(0.5, [None] * 10, RewardsConfig())[0] == 0.5
    # These are whole advantages already: adding the episode's would count it twice.
    assert step_advantages(0.5, [0.7, 0.6], RewardsConfig(credit="gigpo")) == [0.7, 0.6]


def test_groups_carry_a_signal_for_each_step(frames: Make) -> None:
    credited = [{"user": "go", "call": ("f", {}), "credit": 0.25}, {"say": "there"}]
    (group,), _ = run(frames([attempt("a", 0.9, steps=credited), attempt("b", 0.1)]))
    signals = sorted(group["step_advantages_G"])
    (low, high) = sorted(group["advantages_G"])
    expected = [[low + 0.1, low + 0.1], sorted([0.25 + 0.1, high + 0.1])]
    assert [signals[0], sorted(signals[1])] == [pytest.approx(part) for part in expected]
