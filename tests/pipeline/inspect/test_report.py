"""flywheel report: a span of time in numbers, the same on any day."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import UsageError
from flywheel.pipeline.inspect.report import moment, span
from flywheel.project import Project
from tests.projects import flywheel

FIRST = datetime(2026, 3, 2, 9, tzinfo=UTC)


def _episode(number: int, tool: str, *, day: int, good: bool, request: str) -> list[dict[str, Any]]:
    at = FIRST + timedelta(days=day, minutes=number)
    call = {"id": "c", "name": tool, "arguments": {"order": number}}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("request", {"messages": [{"role": "user", "content": request}]}),
        ("model_call", {"message": {"role": "assistant", "tool_calls": [call]}, "cost_usd": 0.25, "output_tokens": 10}),
        ("tool_result", {"content": "done", "status": "ok"}),
        ("outcome", {"name": "reward", "value": float(good), "scale": [0, 1], "source": "verifier"}),
    ]
    common = {"conversation_id": f"{tool}-{day}-{number}", "ts": at.isoformat()}
    rest = {"tool_result": {"tool_name": tool, "tool_call_id": "c"}}
    return [
        {**common, "kind": kind, "seq": i, "payload": said, **rest.get(kind, {})}
        for i, (kind, said) in enumerate(kinds)
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two weeks: refunds fail in the first and succeed in the second; cancellations stay as they are."""
    folder = tmp_path_factory.mktemp("digest")
    events = []
    for week, good in ((0, 4), (7, 36)):
        for i in range(40):
            events += _episode(i, "refund", day=week, good=i < good, request=f"Refund order {i} for `Ann` <b>now</b>")
        for i in range(20):
            events += _episode(i, "cancel", day=week, good=i < 10, request=f"Cancel order number {i}")
    (folder / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    made = Project(folder)
    made.ingest([folder / "logs.jsonl"])
    made.build()
    return made


def test_the_span_ends_with_the_newest_event(project: Project) -> None:
    found = project.report("7d")

    assert found.until == (FIRST + timedelta(days=7, minutes=39)).isoformat()
    assert (found.episodes, found.episodes_before, found.without_time) == (60, 60, 0)
    assert found == project.report("7d")


def test_what_surely_changed_is_named(project: Project) -> None:
    found = project.report("7d")

    (change,) = found.better
    assert (change.intent, change.before.n, change.now.n) == ("refund", 40, 40)
    assert change.before.rate is not None
    assert change.now.rate is not None
    assert 0 < change.low < change.now.rate - change.before.rate < change.high
    assert found.worse == []


def test_a_worse_week_is_named_too(project: Project) -> None:
    found = project.report("7d", as_of="2026-03-02")

    assert (found.episodes, found.episodes_before) == (60, 0)
    assert found.better == found.worse == []
    assert found.success.rate == pytest.approx(14 / 60, abs=0.05)


def test_failing_intents_come_with_examples_and_add_up(project: Project) -> None:
    found = project.report("7d")

    assert [intent.intent for intent in found.failing] == ["cancel", "refund"]
    assert sum(i.failures for i in found.failing) == pytest.approx(found.success.n * (1 - (found.success.rate or 0)))
    cancel = found.failing[0]
    assert cancel.success.n == 20
    assert all(e.request.startswith("Cancel order number") and e.p_success < 0.5 for e in cancel.examples)
    assert cancel.examples
    assert all("outcome" in example.against for example in cancel.examples)


def test_recorded_failures_are_counted_and_tasks_have_the_names_of_the_log(tmp_path: Path) -> None:
    events = [
        event | {"task_key": f"shop/{number}"}
        for number in range(4)
        for event in _episode(number, "refund", day=0, good=number > 1, request=f"Refund order {number}")
    ]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "logs.jsonl"])
    project.build()

    (intent,) = project.report().failing
    assert (intent.recorded, intent.failures) == (True, 2.0)
    assert {(e.task, e.recorded, e.p_success) for e in intent.examples} == {
        ("shop/0", True, 0.0), ("shop/1", True, 0.0),
    }  # fmt: skip
    shown = flywheel(tmp_path, "report").stdout
    assert "refund: 2 failures, success 50.0%" in shown
    assert "“Refund order 0” task shop/0, failed, recorded" in shown
    assert "P(success)" not in shown


def test_one_dated_episode_does_not_hide_those_without_times(tmp_path: Path) -> None:
    dated = _episode(9, "refund", day=0, good=True, request="Refund order 9")
    rest = [e for n in range(4) for e in _episode(n, "cancel", day=0, good=n > 1, request=f"Cancel order {n}")]
    undated = [{key: value for key, value in event.items() if key != "ts"} for event in rest]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in [*dated, *undated]))
    project = Project(tmp_path)
    project.ingest([tmp_path / "logs.jsonl"])
    project.build()

    found = project.report()
    assert (found.until, found.episodes, found.without_time) == ("", 5, 4)
    shown = flywheel(tmp_path, "report").stdout
    assert shown.splitlines()[0].endswith("all episodes: 4 of 5 have no times")
    assert "not counted" not in shown
    assert project.report(as_of="2026-03-03").episodes == 1


def test_the_cost_is_what_the_logs_say(project: Project) -> None:
    found = project.report("7d")

    assert (found.cost.output_tokens, found.cost.logged) == (600, 60)
    assert found.cost.usd == pytest.approx(15.0)
    assert found.cost.input_tokens is None


def test_markdown_quotes_log_text_as_code(project: Project) -> None:
    done = flywheel(project.folder, "report", "--md")

    assert "`` Refund order 3" in done.stdout
    assert "for 'Ann' <b>now</b> ``" in done.stdout
    assert all(line.startswith(("#", "- ", "  - ", "next")) or not line for line in done.stdout.splitlines())


def test_a_tool_name_is_neither_markdown_nor_html_and_a_stray_date_moves_no_span(tmp_path: Path) -> None:
    tool, image = "[x](https://evil.example)", "![](https://evil.example/p.png) <b>"
    events = [e for n in range(4) for e in _episode(n, tool, day=0, good=n > 1, request=image)]
    events += [e | {"ts": "2099-01-01T00:00:00Z"} for e in _episode(9, tool, day=0, good=True, request=image)]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "logs.jsonl"])
    project.build()
    assert (project.report().episodes, project.report().until[:10]) == (4, f"{FIRST:%Y-%m-%d}")
    shown = flywheel(tmp_path, "report", "--md").stdout
    assert "- \\[x\\]\\(https\\:\\/\\/evil\\.example\\)" in shown


def test_an_empty_span_says_so(project: Project) -> None:
    found = project.report("24h", as_of="2026-05-01T00:00:00Z")

    assert (found.episodes, found.success.rate, found.failing, found.cost.usd) == (0, None, [], None)


def test_logs_without_times_are_reported_as_a_whole(tmp_path: Path) -> None:
    events = _episode(1, "refund", day=0, good=True, request="Refund it")
    for event in events:
        del event["ts"]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "logs.jsonl"])
    project.build()

    answer = project.report()
    assert (answer.since, answer.until, answer.episodes, answer.without_time) == ("", "", 1, 1)
    assert "all episodes: the logs have no times" in flywheel(tmp_path, "report").stdout
    assert project.report(as_of="2026-03-09").without_time == 1


def test_spans_and_moments() -> None:
    assert [span(text) for text in ("7d", "24h", "2w")] == [timedelta(7), timedelta(1), timedelta(14)]
    assert moment("2026-10-04").isoformat() == "2026-10-04T23:59:59.999999+00:00"
    assert moment("2026-10-04T18:00:00Z").isoformat() == "2026-10-04T18:00:00+00:00"
    for wrong in ("7", "0d", "d7", "7m"):
        with pytest.raises(UsageError):
            span(wrong)
    with pytest.raises(UsageError):
        moment("yesterday")


@pytest.mark.e2e
def test_graded_outcomes_are_a_mean_score_and_recorded_ones_are_not_capped(tmp_path: Path) -> None:
    """Twenty outcomes of .5 and twenty of 1: a mean of .75, not a rate; with a threshold a rate of 50 %."""
    events = []
    for i in range(40):
        *before, outcome = _episode(i, "refund", day=0, good=True, request=f"Refund order {i}")
        outcome["payload"]["value"] = 0.5 if i % 2 else 1.0
        events += [*before, outcome]
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    project = Project(tmp_path)
    project.ingest([tmp_path / "logs.jsonl"])
    project.build()
    rate = project.report("7d").success
    assert (rate.graded, rate.n) == (True, 40)
    assert rate.rate == pytest.approx(0.75)
    assert rate.low is not None
    assert 0.66 < rate.low < 0.68
    rewards = project.rewards()
    assert rewards.graded == 20
    assert {group.p_mean for group in rewards.groups if group.by == "policy"} == {0.75}
    shown = flywheel(tmp_path, "report", "--since", "7d").stdout
    assert "mean score 0.750" in shown
    assert "75.0" not in shown

    (tmp_path / "flywheel.toml").write_text("[rewards.success_at]\nReward = 1\n")
    project = Project(tmp_path)
    project.build()
    rate = project.report("7d").success
    assert (rate.graded, rate.rate) == (False, 0.5)
