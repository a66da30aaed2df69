"""Rows, links and marked texts, before they are HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from flywheel.present import MISSING
from flywheel.records import OffPolicyEstimate, content_id
from flywheel.report import CaseRow, Histogram, PairView
from flywheel.report.differing import Piece, differing, words
from flywheel.report.views import (
    case_list,
    commands,
    facts,
    funnel_rows,
    funnels_of,
    histogram_table,
    metric_rows,
    off_policy_refused,
    off_policy_table,
    pair_cards,
    training_table,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.report.sample import full_data, hostile_data, minimal_data


def test_slices_stand_apart_from_the_whole() -> None:
    data = full_data()

    assert [r.slice for r in metric_rows(data, slices=True)] == ["tool=run_sql", "tool=describe_table", "tool=answer"]
    assert {r.slice for r in metric_rows(data, slices=False)} == {"all"}
    assert metric_rows(minimal_data(), slices=False) == []


def test_estimates_that_hold_are_a_table_and_refused_ones_a_sentence() -> None:
    data = full_data()
    assert data.report is not None
    assert (off_policy_table(data), off_policy_refused(data)) == (None, [])
    overlap = {"ess": 61.0, "mean_weight": 1.02, "max_share": 0.05}
    made = [
        OffPolicyEstimate(
            name="DR", target="candidate", state="good", reasons=[], value=0.5, low=0.4, high=0.6, n=80,
            certificate=overlap,
        ),
        *(
            OffPolicyEstimate(name=name, target=target, state="REFUSED", reasons=["few", "far"], n=80, certificate={})
            for target in ("candidate", "baseline")
            for name in ("IPS", "MIPS")
        ),
    ]  # fmt: skip
    told = replace(data, report=data.report.model_copy(update={"off_policy": made}))

    table = off_policy_table(told)
    assert table is not None
    assert table.rows == [
        [f"DR of round {data.round}", "80", "0.5", "0.4", "0.6", "61", "1.02", MISSING, "0.05", MISSING, "good"]
    ]
    assert off_policy_refused(told) == [f"IPS, MIPS of round {data.round}, {data.baseline_name} REFUSED: few; far"]


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
    assert table.rows == [["-1 to 0", "1,200", "3"], ["0 to 1", "2", MISSING]]


def _marked(side: Sequence[Piece]) -> str:
    return "|".join(piece["text"] for piece in side if piece["differs"])


def _text(side: Sequence[Piece]) -> str:
    return "".join(piece["text"] for piece in side)


def test_a_pair_marks_what_differs_by_whole_words() -> None:
    card = pair_cards(full_data().pairs)[0]

    assert (card.unit, _marked(card.chosen), _marked(card.rejected)) == ("words", " orders", " order")
    assert _text(card.chosen) == (
        'run_sql {\n  "query": "SELECT count(*) FROM orders WHERE status = \'returned\' AND month(shipped_at) = 3"\n}'
    )
    assert list(card.contexts) == ["Both sides saw"]
    assert [role for role, _ in card.contexts["Both sides saw"]] == ["user", "tool"]


def test_a_pair_shows_what_each_side_saw_where_that_differs() -> None:
    pair: PairView = {
        **full_data().pairs[0],
        "chosen_context": [{"role": "tool", "content": "1 row"}],
        "rejected_context": [{"role": "tool", "content": "2 rows"}],
    }
    card = pair_cards([pair])[0]
    assert card.contexts == {"Chosen saw": [("tool", "1 row")], "Rejected saw": [("tool", "2 rows")]}


def test_a_pair_with_tokens_marks_tokens() -> None:
    pair: PairView = {
        **full_data().pairs[0],
        "chosen_tokens": ["a", "b", "c", "d"],
        "rejected_tokens": ["a", "x", "c", "d", "e"],
    }

    card = pair_cards([pair])[0]

    assert (card.unit, _marked(card.chosen), _marked(card.rejected)) == ("tokens", "b", "x|e")


@pytest.mark.parametrize(
    ("chosen", "rejected", "marked"),
    [
        ("same", "same", ("", "")),
        ("", "b", ("(empty message)", "b")),
        ("aa", "aaa", ("aa", "aaa")),
        ("x y", "x z", (" y", " z")),
    ],
)
def test_marks_at_the_edges(chosen: str, rejected: str, marked: tuple[str, str]) -> None:
    card = pair_cards([{"chosen": [{"content": chosen}], "rejected": [{"content": rejected}]}])[0]

    assert (_marked(card.chosen), _marked(card.rejected)) == marked


@given(st.lists(st.sampled_from("abc ")), st.lists(st.sampled_from("abc ")))
def test_pieces_are_the_sides_and_what_is_not_marked_is_common(left: list[str], right: list[str]) -> None:
    sides = differing(left, right)

    assert [_text(side) for side in sides] == ["".join(left), "".join(right)]
    assert len({"".join(p["text"] for p in side if not p["differs"]) for side in sides}) == 1
    assert not (left == right and any(p["differs"] for side in sides for p in side))


@given(st.text())
def test_words_are_the_text(text: str) -> None:
    assert "".join(words(text)) == text


def test_what_is_too_long_to_compare_is_marked_whole_between_its_ends() -> None:
    left, right = differing(["a", *map(str, range(4000)), "z"], ["a", "x", "5", "z"])

    assert [piece["differs"] for piece in left] == [False, True, False]
    assert right == [{"text": "a", "differs": False}, {"text": "x5", "differs": True}, {"text": "z", "differs": False}]


def test_calls_that_did_not_parse_show_the_models_text() -> None:
    pair = hostile_data("{oops").pairs[0]
    card = pair_cards([{"chosen": pair["chosen"], "rejected": pair["rejected"]}])[0]

    assert "{oops {oops" in _text(card.rejected)


def test_what_makes_the_round_again_names_the_baseline() -> None:
    assert commands(full_data()) == ["flywheel train --round 2", "flywheel eval --round 2 --against 1"]
    assert commands(minimal_data()) == ["flywheel train --round 2"]
    assert dict(facts(full_data()))["Held-out cases SHA-256"] == content_id("cases") * 2
