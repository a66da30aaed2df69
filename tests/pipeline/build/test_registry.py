"""The order of stages is checked by data."""

from __future__ import annotations

import pytest
from flywheel.errors import ConfigError
from flywheel.pipeline.build.registry import ACTIONS, STAGES, VOTE_COLUMNS, check_order, stage_of
from flywheel.records import TABLES
from flywheel.stages.labelling import votes

WHOLE = ["ingest", *(s.name for s in STAGES), "train", "eval", "gate", "report"]


def test_the_whole_wheel_is_in_order() -> None:
    check_order(WHOLE, "p.toml")
    check_order(WHOLE[:4], "p.toml")


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (["episodes"], "`episodes` needs events, which no stage before it makes", "put `ingest` before `episodes`"),
        (["ingest", "links", "episodes", "tasks", "pairs"], "`pairs` needs returns", "put `returns` before `pairs`"),
        ([*WHOLE[:-3], "gate"], "`gate` needs eval_report", "put `eval` before `gate`"),
        (["ingest", "ingest"], "`ingest` is listed twice", "remove one"),
        (["ingets"], "unknown stage `ingets`", "ingest"),
    ],
)
def test_a_stage_without_its_input_is_an_error_at_load(names: list[str], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_order(names, "p.toml")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_every_table_has_one_maker() -> None:
    makers = [table for s in STAGES for table in s.makes] + list(ACTIONS["ingest"][1])
    assert sorted(makers) == sorted(TABLES)
    assert stage_of("steps") == "episodes"


def test_the_stage_table_reads_the_columns_that_votes_are_made_of() -> None:
    assert VOTE_COLUMNS == votes.VOTE_COLUMNS
