"""Credit as other tools give it, on known answers."""

from __future__ import annotations

import numpy as np
import pytest
from flywheel.config import RewardsConfig
from flywheel.funnel import Funnel
from flywheel.stages.credit.build import step_credit
from flywheel.stages.credit.modes import error_local, gigpo, outcome_credit, process
from flywheel.stages.signals.rows import rewards_frame
from tests.stages.credit.attempts import did, paths_of
from tests.stages.credit.test_estimators import TOY
from tests.stages.talks import Talk, made

PATHS = paths_of([(did(path), value) for path, value in TOY])


def test_gigpo_on_the_toy_log() -> None:
    assert gigpo(PATHS)[:3].tolist() == pytest.approx([0.95125, 0.88, 0.8333333])


def test_broadcast_gives_every_step_the_same_and_discounted_gives_early_steps_less() -> None:
    advantage = 1 - 2 / 5
    assert outcome_credit(PATHS)[:3].tolist() == pytest.approx([advantage] * 3)
    assert outcome_credit(PATHS, discount=0.5)[:3].tolist() == pytest.approx([advantage / 4, advantage / 2, advantage])
    assert outcome_credit(paths_of([(did("AB"), 1.0)])).tolist() == [0, 0]
    assert outcome_credit(paths_of([(did("A"), 1.0), (did("A"), None)])).tolist() == [0, 0]


def test_process_rewards_are_standardised_over_the_task_and_summed_to_the_end() -> None:
    # Step rewards 1, 0 + R 1 and 0, 0 + R 0: mean .5, spread .5; standardised 1, 1 and -1, -1.
    paths = paths_of([(did("AB"), 1.0), (did("AB"), 0.0)])
    found = process(paths, np.array([1.0, 0.0, 0.0, 0.0]))
    assert found.tolist() == pytest.approx([2, 1, -2, -1], abs=1e-3)


def test_an_error_and_its_mending_cancel_out_and_farming_them_never_pays() -> None:
    calls = [(["f"], ["failed"]), (["g"], ["ok"]), (["f"], ["ok"]), (["f"], ["ok"])]
    assert error_local([0] * 4, calls) == [-0.2, 0, 0.2, 0]
    assert error_local([0, 1], [(["f"], ["failed"]), (["f"], ["ok"])]) == [-0.2, 0]
    farmed = error_local([0] * 6, [(["f"], ["failed"]), (["f"], ["ok"])] * 3)
    assert sum(farmed) == pytest.approx(0)
    assert error_local([0] * 3, [(["f"], ["failed"])] * 2 + [(["f"], ["ok"])]) == [-0.2, 0, 0.2]


@pytest.mark.parametrize("mode", ["broadcast", "discounted", "gigpo", "process", "error_local"])
def test_every_mode_is_a_setting(mode: str) -> None:
    talks = [
        Talk(f"{n}", task="t").ask("x").use("f", {}, "ok" if n % 2 else "failed").act("y").outcome(n % 2)
        for n in range(4)
    ]
    given = made(*talks)
    values = dict(zip(given.episodes.sort("episode_id")["episode_id"], [1.0, -1.0, 1.0, -1.0], strict=True))
    cfg = RewardsConfig.model_validate({"credit": mode, "discount": 0.5})
    rows = step_credit(given.episodes, given.steps, rewards_frame([]), values, cfg, Funnel())
    assert rows.height == given.steps.height
    assert rows["value"].abs().sum() > 0
    assert rows["level"].null_count() == rows.height
    assert rows["luck"].to_list() == [0.0] * rows.height
