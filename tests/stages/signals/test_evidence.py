"""Tools by name, and the step that a feedback means."""

from __future__ import annotations

import pytest
from flywheel.stages.common.tools import changes, is_destructive, is_handoff, looks_up
from flywheel.stages.signals.evidence import Targets, by_episode
from tests.stages.talks import Talk, call, made


@pytest.mark.parametrize(
    "tool", ["delete_file", "cancelOrder", "db.drop-table", "refund", "transfer_funds", "send.pay"]
)
def test_destructive(tool: str) -> None:
    assert is_destructive(tool)


@pytest.mark.parametrize("tool", ["get_order", "payload_info", "transfer_to_human_agents", "dropdown", "cancellations"])
def test_not_destructive(tool: str) -> None:
    assert not is_destructive(tool)


def test_handoffs() -> None:
    assert all(map(is_handoff, ["transfer_to_human_agents", "escalate", "handOff", "connect_to_support"]))
    assert not any(map(is_handoff, ["transfer_funds", "create_agent", "get_support_hours"]))


def test_changes_and_lookups() -> None:
    assert all(map(changes, ["book_reservation", "updateOrder", "cancel_order", "send-email", "db.insert"]))
    assert not any(map(changes, ["get_order", "transfer_to_human_agents", "bash", "python", "search_update_notes"]))
    assert all(map(looks_up, ["get_order", "searchPages", "think", "calculate"]))
    assert not any(map(looks_up, ["bash", "send_email"]))


def test_the_step_that_a_feedback_means() -> None:
    talk = Talk("a").ask("x").act("one", response_id="r1", columns={"span_id": "s1"})
    talk.act(calls=[call("f", {}, "c7")]).feedback("thumbs", value=1, target_id="r1")
    episodes, steps, events, _ = made(talk)
    targets = Targets(steps, events)
    ((episode, path),) = by_episode(steps)
    assert [s.step for s in path] == [0, 1]
    found = [targets.step(episode, {"target_id": name}) for name in ("r1", "s1", "c7", talk.rows[2]["event_id"], "?")]
    assert found == [0, 0, 1, 1, None]
    assert targets.step(episode, {"target": "trace", "target_id": "r1"}) is None
    assert targets.step(episode, {}) is None
    assert episodes.height == 1
