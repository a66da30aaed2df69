"""The replay environment from logs: what it answers is what the world would have answered."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, ReplayConfig, TrainConfig
from flywheel.contracts import conform
from flywheel.funnel import Funnel
from flywheel.records import Fixture, ReplayScenario
from flywheel.replay import START, Outcome, ReplayEnvironment, Scenario, read_scenario, scenario_row, scenarios
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.datasets.replay.build import build_fixtures
from flywheel.stages.selection.groups import select_scenarios
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.conftest import _frames
from tests.stages.talks import airline_events

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]
CFG = ReplayConfig()


def run(made: Frames, **cfg: Any) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    funnel = Funnel()
    fixtures, places = build_fixtures(*made, ReplayConfig(**cfg), funnel)
    funnel.check("fixtures")
    conform(fixtures, Fixture).collect()
    conform(places, ReplayScenario).collect()
    return fixtures, places, {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v}


def world(made: Frames, **cfg: Any) -> list[Scenario]:
    fixtures, places, _ = run(made, **cfg)
    return scenarios(places.iter_rows(named=True), fixtures.iter_rows(named=True))


def get(key: str, result: str = "done") -> dict[str, Any]:
    return {"call": ("get_value", {"key": key}), "result": result}


def put(key: str, value: int, result: str = "done") -> dict[str, Any]:
    return {"call": ("set_value", {"key": key, "value": value}), "result": result}


def attempt(name: str, p: float | None, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An attempt of one turn: the user asks, these calls, a last word."""
    first, *rest = [*turns, {"say": "There."}]
    return {"id": name, "steps": [{"user": "go", **first}, *rest], **({} if p is None else {"p": p})} | more


def play(scenario: Scenario, *turns: dict[str, Any], say: str = "There.", cfg: ReplayConfig = CFG) -> Outcome:
    """Roll calls out, one an action, then a last word."""
    env = ReplayEnvironment(scenario, cfg)
    for turn in turns:
        name, arguments = turn["call"]
        env.take({"role": "assistant", "tool_calls": [{"id": "", "name": name, "arguments": arguments}]})
    env.take({"role": "assistant", "content": say})
    assert env.outcome is not None
    return env.outcome


def test_reads_are_answered_between_acts_and_acts_after_the_same_acts() -> None:
    good = attempt("a", 0.9, get("x", "1"), put("x", 2), get("x", "2"))
    bad = attempt("b", 0.1, put("x", 9), get("x", "9"))
    (place,) = world(_frames([good, bad]))

    first = play(place, get("x"), put("x", 2))
    assert (first.why, first.calls, first.missed) == ("ended", 2, False)
    assert first.reward == pytest.approx(0.8)
    assert first.success == pytest.approx(0.9)
    assert play(place, get("x"), get("x"), put("x", 9)).success == pytest.approx(0.1)
    assert play(place, put("x", 9), put("x", 2)) == Outcome(None, None, "missed", 1, "set_value")
    assert play(place, put("y", 2)).why == "missed"
    assert play(place, get("x")).why == "new end"  # nobody stopped before acting


def test_results_and_messages_join_the_conversation_as_in_a_dataset() -> None:
    (place,) = world(_frames([attempt("a", 0.9, put("x", 2, "set"))]))
    env = ReplayEnvironment(place, CFG)
    said, result = env.take(
        {"role": "assistant", "tool_calls": [{"id": "", "name": "set_value", "arguments": {"value": 2.0, "key": " x"}}]}
    )

    assert said["tool_calls"][0]["id"] == "call00000"
    assert result == {"role": "tool", "tool_call_id": "call00000", "name": "set_value", "content": "set"}
    assert not env.over
    assert env.take({"role": "assistant", "content": "There."}) == [{"role": "assistant", "content": "There."}]
    assert env.outcome is not None
    assert (env.outcome.why, env.outcome.calls) == ("ended", 1)


@pytest.mark.parametrize(
    ("calls", "why"),
    [([None], "malformed"), ([{"key": "x"}] * 4, "over budget"), ([{"key": float("nan")}], "malformed")],
)
def test_what_does_not_parse_or_end_has_no_reward(calls: list[Any], why: str) -> None:
    (place,) = world(_frames([attempt("a", 0.9, get("x", "1"))]))
    env = ReplayEnvironment(place, ReplayConfig(max_calls=3))
    for arguments in calls:
        env.take({"role": "assistant", "tool_calls": [{"id": "", "name": "get_value", "arguments": arguments}]})

    assert env.outcome is not None
    assert (env.outcome.why, env.outcome.reward, env.outcome.missed) == (why, None, False)


def test_where_nothing_is_changed_the_answer_decides() -> None:
    found = [attempt(name, p, get("x", "1")) for name, p in (("a", 0.9), ("b", 0.8), ("c", 0.1))]
    words = ("The total is 41.50 euros", "the total is 41.50 EUROS!", "The total is 7")
    for one, said in zip(found, words, strict=True):
        one["steps"][-1]["say"] = said
    (place,) = world(_frames(found))

    assert place.judged_by == "answer"
    assert play(place, say="The total is 41.50 euros.").success == pytest.approx(0.85)
    assert play(place, say="The total is 7").success == pytest.approx(0.1)
    assert play(place, say="The total is 8").why == "new end"
    assert play(place, say="I cannot tell you what the total is").why == "new end"


def test_tools_that_do_not_say_what_they_do_are_taken_to_act_unless_the_project_says_otherwise() -> None:
    def sql(text: str) -> dict[str, Any]:
        return {"call": ("run_sql", {"sql": text}), "result": text}

    made = _frames([attempt("a", 0.9, sql("A"), sql("B"))])
    (strict,), (read,) = world(made), world(made, reads=["run_sql"])

    assert play(strict, sql("B")).why == "missed"
    assert play(strict, sql("A"), sql("b")).why == "missed"  # no folding of case: another command
    assert play(strict, sql("A"), sql("B")).why == "ended"
    assert play(read, sql("B"), sql("A")).why == "ended"


def test_a_handover_is_one_act_whatever_its_words() -> None:
    over = {"call": ("transfer_to_human", {"summary": "The user wants a refund"})}
    (place,) = world(_frames([attempt("a", 0.9, over)]))

    assert play(place, {"call": ("transfer_to_human", {"summary": "Refund, please take over"})}).why == "ended"


def test_every_turn_is_a_place_of_its_own() -> None:
    steps = [{"user": "hello", "say": "Hi."}, {"user": "set it", **put("x", 2)}, {"say": "Set."}]
    found = world(_frames([{"id": "a", "p": 0.9, "steps": steps}]))
    by_turn = sorted(found, key=lambda place: len(place.prompt))

    assert [place.n_calls for place in by_turn] == [0, 1]
    assert [m["role"] for m in by_turn[1].prompt] == ["system", "user", "assistant", "user"]
    assert play(by_turn[0], put("x", 2)).why == "new end"  # nobody set it before being asked
    assert play(by_turn[1], put("x", 2)).why == "ended"


def test_a_place_is_of_requests_that_name_the_same() -> None:
    """Where the log names no tasks, "set a to 7" and "set a to 9" are one task: 9 is no known end of the first."""
    asked = [("a", 7, 0.9), ("b", 9, 0.9), ("c", 7, 0.1)]
    made = [attempt(name, p, put("x", value), rule="first_request") for name, value, p in asked]
    for one, (_, value, _) in zip(made, asked, strict=True):
        one["steps"][0]["user"] = f"Set it to {value}"
    seven, nine = sorted(world(_frames(made)), key=lambda place: str(place.prompt))
    assert (len(seven.endings), len(nine.endings)) == (1, 1)
    assert play(seven, put("x", 7)).success == pytest.approx(0.5)
    assert play(seven, put("x", 9)).success is None


def test_what_may_not_be_learnt_from_lends_nothing_and_unknown_outcomes_lend_results_only() -> None:
    episodes, steps, returns = _frames(
        [attempt("a", 0.9, get("x", "1")), attempt("b", None, get("y", "2")), attempt("c", 0.9, get("z", "3"))]
    )
    episodes = episodes.with_columns(
        tags=pl.when(pl.col("episode_id") == "c").then(pl.lit(["suspect"])).otherwise(pl.col("tags"))
    )
    fixtures, places, counts = run((episodes, steps, returns))

    assert sorted(fixtures["result"]) == ["1", "2"]
    assert places["n_attempts"].to_list() == [1]
    assert counts["cut off in the log, or suspect"] == 1


def test_disagreement_is_counted_and_below_the_limit_nothing_is_answered() -> None:
    told = [attempt(f"a{i}", 0.9, get("x", str(i // 2)), get("t", str(i))) for i in range(3)]
    fixtures, _, counts = run(_frames(told))

    assert fixtures.select("result", "n_attempts", "n_agree").rows() == [("0", 3, 2)]
    assert counts["most got another result"] == 1
    assert counts["results disagree"] == 3
    assert fixtures["episodes"].to_list() == [["a0", "a1"]]


def test_held_out_tasks_lend_nothing_to_training() -> None:
    told = [
        attempt(f"{split}-{i}", p, put("x", i, split), task=split, split=split)
        for split in ("train", "holdout", "between")
        for i, p in enumerate((0.9, 0.1))
    ]
    fixtures, places, _ = run(_frames(told))
    rows = select_scenarios(places, fixtures, TrainConfig(), 0.05, funnel := Funnel())

    assert [row["task_id"] for row in rows] == ["train"]
    assert {call[2] for call in rows[0]["calls"]} == {"train"}
    assert funnel.as_dict()["dropped: held out"] == 2
    assert read_scenario(json.loads(json.dumps(rows[0]))).calls == world(_frames(told[:2]))[0].calls


Program = list[tuple[str, int]]
PROGRAMS = st.lists(st.lists(st.tuples(st.sampled_from("xy"), st.integers(-1, 2)), max_size=5), min_size=1, max_size=6)


def live(program: Program) -> list[dict[str, Any]]:
    """Run a program in a world that has state: -1 reads a key, anything else sets it."""
    state = {"x": "0", "y": "0"}
    turns = []
    for key, value in program:
        if value < 0:
            turns.append(get(key, state[key]))
        else:
            turns.append(put(key, value, f"was {state[key]}"))
            state[key] = str(value)
    return turns


@given(PROGRAMS, PROGRAMS)
def test_it_never_answers_what_the_world_would_not_have(logged: list[Program], tried: list[Program]) -> None:
    told = [attempt(f"e{i}", 0.9 if i % 2 else 0.2, *live(program)) for i, program in enumerate(logged)]
    (place,) = world(_frames(told))
    for program in [*tried, *logged]:
        env = ReplayEnvironment(place, CFG)
        for turn in live(program):
            answer = env.call(*turn["call"])
            assert answer is None or answer.content == turn["result"]
        if program in logged:
            assert env.finish("There.").why == "ended"


@settings(max_examples=15)
@given(PROGRAMS, st.randoms())
def test_rows_in_any_order_give_the_same_tables(logged: list[Program], chance: random.Random) -> None:
    made = _frames([attempt(f"e{i}", 0.9, *live(program)) for i, program in enumerate(logged)])
    mixed = [frame.sample(fraction=1, shuffle=True, seed=chance.randrange(2**31)) for frame in made]

    first, second = run(made), run((mixed[0], mixed[1], mixed[2]))

    assert first[0].equals(second[0])
    assert first[1].equals(second[1])


def test_a_scenario_keeps_only_what_can_be_reached(frames: Callable[[Sequence[dict[str, Any]]], Frames]) -> None:
    steps = [{"user": "a", **put("x", 1)}, {"say": "Done."}, {"user": "b", **put("x", 2)}, {"say": "Done."}]
    first, second = sorted(world(frames([{"id": "a", "p": 0.9, "steps": steps}])), key=lambda place: len(place.prompt))

    assert len(scenario_row(first)["calls"]) == 2
    assert len(scenario_row(second)["calls"]) == 1


def test_every_recorded_airline_attempt_is_answered_to_its_end(tau_airline: Path) -> None:
    events = airline_events(tau_airline)
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    won = events.filter(pl.col("kind") == "outcome").select(
        "conversation_id", p_success=pl.col("payload").str.json_path_match("$.value").cast(pl.Float64)
    )
    known = {"step": None, "cost": 0.0, "risk": 0.0, "luck": 0.0, "weight": 1.0, "known": True, "n_support": 1}
    returns = episodes.join(won, on="conversation_id").select(
        "episode_id", "task_id", "p_success", value=2 * pl.col("p_success") - 1, provisional=pl.lit(value=False),
        **{name: pl.lit(value) for name, value in known.items()},
    )  # fmt: skip
    fixtures, places, counts = run((episodes, steps, returns))
    by_id = {p.scenario_id: p for p in scenarios(places.iter_rows(named=True), fixtures.iter_rows(named=True))}
    here = {(row["task_id"], row["turn"], row["state"]): by_id[row["scenario_id"]] for row in places.to_dicts()}
    whys = Counter(why for _, path in steps.group_by("episode_id") for why in replayed(path.sort("index"), here))

    assert counts["considered"] == 1164
    assert counts["same call again in one attempt"] == 19
    assert "results disagree" not in counts
    assert whys == {"ended": sum(places["n_attempts"])}


def replayed(path: pl.DataFrame, here: dict[tuple[str, int, str], Scenario]) -> Iterator[str]:
    """Take an attempt's own actions through the environment, turn by turn; yield how each turn ended."""
    env, turn, state = None, 0, START
    for row in path.iter_rows(named=True):
        if '"role":"user"' in row["observation"]:
            state, turn = env.state if env else state, turn + 1
            env = ReplayEnvironment(place, CFG) if (place := here.get((row["task_id"], turn, state))) else None
        if env is not None and not env.over:
            env.take(json.loads(row["action"]))
            if env.outcome is not None:
                yield env.outcome.why
    if env is not None and not env.over:
        yield env.finish("").why
