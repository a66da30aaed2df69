"""From rewards to the table of returns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import load_extension
from flywheel.funnel import Funnel
from flywheel.records import Return
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.signals.build import build_rewards
from tests.stages.credit.attempts import build_returns
from tests.stages.talks import Talk, airline_events, made

PEERS = {"agreement", "effort"}  # without them, what combination does is seen
CFG = RewardsConfig(signals=[name for name in RewardsConfig().signals if name not in PEERS])

TIDYING = (("a", "delete_all"), ("b", "list_files"))


def judged(*talks: Talk, cfg: RewardsConfig = CFG) -> pl.DataFrame:
    """Return the returns with their conversations' names."""
    given = made(*talks)
    signals = {name: load_extension("rewards", name) for name in cfg.signals}
    rewards = build_rewards(*given, signals, Funnel())
    funnel = Funnel()
    returns = build_returns(given.episodes, given.steps, rewards, cfg, funnel)
    funnel.check("returns")
    assert (funnel.kept, returns.schema) == (len(talks), polars_schema(Return))
    return returns.join(given.episodes.select("episode_id", "conversation_id"), on="episode_id")


def attempt(name: str, *calls: tuple[str, str], outcome: float | None = None) -> Talk:
    talk = Talk(name, task="t").ask("do it")
    for tool, status in calls:
        talk.use(tool, {}, status)
    talk.act("done")
    return talk if outcome is None else talk.outcome(outcome)


def test_rows_of_episodes_and_steps() -> None:
    good, bad = ("find", "ok"), ("guess", "failed")
    talks = [attempt(f"g{n}", good, outcome=1) for n in range(3)] + [attempt(f"b{n}", bad, outcome=0) for n in range(3)]
    returns = judged(*talks, attempt("new", good))
    whole = returns.filter(pl.col("step").is_null()).sort("conversation_id")
    assert whole["value"].to_list() == pytest.approx([-0.94] * 3 + [0.94] * 3 + [0.0])
    assert whole["known"].to_list() == [True] * 6 + [False]
    assert whole["weight"].to_list() == pytest.approx([0.94] * 6 + [0.0])
    first = returns.filter(step=0).sort("conversation_id")
    # b: V(guess) of the two others, drawn to the mean of the five others; new: of all three that found
    mean, others = 0.94 / 5, 2 * 0.94
    assert first["value"][0] == pytest.approx((-others + 2 * mean) / 4 - mean)
    assert first["value"][6] == pytest.approx(3 * 0.94 / 5)
    assert first["n_support"].to_list() == [3, 3, 3, 4, 4, 4, 4]
    assert first["known"].to_list() == [True] * 6 + [False]
    assert returns.filter(step=1)["value"].to_list() == [0.0] * 7  # they all said "done"


def test_a_question_too_many_costs_kappa() -> None:
    talks = [Talk(f"{n}", task="t").ask("x") for n in range(5)]
    for talk, many in zip(talks, (1, 1, 1, 1, 3), strict=True):
        for _ in range(many):
            talk.act("Which one?").ask("this")
        talk.outcome(1)
    cfg = CFG.model_copy(update={"beta": 0.0})
    whole = judged(*talks, cfg=cfg).filter(pl.col("step").is_null()).sort("conversation_id")
    assert whole["value"].to_list() == pytest.approx([0.94] * 4 + [0.94 - 2 * cfg.kappa])


def test_only_the_risky_step_has_the_risk() -> None:
    talks = [Talk(name, task="t").ask("tidy up").use("look", {}).use(tool, {"path": "/"}) for name, tool in TIDYING]
    returns = judged(*[talk.act("done").outcome(1) for talk in talks]).sort("conversation_id", "step")
    assert returns.filter(pl.col("step").is_null())["risk"].to_list() == [1.0, 0.0]
    assert returns.filter(pl.col("step").is_not_null())["risk"].to_list() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_what_the_world_did_is_luck() -> None:
    talks = [attempt(f"{n}", ("find", "failed" if n % 2 else "ok"), outcome=1 - n % 2) for n in range(8)]
    steps = judged(*talks).filter(step=0).sort("conversation_id")
    assert steps["value"].to_list() == [0.0] * 8
    assert [luck > 0 for luck in steps["luck"]] == [True, False] * 4


def test_texts_are_answers_or_questions() -> None:
    def talk(name: str, text: str, value: float) -> Talk:
        return Talk(name, task="t").ask("do it").act(text).outcome(value)

    talks = [talk("a", "Which one?", 1), talk("b", "Where, then?", 1), talk("c", "No.", 0), talk("d", "I will not.", 0)]
    values = judged(*talks).filter(step=0).sort("conversation_id")["value"].to_list()
    assert values == pytest.approx([values[0]] * 2 + [-values[0]] * 2)
    assert values[0] > 0


def test_tasks_are_judged_apart_and_the_order_of_rows_does_not_matter() -> None:
    given = made(
        *(Talk(f"{t}{n}", task=t).ask("x").use("f", {"n": n}).act("y").outcome(n % 2) for t in "ab" for n in range(4))
    )
    rewards = build_rewards(*given, {n: load_extension("rewards", n) for n in ("outcome", "cost")}, Funnel())
    whole = build_returns(given.episodes, given.steps, rewards, CFG, Funnel())
    turned = build_returns(given.episodes.reverse(), given.steps.reverse(), rewards.reverse(), CFG, Funnel())
    assert whole.equals(turned)
    parts = []
    for task in given.episodes["task_id"].unique().sort():
        episodes, steps, opinions = (f.filter(task_id=task) for f in (given.episodes, given.steps, rewards))
        parts.append(build_returns(episodes, steps, opinions, CFG, Funnel()))
    assert pl.concat(parts).sort("episode_id", "step", nulls_last=False).equals(whole)


def test_empty_tables() -> None:
    given = made(Talk("a").ask("x").act("y"))
    rewards = build_rewards(*given, {}, Funnel())
    empty = build_returns(given.episodes.clear(), given.steps.clear(), rewards, CFG, Funnel())
    assert (empty.height, empty.schema) == (0, polars_schema(Return))


@pytest.mark.e2e
def test_the_airline_log(tau_airline: Path) -> None:
    events = airline_events(tau_airline)
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    rewards = build_rewards(
        episodes, steps, events, CFG, {n: load_extension("rewards", n) for n in CFG.signals}, Funnel()
    )
    returns = build_returns(episodes, steps, rewards, CFG, Funnel())
    whole, credit = returns.filter(pl.col("step").is_null()), returns.filter(pl.col("step").is_not_null())
    assert (whole.height, whole.filter(pl.col("p_success") > 0.5).height, credit.height) == (200, 84, steps.height)
    # Every attempt's skill and luck add up to its return minus the mean of the task's other attempts.
    sums = credit.group_by("episode_id").agg(explained=(pl.col("value") + pl.col("luck")).sum())
    n, total = pl.len().over("task_id"), pl.col("value").sum().over("task_id")
    owed = whole.with_columns(owed=pl.col("value") - (total - pl.col("value")) / (n - 1)).join(sums, on="episode_id")
    assert owed.select((pl.col("owed") - pl.col("explained")).abs().max()).item() < 1e-9
    told_apart = credit.filter(pl.col("weight") > 0).group_by("level").len().sort("level")
    assert told_apart.rows() == [(0, 71), (1, 105), (2, 158)]
