"""Rows of opinions, and the events_by_episode they rest on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flywheel.contracts import polars_schema
from flywheel.records import Reward
from flywheel.stages.signals.rows import Evidence, SignalRows, events_by_episode, scaled
from tests.stages.talks import START, Talk, made


def test_opinions_about_one_thing_are_one_row() -> None:
    found = SignalRows("s", "f")
    later = START + timedelta(hours=1)
    found.add(("e", "t"), -1.0, [Evidence("b", later), Evidence("a", START)])
    found.add(("e", "t"), 0.5, [Evidence("a", START)])
    found.add(("e", "t"), 1.0, [Evidence("c")], step=2, family="g")
    frame = found.frame().sort("step")
    assert frame.schema == polars_schema(Reward)
    assert frame["score"].to_list() == [-0.25, 1.0]
    assert frame["evidence"].to_list() == [["a", "b"], ["c"]]
    assert frame["arrived"].to_list() == [later, None]
    assert frame["family"].to_list() == ["f", "g"]


def test_judgements_come_oldest_first_and_only_for_episodes() -> None:
    talk = Talk("a").ask("x").act("y").feedback("thumbs", value=1).feedback("thumbs", value=0).outcome(1)
    episodes, _, events, _ = made(talk, Talk("late").feedback("thumbs", value=1))
    (said,) = events_by_episode(episodes, events, "feedback").values()
    assert [one.payload["value"] for one in said] == [1, 0]


@pytest.mark.parametrize(
    ("payload", "vote"),
    [
        ({"value": 1}, 1.0),
        ({"value": 0.25}, -0.5),
        ({"value": 7, "scale": [0, 10]}, 0.4),
        ({"value": 99}, 1.0),
        ({"value": -1, "scale": [-1, 1]}, -1.0),
        ({"value": True}, 1.0),
        ({"value": None}, None),
        ({"value": "1"}, None),
        ({"value": 1, "scale": [1, 1]}, None),
        ({"value": 1, "scale": ["a", 1]}, None),
        ({}, None),
    ],
)
def test_scaled(payload: dict[str, object], vote: float | None) -> None:
    assert scaled(payload) == (None if vote is None else pytest.approx(vote))
