"""The benchmark of nights: its figures from known lines; and, in `make e2e`, that both worlds run through."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import nights_figure
from flywheel.config import EvalConfig, ModelConfig
from flywheel.io.safe_path import VARIABLE
from flywheel.models.policy import PolicySet
from flywheel_desk.serve import DESK
from flywheel_warehouse.serve import COUNTER, WAREHOUSE
from flywheel_worlds.nights import tasks_of
from flywheel_worlds.talk import Scripted, Talk, World, play
from tests.pipeline.evaluate.test_real_servers import running, transformers_serve


def line(
    arm: str, night: int, success: float, *, seed: int = 0, better: tuple[int, int] | None = None, code: str = "0077"
) -> dict[str, Any]:
    promoted = {"won": better[0], "lost": better[1], "p": 0.1} if better else None
    return {
        "world": "warehouse", "arm": arm, "seed": seed, "night": night, "code": code, "better": promoted,
        "seconds": 10.0,
        "production": {"success": success, "harm": 0.0, "interval": [0.0, 1.0]},
        "held_out": {"success": success, "kl": 0.1, "perplexity": 20.0},
        "learned": {"outcome": "promoted" if better else "held", "trained_tokens": 100},
    }  # fmt: skip


def test_the_area_is_paired_by_seed_and_night_and_leaves_the_scripts_night_out() -> None:
    ours = [line("flywheel", night, night / 10, seed=seed) for seed in (0, 1) for night in (1, 2, 3)]
    theirs = [line("sft", night, night / 10 - 0.1, seed=seed) for seed in (0, 1) for night in (1, 2, 3, 4)]
    theirs[0]["production"]["success"] = 1.0
    over = nights_figure.area_over(ours, theirs)
    assert over is not None
    assert over == pytest.approx((0.1, 0.1, 0.1))
    assert nights_figure.area_over(ours, []) is None


def test_the_table_counts_what_promotions_were_worth_and_the_figure_is_the_same_bytes(tmp_path: Path) -> None:
    lines = [line("flywheel", 1, 0.8), line("flywheel", 2, 0.3, better=(5, 1)), line("flywheel", 3, 0.5, better=(1, 2))]
    older = [line("flywheel", 2, 0.1, code="0067"), line("sft", 2, 0.2, code="0067")]
    newest, before, *_ = nights_figure.table([*lines, *older]).splitlines()[2:]
    cells = [cell.strip() for cell in newest.split("|")]
    assert cells[3] == "0077"
    assert cells[6:8] == ["0.400", "-"], "expert iteration ran on other code"
    assert cells[11] == "1, 0, 1"
    assert cells[14] == "300"
    assert "| -0.100 [" in before
    for name in ("one.svg", "two.svg"):
        nights_figure.plot([*lines, *older], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(
    ("size", "world", "policy"),
    [
        pytest.param("FULL", WAREHOUSE, "expert", marks=pytest.mark.e2e),
        ("FULL", DESK, "careful"),
        ("SMALL", COUNTER, "expert"),
    ],
    ids=["warehouse", "desk", "counter"],
)
def test_every_right_action_can_be_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, size: str, world: World, policy: str
) -> None:
    monkeypatch.syspath_prepend(root / "benchmarks")
    settings = getattr(importlib.import_module("nights"), size)
    chat = PolicySet(ModelConfig(base=settings.base), EvalConfig()).chat
    talks = [Talk(world, task, 0) for task in tasks_of(world, 1, 34)[::3]]
    play(talks, Scripted(policy, world.policies[policy]), world.tools)
    actions = [
        chat.ids(chat.completion(talk.messages[:place], world.tools, action))
        for talk in talks
        for place, action in enumerate(talk.messages)
        if action["role"] == "assistant"
    ]
    assert max(map(len, actions)) <= settings.max_new_tokens


@pytest.mark.e2e
def test_four_nights_in_both_worlds(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)  # set where this process has trained; the script imports its neighbours
    command = [sys.executable, root / "benchmarks" / "nights.py", "--quick", "--work", tmp_path]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in (tmp_path / "quick" / "nights.jsonl").read_text().splitlines()]
    assert {(one["world"], one["night"]) for one in lines} == {
        (w, n) for w in ("warehouse", "desk") for n in range(1, 5)
    }
    again = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert again.stdout == done.stdout  # nothing is done twice


@pytest.mark.e2e
def test_a_loop_behind_a_server_teaches_and_decides_what_it_does_in_this_process(root: Path, tmp_path: Path) -> None:
    """Served greedily, because the two sides sample with other random numbers."""
    nights, adapters = [], []
    with running(*transformers_serve()) as (endpoint, _):
        for size, more in (("quick", []), ("quick-served", ["--endpoint", endpoint])):
            command = [sys.executable, root / "benchmarks" / "nights.py", "--quick", *more]
            command += ["--temperature", "0", "--work", tmp_path]
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            lines = (tmp_path / size / "nights.jsonl").read_text().splitlines()
            nights.append([_timeless(json.loads(text)) for text in lines])
            found = (tmp_path / size).glob("*/rounds/*/adapter/adapter_model.safetensors")
            adapters.append([path.read_bytes() for path in sorted(found)])
    assert nights[0] == nights[1]
    verdicts = ["INCONCLUSIVE", "REJECT", None, None]  # given up, and no new row for another round
    assert [one["learned"].get("verdict") for one in nights[0]] == verdicts * 2
    assert adapters[0] == adapters[1] != []


def _timeless(value: Any) -> Any:
    """Return a night's line without its seconds and its settings, which name folders."""
    if not isinstance(value, dict):
        return value
    return {name: _timeless(one) for name, one in value.items() if name not in {"seconds", "settings"}}
