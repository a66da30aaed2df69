"""The monitors: red on a change that is there, unknown without evidence, quiet without a change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig, MonitorsConfig, RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import load_extension
from flywheel.funnel import Funnel
from flywheel.records import CrowdMember
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.labelling.priors import log_odds
from flywheel.stages.monitors import Serving, watch
from flywheel.stages.signals.build import build_rewards
from tests.stages.credit.attempts import build_returns
from tests.stages.talks import START, Talk, call, events_of

if TYPE_CHECKING:
    from flywheel.records import MonitorRow

EACH = 120  # episodes a side
Make = Callable[[Talk, int], Talk]
Tables = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]


def plain(talk: Talk, n: int) -> Talk:
    """Work; the verifier and the user agree on how it went."""
    good = n % 3 != 0
    talk.use("find", {"n": n % 4}, "ok").act("Here it is." if good else "It is not there.")
    return talk.feedback("export" if good else "thumbs", value=float(good)).outcome(float(good))


def rows(before: Make, after: Make, *, cfg: MonitorsConfig | None = None, **more: Any) -> dict[str, MonitorRow]:
    """Return the monitors of a week done one way and a week done another."""
    found = watch(*tables(before, after), cfg or MonitorsConfig(), odds=log_odds, **more)
    return {row.monitor: row for row in found}


def tables(before: Make, after: Make) -> Tables:
    """Return episodes, steps, rewards and returns of the two weeks."""
    talks = []
    for week, make in enumerate((before, after)):
        for n in range(EACH):
            talk = make(Talk(f"{week}-{n}", task=f"t{n % 30}").ask("Please do it."), n)
            shift = timedelta(days=8 * week)
            talk.rows = [r | {"ts": r["ts"] + shift, "policy": f"v{week}", "user": f"u{n % 60}"} for r in talk.rows]
            talks.append(talk)
    events = events_of(talks)
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    reward_cfg = RewardsConfig()
    signals = {name: load_extension("rewards", name) for name in reward_cfg.signals}
    rewards = build_rewards(episodes, steps, events, reward_cfg, signals, Funnel())
    return episodes, steps, rewards, build_returns(episodes, steps, rewards, reward_cfg, Funnel())


def test_nothing_changed_and_nothing_is_red() -> None:
    found = rows(plain, plain)
    levels = {name: row.level for name, row in found.items()}
    # Two episodes a user and week are too few to know for whom it is better; every success here was verified.
    unknown = {"praise": "unknown", "crowds": "unknown", "users": levels["users"]}
    assert levels == dict.fromkeys(levels, "green") | unknown
    assert levels["users"] != "red"
    assert all(row.sentence for row in found.values())


@pytest.mark.parametrize(
    ("crowds", "level", "words"),
    [
        ([], "green", "no accounts came at once"),
        ([True], "amber", "30 accounts came at once at 3 tasks: 20 of their 21 opinions are likes, 1 of 9 of those"),
        ([True], "amber", "their votes are set aside: flywheel explain e1"),
        ([True, False], "amber", "their votes count: flywheel explain e2"),
        ([True] * 5, "amber", "; 2 more are in the table crowds"),
    ],
)
def test_a_crowd_is_amber_with_an_episode_to_look_at(crowds: list[bool], level: str, words: str) -> None:
    common = {"accounts": 30, "tasks": 3, "likes": 20, "opinions": 21, "others_like": 1, "others": 9, "p": 0.001}
    members = [
        {"episode_id": f"e{n}", "task_id": "t", "crowd": n, "aside": aside} | common
        for n, aside in enumerate(crowds, start=1)
    ]
    found = rows(plain, plain, crowd_members=pl.DataFrame(members, schema=polars_schema(CrowdMember)))["crowds"]
    assert found.level == level
    assert words in found.sentence


def breaks(talk: Talk, n: int) -> Talk:
    if n % 3:
        return plain(talk, n)
    broken = call("find", None, "c", raw='{"n": ')
    return talk.act(calls=[broken]).result("bad call", "failed", call_id="c").outcome(0.0)


def asks(talk: Talk, n: int) -> Talk:
    return plain(talk, n) if n % 3 else talk.act("Which one do you mean?")


def flatters(talk: Talk, n: int) -> Talk:
    talk.use("find", {"n": n % 4}, "ok").act("Great question! You are absolutely right, here it is. 🎉\n- one\n- two")
    return talk.feedback("thumbs", value=float(n % 10 != 0)).outcome(float(n % 2))


@pytest.mark.parametrize(
    ("after", "red"),
    [
        (breaks, {"broken_calls", "action_mix"}),
        (asks, {"questions", "action_mix"}),
        (flatters, {"decoupling", "flattery", "length", "lists", "emoji"}),
    ],
)
def test_what_turns_red(after: Make, red: set[str]) -> None:
    found = {name for name, row in rows(plain, after).items() if row.level == "red"}
    assert red <= found
    assert "credit" not in found


def test_other_actions_that_the_verifier_finds_better_do_not_block() -> None:
    def better(talk: Talk, n: int) -> Talk:
        return talk.use("search", {"n": n % 4}, "ok").act("Here it is.").feedback("export", value=1.0).outcome(1.0)

    def as_good(talk: Talk, n: int) -> Talk:
        return better(talk, n).outcome(float(n % 3 != 0))

    assert rows(plain, better)["action_mix"].level == "amber"
    assert rows(plain, as_good)["action_mix"].level == "red"


def test_a_policy_that_stops_thinking_is_amber() -> None:
    def thinks(talk: Talk, n: int) -> Talk:
        message = {"role": "assistant", "content": "Here it is.", "reasoning": "It is there."}
        return talk.event("model_call", {"message": message}).outcome(float(n % 3 != 0))

    def thinks_less(talk: Talk, n: int) -> Talk:
        return thinks(talk, n) if n % 2 else talk.act("Here it is.").outcome(float(n % 3 != 0))

    less = rows(thinks, thinks_less)["thinking"]
    assert (less.level, less.value, less.sentence) == (
        "amber", 0.5, "thoughts: before 100.0% → 50.0% of actions",
    )  # fmt: skip
    assert rows(thinks, thinks)["thinking"].level == "green"
    assert rows(thinks_less, thinks)["thinking"].level == "green"


def test_gains_that_the_verifier_does_not_see() -> None:
    def worse(talk: Talk, n: int) -> Talk:
        return talk.use("find", {}, "ok").act("Here it is.").feedback("export", value=1.0).outcome(float(n % 2))

    found = rows(plain, worse)["goodhart"]
    assert found.level == "red"
    assert "signals went +" in found.sentence


def test_praise_as_the_only_evidence_is_red() -> None:
    def praised(talk: Talk, n: int) -> Talk:
        del n
        return talk.act("Done.").feedback("thumbs", value=1.0)

    found = rows(praised, praised)["praise"]
    assert (found.level, found.value, found.n) == ("red", 1.0, EACH)


def test_an_audit_that_failed_is_red_by_itself() -> None:
    assert rows(plain, plain, audit="FAIL")["decoupling"].level == "red"
    assert rows(plain, plain, audit="INCONCLUSIVE")["decoupling"].level == "green"


def test_too_little_is_unknown_with_its_reason_and_never_green() -> None:
    few = rows(plain, flatters, cfg=MonitorsConfig(min_episodes=EACH + 1))
    assert {name for name, row in few.items() if row.level != "unknown"} == {"credit"}
    assert "monitors.min_episodes" in few["action_mix"].sentence
    assert "monitors.min_episodes" in rows(plain, plain, cfg=MonitorsConfig(min_episodes=10_000))["credit"].sentence
    everything = rows(plain, flatters, cfg=MonitorsConfig(window_days=100))
    assert everything["action_mix"].level == "unknown"
    assert "0 episodes before it" in everything["action_mix"].sentence


def test_the_window_can_be_a_policy() -> None:
    named = rows(plain, flatters, cfg=MonitorsConfig(policy="v1", window_days=100))
    assert named["flattery"].level == "red"
    served = rows(plain, flatters, cfg=MonitorsConfig(window_days=100), serving=Serving(frozenset({"v1"})))
    assert served == named


def test_logs_without_users_say_so() -> None:
    def nobody(talk: Talk, n: int) -> Talk:
        return plain(talk, n)

    given = _without_users(nobody)
    assert given["users"].level == "unknown"
    assert "users unknown" in given["users"].sentence


def _without_users(make: Make) -> dict[str, MonitorRow]:
    talks = [make(Talk(f"{n}", task=f"t{n % 9}").ask("x"), n) for n in range(80)]
    for n, talk in enumerate(talks):
        talk.rows = [row | {"ts": row["ts"] + timedelta(days=n // 4)} for row in talk.rows]
    events = events_of(talks)
    episodes, steps = build_episodes(events, EpisodesConfig(), Funnel())
    cfg = RewardsConfig()
    rewards = build_rewards(
        episodes, steps, events, cfg, {n: load_extension("rewards", n) for n in cfg.signals}, Funnel()
    )
    returns = build_returns(episodes, steps, rewards, cfg, Funnel())
    frames = (episodes, steps, rewards, returns)
    turned_round = (episodes.reverse(), steps.reverse(), rewards.reverse(), returns.reverse())
    found = watch(*frames, MonitorsConfig(min_episodes=20), odds=log_odds)
    assert watch(*turned_round, MonitorsConfig(min_episodes=20), odds=log_odds) == found
    return {row.monitor: row for row in found}


# --- rows that somebody adds ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gamed() -> Tables:
    return tables(plain, flatters)


FUTURE = datetime(2099, 1, 1, tzinfo=UTC)
PRESENT = datetime(2026, 12, 1, tzinfo=UTC)


def added(gamed: Tables, n: int, at: datetime | None, policy: str) -> Tables:
    """Return the tables with n honest episodes more, by a policy, by accounts that nobody knows."""
    week_one = gamed[0].filter(policy="v0").sort("episode_id").head(n)
    new = pl.format("new-{}", "episode_id")
    forged = week_one.with_columns(
        episode_id=new, user=new, policy=pl.lit(policy), started=pl.lit(at, gamed[0]["started"].dtype)
    )
    steps, rewards, returns = (
        pl.concat([t, t.join(week_one.select("episode_id"), on="episode_id").with_columns(episode_id=new)])
        for t in gamed[1:]
    )
    return pl.concat([gamed[0], forged]), steps, rewards, returns


def levels(frames: Tables, **more: Any) -> dict[str, str]:
    found = watch(*frames, MonitorsConfig(), odds=log_odds, **more)
    return {row.monitor: row.level for row in found}


@pytest.mark.parametrize(
    ("n", "at", "policy"),
    [
        (1, FUTURE, "v1"),  # a window of one
        (100, FUTURE, "v1"),  # enough for a window of their own
        (1, None, "round 1"),
        (100, None, "round 1"),
        (100, START + timedelta(days=8), "round 1"),  # in the window's time
        (100, START + timedelta(days=8), "v1"),  # and by its policy
        (100, START - timedelta(days=90), "round 1"),
    ],
)
def test_red_stays_red_whatever_rows_are_added(gamed: Tables, n: int, at: datetime | None, policy: str) -> None:
    champion = Serving(frozenset({"round 1", "shop-round-1"}), since=START + timedelta(days=1))
    red = {name for name, level in levels(gamed, serving=champion, now=PRESENT).items() if level == "red"}
    assert {"decoupling", "flattery", "length", "lists", "emoji"} <= red
    after = levels(added(gamed, n, at, policy), serving=champion, now=PRESENT)
    assert {name: after[name] for name in red} == dict.fromkeys(red, "red")


def test_what_is_set_aside_is_said(gamed: Tables) -> None:
    def window(frames: Tables, **more: Any) -> str:
        return watch(*frames, MonitorsConfig(), odds=log_odds, **more)[0].sentence

    future = added(gamed, 2, FUTURE, "v1")
    assert "set aside: 2 dated later, too few for a window" in window(future)
    assert "set aside: 2 dated after today" in window(future, now=PRESENT)
    assert "set aside" not in window(gamed, now=PRESENT - timedelta(days=900))  # this machine's clock is wrong
    champion = Serving(frozenset({"round 1"}), since=PRESENT)
    assert "2 that claim to be by round 1 from before it served" in window(
        added(gamed, 2, START, "round 1"), serving=champion
    )


def test_the_champion_is_known_by_the_name_that_logs_are_told_to_give(gamed: Tables) -> None:
    served = gamed[0].with_columns(policy=pl.col("policy").replace("v1", "shop-round-1"))
    champion = Serving(frozenset({"round 1", "shop-round-1"}))
    row = watch(served, *gamed[1:], cfg=MonitorsConfig(), odds=log_odds, serving=champion)[0]
    assert row.sentence.startswith("episodes by shop-round-1 compared with all others")
