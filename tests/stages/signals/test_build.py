"""All signals together: one long table, nothing out of range, nothing twice."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.errors import ExtensionError
from flywheel.extensions import Signal, load_extension
from flywheel.funnel import Funnel
from flywheel.records import Reward
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.signals.build import build_rewards
from flywheel.stages.signals.outcome import cost, outcome
from tests.stages.talks import Made, Talk, airline_events, made


def builtin() -> dict[str, Signal]:
    return {name: load_extension("rewards", name) for name in RewardsConfig().signals}


def given_talks() -> Made:
    one = (
        Talk("one")
        .ask("Which orders are late?")
        .use("find", {}, "failed")
        .act("?")
        .ask("useless")
        .feedback("undo")
        .outcome(0)
    )
    two = Talk("two").ask("Which orders are late?").use("find", {}).act("7").ask("Thanks").feedback("export").outcome(1)
    return made(one, two, Talk("three").feedback("thumbs", value=1))


def test_every_signal_runs_and_the_order_of_rows_does_not_matter() -> None:
    given = given_talks()
    funnel = Funnel()
    rewards = build_rewards(*given, builtin(), funnel)
    funnel.check("rewards")
    assert rewards.schema == polars_schema(Reward)
    expected = {"outcome", "tool_error", "undo", "complaint", "thanks", "adopted", "cost"}
    assert set(rewards["signal"]) == expected
    turned = [frame.reverse() for frame in given[:3]]
    assert build_rewards(turned[0], turned[1], turned[2], given.cfg, builtin(), Funnel()).equals(rewards)


def test_every_signal_stands_an_empty_partition() -> None:
    given = given_talks()
    empty = [frame.clear() for frame in given[:3]]
    assert build_rewards(empty[0], empty[1], empty[2], given.cfg, builtin(), Funnel()).is_empty()


def changed(**columns: object) -> Signal:
    """A plugin that returns the outcomes with some columns changed."""

    def signal(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
        rows = outcome(episodes, steps, events, cfg)
        return rows.with_columns(**{n: pl.lit(v).cast(rows.schema[n], strict=False) for n, v in columns.items()})

    return signal


@pytest.mark.parametrize(
    "columns",
    [
        {"score": 1.5},
        {"score": float("nan")},
        {"weight": 2.0},
        {"kind": "risk", "score": -0.5},
        {"kind": "cost", "score": float("inf")},
        {"kind": "other"},
        {"score": None},
    ],
)
def test_a_signal_out_of_range_is_refused(columns: dict[str, object]) -> None:
    with pytest.raises(ExtensionError, match="signal `mine`"):
        build_rewards(*given_talks(), {"mine": changed(**columns)}, Funnel())


def test_a_signal_with_other_columns_or_the_same_opinion_twice_is_refused() -> None:
    def bare(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
        return outcome(episodes, steps, events, cfg).drop("evidence")

    with pytest.raises(ExtensionError, match="missing columns"):
        build_rewards(*given_talks(), {"bare": bare}, Funnel())
    with pytest.raises(ExtensionError, match="more than one row"):
        build_rewards(*given_talks(), {"a": cost, "b": cost}, Funnel())


def test_opinions_on_unknown_episodes_are_counted() -> None:
    funnel, given = Funnel(), made(Talk("one").ask("x").act("y").outcome(1))
    assert build_rewards(*given, {"mine": changed(episode_id="nobody")}, funnel).is_empty()
    assert funnel.as_dict()["dropped: unknown episode"] == 1


def test_signals_on_the_airline_log(tau_airline: Path) -> None:
    events, cfg = airline_events(tau_airline), RewardsConfig()
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    rewards = build_rewards(episodes, steps, events, cfg, builtin(), Funnel())
    assert rewards.filter(signal="outcome", score=1.0).height == 84
    assert rewards.filter(signal="agreement").height == 200
    assert rewards.filter(signal="escalate").height == 3  # 51 attempts were handed over, which is no vote
    assert rewards["evidence"].list.explode(empty_as_null=True).drop_nulls().is_in(events["event_id"].implode()).all()
