"""Attempts at one task find each other, keep their task for ever, and never stand on both sides of the holdout."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.contracts import conform, polars_schema
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import TASK_COLUMNS
from flywheel.records import Episode, Task, content_id
from flywheel.stages.common.canonical import first_state, in_holdout, next_state
from flywheel.stages.common.pieces import InMemory
from flywheel.stages.tasks.build import build_tasks, follow_tasks
from flywheel.stages.tasks.clusters import cluster_ids
from flywheel.stages.tasks.minhash import (
    BANDS,
    ROWS,
    alike,
    candidates,
    masked_words,
    may_be_alike,
    shingles,
    signatures,
)
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = pl.DataFrame(schema=polars_schema(Task))
START = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "please cancel the booking of my two rooms at the lake house in june and send the money back to my card"


def episode(number: int, request: str | None, **more: Any) -> dict[str, Any]:
    task = more.pop("task_id", content_id("request", request))
    return {
        "episode_id": content_id(number), "task_id": task, "request": request, "tool_signature": "t", "user": None,
        "task_rule": "first_request" if request else "task_key", "started": START + timedelta(hours=number),
    } | more  # fmt: skip


def tasks_of(*rows: dict[str, Any], previous: pl.DataFrame = NONE, **cfg: Any) -> pl.DataFrame:
    schema = {name: kind for name, kind in polars_schema(Episode).items() if name in TASK_COLUMNS}
    funnel = Funnel()
    frame = pl.DataFrame(rows, schema=schema).select(TASK_COLUMNS)
    pieces = InMemory(episodes=frame, **{"previous tasks": previous})
    build_tasks(pieces, EpisodesConfig(**cfg), funnel)
    funnel.check("tasks")
    return conform(pieces.written["tasks"], Task).collect()


def column(tasks: pl.DataFrame, name: str, *numbers: int) -> list[Any]:
    found = dict(tasks.select("episode_id", name).iter_rows())
    return [found[content_id(number)] for number in numbers]


def test_numbers_ids_and_addresses_do_not_make_another_task() -> None:
    same = ["Cancel order 4711 for bo@x.example now please", "cancel  order A-12 for <EMAIL_0a1b> now please"]
    made = tasks_of(episode(1, same[0]), episode(2, same[1]), episode(3, "Show order 4711"))
    assert made["task_id"].n_unique() == 2
    assert len(set(column(made, "task_id", 1, 2))) == 1
    assert masked_words("Order A-12, 3.50 at http://x.example/1") == ["order", "#", "#", "at", "#"]


def test_near_duplicates_are_one_task_and_templates_are_not() -> None:
    changed = LONG.replace("two rooms", "two bedrooms")
    assert tasks_of(episode(1, LONG), episode(2, changed))["task_id"].n_unique() == 1
    template = " ".join(f"rule{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(300))
    questions = [f"{template} {' '.join(f'{word}{x}' for x in 'abcdefgh')}" for word in ("one", "two", "six")]
    assert tasks_of(*(episode(n, q) for n, q in enumerate(questions)))["task_id"].n_unique() == 3


@pytest.mark.parametrize("question", ["what is broken on this photo?", LONG])
def test_the_same_question_about_another_image_is_another_task(question: str) -> None:
    asked = [f"{question} [image 4f1c{number}0aa9e3{number}]" for number in (1, 2, 2)]
    tasks = tasks_of(*(episode(number, text) for number, text in enumerate(asked)))
    first, second, same = column(tasks, "task_id", 0, 1, 2)
    assert second == same != first
    both = tasks_of(*(episode(number, text + " order 7") for number, text in enumerate(asked)), previous=tasks)
    assert len(set(column(both, "task_id", 0, 1, 2))) == 2


def test_other_tools_are_another_task_on_the_same_side() -> None:
    made = tasks_of(episode(1, LONG), episode(2, LONG, tool_signature="u", task_id="other"))
    assert made["task_id"].n_unique() == 2
    assert (made["cluster_id"].n_unique(), made["split"].n_unique()) == (1, 1)


def test_a_task_that_the_source_names_is_left_alone() -> None:
    made = tasks_of(episode(1, None, task_id="k" * 32), episode(2, None, task_id="l" * 32))
    assert column(made, "task_id", 1, 2) == column(made, "cluster_id", 1, 2) == ["k" * 32, "l" * 32]


@pytest.mark.e2e
def test_the_s_curve_has_its_middle_at_0_707() -> None:
    assert pytest.approx(0.7071, abs=5e-5) == (1 / BANDS) ** (1 / ROWS)
    rng = np.random.default_rng(0)
    met = {}
    for wanted in (0.5, 0.707, 0.85):
        hits = 0
        for _ in range(200):
            pool = rng.integers(1, 2**63, size=300, dtype=np.uint64)
            common = round(200 * wanted)
            rest = (200 - common) // 2
            left = np.unique(pool[: common + rest])
            right = np.unique(np.concatenate([pool[:common], pool[-rest:]]))
            jaccard = len(np.intersect1d(left, right)) / len(np.union1d(left, right))
            assert jaccard == pytest.approx(wanted, abs=0.01)
            hits += len(candidates(signatures([left, right])))
        met[wanted] = hits / 200
    expected = {s: 1 - (1 - s**ROWS) ** BANDS for s in met}
    assert met == pytest.approx(expected, abs=0.1)


def test_signatures_are_the_same_for_ever() -> None:
    keys = signatures([shingles(masked_words(LONG)), shingles(masked_words("hi"))])
    assert (keys.shape, int(keys[0, 0]), int(keys[1, 15])) == ((2, 16), FIRST, LAST)


FIRST, LAST = 7_947_726_668_852_490_456, 4_251_536_124_274_669_787


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=2), max_size=30))
def test_each_member_of_a_bucket_meets_its_first_and_the_last_few_before_it(bands: list[list[int]]) -> None:
    met = set()
    for band in range(2):
        for key in range(3):
            members = [place for place, keys in enumerate(bands) if keys[band] == key]
            for place in range(1, len(members)):
                met |= {(members[place], other) for other in {members[0], *members[max(0, place - 4) : place]}}
    found = candidates(np.array(bands, dtype=np.uint64).reshape(-1, 2))
    assert [(later, earlier) for later, earlier in found.tolist()] == sorted(met)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.lists(st.sampled_from("abcdefgh"), max_size=40))
def test_sizes_rule_out_no_pair_that_is_alike(one: list[str], other: list[str]) -> None:
    sets = shingles(one), shingles(other)
    sizes = [np.array([len(some)]) for some in sets]
    assert may_be_alike(*sizes).all() or not alike(*sets)


def test_alike_means_seven_in_ten_and_few_words() -> None:
    words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200)]
    one = shingles(words)
    assert alike(one, shingles([*words[:-2], "x", "y"]))
    assert not alike(one, shingles([*words[:-10], *"abcdefghij"]))
    assert not alike(shingles(words[:6]), shingles([*words[:3], "x", "y", "z"]))


held_out = st.sets(st.integers(0, 11))
edges = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=14)


@given(held_out, edges, st.integers(1, 12))
def test_growth_moves_nothing_from_holdout_to_train(held: set[int], found: list[tuple[int, int]], first: int) -> None:
    """Whatever comes later, with or without memory of the last build: ids stay, or give way to one that is held out."""
    names = [f"r{n}" for n in range(12)]
    linked = [(max(pair), min(pair)) for pair in found if pair[0] != pair[1]]

    def is_held(name: str) -> bool:
        return int(name[1:]) in held

    early = [pair for pair in linked if pair[0] < first]
    before = cluster_ids(names[:first], early, [frozenset()] * first, is_held)
    memory = [frozenset([name]) for name in before] + [frozenset[str]()] * (12 - first)
    for known in ([frozenset[str]()] * 12, memory):
        after = cluster_ids(names, linked, known, is_held)
        for old, new in zip(before, after, strict=False):
            assert not is_held(old) or is_held(new)
            assert old == new or is_held(new) or after.count(new) > before.count(new)
        assert all(after[one] == after[other] for one, other in linked)


def test_a_request_keeps_its_cluster_when_older_logs_come_late() -> None:
    before = tasks_of(episode(5, LONG))
    late = [episode(1, LONG.replace("two rooms", "two bedrooms")), episode(5, LONG)]
    after = tasks_of(*late, previous=before)
    assert column(after, "task_id", 1, 5) == column(before, "task_id", 5) * 2
    assert column(tasks_of(*late), "cluster_id", 5) != column(before, "cluster_id", 5)


def joined_by_a_bridge() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return two requests four words apart, and one between them."""
    words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(100)]
    texts = [words[:], words[:], words[:]]
    for changed, text in ((4, texts[1]), (2, texts[2])):
        for place in range(changed):
            text[10 + 20 * place] = "other"
    return [episode(1, " ".join(texts[0])), episode(2, " ".join(texts[1]))], episode(3, " ".join(texts[2]))


def test_two_tasks_that_turn_out_to_be_one_remember_their_names() -> None:
    apart, bridge = joined_by_a_bridge()
    before = tasks_of(*apart)
    assert before["task_id"].n_unique() == 2
    after = tasks_of(*apart, bridge, previous=before)
    assert after["task_id"].n_unique() == 1
    old = set(before["task_id"]) - set(after["task_id"])
    assert {name for names in after["formerly"] for name in names} == old
    again = tasks_of(*apart, bridge, previous=after)
    assert again.equals(after)


requests = st.lists(
    st.tuples(st.sampled_from([LONG, LONG.upper(), LONG + " now", "what is the time in Rome today my friend", "hi"]),
              st.sampled_from(["a", "b", "c", "d", None]), st.integers(0, 40), st.sampled_from(["t", "u"])),
    max_size=15,
)  # fmt: skip


@settings(deadline=None)
@given(
    requests, st.sampled_from([0.0, 0.3, 0.7]), st.sampled_from([0.0, 0.5]), st.sampled_from(["", "2026-01-01T20:00"])
)
def test_nothing_crosses(rows: list[tuple[str, str | None, int, str]], share: float, users: float, after: str) -> None:
    found = [
        episode(n, request, user=user, started=START + timedelta(hours=hour), tool_signature=tools,
                task_id=content_id(request, tools))
        for n, (request, user, hour, tools) in enumerate(rows)
    ]  # fmt: skip
    cfg: dict[str, Any] = {"holdout_share": share, "holdout_user_share": users, "holdout_after": after}
    made = tasks_of(*found, **cfg)
    assert made.equals(tasks_of(*found[::-1], **cfg))
    sides = {side: made.filter(pl.col("split") == side) for side in ("train", "holdout")}
    who = {row["episode_id"]: row for row in found}
    for name in ("task_id", "cluster_id"):
        assert not set(sides["train"][name]) & set(sides["holdout"][name])
    if users:
        one, other = ({who[e]["user"] for e in sides[s]["episode_id"]} - {None} for s in ("train", "holdout"))
        assert not one & other
    if after:
        assert all(who[e]["started"] < START + timedelta(hours=20) for e in sides["train"]["episode_id"])
        assert all(who[e]["started"] >= START + timedelta(hours=20) for e in sides["holdout"]["episode_id"])
    for cluster, side in made.select("cluster_id", "split").iter_rows():
        assert not in_holdout(cluster, share) or side != "train"


def test_states_are_put_under_the_task() -> None:
    one, other = content_id("task one"), content_id("task two")
    state = next_state(first_state(one), ["look {}"])
    steps = pl.LazyFrame({"episode_id": ["a", "x"], "task_id": [one, one], "state_key": [state, state]})
    tasks = pl.LazyFrame({"episode_id": ["a"], "task_id": [other], "split": ["train"]})
    (row,) = follow_tasks(steps, tasks).collect().to_dicts()
    assert row == {"episode_id": "a", "task_id": other, "state_key": next_state(first_state(other), ["look {}"])}


def test_vectors_join_other_words_but_never_other_deeds() -> None:
    def meaning(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.array([[1.0, 0.0] if "trip" in text or "journey" in text else [0.0, 1.0] for text in texts])

    asked = [
        "please cancel my trip",
        "cancelling the journey, that is all",
        "please restore my trip",
        "cancel the lunch",
    ]
    rows = [episode(n, text) for n, text in enumerate(asked)]
    schema = {name: kind for name, kind in polars_schema(Episode).items() if name in TASK_COLUMNS}
    frame = pl.DataFrame(rows, schema=schema).select(TASK_COLUMNS)
    pieces = InMemory(episodes=frame, **{"previous tasks": NONE})
    build_tasks(pieces, EpisodesConfig(), Funnel(), meaning)
    one, other, restored, lunch = column(pieces.written["tasks"], "cluster_id", 0, 1, 2, 3)
    assert one == other
    assert len({one, restored, lunch}) == 3
    assert tasks_of(*rows)["cluster_id"].n_unique() == 4


def test_tasks_that_the_log_names_stay_apart_however_alike_their_requests_are() -> None:
    named = [episode(n, LONG, task_rule="task_key", task_id=f"task-{n % 2}") for n in range(4)]
    tasks = tasks_of(*named, episode(4, LONG), episode(5, None, task_id="task-5"))
    assert column(tasks, "task_id", 0, 1, 2, 3) == ["task-0", "task-1", "task-0", "task-1"]
    texts = column(tasks, "text_id", 0, 1, 2, 3, 4)
    assert len(set(texts)) == 1, "what their text alone would make of them is shown"
    assert column(tasks, "cluster_id", 4) == texts[:1]
    assert column(tasks, "task_id", 4)[0] not in {"task-0", "task-1"}, "what has no name joins none that has one"
    assert column(tasks, "text_id", 5) == [None]


@pytest.mark.parametrize(
    "name", ["b9c13b41-f0ca-499e-8930-1b5c0d60e4b{}", "chat-4328e2dfedd2cf03450{}", "logs/2026-05-1{}"]
)
def test_conversations_without_a_request_are_tasks_of_their_own(name: str) -> None:
    """Their ids stand for a request; masked like numbers, all such conversations of a log were one task."""
    tasks = tasks_of(*(episode(n, name.format(n)) for n in range(6)))
    assert tasks["task_id"].n_unique() == 6
    same = tasks_of(*(episode(n, "42") for n in range(3)))
    assert same["task_id"].n_unique() == 1, "equal requests stay one task, whatever they are"
