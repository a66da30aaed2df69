"""Worlds whose truth is known, as logs, through ingest and build: what is claimed is true."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def numbers(folder: Path, world: str, tasks: int, attempts: int, intents: int) -> dict[str, float]:
    preferences = benchmark("preferences")
    made = preferences.WORLDS[world]
    events, wrong = preferences.simulated(made, tasks, attempts, intents=intents, seed=1)
    measured: dict[str, float] = preferences.measured(preferences.project_of(events, folder / "p"), made, wrong)
    return measured


def test_where_no_decision_matters_no_pair_is_made(tmp_path: Path) -> None:
    assert numbers(tmp_path, "none", 30, 8, 3)["pairs"] == 0  # one attempt against one made 160


def test_where_one_decision_of_five_matters_pairs_are_about_it(tmp_path: Path) -> None:
    found = numbers(tmp_path, "one", 30, 8, 3)
    assert found["pairs"] >= 20
    assert found["right"] >= 0.75
    assert found["demonstrated"] <= 0.2, "of the wrong steps in successes"
    assert found["rank"] > 0.5


def test_single_attempts_at_tasks_of_some_intents_make_pairs(tmp_path: Path) -> None:
    found = numbers(tmp_path, "one", 320, 1, 8)
    assert found["pairs"] >= 20
    assert found["right"] >= 0.85


def test_wrong_steps_leave_the_demonstrations_nearly_as_often_as_an_oracle_could_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oracle knows each user's mood, and how much each decision matters; see `benchmarks/bounds.py`."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    bounds = benchmark("bounds")
    shown = {reader: bounds.summary("moods", 8, reader, 20)["shown"] for reader in ("oracle", "model")}
    assert shown["model"] < shown["oracle"] + 0.04


@pytest.mark.parametrize(("world", "attempts", "least"), [("none", 8, 0), ("mislabelled", 8, 2.5), ("all", 32, 12)])
def test_what_is_believed_is_right(world: str, attempts: int, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    found = benchmark("bounds").summary(world, attempts, "model", 20)
    assert found["believed"] == 0 if least == 0 else found["believed"] >= least
    assert least == 0 or found["believed_right"] >= found["believed_claimed"] - 0.05


@pytest.mark.parametrize(("tasks", "attempts"), [(200, 4), pytest.param(800, 1, marks=pytest.mark.e2e)])
def test_in_a_loop_the_shipped_method_ends_above_copying_successes(tasks: int, attempts: int) -> None:
    """At equal rows; each at its best learning rate, as `benchmarks/loop.py` has them with more seeds."""
    loop = benchmark("loop")
    setting = loop.Setting(tasks, attempts)
    ours, theirs = (loop.best(name, setting, 2) for name in ("pairs", "sft"))
    assert ours - theirs >= 0.1
