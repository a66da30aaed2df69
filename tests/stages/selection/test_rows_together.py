"""What is decided over all rows: the balance of lengths, KTO's rows and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import PairsConfig, RewardsConfig
from flywheel.funnel import Funnel
from flywheel.pipeline.train.card import longer_wins
from flywheel.records import Split
from flywheel.stages.datasets.examples import build_examples
from flywheel.stages.datasets.pairs import build_pairs, sibling
from flywheel.stages.datasets.unpaired import balanced_weights, unpaired, weighed
from flywheel.stages.selection.rows import explained_by_length
from hypothesis import given
from hypothesis import strategies as st

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]


lengths = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), max_size=30)


@given(lengths)
def test_what_is_left_is_balanced_and_nothing_is_dropped_in_vain(found: list[tuple[int, int]]) -> None:
    ids = [f"{n:02}" for n in range(len(found))]
    out = explained_by_length(found, ids)
    left = [pair for pair, drop in zip(found, out, strict=True) if not drop]
    total, size = sum(a - b for a, b in left), sum(a + b for a, b in left) / 2
    sign = 1 if sum(a - b for a, b in found) > 0 else -1
    heavy = [a - b for a, b in left if sign * (a - b) > 0]
    assert abs(total) <= abs(sum(a - b for a, b in found))
    assert abs(total) <= 0.1 * size or all(abs(total - longer) >= abs(total) for longer in heavy) or sign * total < 0
    assert all(sign * (a - b) > 0 for (a, b), drop in zip(found, out, strict=True) if drop)


def test_how_often_the_longer_side_wins() -> None:
    assert longer_wins([(2, 1), (1, 2), (1, 1), (3, 1), (9,)]) == pytest.approx(0.625)
    assert longer_wins([(9,)]) is None


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6))
def test_kto_weights_keep_the_desired_ratio(good: float, bad: float) -> None:
    for_good, for_bad = balanced_weights(good, bad)
    assert 1 - 1e-9 <= for_good * good / (for_bad * bad) <= 4 / 3 + 1e-9
    assert max(for_good, for_bad) == 1.0


def test_kto_weights_with_one_label() -> None:
    assert balanced_weights(0, 3) == balanced_weights(3, 0) == (1.0, 1.0)


def test_kto_rows_are_what_found_no_partner(frames: Make) -> None:
    def attempt(name: str, tool: str, p: float, task: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "p": p, "task": task, "steps": [{"user": task, "call": (tool, {})}], **more}

    made = frames([attempt("a", "x", 0.95, "t"), attempt("b", "y", 0.05, "t"), attempt("c", "x", 0.95, "u"),
                   attempt("d", "x", 0.05, "v"), attempt("h", "x", 0.95, "w", split="holdout")])  # fmt: skip
    examples = build_examples(*made, RewardsConfig(), Funnel())
    pairs = build_pairs(*made, PairsConfig(), {"sibling": sibling}, Funnel())
    funnel = Funnel()
    rows = unpaired(examples.sort("example_id", descending=True), pairs, funnel)
    assert sorted(rows.select("task_id", "label").rows()) == [("u", True), ("v", False)]
    assert (funnel.dropped["has a partner"], funnel.dropped["held out"]) == (2, 1)
    assert funnel.considered == 3  # whoever goes on with the rest counts it
    assert rows.equals(unpaired(examples, pairs, Funnel()))
    assert unpaired(examples, pairs, Funnel(), Split.HOLDOUT)["task_id"].to_list() == ["w"]
    heavy = rows.with_columns(weight=pl.when("label").then(pl.lit(0.9)).otherwise(pl.lit(0.3)))
    assert sorted(weighed(heavy)["weight"].to_list()) == pytest.approx([0.3, 0.4])


def test_a_correction_is_a_demonstration_unless_only_the_user_could_know_it(frames: Make) -> None:
    def steps(say: str) -> list[dict[str, Any]]:
        return [{"user": "write to Bo about order 77", "say": say}]

    episodes, made, returns = frames([{"id": "a", "steps": steps("Dear Bo")}, {"id": "b", "steps": steps("Hello")}])
    edits = {"a": "Hi Bo, order 77 is here", "b": "Hi Bo, order 4711 is here"}
    edited = made.with_columns(correction=pl.col("episode_id").replace_strict(edits), editor=pl.lit("ann"))
    funnel = Funnel()
    (row,) = build_examples(episodes, edited, returns, RewardsConfig(), funnel).to_dicts()
    funnel.check("examples")
    assert (row["episode_id"], row["source"], row["user"], row["label"]) == ("a", "correction", "ann", True)
    assert "order 77" in row["completion"]
    assert funnel.dropped["correction not grounded"] == 1
