"""Builders beyond siblings and retries: edits, first divergences, cheaper ways, questions asked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig
from flywheel.contracts import conform
from flywheel.records import PreferencePair
from flywheel.stages.datasets.edits import corrected
from flywheel.stages.datasets.pairs import efficiency, first_divergence, rephrase, sibling, user_edit
from flywheel.stages.datasets.pairs.anchors import anchored
from flywheel.stages.datasets.pairs.sides import written

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = PairsConfig()


def side(pair: dict[str, Any], name: str) -> dict[str, Any]:
    (message,) = json.loads(pair[name])
    assert isinstance(message, dict)
    return message


def corrections(steps: pl.DataFrame, **edits: str) -> pl.DataFrame:
    """Return the steps with the first step of each named episode edited by a user of that name."""
    named = pl.when(pl.col("index") == 0).then(pl.col("episode_id").replace_strict(edits, default=None))
    return steps.with_columns(correction=named, editor=pl.lit("anna"))


def test_an_edit_is_better_than_what_was_edited(frames: Make) -> None:
    episodes, steps, returns = frames(
        [{"id": "a", "steps": [{"user": "write to Bo", "say": "Dear Bo,"}, {"say": "x"}]}]
    )
    (pair,) = user_edit(episodes, corrections(steps, a="Hi Bo!"), returns, CFG).to_dicts()
    assert side(pair, "chosen") == {"role": "assistant", "content": "Hi Bo!"}
    assert side(pair, "rejected") == {"role": "assistant", "content": "Dear Bo,"}
    assert (pair["chosen_step"], pair["rejected_step"], pair["users"]) == (0, 0, ["anna"])
    assert pair["p_better"] == pytest.approx(0.9)
    assert user_edit(episodes, steps, returns, CFG).height == 0


@pytest.mark.parametrize(
    ("text", "arguments"),
    [('{"q": "b"}', {"q": "b"}), ('{"q": "A"}', {"q": "A"}), ('{"q": " a"}', None), ("b", None), ("[1]", None)],
)
def test_the_edit_of_a_call_is_its_arguments(text: str, arguments: dict[str, Any] | None) -> None:
    call = {"id": "1", "name": "sql", "arguments": {"q": "a"}}
    message = corrected({"role": "assistant", "tool_calls": [call]}, text)
    assert (message and message["tool_calls"][0]["arguments"]) == arguments
    assert corrected({"role": "assistant", "tool_calls": [call, call]}, '{"q": "b"}') is None
    assert corrected({"role": "assistant", "content": "a"}, " ") is None


def answer(name: str, p: float, say: str, asked: str = "who?") -> dict[str, Any]:
    return {"id": name, "p": p, "steps": [{"user": asked, "call": ("look", {"x": 1})}, {"say": say}]}


def test_two_answers_after_the_same_conversation_can_be_compared(frames: Make) -> None:
    made = frames([answer("a", 0.95, "Ann"), answer("b", 0.05, "Bob")])
    (pair,) = written(first_divergence(*made, CFG), *made[:2]).to_dicts()
    assert (side(pair, "chosen")["content"], side(pair, "rejected")["content"]) == ("Ann", "Bob")
    assert [m["role"] for m in json.loads(pair["prompt"])] == ["system", "user", "assistant", "tool"]
    assert first_divergence(*frames([answer("a", 0.95, "Ann"), answer("b", 0.05, "Bob", "what?")]), CFG).height == 0


def test_a_text_is_compared_with_a_call_only_where_it_ended_the_episode(frames: Make) -> None:
    asks: dict[str, Any] = {"id": "a", "p": 0.95, "steps": [{"user": "cancel it", "say": "Sure?"}]}
    acts: dict[str, Any] = {"id": "b", "p": 0.05, "steps": [{"user": "cancel it", "call": ("cancel", {})}]}
    made = frames([asks, acts])
    (pair,) = written(first_divergence(*made, CFG), *made[:2]).to_dicts()
    assert side(pair, "chosen") == {"role": "assistant", "content": "Sure?"}
    assert [call["name"] for call in side(pair, "rejected")["tool_calls"]] == ["cancel"]
    asks["steps"].append({"user": "yes", "call": ("cancel", {})})
    assert first_divergence(*frames([asks, acts]), CFG).height == 0


def way(name: str, calls: int, p: float = 0.95) -> dict[str, Any]:
    first: dict[str, Any] = {"user": "find it", "call": ("short" if calls < 3 else "long", {})}
    return {"id": name, "p": p, "steps": [first, *({"call": ("more", {"n": n})} for n in range(calls - 1))]}


@pytest.mark.parametrize(("calls", "p_better"), [(3, 0.8), (6, 0.9), (4, 0.8 + 0.1 / 3)])
def test_of_two_good_ways_the_cheaper_one_is_better(frames: Make, calls: int, p_better: float) -> None:
    made = frames([way("a", 2), way("b", calls)])
    (pair,) = written(efficiency(*made, CFG), *made[:2]).to_dicts()
    assert [side(pair, name)["tool_calls"][0]["name"] for name in ("chosen", "rejected")] == ["short", "long"]
    assert pair["p_better"] == pytest.approx(p_better)
    assert pair["margin"] == pytest.approx(2 * p_better - 1)


def test_cheap_is_no_merit_where_it_fails(frames: Make) -> None:
    assert efficiency(*frames([way("a", 2, 0.7), way("b", 6, 0.7)]), CFG).height == 0
    made = frames([way("a", 2, 0.7), way("b", 6)])
    (pair,) = written(efficiency(*made, CFG), *made[:2]).to_dicts()
    assert side(pair, "chosen")["tool_calls"][0]["name"] == "long", "the other never got there"
    assert pair["p_better"] == pytest.approx(0.9)


def test_a_way_that_another_attempt_at_the_task_did_better_than_did_not_succeed(frames: Make) -> None:
    made = frames([way("a", 2, 0.84), way("b", 6), way("c", 2, 0.05)])
    pairs = written(efficiency(*made, CFG), *made[:2]).to_dicts()
    assert [side(pair, "chosen")["tool_calls"][0]["name"] for pair in pairs] == ["long"]


def talk(*turns: dict[str, Any], p: float = 0.95) -> list[dict[str, Any]]:
    return [{"id": "a", "p": p, "steps": list(turns)}]


ASKED = {"user": "please show the order of last May", "say": "I do not follow."}


def test_a_question_asked_again_shows_that_the_first_answer_failed(frames: Make) -> None:
    again = {"user": "please show me the order of last May", "call": ("orders", {"month": 5})}
    (pair,) = rephrase(*frames(talk(ASKED, again)), CFG).to_dicts()
    assert side(pair, "rejected")["content"] == "I do not follow."
    assert side(pair, "chosen")["tool_calls"][0]["name"] == "orders"
    assert [m["role"] for m in json.loads(pair["prompt"])] == ["system", "user"]
    assert pair["p_better"] == pytest.approx(0.88)


@pytest.mark.parametrize(
    "turns",
    [
        [ASKED, {"user": "please show the order of last May for Smith", "say": "Here."}],
        [ASKED, {"user": "thanks a lot for your help", "say": "Bye."}],
        [ASKED, {"say": "Hm."}, {"user": "please show the order of last May", "say": "Here."}],
        [{**ASKED, "call": ("orders", {})}, {"user": "please show the order of last May", "say": "Here."}],
        [ASKED, *({"user": "please show the order of last May", "say": f"No {n}."} for n in range(2))],
        [{"user": "wrong, again", "say": "a"}, {"user": "wrong, again", "say": "b"}],
    ],
    ids=["says more", "another matter", "not at once", "after a call", "a third time", "no question"],
)
def test_what_is_no_rephrase(frames: Make, turns: list[dict[str, Any]]) -> None:
    assert rephrase(*frames(talk(*turns)), CFG).height == 0


def test_rough_states_are_asked_only_where_exact_ones_are_lonely(frames: Make) -> None:
    def rough(name: str, looked: int, tool: str, p: float) -> dict[str, Any]:
        return {"id": name, "p": p, "steps": [{"user": "go", "call": ("look", {"n": looked})}, {"call": (tool, {})}]}

    made = frames([rough("a", 1, "good", 0.95), rough("b", 2, "bad", 0.05)])
    calls = pl.col("chosen_step") == 1  # the first calls differ too
    assert sibling(*made, CFG).filter(calls).height == 0
    found = sibling(*made, PairsConfig(backoff=True)).filter(calls)
    assert found["p_better"].to_list() == pytest.approx([0.65**2 / (0.65**2 + 0.35**2)])
    crowd = [rough(f"a{n}", 1, "good", 0.95) for n in range(3)]
    assert sibling(*frames([*crowd, rough("b", 2, "bad", 0.05)]), PairsConfig(backoff=True)).filter(calls).height == 0


def test_states_forget_call_ids_but_not_results(frames: Make) -> None:
    def looks(name: str, result: str) -> dict[str, Any]:
        return {"id": name, "steps": [{"user": "hi", "call": ("look", {}), "result": result}, {"say": "done"}]}

    _, steps, _ = frames([looks("a", "7 rows"), looks("b", "7 rows"), looks("c", "8 rows"), looks("d", "[]")])
    last = anchored(steps).filter(pl.col("index") == 1).sort("episode_id")
    assert (last["seen"][0] == last["seen"][1], last["seen"][0] == last["seen"][2]) == (True, False)
    assert (last["exact"][0] == last["exact"][2], last["exact"][0] == last["exact"][3]) == (True, False)
    assert last["rough"].n_unique() == 2


@pytest.mark.parametrize("build", [efficiency, first_divergence, rephrase, user_edit])
def test_no_rows_give_no_pairs(frames: Make, build: Callable[..., pl.DataFrame]) -> None:
    assert conform(build(*frames([]), CFG), PreferencePair).collect().height == 0
