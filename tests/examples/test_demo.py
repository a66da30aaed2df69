"""The demo's script, apart from the training: its project, the served night and the curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.config.files import load_config
from flywheel_warehouse.serve import SAMPLE, WAREHOUSE
from flywheel_worlds.nights import kept_apart
from flywheel_worlds.serve import main

from examples import demo

if TYPE_CHECKING:
    import pytest


def test_the_demos_settings_are_valid_and_each_round_has_questions_of_its_own(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "flywheel.toml").write_text(demo.settings(number))
        config = load_config(tmp_path / "flywheel.toml")
    assert config.train.learning_rate("sft") < 1e-3, "a champion forgets at the rate of a cold start"
    assert sum(demo.CASES.values()) <= len(kept_apart(SAMPLE, "gate")) + 12, "other held-out questions a round"


def test_the_night_that_the_demo_serves(tmp_path: Path) -> None:
    served = [argument if argument != "champion" else "agent-v3" for argument in demo.SERVED]
    assert main(WAREHOUSE, SAMPLE, arguments=[*served, "--out", str(tmp_path), "--truth", str(tmp_path / "truth")]) == 0
    assert (tmp_path / "night02.jsonl").exists()


def test_the_curve_shows_both_sides_of_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "DEMO", tmp_path)
    for number, scores in ((1, (0.0, 0.4)), (2, (0.42, 0.7))):
        folder = tmp_path / "rounds" / f"{number:04d}" / "eval"
        folder.mkdir(parents=True)
        row = {"primary": True, "slice": "all", "baseline": scores[0], "value": scores[1]}
        (folder / "report.json").write_text(json.dumps({"metrics": [row]}))
    demo.curve(2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:-1] for line in lines[-3:-1]] == [["round", "1", "40%"], ["round", "1", "42%"]]
    assert lines[-1].endswith("70%  " + "█" * 28)
