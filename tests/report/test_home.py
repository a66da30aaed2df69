"""The home page: everything on it once, from plain values; hostile names stay text; the same data, the same bytes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from flywheel.records import Night, NightStage
from flywheel.report import HomeData, PolicyLine, Rate, home_page
from tests.report.sample import full_home, parse_svg
from tests.report.test_build import HOSTILE, Page

from flywheel.report.timeline import success_over_time  # isort: skip


def words(data: HomeData) -> str:
    return " ".join(" ".join(Page(home_page(data)).shown).split())


def test_a_manager_sees_success_verdict_night_and_what_waits() -> None:
    shown = words(full_home())
    for part in (
        "Success, last 7 days of the logs 74.2% +2.2 pp against the 7 days before",
        "Champion Round 1",
        "round-2 (canary)",
        "2 other policies are left out",
        "Inconclusive Round 2 is held (INCONCLUSIVE); round 1 stays champion",
        "Collect about 41 more cases of new held-out tasks",
        "Held 2026-03-14 02:30 It waits for more evidence: 13 of 24 held-out tasks",
        "✓ ingest 412 records, 3 in quarantine",
        "38 episodes to be audited by a person flywheel audit",
        "Report of round 2",
    ):
        assert part in shown
    assert shown.count("flywheel audit") == 1


def test_the_picture_marks_what_moved_the_champion_and_names_what_came_later() -> None:
    data = full_home()
    for wide, labels in ((True, ["round 1 promoted", "round 2 promoted"]), (False, ["round 2 promoted"])):
        svg = parse_svg(success_over_time(data.lines, data.marks, span="week", wide=wide))
        texts = [element.text for element in svg.iter() if element.text]
        assert [text for text in texts if "promoted" in text] == labels
    late = replace(data, marks=[replace(data.marks[0], at=datetime(2026, 11, 22, tzinfo=UTC))])
    assert "After the newest log: round 1 promoted on 2026-11-22" in words(late)


def test_logs_without_times_still_make_a_picture() -> None:
    lines = [PolicyLine("a", 10, Rate(10, 10, 0.8, 0.6, 0.9)), PolicyLine("b", 5, Rate(0, 0))]
    data = HomeData("agent", lines=lines, all_time=lines[0].success, episodes=15)
    page = Page(home_page(data))
    assert len(page.of("svg")) == 2
    assert "the logs have no times" in words(data)
    assert "80.0% of 10 episodes with a recorded or estimated outcome" in words(data)


def test_episodes_without_a_time_are_said_not_to_be_in_the_picture() -> None:
    shown = words(replace(full_home(), without_time=30, episodes=400))
    assert "30 of 400 episodes have no time: they are in the table only." in shown
    assert "have no time" not in words(full_home())


def test_the_last_night_folds_the_tables_that_were_built() -> None:
    built = [NightStage(stage=name, state="done", outcome="built") for name in ("links", "pairs")]
    data = full_home()
    assert data.night is not None
    night = data.night.model_copy(update={"stages": [*built, *data.night.stages]})
    shown = words(replace(data, night=night, tables=["links", "pairs"]))
    assert "✓ ingest 412 records" in shown.partition("2 tables up to date")[0]
    assert "✓ links built ✓ pairs built" in shown.partition("2 tables up to date")[2]
    broken = NightStage(stage="links", state="failed", outcome="no space")
    assert "tables up to date" not in words(
        replace(data, night=data.night.model_copy(update={"stages": [broken]}), tables=["links"])
    )


def test_an_empty_project_says_what_to_do_first() -> None:
    shown = words(HomeData("agent"))
    assert "No episodes yet: flywheel ingest LOGS" in shown
    assert "Nothing waits for you." in shown
    assert not Page(home_page(HomeData("agent"))).of("svg")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_log_calls_a_policy_stays_text(text: str) -> None:
    plain, hostile = Page(home_page(full_home())), Page(home_page(full_home(name=text, text=text)))
    tags = [tag for tag, _ in plain.elements]
    assert [tag for tag, _ in hostile.elements] == tags
    night = Night(
        night="n", project=text, pipeline="p", began_at=datetime(2026, 1, 1, tzinfo=UTC), outcome="failed",
        failed_stage=text, error=text, hint=text,
    )  # fmt: skip
    assert not Page(home_page(replace(full_home(), night=night))).of("img")


def test_the_same_data_gives_the_same_bytes() -> None:
    assert home_page(full_home()) == home_page(full_home())
