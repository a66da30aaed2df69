"""What a round takes of new and of older rows: enough of both, older ones drawn anew for each start."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl
import pytest
from flywheel.config import TrainConfig
from flywheel.funnel import Funnel
from flywheel.stages.selection.kinds import kinds_of
from flywheel.stages.selection.mix import OLDER, Before, by_task, new_first, sampling_order, take
from hypothesis import given
from hypothesis import strategies as st


def rows(count: int, **more: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": [f"r{n:03}" for n in range(count)], "task_id": [f"t{n % 7}" for n in range(count)]} | more
    )


def taken(table: pl.DataFrame, before: Before, **cfg: Any) -> tuple[list[str], list[str], dict[str, int]]:
    funnel = Funnel()
    funnel.considered = table.height
    found = take(new_first(table, "id", before), "id", TrainConfig(**cfg), before, funnel)
    funnel.kept = found.height
    funnel.check("mix")
    new, older = (found.filter(pl.col(OLDER) == flag)["id"].to_list() for flag in (False, True))
    return new, older, {k: v for k, v in funnel.dropped.items() if v}


def test_for_each_new_row_so_many_older_ones() -> None:
    before = Before(2, {f"r{n:03}" for n in range(60)})
    new, older, dropped = taken(rows(100), before, older_rows=0.3)
    assert new == [f"r{n:03}" for n in range(60, 100)]
    assert len(older) == 12
    assert set(older) <= set(before.ids)
    assert dropped == {"trained on before": 48}
    assert {int(name[1:]) % 7 for name in older} == set(range(7)), "one of every task before a second of any"
    other = taken(rows(100), Before(3, before.ids), older_rows=0.3)[1]
    assert len(other) == 12
    assert other != older, "drawn anew for each start"


def test_a_cap_leaves_room_for_older_rows_as_far_as_there_are_any() -> None:
    many, few = Before(2, {f"r{n:03}" for n in range(50)}), Before(2, {"r000"})
    assert [len(part) for part in taken(rows(100), many, max_rows=26, older_rows=0.3)[:2]] == [20, 6]
    assert [len(part) for part in taken(rows(100), few, max_rows=26, older_rows=0.3)[:2]] == [25, 1]
    assert [len(part) for part in taken(rows(100), many, max_rows=26, older_rows=0.0)[:2]] == [26, 0]


def test_a_round_with_few_new_rows_is_filled_with_older_ones() -> None:
    before = Before(2, {f"r{n:03}" for n in range(80)})

    def sizes(fill: int, **cfg: Any) -> list[int]:
        funnel, config = Funnel(), TrainConfig(**cfg)
        found = take(new_first(rows(100), "id", before), "id", config, before, funnel, fill)
        return [found.filter(pl.col(OLDER) == flag).height for flag in (False, True)]

    assert [sizes(fill) for fill in (0, 20, 50, 300)] == [[20, 6], [20, 6], [20, 30], [20, 80]]
    assert sizes(50, max_rows=40) == [20, 20], "not over the cap"
    assert sizes(50, older_rows=0.0) == [20, 0], "whoever wants none has none"


def test_without_enough_new_rows_older_ones_are_gone_over_again() -> None:
    before = Before(2, {f"r{n:03}" for n in range(95)})
    new, older, dropped = taken(rows(100), before, min_rows=8)
    assert (len(new), len(older), dropped) == (5, 95, {})


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60), st.floats(0, 2), st.integers(0, 9))
def test_a_round_is_never_over_its_cap_and_counts_add_up(
    older: int, fresh: int, most: int, share: float, start: int
) -> None:
    before = Before(start, {f"r{n:03}" for n in range(older)})
    new, old, dropped = taken(rows(older + fresh), before, max_rows=most, older_rows=share, min_rows=1)
    assert len(new) + len(old) <= most
    assert len(new) + len(old) + sum(dropped.values()) == older + fresh
    assert (len(old) <= math.ceil(share * len(new))) or not fresh
    assert new or not fresh


ASKED = ("How many units of {} were sold?", "How many of {} are in stock?", "What does a {} cost?")
THINGS = ("lamp", "table", "book", "coat", "bicycle", "piano", "kettle", "mirror", "chair", "vase", "clock", "sofa")


def test_older_rows_are_of_the_kinds_that_the_new_ones_leave_out() -> None:
    """The new rows are about stocks and costs; of the older ones, a third is about units."""
    asked = [ASKED[n % 3].format(THINGS[n // 3]) for n in range(36)] + [
        ASKED[1 + n % 2].format("desk") for n in range(8)
    ]
    prompts = [json.dumps([{"role": "user", "content": text}]) for text in asked]
    called = [json.dumps([{"role": "assistant", "tool_calls": [{"name": "sql", "arguments": {}}]}])] * 44
    table = rows(44, prompt=prompts, completion=called).with_columns(task_id="id")
    _, older, dropped = taken(table, Before(1, {f"r{n:03}" for n in range(36)}), older_rows=0.5, min_rows=4)
    assert {int(name[1:]) % 3 for name in older} == {0}
    assert (len(older), dropped) == (4, {"trained on before": 32})


def test_a_request_without_words_is_like_no_other() -> None:
    assert len(set(kinds_of(["...", *(q.format("lamp") for q in ASKED)]))) == 4


def test_older_rows_take_nobodys_place() -> None:
    found = new_first(rows(6), "id", Before(2, {"r000", "r002"}))
    assert found["id"].to_list() == ["r001", "r003", "r004", "r005", "r000", "r002"]


@pytest.mark.parametrize("heavy", [3.0, 1.0])
def test_rows_are_drawn_alike_because_their_weight_is_in_the_loss(heavy: float) -> None:
    table = rows(4000, weight=[heavy if n % 2 else 1.0 for n in range(4000)]).with_columns(task_id=pl.lit("t"))
    first = by_task(table, "id", sampling_order(table, "id")).head(400)
    share = (first["id"].str.slice(1).cast(pl.Int64) % 2 == 1).mean()
    assert share == pytest.approx(0.5, abs=0.06)
