"""Which policies the home page shows where there is no room for all."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flywheel.pipeline.pages.home import home
from flywheel.project import Project

DAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def talk(policy: str, number: int, *, day: int | None) -> list[dict[str, Any]]:
    at = {} if day is None else {"ts": (DAY + timedelta(days=day, minutes=number)).isoformat()}
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("request", {"messages": [{"role": "user", "content": f"Where is order {number} of {policy}?"}]}),
        ("model_call", {"message": {"role": "assistant", "content": "It is here."}}),
        ("outcome", {"name": "check", "value": 1.0}),
    ]
    common = {"conversation_id": f"{policy}-{number}", "policy": policy, **at}
    return [{**common, "seq": seq, "kind": kind, "payload": said} for seq, (kind, said) in enumerate(payloads)]


def test_policies_with_times_come_first_and_the_newest_and_the_champion_are_never_left_out(tmp_path: Path) -> None:
    events = [event for number in range(9) for event in talk("undated", number, day=None)]
    events += [e for policy in "abcdef" for number in range(3) for e in talk(policy, number, day=ord(policy) - 97)]
    events += talk("base", 0, day=1) + talk("newest", 0, day=8)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "log.jsonl"])
    project.build()

    data = home(project.context, {}, [])

    assert [line.policy for line in data.lines] == ["a", "b", "c", "d", "base", "newest", "undated"]
    assert (data.left_out, data.without_time) == (2, 9)


def test_a_log_without_times_is_shown_as_a_whole(tmp_path: Path) -> None:
    events = [event for number in range(2) for event in talk("undated", number, day=None)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "log.jsonl"])
    project.build()
    data = home(project.context, {}, [])
    assert (data.until, data.without_time) == (None, 2)


def test_the_newest_policy_is_the_last_to_appear_where_older_ones_serve_beside_it(tmp_path: Path) -> None:
    days = range(9)
    events = [e for policy in "abcdef" for day in days for e in talk(policy, day, day=day)]
    events += talk("canary", 8, day=8)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "log.jsonl"])
    project.build()

    assert [line.policy for line in home(project.context, {}, []).lines] == ["a", "b", "c", "d", "e", "canary"]
