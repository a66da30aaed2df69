"""Two readings of a log that say which action was better."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig
from flywheel.contracts import conform
from flywheel.records import PreferencePair
from flywheel.stages.datasets.pairs import retry_fixed, sibling
from flywheel.stages.datasets.pairs.across import probability_better
from flywheel.stages.datasets.pairs.sides import written

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = PairsConfig()


def better(chosen: float, rejected: float) -> float:
    """Return P(chosen is the right one) of two probabilities."""
    return float(pl.select(probability_better(pl.lit(chosen), pl.lit(rejected))).item())


def attempt(name: str, tool: str, p: float | None, **more: Any) -> dict[str, Any]:
    """Return an attempt that makes one common call, talks, and then calls `tool`."""
    steps = [
        {"user": f"{name} asks", "call": ("look", {})},
        {"say": "well"},
        {"user": "go on", "say": f"{name} says", "call": (tool, {"n": 1})},
    ]
    return {"id": name, "steps": steps, **({} if p is None else {"p": p}), **more}


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"), [(0.95, 0.1, 0.9942), (0.8, 0.3, 0.9032), (0.6, 0.5, 0.60), (1, 1, 0.5)]
)
def test_probability_that_chosen_is_better(chosen: float, rejected: float, expected: float) -> None:
    assert better(chosen, rejected) == pytest.approx(expected, abs=5e-5)


def test_siblings_leave_the_same_state_with_different_calls(frames: Make) -> None:
    made = frames([attempt("a", "good", 0.95, split="holdout", tools="[]"), attempt("b", "bad", 0.05, split="holdout")])
    (pair,) = written(sibling(*made, CFG), *made[:2]).to_dicts()
    assert (pair["chosen_episode"], pair["rejected_episode"]) == ("a", "b")
    assert (pair["chosen_step"], pair["rejected_step"], pair["same_prefix_until"]) == (2, 2, 1)
    assert pair["margin"] == pytest.approx(1.8)
    assert pair["weight"] == pytest.approx(0.9)
    assert (pair["split"], pair["tools"]) == ("holdout", "[]")
    # 0.95 and 0.05, each averaged with the state's 0.5
    assert pair["p_better"] == pytest.approx(better(0.725, 0.275))


def test_each_side_is_what_its_policy_wrote_at_the_chosen_sides_prompt(frames: Make) -> None:
    made = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05)])
    (pair,) = written(sibling(*made, CFG), *made[:2]).to_dicts()
    assert "a asks" in pair["prompt"]
    assert "b asks" not in pair["prompt"]
    chosen, rejected = json.loads(pair["chosen"])[0], json.loads(pair["rejected"])[0]
    assert (chosen["content"], rejected["content"]) == ("a says", "b says")
    assert [c["name"] for c in (*chosen["tool_calls"], *rejected["tool_calls"])] == ["good", "bad"]
    assert chosen["tool_calls"][0]["id"] == rejected["tool_calls"][0]["id"] == "call00001"


def test_values_are_means_over_all_known_episodes_through_the_action(frames: Make) -> None:
    attempts = [attempt("a1", "x", 0.95), attempt("a2", "x", 0.05), attempt("b1", "y", 0.05), attempt("z", "y", None)]
    (pair,) = sibling(*frames(attempts), CFG).to_dicts()
    assert (pair["chosen_episode"], pair["rejected_episode"]) == ("a1", "b1")
    assert pair["margin"] == pytest.approx(0.0 - -0.9)
    state = (0.95 + 0.05 + 0.05) / 3
    assert pair["p_better"] == pytest.approx(better((1.0 + state) / 3, (0.05 + state) / 2))


def test_the_representative_did_not_fail_if_another_did_not(frames: Make) -> None:
    failing = attempt("a", "x", 0.99)
    failing["steps"][2]["status"] = "failed"
    (pair,) = sibling(*frames([failing, attempt("b", "x", 0.8), attempt("c", "y", 0.1)]), CFG).to_dicts()
    assert pair["chosen_episode"] == "b"


def test_no_siblings_without_a_difference_or_across_tasks_or_for_text(frames: Make) -> None:
    same = [attempt("a", "x", 0.9), attempt("b", "y", 0.9)]
    apart = [attempt("a", "x", 0.9, task="t"), attempt("b", "y", 0.1, task="u")]
    text: list[dict[str, Any]] = [{"id": n, "p": p, "steps": [{"say": n}]} for n, p in (("a", 0.9), ("b", 0.1))]
    assert [sibling(*frames(attempts), CFG).height for attempts in (same, apart, text)] == [0, 0, 0]
    assert conform(sibling(*frames([]), CFG), PreferencePair).collect().height == 0


def test_a_busy_state_gives_few_candidates(frames: Make) -> None:
    many = [attempt(f"e{n:03}", f"tool{n:03}", n / 200) for n in range(200)]
    assert sibling(*frames(many), CFG).height == 64


RETRY: list[dict[str, Any]] = [
    {"user": "total of table sales by region?", "say": "let me see", "call": ("sql", {"q": "a"}), "status": "failed"},
    {"say": "sorry, again", "call": ("sql", {"q": "b"})},
    {"say": "done"},
]


def test_a_fixed_retry_is_paired_at_the_state_before_the_failure(frames: Make) -> None:
    made = frames([{"id": "e", "p": 0.95, "steps": RETRY}])
    (pair,) = retry_fixed(*made, CFG).to_dicts()
    assert (pair["chosen_step"], pair["rejected_step"], pair["same_prefix_until"]) == (1, 0, 0)
    assert [m["role"] for m in json.loads(pair["prompt"])] == ["system", "user"]
    chosen, rejected = json.loads(pair["chosen"])[0], json.loads(pair["rejected"])[0]
    assert (chosen["content"], rejected["content"]) == ("sorry, again", "let me see")
    assert [s["tool_calls"][0]["arguments"]["q"] for s in (chosen, rejected)] == ["b", "a"]
    assert chosen["tool_calls"][0]["id"] == rejected["tool_calls"][0]["id"] == "call00000"
    assert pair["p_better"] == pytest.approx(0.88)
    assert pair["margin"] == pytest.approx(0.76)


@pytest.mark.parametrize(("p", "expected"), [(1.0, 0.9), (0.0, 0.5), (None, 0.7)])
def test_how_sure_a_fix_is_follows_the_episode(frames: Make, p: float | None, expected: float) -> None:
    made = frames([{"id": "e", "steps": RETRY, **({} if p is None else {"p": p})}])
    assert retry_fixed(*made, CFG)["p_better"].to_list() == pytest.approx([expected])


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"},
        {"status": "unknown"},
        {"call": ("other", {"q": "b"})},
        {"call": ("sql", {"q": "a"})},
        {"call": ("sql", None)},
        {"user": "use column b"},
        {"resets": True},
    ],
)
def test_what_is_no_fixed_retry(frames: Make, change: dict[str, Any]) -> None:
    steps = [RETRY[0], {**RETRY[1], **change}, RETRY[2]]
    assert retry_fixed(*frames([{"id": "e", "p": 0.95, "steps": steps}]), CFG).height == 0


def test_a_call_that_did_not_parse_can_be_the_rejected_side(frames: Make) -> None:
    steps = [{"user": "go", "call": ("sql", None), "status": "unknown"}, {"call": ("sql", {"q": "b"})}]
    (pair,) = retry_fixed(*frames([{"id": "e", "p": 0.95, "steps": steps}]), CFG).to_dicts()
    assert json.loads(pair["rejected"])[0]["tool_calls"][0]["arguments_raw"] == "{oops}"


def thinking(steps: pl.DataFrame, *episodes: str) -> pl.DataFrame:
    thought = pl.col("action").str.replace('"role"', '"reasoning":"hm","role"', literal=True)
    return steps.with_columns(action=pl.when(pl.col("episode_id").is_in(episodes)).then(thought).otherwise("action"))


def test_what_was_thought_elsewhere_is_left_out_of_both_sides(frames: Make) -> None:
    episodes, steps, returns = frames([{"id": "e", "p": 0.95, "steps": RETRY}])
    (pair,) = retry_fixed(episodes, thinking(steps, "e"), returns, CFG).to_dicts()
    assert "reasoning" not in pair["chosen"] + pair["rejected"]


def test_sides_of_one_state_have_both_their_thoughts_or_none(frames: Make) -> None:
    episodes, steps, returns = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05)])
    for thinks, kept in ((("a", "b"), True), (("a",), False), (("b",), False)):
        thought = thinking(steps, *thinks)
        (pair,) = written(sibling(episodes, thought, returns, CFG), episodes, thought).to_dicts()
        assert [json.loads(pair[side])[0].get("reasoning") for side in ("chosen", "rejected")] == [
            "hm" if kept else None
        ] * 2


def test_after_an_error_an_agent_is_in_another_state(frames: Make) -> None:
    failed = attempt("b", "bad", 0.05)
    failed["steps"][0]["status"] = "failed"
    assert sibling(*frames([attempt("a", "good", 0.95), failed]), CFG).height == 0
    both = attempt("a", "good", 0.95)
    both["steps"][0]["status"] = "failed"
    assert sibling(*frames([both, failed]), CFG).height == 1


def test_siblings_answer_the_same_role_in_the_same_turn(frames: Make) -> None:
    one, other = attempt("a", "good", 0.95), attempt("b", "bad", 0.05)
    assert sibling(*frames([one, other]), CFG).height == 1
    later = attempt("b", "bad", 0.05)
    later["steps"].insert(2, {"user": "hm", "say": "well"})
    assert sibling(*frames([one, later]), CFG).height == 0  # the user has spoken three times, not twice
    unasked = attempt("b", "bad", 0.05)
    del unasked["steps"][2]["user"]
    unasked["steps"] = [{"user": "b asks", "call": ("look", {})}, {"user": "go on", "say": "well"}, unasked["steps"][2]]
    assert sibling(*frames([one, unasked]), CFG).height == 0  # its newest message is its own, not the user's


def test_every_side_is_its_steps_action_word_for_word(frames: Make) -> None:
    made = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05), {"id": "e", "p": 0.95, "steps": RETRY}])
    logged = {(e, n): json.loads(a) for e, n, a in made[1].select("episode_id", "index", "action").iter_rows()}
    for build in (sibling, retry_fixed):
        for pair in written(build(*made, CFG), *made[:2]).iter_rows(named=True):
            for side in ("chosen", "rejected"):
                action, own = json.loads(pair[side])[0], logged[pair[f"{side}_episode"], pair[f"{side}_step"]]
                assert action.get("content") == own.get("content")
                calls = [[(c["name"], c["arguments"]) for c in m["tool_calls"]] for m in (action, own)]
                assert calls[0] == calls[1]
