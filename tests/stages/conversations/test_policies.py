"""Who acted where no log says so: by model, run, file or folder, on the layouts that people have."""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest
from flywheel.stages.conversations.policies import UNKNOWN, acts, build_policies
from hypothesis import given
from hypothesis import strategies as st

Rows = list[dict[str, str | None]]


def log(
    file: str, *, model: str | None = None, tasks: Iterable[int] = range(4), policy: str | None = None
) -> list[dict[str, str | None]]:
    """Return the acts of one file, one conversation a task."""
    return [
        {"conversation_id": f"{file}#{task}", "kind": "model_call", "model": model, "policy": policy,
         "task_key": f"t{task}", "source_file": file}
        for task in tasks
    ]  # fmt: skip


def named(*logs: Rows) -> dict[str, tuple[str, str]]:
    """Return policy and rule by file."""
    rows = [row for one in logs for row in one]
    schema = dict.fromkeys(("conversation_id", "kind", "model", "policy", "task_key", "source_file"), pl.String)
    table = build_policies(acts(pl.DataFrame(rows, schema=schema)))
    return {row["source_file"]: (row["policy"], row["rule"]) for row in table.iter_rows(named=True)}


def policies(*logs: Rows) -> list[str]:
    found = named(*logs)
    return [found[file][0] for file in dict.fromkeys(row["source_file"] or "" for one in logs for row in one)]


def test_the_name_that_a_turn_states_is_that_of_its_acts() -> None:
    """Codex names its model once a turn, and not on the replies."""
    replies = log("sessions/a.jsonl", tasks=[1, 2])
    turns = [{**row, "kind": "request", "model": "m", "policy": "codex/m"} for row in replies]
    other = [{**replies[0], "kind": "request", "model": "n", "policy": "codex/n"}]
    assert named(replies, turns, turns, other) == {"sessions/a.jsonl": ("codex/m", "log")}


def test_one_log_without_any_name_is_unknown_and_with_a_model_its_model() -> None:
    assert named(log("logs/a.jsonl")) == {"logs/a.jsonl": (UNKNOWN, "none")}
    assert named(log("logs/a.jsonl", model="gpt-4o")) == {"logs/a.jsonl": ("gpt-4o", "model")}


def test_nine_runs_without_a_model_are_nine_policies() -> None:
    runs = [f"results/{how}_{size}/results.jsonl" for how in ("cot", "react", "direct") for size in ("s", "m", "l")]
    found = named(*(log(run) for run in runs))
    assert set(found.values()) == {(run.split("/")[1], "folder") for run in runs}


@pytest.mark.parametrize("pattern", ["run_{}.jsonl", "exp{}/results.jsonl", "out/run-{}/traj.jsonl", "results_{}.json"])
def test_runs_that_only_a_number_tells_apart_are_runs_if_they_repeat_tasks(pattern: str) -> None:
    assert len(set(policies(*(log(pattern.format(n)) for n in range(1, 10))))) == 9


def test_three_settings_of_one_model_are_three_policies() -> None:
    settings = ["runs/no-tools/results.jsonl", "runs/tools/results.jsonl", "runs/tools-memory/results.jsonl"]
    assert named(*(log(file, model="gpt-4o") for file in settings)) == {
        file: (f"gpt-4o/{file.split('/')[1]}", "folder") for file in settings
    }
    files = [f"outputs/gpt-4o_temp{t}_2026-10-0{n}.jsonl" for n, t in enumerate(("0.0", "0.7", "1.0"), 1)]
    assert len(set(policies(*(log(file, model="gpt-4o") for file in files)))) == 3


def test_repeated_trials_of_one_model_are_one_policy() -> None:
    for pattern in ("trial_{}.json", "seed{}/results.jsonl", "eval--gpt/{}9a7458f/results.jsonl", "run-{}/out.jsonl"):
        assert set(policies(*(log(pattern.format(n), model="gpt-4o") for n in range(1, 9)))) == {"gpt-4o"}


@pytest.mark.parametrize(
    "pattern",
    [
        "logs/agent-2026-10-{:02}.jsonl", "logs/2026/10/{:02}/agent.jsonl", "logs/agent.log.{}",
        "logs/agent.jsonl.{}.gz", "logs/202610{:02}T120000Z.jsonl", "logs/part-{:05}.parquet",
        "logs/agent.2026-10-{:02}_13.jsonl.gz", "logs/17908500{:02}.jsonl",
        "logs/{:08x}-0000-4000-8000-000000000000.jsonl", "logs/agent_shard_{}_of_20.jsonl",
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", [None, "gpt-4o"])
def test_a_rotated_log_is_one_policy(pattern: str, model: str | None) -> None:
    days = [log(pattern.format(n), model=model, tasks=range(10 * n, 10 * n + 10)) for n in range(1, 20)]
    assert set(policies(*days)) == {model or UNKNOWN}


def test_a_file_per_model_is_a_policy_per_model() -> None:
    files = ["gpt-3.5.jsonl", "gpt-4.jsonl", "claude-3-5-sonnet.jsonl", "claude-3-7-sonnet.jsonl"]
    assert named(*(log(f"results/{file}") for file in files)) == {
        f"results/{file}": (file.removesuffix(".jsonl"), "file") for file in files
    }


def test_agents_that_never_meet_the_same_task_are_told_apart_by_name_only_without_a_model() -> None:
    support, sales = "logs/support/2026-10-01.jsonl", "logs/sales/2026-10-01.jsonl"
    assert policies(log(support, tasks=range(9)), log(sales, tasks=range(10, 19))) == ["support", "sales"]
    tenants = [log(f"logs/tenant-{name}.jsonl", model="m", tasks=[n, n + 100]) for n, name in enumerate("abc")]
    assert set(policies(*tenants)) == {"m"}


def test_a_file_a_conversation_is_no_run_but_its_folder_is() -> None:
    files = [log(f"runs/{run}/django__django-{n}.traj.json", tasks=[n]) for run in ("base", "tuned") for n in range(30)]
    assert set(policies(*files)) == {"base", "tuned"}
    deep = [log(f"runs/{run}/task{n}/t.traj.json", tasks=[n]) for run in ("base", "tuned") for n in range(30)]
    assert set(policies(*deep)) == {"base", "tuned"}
    assert set(policies(*(log(f"runs/task-{n}.json", tasks=[n]) for n in range(30)))) == {UNKNOWN}


def test_members_of_an_archive_are_files_in_a_folder() -> None:
    assert policies(log("all.zip!/cot/results.jsonl"), log("all.zip!/direct/results.jsonl")) == ["cot", "direct"]


def test_what_the_log_names_is_left_alone() -> None:
    assert named(log("a.jsonl", policy="shop@3", model="m")) == {}
    assert named(log("a.jsonl", policy="m", model="m")) == {"a.jsonl": ("m", "model")}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a/x.jsonl", "b/x.jsonl", "b/2026-01-01.jsonl", "c.json"]),
            st.sampled_from([None, "m", "n"]),
            st.integers(0, 5),
        ),
        min_size=1,
    ),
    st.integers(0, 99),
)
def test_the_order_of_events_changes_nothing_and_every_model_is_in_its_name(
    rows: list[tuple[str, str | None, int]], seed: int
) -> None:
    logs = [log(file, model=model, tasks=[task]) for file, model, task in rows]
    shuffled = [*logs]
    random.Random(seed).shuffle(shuffled)  # noqa: S311
    assert named(*logs) == named(*shuffled)
    table = build_policies(
        acts(
            pl.DataFrame(
                [row for one in logs for row in one],
                schema=dict.fromkeys(
                    ("conversation_id", "kind", "model", "policy", "task_key", "source_file"), pl.String
                ),
            )
        )
    )
    assert all(row["policy"].startswith(row["actor"]) and row["policy"] for row in table.iter_rows(named=True))


def test_settings_of_an_agent_with_a_model_are_distinguished_too() -> None:
    """As coding agents log it: a folder a run, a file a task, and AGENT/MODEL as the policy."""
    runs = {"dev": "agent-1/m", "dev_rerun": "agent-1/m", "dev_noparallel": "agent-1/m"}
    files = [
        log(f"runs/{run}/task-{n}.traj.json", tasks=[n], policy=actor, model="m")
        for run, actor in runs.items()
        for n in range(20)
    ]
    found = named(*files)
    assert {found[f"runs/{run}/task-3.traj.json"] for run in ("dev", "dev_rerun")} == {("agent-1/m/dev", "folder")}
    assert found["runs/dev_noparallel/task-3.traj.json"] == ("agent-1/m/dev_noparallel", "folder")
    assert named(log("a.json", policy="agent-1/m", model="m")) == {"a.json": ("agent-1/m", "log")}
