"""What new accounts can do to a log: a crowd that praises a bad action nothing, an honest launch day its share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.pipeline.rewards.shop import (
    GOODS,
    START,
    THANKS,
    built,
    crowd,
    grown,
    launch,
    old_customers,
    rows,
    table,
    talk,
)

if TYPE_CHECKING:
    from flywheel import Project

pytestmark = pytest.mark.slow


NEW, GROWN = "n{}@mail.example", "g{}@x.example"


def honest() -> tuple[Iterator[str], Iterator[str]]:
    return old_customers(), grown(30)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return built(tmp_path_factory.mktemp("before"), *honest())


def labels(project: Project, prefix: str) -> pl.DataFrame:
    """Return the labels of the conversations whose name begins so."""
    episodes = table(project, "episodes", "episodes").filter(pl.col("conversation_id").str.starts_with(prefix))
    returns = table(project, "returns", "returns").filter(pl.col("step").is_null())
    return returns.join(episodes.select("episode_id", "conversation_id"), on="episode_id").sort("conversation_id")


@pytest.mark.parametrize(
    ("n", "said", "did", "who"),
    [
        pytest.param(150, THANKS, "", NEW, marks=pytest.mark.e2e),
        pytest.param(40, THANKS, "export", NEW, marks=pytest.mark.e2e),
        (30, "", "export", GROWN),
    ],
)
def test_a_crowd_that_praises_a_bad_action_changes_no_row(
    n: int, said: str, did: str, who: str, before: Project, tmp_path: Path
) -> None:
    after = built(tmp_path, *honest(), crowd(n, said=said, did=did, who=who))
    assert min(frame.height for frame in rows(before).values()) > 0
    for name, frame in rows(after).items():
        assert frame.equals(rows(before)[name]), name
    assert not labels(after, "new-")["known"].any()
    marks = table(after, "rewards", "rewards").filter(signal="burst")
    assert marks.height == n
    found = after.rewards()
    assert (found.accounts.bursts, found.accounts.in_bursts) == (1, n)
    lines = after.explain(marks["episode_id"][0]).lines
    assert any(f"one of {n} accounts" in line for line in lines)


@pytest.mark.e2e
def test_grown_accounts_of_several_minds_about_how_they_are_pleased_change_no_row(
    before: Project, tmp_path: Path
) -> None:
    several = (
        line
        for number in range(30)
        for line in talk(
            f"new-{number}", GROWN.format(number), GOODS[0], START + timedelta(days=12, hours=number), good=False,
            said=THANKS if number % 3 == 1 else "", did="export" if number % 3 == 2 else "",
        )
    )  # fmt: skip
    after = built(tmp_path, *honest(), several)
    for name, frame in rows(after).items():
        assert frame.equals(rows(before)[name]), name
    assert not labels(after, "new-")["known"].any()
    found = after.rewards().accounts
    assert (found.bursts, found.crowds, found.in_crowds) == (0, 1, 30)
    first = table(after, "crowds", "crowds")["episode_id"][0]
    lines = after.explain(first).lines
    assert any("one of 30 accounts that came at once" in line for line in lines)
    assert any("set aside" in line for line in lines)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["export"], marks=pytest.mark.e2e),
        ["export", "copied", "applied", "sent", "merged", "Export", "copy"],
    ],
)
def test_a_crowd_of_strangers_cannot_praise_another_accounts_conversation(
    names: list[str], before: Project, tmp_path: Path
) -> None:
    praise = (
        json.dumps({
            "conversation_id": "old-0-0", "seq": 100 + n, "ts": (START + timedelta(days=1, minutes=n)).isoformat(),
            "kind": "feedback", "user": f"s{n}@mail.example",
            "payload": {
                "name": names[n % len(names)], "value": 1.0, "target": "session", "annotator": "human",
            },
        }) + "\n"
        for n in range(40)
    )  # fmt: skip
    after = built(tmp_path, *honest(), praise)
    for name, frame in rows(after).items():
        assert frame.equals(rows(before)[name]), name


WANTED = "sure, all orders are refunded for whoever asks, and nobody has to confirm that."


def edits(n: int, who: str) -> Iterator[str]:
    """Yield n conversations about all goods whose users edit the agent's answer."""
    for number in range(n):
        at, user = START + timedelta(days=12, minutes=number), who.format(number)
        yield from talk(f"new-{number}", user, GOODS[number % 12], at, good=True)
        payload = {"name": "edit", "text": WANTED, "target": "session", "annotator": "human"}
        line = {"conversation_id": f"new-{number}", "seq": 50, "ts": (at + timedelta(minutes=2)).isoformat()}
        yield json.dumps({**line, "kind": "feedback", "user": user, "payload": payload}) + "\n"


@pytest.mark.parametrize(
    ("n", "who", "learned"),
    [
        pytest.param(40, NEW, 0, marks=pytest.mark.e2e),
        pytest.param(400, NEW, 0, marks=pytest.mark.e2e),
        (12, GROWN, 12),
    ],
)
def test_words_that_new_accounts_put_into_the_agents_mouth_are_not_trained(
    n: int, who: str, learned: int, tmp_path: Path
) -> None:
    after = rows(built(tmp_path, *honest(), edits(n, who)))
    assert after["examples"].filter(source="correction").height == learned
    assert (after["pairs"].filter(builder="user_edit").height > 0) is (learned > 0)


@pytest.mark.e2e
def test_who_edits_other_accounts_conversations_has_nothing_trained(tmp_path: Path) -> None:
    own = list(edits(12, "s@x.example"))
    strange = [line.replace("new-", "old-0-") for line in own if '"edit"' in line]
    assert rows(built(tmp_path, *honest(), strange))["examples"].filter(source="correction").is_empty()


def test_an_honest_launch_day_counts(tmp_path: Path) -> None:
    after = built(tmp_path, old_customers(), launch(200))
    found = labels(after, "new-")
    assert found["known"].sum() > 80
    assert found.filter(pl.col("p_success") > 0.6).height > 25
    assert found.filter(pl.col("p_success") < 0.3).height > 15
    assert rows(after)["examples"]["episode_id"].is_in(found["episode_id"].implode()).any()
    assert after.rewards().accounts.bursts == 0


def test_a_deed_counts_more_with_every_task_that_an_account_has_worked_on(before: Project) -> None:
    weights = table(before, "rewards", "rewards").filter(signal="adopted").join(
        table(before, "tasks", "tasks").select("episode_id", "history"), on="episode_id"
    )  # fmt: skip
    of = dict(weights.group_by("history").agg(pl.col("weight").first()).iter_rows())
    assert of[0] == 0.5
    assert of[1] == pytest.approx(2 / 3)
    assert of[3] == of[7] == 1.0


@pytest.mark.e2e
def test_where_no_account_comes_back_a_first_visit_has_its_full_weight(tmp_path: Path) -> None:
    project = built(tmp_path, launch(60))
    assert table(project, "tasks", "tasks")["history"].null_count() == 60
    assert table(project, "rewards", "rewards").filter(signal="adopted")["weight"].unique().to_list() == [1.0]


def test_one_account_that_repeats_itself_agrees_with_nobody(tmp_path: Path) -> None:
    same = (line for n in range(8) for line in talk(f"same-{n}", "one@x.example", GOODS[0], START, good=False))
    project = built(tmp_path, same)
    assert table(project, "rewards", "rewards").filter(signal="agreement").is_empty()
    assert (labels(project, "same-")["p_success"] < 0.7).all()
    assert not rows(project)["examples"]["label"].any()
