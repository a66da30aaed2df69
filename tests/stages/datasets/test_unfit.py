"""What the log cut off, and a reward that nobody earned, is counted and never learned from: by no stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import GroupsConfig, PairsConfig, RewardsConfig
from flywheel.funnel import Funnel
from flywheel.stages.datasets.context import NEEDS_IMAGE, UNFIT, needing_images
from flywheel.stages.datasets.examples import build_examples
from flywheel.stages.datasets.groups import build_groups
from flywheel.stages.datasets.pairs import build_pairs, sibling

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]

STAGES: dict[str, Callable[[Frames, Funnel], pl.DataFrame]] = {
    "examples": lambda made, funnel: build_examples(*made, RewardsConfig(), funnel),
    "pairs": lambda made, funnel: build_pairs(*made, PairsConfig(), {"sibling": sibling}, funnel),
    "groups": lambda made, funnel: build_groups(*made, GroupsConfig(min_size=2), funnel),
}


def attempt(name: str, tool: str, p: float) -> dict[str, Any]:
    return {"id": name, "p": p, "steps": [{"user": "go", "call": ("look", {})}, {"call": (tool, {})}]}


SOURCES = {"examples": ["episode_id"], "pairs": ["chosen_episode", "rejected_episode"], "groups": ["episodes_G"]}


def made_from(made: Frames, stage: str) -> tuple[set[str], int]:
    """The episodes that a stage's rows come from, and how many rows were dropped as unfit."""
    funnel = Funnel()
    rows = STAGES[stage](made, funnel)
    funnel.check(stage)
    columns = [rows[name].explode() if rows[name].dtype == pl.List else rows[name] for name in SOURCES[stage]]
    return set(pl.concat([c.alias("episode") for c in columns])), funnel.dropped[UNFIT]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("tag", ["truncated", "content_missing", "redacted", "history_missing", "partial", "suspect"])
def test_an_unfit_episode_gives_no_row(frames: Make, stage: str, tag: str) -> None:
    episodes, steps, returns = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05)])
    name = episodes["episode_id"][0]
    sources, dropped = made_from((episodes, steps, returns), stage)
    assert (name in sources, dropped) == (True, 0)
    tagged = episodes.with_columns(tags=pl.Series([[tag, "tag:production"], []]))
    sources, dropped = made_from((tagged, steps, returns), stage)
    assert name not in sources
    assert dropped > 0


@pytest.mark.parametrize("stage", STAGES)
def test_other_tags_change_nothing(frames: Make, stage: str) -> None:
    episodes, steps, returns = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05)])
    tagged = episodes.with_columns(tags=pl.Series([["context_reset", "streamed"], ["paired_by_order"]]))
    assert made_from((tagged, steps, returns), stage) == made_from((episodes, steps, returns), stage)


HELD = '"attachments":[{"kind":"image","source":"inline"}],'


def showing(steps: pl.DataFrame, episode: str, index: int) -> pl.DataFrame:
    """Return steps of which one shows its user's image."""
    here = (pl.col("episode_id") == episode) & (pl.col("index") == index)
    shown = pl.col("observation").str.replace('"content":', f'{HELD}"content":', literal=True)
    return steps.with_columns(observation=pl.when(here).then(shown).otherwise("observation"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_row_that_needs_an_image_is_refused_and_counted(frames: Make, stage: str) -> None:
    episodes, steps, returns = frames([attempt("a", "good", 0.95), attempt("b", "bad", 0.05)])
    funnel = Funnel()
    before = STAGES[stage]((episodes, steps, returns), funnel)
    assert (before.height > 0, funnel.dropped[NEEDS_IMAGE]) == (True, 0)
    rows = STAGES[stage]((episodes, showing(steps, "a", 0), returns), funnel := Funnel())
    funnel.check(stage)
    assert funnel.dropped[NEEDS_IMAGE] > 0
    assert HELD not in str(rows.to_dicts())


def test_an_image_is_needed_until_the_context_is_replaced(frames: Make) -> None:
    turns = [{"user": "go", "call": ("look", {"attachments": [{"kind": "image"}]})}] * 2
    _, steps, _ = frames([{"id": "e", "steps": [*turns, {"user": "anew", "say": "ok", "resets": True}, {"say": "so"}]}])
    assert needing_images(steps).is_empty()  # a field of a call's arguments is none
    for index, needy in ((0, [0, 1]), (1, [1]), (2, [2, 3])):
        assert needing_images(showing(steps, "e", index))["index"].to_list() == needy
