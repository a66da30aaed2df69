"""Defaults, files, did-you-mean, overrides."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import Config, load_config, load_pipeline, merge_overrides, render_default_config
from flywheel.config.files import REMOVED
from flywheel.errors import ConfigError
from flywheel.records import METHODS, Method


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_config(tmp_path / "flywheel.toml") == Config()


@pytest.mark.parametrize("method", list(METHODS))
def test_a_rate_follows_the_rows_of_a_step_and_the_adapters_scale(method: Method) -> None:
    """By the root of the rows and the inverse of alpha, at any rank unless rsLoRA scales by its root."""
    peak = METHODS[method].peak

    def rate(**train: Any) -> float:
        return Config.model_validate({"train": train}).train.learning_rate(method)

    assert rate() == peak
    assert rate(batch_size=4, accumulation=4) == pytest.approx(2 * peak)
    assert rate(lora={"r": 4, "alpha": 64}) == pytest.approx(peak / 2)
    assert rate(lora={"r": 64, "rslora": True}) == pytest.approx(peak / 8)
    assert rate(batch_size=1, **{METHODS[method].rate: 3e-4}) == 3e-4


def test_the_written_defaults_are_the_defaults() -> None:
    assert Config.model_validate(tomllib.loads(render_default_config())) == Config()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[pairs]\nmin_marign = 0.2\n", "line 2: unknown key `pairs.min_marign`", "did you mean `min_margin`?"),
        ("bse = 1\n", "line 1: unknown key `bse`", "lists the sections"),
        ('[[eval.slices]]\nnam = "x"\n', "unknown key `eval.slices.0.nam`", "lists the keys"),
        (
            '[build]\nas_of = "yesterday"\n',
            "line 2: `build.as_of`: Value error, it is not a time: write 2026",
            "shows what fits",
        ),
        ("[eval]\nrivals = []\n", "line 2: unknown key `eval.rivals`", "it is `eval.baselines` now"),
        ("[canary]\nsrm_p = 0.1\n", "line 2: unknown key `canary.srm_p`", "remove it: it is always 0.001"),
        ("[train]\ngrpo_shift = 0.2\n", "line 2: unknown key `train.grpo_shift`", "remove it: it is always 0.1"),
        ("[monitors]\n\nmix_red = 0.3\n", "line 3: unknown key `monitors.mix_red`", "it is always 0.25"),
        ("\n\n[pears]\nx = 1\n", "line 3: unknown key `pears`", "did you mean `pairs`?"),
        ("[train]\n\ndpo_epochs = -1\n", "line 3: `train.dpo_epochs`: Input should be greater than 0", ""),
        ("[train.lora]\nr = 0\n", "line 2: `train.lora.r`", ""),
        ("[train\n", "not valid TOML", ""),
        ("[episodes]\nholdout_share = 'private text'\n", "line 2: `episodes.holdout_share`", ""),
    ],
)
def test_a_wrong_file_is_an_error_with_its_line(tmp_path: Path, text: str, message: str, hint: str) -> None:
    path = tmp_path / "flywheel.toml"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert "private text" not in caught.value.message


def test_a_pipeline_overrides_values_and_only_known_ones() -> None:
    pipeline = load_pipeline('name = "p"\nstages = ["ingest"]\n[overrides.train]\nmax_rows = 7\n', "p.toml")

    merged = merge_overrides(Config(), pipeline.overrides)
    assert merged.train.max_rows == 7
    assert merged.train.seed == Config().train.seed
    with pytest.raises(ConfigError, match="unknown key"):
        load_pipeline('name = "p"\nstages = ["ingest"]\n[overrides.train]\nmax_row = 7\n', "p.toml")


def test_cost_may_only_break_ties(tmp_path: Path) -> None:
    path = tmp_path / "flywheel.toml"
    path.write_text("[pairs]\nmin_margin = 0.2\n\n[rewards]\nbeta = 0.2\n")
    with pytest.raises(ConfigError, match=r"line 5: .rewards.beta.*not below pairs.min_margin 0.2") as caught:
        load_config(path)
    assert "raise pairs.min_margin" in caught.value.hint
    with pytest.raises(ConfigError, match="not below"):
        merge_overrides(Config(), {"pairs": {"min_margin": 0.05}})
    path.write_text('[rewards]\nbeta = 0.5\nscheme = "rules"\n')
    assert load_config(path).rewards.beta == 0.5


@pytest.mark.parametrize("pattern", ["/etc/*.jsonl", "../evals/*.jsonl", ""])
def test_own_cases_are_within_the_project(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "flywheel.toml").write_text(f'[eval]\ncases = "{pattern}"\n')
    with pytest.raises(ConfigError, match="within the project"):
        load_config(tmp_path / "flywheel.toml")


def test_a_removed_key_is_no_key() -> None:
    sections = {name: values for name, values in Config().model_dump().items() if isinstance(values, dict)}
    assert REMOVED.keys().isdisjoint(f"{name}.{key}" for name, values in sections.items() for key in values)


def test_an_evaluation_of_fewer_cases_than_the_gate_asks_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flywheel.toml"
    path.write_text("[eval]\nmax_cases = 10\n\n[gate]\nmin_cases = 20\n")
    with pytest.raises(ConfigError, match=r"line 2: `eval.max_cases`.*10 is below gate.min_cases 20") as caught:
        load_config(path)
    assert caught.value.hint == "raise eval.max_cases or lower gate.min_cases"
    path.write_text("[gate]\nmin_cases = 201\n")
    with pytest.raises(ConfigError, match=r"line 2: `gate.min_cases`"):
        load_config(path)
    path.write_text("[eval]\nmax_cases = 20\n\n[gate]\nmin_cases = 20\n")
    assert load_config(path).gate.min_cases == 20
    with pytest.raises(ConfigError, match="no round could ever be promoted"):
        merge_overrides(Config(), {"eval": {"max_cases": 2}})
