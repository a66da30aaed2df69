"""Rows, links and marked texts, before they are HTML."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.records import content_id
from flywheel.report import CaseRow, Histogram
from flywheel.report.views import (
    case_list,
    commands,
    facts,
    funnel_rows,
    funnels_of,
    histogram_table,
    metric_rows,
    pair_cards,
    training_table,
)
from tests.report.sample import full_data, hostile_data, minimal_data


def test_slices_stand_apart_from_the_whole() -> None:
    data = full_data()

    assert [r.slice for r in metric_rows(data, slices=True)] == ["tool=run_sql", "tool=describe_table", "tool=answer"]
    assert {r.slice for r in metric_rows(data, slices=False)} == {"all"}
    assert metric_rows(minimal_data(), slices=False) == []


def test_a_funnel_is_sorted_out_by_kind_with_the_most_frequent_reason_first() -> None:
    rows = {row.stage: row for row in funnel_rows(funnels_of(full_data()))}

    assert list(rows) == ["ingest", "episodes", "rewards", "pairs", "groups", "rows of the round"]
    assert list(rows["pairs"].dropped.items()) == [("margin", 871), ("same tool call", 277)]
    assert rows["ingest"].notes == {"redacted email": 61}
    assert (rows["rows of the round"].considered, rows["rows of the round"].kept) == (164, 122)


def test_cases_link_only_to_episodes_that_the_page_holds() -> None:
    data = full_data()
    shown = {episode["id"] for episode in data.episodes}

    found = case_list(data.regressions, [], shown)

    assert found.rows[0][1] == [(content_id("episode", 1), True), (content_id("not shown", 0), False)]
    assert found.more == 0


def test_bare_case_ids_stand_in_and_long_lists_are_cut() -> None:
    found = case_list([], [f"case-{i}" for i in range(75)], set())

    assert found.rows[0] == (CaseRow("case-0"), [])
    assert (len(found.rows), found.more) == (60, 15)


def test_training_metrics_are_thinned_out_to_first_last_and_even_steps() -> None:
    metrics = [{"step": i, "loss": i / 100, "tokens_per_s": 5} for i in range(1, 201)]

    table = training_table(metrics)

    assert table is not None
    assert list(table.columns) == ["Step", "Loss"]
    assert (table.rows[0], table.rows[-1]) == (["1", "0.01"], ["200", "2"])
    assert len(table.rows) <= 25
    assert "200 logged steps" in table.left_out


@pytest.mark.parametrize("metrics", [[], [{"step": 1}], [{"loss": "text"}]])
def test_no_numbers_no_table(metrics: list[dict[str, Any]]) -> None:
    assert training_table(metrics) is None


def test_the_histogram_is_a_row_a_bin() -> None:
    table = histogram_table(full_data(returns=Histogram([-1, 0, 1], {"train": [1200, 2], "holdout": [3]})))

    assert table is not None
    assert table.columns == ["Return", "train", "holdout"]
    assert table.rows == [["\u22121 to 0", "1,200", "3"], ["0 to 1", "2", "\u2013"]]


def test_a_pair_marks_what_differs_by_whole_words() -> None:
    card = pair_cards(full_data().pairs)[0]

    assert (card.chosen.changed, card.rejected.changed) == ("orders", "order")
    assert card.chosen.before == card.rejected.before
    assert card.chosen.before + card.chosen.changed + card.chosen.after == (
        'run_sql {\n  "query": "SELECT count(*) FROM orders WHERE status = \'returned\' AND month(shipped_at) = 3"\n}'
    )
    assert [role for role, _ in card.prompt] == ["user", "tool"]


@pytest.mark.parametrize(
    ("chosen", "rejected", "marked"),
    [
        ("same", "same", ("", "")),
        ("", "b", ("(empty message)", "b")),
        ("aa", "aaa", ("aa", "aaa")),
        ("x y", "x z", ("y", "z")),
    ],
)
def test_marks_at_the_edges(chosen: str, rejected: str, marked: tuple[str, str]) -> None:
    card = pair_cards([{"chosen": [{"content": chosen}], "rejected": [{"content": rejected}]}])[0]

    assert (card.chosen.changed, card.rejected.changed) == marked


def test_calls_that_did_not_parse_show_the_models_text() -> None:
    card = pair_cards(hostile_data("{oops").pairs)[0]

    assert "{oops {oops" in card.rejected.before + card.rejected.changed + card.rejected.after


def test_what_makes_the_round_again_names_the_baseline() -> None:
    assert commands(full_data()) == ["flywheel train --round 2", "flywheel eval --round 2 --against 1"]
    assert commands(minimal_data()) == ["flywheel train --round 2"]
    assert dict(facts(full_data()))["Held-out cases SHA-256"] == content_id("cases") * 2
