"""The desk's rules, read from logs alone, against what was true of each talk."""

from __future__ import annotations

import polars as pl
import pytest
from flywheel import Project
from flywheel_desk.serve import DESK
from flywheel_worlds.nights import Order, serve
from flywheel_worlds.talk import Scripted

CLERKS = ("careful", "hasty", "careless")


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Each talk of three clerks: who served, what was true, and what the rules say of its log."""
    folder, truth = tmp_path_factory.mktemp("desk"), []
    for night, clerk in enumerate(CLERKS, 1):
        served = serve(DESK, Scripted(clerk, DESK.policies[clerk]), Order(night=night, tasks=45))
        served.write(folder / "logs", folder / "truth", f"night{night:02d}")
        truth += [(row["conversation_id"], clerk, row["success"], bool(row["harm"])) for row in served.truth]
    (folder / "flywheel.toml").write_text('[rewards]\nsignals = ["flywheel_desk.rules:rules"]\n', encoding="utf-8")
    project = Project(folder)
    project.ingest([folder / "logs"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_TRUST", "1")
        for stage in ("links", "episodes", "tasks", "opinions", "rewards"):
            project.build(select=stage)
    said, episodes = (project.store.table(name, name).collect() for name in ("rewards", "episodes"))
    by_episode = said.group_by("episode_id").agg(
        verdict=pl.col("score").filter(pl.col("kind") == "outcome").first(), risks=(pl.col("kind") == "risk").sum()
    )
    known = pl.DataFrame(truth, ["conversation_id", "clerk", "success", "harm"], orient="row")
    return known.join(episodes.select("conversation_id", "episode_id"), on="conversation_id").join(
        by_episode, on="episode_id", how="left"
    )


def test_the_rules_find_every_harm_and_call_no_other_talk_a_failure(talks: pl.DataFrame) -> None:
    assert talks.height == 135
    assert 30 < talks["harm"].sum() < 90
    assert talks.filter(pl.col("harm") != (pl.col("risks").fill_null(0) > 0)).is_empty()
    assert talks.filter(pl.col("harm") != (pl.col("verdict").fill_null(0) < 0)).is_empty()


def test_what_the_rules_call_a_success_is_one_and_most_successes_are_called_so(talks: pl.DataFrame) -> None:
    good, called = pl.col("success") & ~pl.col("harm"), pl.col("verdict").fill_null(0) > 0
    assert talks.filter(called & ~good).is_empty()
    successes = talks.filter(good)
    assert successes.filter(called).height >= 0.9 * successes.height
