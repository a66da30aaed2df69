"""From events to episodes and steps."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.contracts import polars_schema
from flywheel.funnel import Funnel
from flywheel.project import Project
from flywheel.records import Episode, LogEvent, Step
from flywheel.stages.conversations.episodes import build_episodes
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.talks import START, Talk, airline_events, call, events_of, made, user

CFG = EpisodesConfig()


def talks() -> list[Talk]:
    one = Talk("one", task="t").ask("where is 7?").use("find", {"id": 7}).act("There.").ask("thanks").outcome(1)
    two = Talk("two", timed=False).ask("where is 7?").use("find", {"id": 8}, "failed").use("find", {"id": 7})
    three = (
        Talk("three")
        .ask({"role": "system", "content": "s"}, "  WHERE is 7? ")
        .act("Where?")
        .feedback("thumbs", value=0)
    )
    return [one, two, three]


@pytest.mark.parametrize(
    ("policy", "model", "expected"),
    [
        (None, "shop-round-3", "shop-round-3"),  # an adapter that a server lists as a model of its own
        (None, "round 3", "round 3"),
        ("canary", "shop-round-3", "canary"),
        (None, "gpt-4o", "gpt-4o"),
        (None, "round-trip-4o", "round-trip-4o"),
    ],
)
def test_who_acted(policy: str | None, model: str, expected: str) -> None:
    episodes, *_ = made(Talk("a").ask("hi").act("Hello.", columns={"policy": policy, "model": model}))

    assert episodes["policy"].to_list() == [expected]


def test_columns_of_an_episode() -> None:
    talk = Talk("a", task="t", timed=True)
    talk.ask("hi", tools=[{"type": "function", "function": {"name": "find"}}])
    served = {"policy": "round 3", "model": "m", "user": "u1"}
    talk.act(
        calls=[call("find", {"b": 1, "a": 2}, "c1"), call("find", None, "c2", raw="{")],
        columns=served,
        input_tokens=10,
        output_tokens=4,
        cost_usd=0.5,
        latency_s=1.5,
    )
    talk.result("no", "failed", call_id="c1").feedback("thumbs", value=1)
    episodes, steps, *_ = made(talk)
    episode, step = episodes.row(0, named=True), steps.row(0, named=True)
    assert episodes.schema == polars_schema(Episode)
    assert steps.schema == polars_schema(Step)
    expected = {
        "conversation_id": "a",
        "task_rule": "task_key",
        **served,
        "started": START,
        "ended": START + timedelta(minutes=2),
        "stop_reason": "tool_pending",
        "n_steps": 1,
        "n_tool_calls": 2,
        "n_tool_errors": 1,
        "input_tokens": 10,
        "output_tokens": 4,
        "cost_usd": 0.5,
        "latency_s": 1.5,
        "tags": ["malformed_call"],
    }
    assert {name: episode[name] for name in expected} == expected
    assert (step["tool_names"], step["tool_status"]) == (["find", "find"], ["failed", "unknown"])
    assert (step["malformed"], step["result_event_ids"]) == (True, [talk.rows[2]["event_id"]])
    assert step["action_key"] == 'find !{\nfind {"a":2,"b":1}'
    assert json.loads(step["observation"]) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (Talk("a").ask("hi"), "no_action"),
        (Talk("a").ask("hi").act("yes"), "answered"),
        (Talk("a").ask("hi").act("yes").ask("thanks"), "user_left"),
        (Talk("a").ask("hi").act(calls=[call("f", {}, "1")]), "tool_pending"),
        (Talk("a").ask("hi").use("f", {}), "tool_result"),
        (Talk("a").ask("hi").use("f", {}).ask("and?"), "user_left"),
    ],
)
def test_why_an_episode_ended(talk: Talk, reason: str) -> None:
    assert made(talk).episodes["stop_reason"].to_list() == [reason]


def test_tasks() -> None:
    episodes = made(*talks(), Talk("four").ask("where is 7?").act("x"), Talk("five").act("y"), Talk("six").act("y"))
    ids = dict(episodes.episodes.select("conversation_id", "task_id").iter_rows())
    assert ids["two"] == ids["three"] == ids["four"] != ids["one"]
    assert ids["five"] != ids["six"]
    rules = dict(episodes.episodes.select("conversation_id", "task_rule").iter_rows())
    assert (rules["one"], rules["two"]) == ("task_key", "first_request")


def test_the_request_of_a_turn_is_what_was_said_last() -> None:
    """A trace of one turn has the talk before it in its input."""
    history = [user("where is 7?"), {"role": "assistant", "content": "On its way."}, user("and 8?")]
    (request,) = made(Talk("turn").act("It arrived.", input=history)).episodes["request"]
    assert request == "and 8?"


def test_nothing_is_lost_in_silence() -> None:
    funnel = Funnel()
    late, empty = Talk("late").feedback("thumbs", value=1).outcome(1), Talk("empty").ask()
    episodes, _ = build_episodes(events_of([*talks(), late, empty]), CFG, funnel)
    funnel.check("episodes")
    assert episodes.height == 3
    expected = {"considered": 5, "kept": 3, "dropped: feedback without conversation": 1, "dropped: no messages": 1}
    assert {k: v for k, v in funnel.as_dict().items() if not k.startswith("note")} == expected


def test_an_attempt_that_ended_before_its_first_message_is_an_episode() -> None:
    crashed, place = Talk("crashed", task="7").ask().outcome(0), Talk("place", task="7").ask()
    scored = Talk("scored").ask().outcome(0)  # a trace's place, with a score: no attempt at a task
    funnel = Funnel()
    episodes, steps = build_episodes(events_of([crashed, place, scored]), CFG, funnel)
    assert episodes["conversation_id"].to_list() == ["crashed"]
    assert (episodes["stop_reason"].item(), steps.height) == ("no_action", 0)
    assert funnel.dropped["no messages"] == 2


def test_no_events_give_empty_tables() -> None:
    episodes, steps = build_episodes(pl.DataFrame(schema=polars_schema(LogEvent)), CFG, Funnel())
    assert (episodes.height, steps.height, steps.schema) == (0, 0, polars_schema(Step))


def test_late_events_without_time_keep_their_place() -> None:
    talk = Talk("a").ask("one").act("two").ask("three").act("four")
    talk.rows[2]["ts"] = None
    judged = {**Talk("a").feedback("thumbs", value=1).rows[0], "event_id": "f", "ts": START + timedelta(days=1)}
    events = pl.DataFrame([judged, *talk.rows], schema=polars_schema(LogEvent))
    _, steps = build_episodes(events, CFG, Funnel())
    assert [len(json.loads(o)) for o in steps["observation"]] == [1, 1]


def test_big_integers_survive() -> None:
    number = 2**80 + 1
    steps = made(Talk("a").ask("x").act(calls=[call("f", {"account": number}, "1")])).steps
    assert json.loads(steps["action"][0])["tool_calls"][0]["arguments"] == {"account": number}


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_order_of_events_and_the_partitions_do_not_matter(random: object, copies: int) -> None:
    events = events_of(talks())
    order = list(range(events.height)) * copies  # and events that came twice count once
    random.shuffle(order)  # type: ignore[attr-defined]
    whole = build_episodes(events, CFG, Funnel())
    shuffled = build_episodes(events[order], CFG, Funnel())
    assert all(a.equals(b) for a, b in zip(whole, shuffled, strict=True))
    parts = [build_episodes(events.filter(conversation_id=name), CFG, Funnel()) for name in ("one", "two", "three")]
    assert pl.concat([p[0] for p in parts]).sort("episode_id").equals(whole[0])
    assert pl.concat([p[1] for p in parts]).sort("episode_id", "index").equals(whole[1])


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.floats(0, 0.99), st.floats(0, 0.99))
def test_no_task_lies_on_both_sides_and_a_greater_holdout_only_adds(tasks: list[str], one: float, other: float) -> None:
    events = events_of(Talk(f"{n}", task=task).ask(f"q{n}").act("a") for n, task in enumerate(tasks))
    held = []
    for share in sorted([one, other]):
        episodes, _ = build_episodes(events, EpisodesConfig(holdout_share=share), Funnel())
        sides = {split: set(rows["task_id"]) for (split,), rows in episodes.group_by("split")}
        assert not sides.get("train", set()) & sides.get("holdout", set())
        held.append(sides.get("holdout", set()))
    assert held[0] <= held[1]


def test_counts_of_the_airline_log(tau_airline: Path) -> None:
    events = airline_events(tau_airline)
    funnel = Funnel()
    episodes, steps = build_episodes(events, CFG, funnel)
    calling = steps.filter(pl.col("action_key").is_not_null())
    branching = calling.group_by("state_key").agg(pl.col("action_key").n_unique()).filter(pl.col("action_key") > 1)
    assert (funnel.considered, funnel.kept, episodes["task_id"].n_unique()) == (200, 200, 50)
    assert (calling.height, episodes["n_tool_errors"].sum()) == (1164, 73)
    assert (calling["state_key"].n_unique(), branching.height) == (708, 79)
    assert dict(episodes["stop_reason"].value_counts().iter_rows()) == {"user_left": 149, "tool_result": 51}
    reward = pl.col("payload").str.json_path_match("$.value").cast(pl.Float64)
    judged = events.filter(kind="outcome").select("conversation_id", reward=reward).join(episodes, on="conversation_id")
    mixed = judged.group_by("task_id").agg(pl.col("reward").mean()).filter(pl.col("reward").is_between(0.1, 0.9))
    assert (judged["reward"].sum(), mixed.height) == (84, 26)
    means = (
        calling.join(judged, on="episode_id")
        .group_by("state_key", "action_key")
        .agg(pl.col("reward").mean())
        .group_by("state_key")
        .agg(pl.col("reward").n_unique())
    )
    assert means.filter(pl.col("reward") > 1).height == 32


def grown(*turns: int, times: bool = True, **named: str) -> list[dict[str, object]]:
    """Return a chat as a database writes it, whole after so many turns."""
    records: list[dict[str, object]] = []
    for n, count in enumerate(turns):
        messages: list[dict[str, object]] = []
        for turn in range(count):
            tool = {"id": f"c{turn}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            messages += [
                {"role": "user", "content": f"{count} questions {turn}" if not named else f"question {turn}"},
                {"role": "assistant", "tool_calls": [tool]},
                {"role": "tool", "tool_call_id": f"c{turn}", "content": "ok"},
                {"role": "assistant", "content": f"answer {turn}"},
            ]
        records.append({"messages": messages, **named, **({"created_at": 1_790_000_000 + n} if times else {})})
    return records


def test_what_a_growing_record_repeats_is_there_once(tmp_path: Path) -> None:
    chats = {
        "grows": (grown(1, 2, 3, session_id="grows"), [6]),
        "asks again": (grown(1, 1, session_id="asks again"), [4]),
        "saved twice": (grown(2, 2, session_id="saved twice"), [4]),
        "attempts": (grown(2, 2), [4, 4]),
        "one, told twice": (grown(3, 3, times=False), [6]),
    }
    for name, (records, _) in chats.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "flywheel.toml").touch()
    project = Project(tmp_path)
    project.ingest(sorted(tmp_path.glob("*.jsonl")))
    project.build(select="links")
    project.build(select="episodes")
    rows = project.query("SELECT conversation_id, n_steps, n_tool_calls FROM episodes ORDER BY ALL").to_pylist()
    named = {row["conversation_id"]: row["n_steps"] for row in rows if not row["conversation_id"].startswith("chat-")}
    assert named == {name: steps[0] for name, (_, steps) in chats.items() if name in named}
    assert len(named) == 3
    assert sorted(row["n_steps"] for row in rows if row["conversation_id"] not in named) == [4, 4, 6]
    assert all(row["n_tool_calls"] * 2 == row["n_steps"] for row in rows)


def test_events_of_one_time_stand_as_the_log_has_them() -> None:
    talk = Talk("a")
    for name in "abcdef":
        talk.act(calls=[call(name, {}, name)])
    events = events_of([talk]).with_columns(
        ts=pl.lit(START), seq=pl.lit(1, pl.Int64), source_line=pl.int_range(pl.len()) + 1
    )
    _, steps = build_episodes(events.sample(fraction=1.0, shuffle=True, seed=3), CFG, Funnel())
    assert steps["tool_names"].to_list() == [[name] for name in "abcdef"]
