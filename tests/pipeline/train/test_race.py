"""The race of the methods: on training tasks that nobody trains on, in the gate's own measure, within a budget."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.config import Config
from flywheel.extensions import CaseScore
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.plan import make_plan
from flywheel.pipeline.train.race.development import LEAST_TASKS, development_tasks, find_development, stored
from flywheel.pipeline.train.race.run import WORK, Racing
from flywheel.pipeline.train.run import train_round
from flywheel.project import Project
from flywheel.registry.registry import DATASET
from flywheel.stages.selection.halving import Rung, sizes
from tests.policy_server import PolicyServer, serving
from tests.projects import digest, flywheel, make_tiny_model, train

if TYPE_CHECKING:
    from flywheel.records import Plan, Race, RoundManifest

CONFIG = """
[model]
base = "{model}"
dtype = "float32"

[episodes]
holdout_share = 0.2

[train]
cold_start_below = 0
race = 0.25
max_rows = 24
max_steps = {steps}
batch_size = 4
checkpoint_every = 15
grpo_learning_rate = {rate}
sft_learning_rate = {rate}
older_rows = 0
threads = 1

[eval]
suites = ["cases", "next_action"]
max_new_tokens = 44
"""
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}}}]
COLOURS = ["red", "green", "blue", "white", "black", "grey", "pink", "brown"]
THINGS = ["parcel", "letter", "lamp", "table", "book", "coat", "bicycle", "piano", "kettle", "mirror"]


def talk(number: int, *, right: bool, policy: str) -> list[dict[str, Any]]:
    """One attempt at a request; a verifier knows that the door is right."""
    asked = {
        "messages": [{"role": "user", "content": f"Where is the {COLOURS[number % 8]} {THINGS[number // 8 % 10]}?"}],
        "tools": TOOLS,
    }
    call = {"id": f"c{number}", "name": "look", "arguments": {"at": "door" if right else "roof"}}
    made: list[tuple[str, dict[str, Any]]] = [
        ("request", {"payload": asked}),
        ("model_call", {"payload": {"message": {"role": "assistant", "tool_calls": [call]}}}),
        (
            "tool_result",
            {
                "tool_name": "look",
                "tool_call_id": call["id"],
                "payload": {"content": "it is here" if right else "empty"},
            },
        ),
        ("outcome", {"payload": {"name": "check", "value": float(right)}}),
    ]
    name = f"{policy}-{number}-{right}"
    return [
        {"conversation_id": name, "seq": seq, "kind": kind, "policy": policy, **more}
        for seq, (kind, more) in enumerate(made)
    ]


def write_config(folder: Path, *, steps: int = 45, rate: float = 0.02, **settings: Any) -> None:
    text = CONFIG.format(model=folder.parent / "model", steps=steps, rate=rate)
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (folder / "flywheel.toml").write_text(text.replace("[train]\n", f"[train]\n{lines}"), encoding="utf-8")


def ingest(project: Project, policy: str) -> None:
    path = project.folder / f"{policy.replace(' ', '-')}.jsonl"
    lines = [
        json.dumps(line) for n in range(80) for right in (True, False) for line in talk(n, right=right, policy=policy)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    project.ingest([path])
    project.build()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a right and a wrong attempt at each of 80 tasks."""
    folder = tmp_path_factory.mktemp("race")
    make_tiny_model(folder / "model", sharpness=20, tokens=4096)
    (folder / "project").mkdir()
    write_config(folder / "project")
    ingest(Project(folder / "project"), "agent")
    return folder / "project"


@pytest.fixture(scope="module")
def raced(built: Path) -> Path:
    """The same project after its first round."""
    train(Project(copied(built, "raced")))
    return built.parent / "raced"


def copied(project: Path, name: str) -> Path:
    return shutil.copytree(project, project.parent / name, symlinks=True)


def tasks_of(ctx: Context, split: str) -> set[str]:
    episodes = read_table(ctx.store, "episodes").collect()
    return set(episodes.filter(episodes["split"] == split)["task_id"])


def race_of(document: Plan | RoundManifest) -> Race:
    assert document.race is not None
    return document.race


@contextmanager
def behind_a_server(folder: Path, kind: str = "vllm") -> Iterator[PolicyServer]:
    model = folder.parent / "model"
    with serving(PolicyServer(model, kind)) as server:
        text = (folder / "flywheel.toml").read_text()
        (folder / "flywheel.toml").write_text(text.replace("[eval]\n", f'[eval]\nendpoint = "{server.url}"\n'))
        yield server


@pytest.mark.e2e  # six trainers in turn; `tests/pipeline/evaluate/test_served.py` has a candidate of a round loaded
def test_a_server_gets_each_candidate_under_a_name_of_its_own(raced: Path) -> None:
    folder = copied(raced, "served")
    write_config(folder, steps=4)
    Project(folder).promote(1, force=True, reason="a test")
    ingest(Project(folder), "round 1")
    with behind_a_server(folder) as server:
        racing = make_plan(Project(folder).context, 2).racing
        assert racing is not None
        race = racing.run()
        loaded = [body["lora_name"] for path, body in server.seen if path == "/v1/load_lora_adapter"]
    champion = Project(folder).registry.manifest(1).adapter_sha256
    scored = [heat for candidate in race.candidates for heat in candidate.heats if heat.score is not None]
    assert len(set(loaded)) == len(scored) + 1
    assert f"flywheel-{champion[:16]}" in loaded
    assert server.adapters == {}


@pytest.mark.e2e
def test_no_race_is_held_where_a_server_loads_no_adapters(built: Path) -> None:
    folder = copied(built, "no-adapters")
    with behind_a_server(folder, "llama.cpp"):
        race = race_of(Project(folder).plan())
    assert (race.state, race.reason) == ("none", "llama.cpp loads no adapters, and methods are compared by theirs")


def test_a_plan_shows_the_race_before_it_runs(built: Path) -> None:
    project = Project(built)
    plan = project.plan()
    race, apart = race_of(plan), development_tasks(project.context)

    assert (race.state, race.suite, race.metric, race.rungs) == ("planned", "next_action", "next_action_good", 1)
    assert len(apart) == race.tasks == race.cases >= LEAST_TASKS
    why = {candidate.method: candidate.why for candidate in race.candidates}
    assert [method for method, reason in why.items() if not reason] == ["sft", "grpo"]
    assert "logged by another policy than the start" in why["expert"]
    assert why["dpo"].startswith("0 pairs")
    rows = [json.loads(line) for line in make_plan(project.context, 1).dataset.splitlines()]
    assert {row["task_id"] for row in rows} <= tasks_of(project.context, "train") - apart
    assert apart.isdisjoint(tasks_of(project.context, "holdout"))
    printed = flywheel(built, "plan").stdout
    assert f"2 methods on {race.tasks} development tasks, {race.cases} cases of next_action" in printed
    assert re.search(r"\n +expert: not raced: 0 successes", printed)
    assert project.plan() == plan


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"race": 0}, "train.race is 0"),
        ({"race": 0.01}, f"a race needs {LEAST_TASKS}"),
        ({"cold_start_below": 1}, "only sft can be trained"),
        ({"trainer": "own:train"}, "train.trainer trains every method"),
    ],
)
def test_without_a_race_the_rule_decides_and_the_reason_is_said(
    built: Path, settings: dict[str, Any], reason: str
) -> None:
    project = Project(built)
    config = project.config.model_dump()
    config["train"] |= settings
    ctx = Context(built, Config.model_validate(config), project.store, project.context.registry)
    plan = make_plan(ctx, 1).plan
    assert race_of(plan).state == "none"
    assert reason in race_of(plan).reason
    assert plan.method == "sft"
    assert make_plan(ctx.with_method("sft"), 1).plan.race is None


def test_a_suite_that_fails_without_a_policy_is_named_and_asked_again(built: Path) -> None:
    project = copied(built, "failing")
    (project / "own_suite.py").write_text("def scores(policy, holdout, cfg):\n    raise KeyError('text of a log')\n")
    config = Project(project).config.model_dump()
    config["eval"]["suites"] = ["own_suite:scores"]
    ctx = replace(Project(project).context, config=Config.model_validate(config))
    for _ in range(2):
        reason = find_development(ctx, None)
        assert isinstance(reason, str)
        assert reason.endswith("`own_suite:scores` does not show its cases to a policy that does nothing (KeyError)")


def test_the_winner_is_trained_and_the_manifest_keeps_every_score(raced: Path) -> None:
    project = Project(raced)
    manifest = project.registry.manifest(1)
    race = race_of(manifest)

    assert (race.state, race.winner, manifest.method) == ("won", "sft", "sft")
    assert race.parent_score == 0
    heats = {c.method: c.heats for c in race.candidates}
    (sft,), (grpo,) = heats["sft"], heats["grpo"]
    assert sft.score is not None
    assert sft.score > 0.2
    assert sft.delta == sft.score
    assert grpo.score is not None or grpo.error
    assert 0 < sft.tokens + grpo.tokens <= race.tokens
    rows = [json.loads(line) for line in (raced / "rounds" / "0001" / DATASET).read_text().splitlines()]
    assert {row["task_id"] for row in rows}.isdisjoint(development_tasks(project.context))
    assert manifest.timings_s["race"] > 0
    assert not (project.store.root / "cache" / WORK).exists()
    assert "sft, best of 2" in flywheel(raced, "log").stdout
    assert "- grpo: rung 1" in flywheel(raced, "explain", "1").stdout
    assert project.log().rounds[0].raced == 2


class StoppedError(Exception):
    """Somebody stopped it."""


@pytest.mark.e2e
def test_an_interrupted_race_goes_on_and_ends_alike(built: Path, raced: Path) -> None:
    project = Project(copied(built, "interrupted"))
    work, seen = project.store.root / "cache" / WORK, set[str]()

    def stop(metrics: dict[str, Any]) -> None:
        rows = [json.loads(line) for path in work.rglob("train.jsonl") for line in path.read_text().splitlines()]
        seen.update(row["task_id"] for row in rows)
        if metrics.get("step", 0) > 17:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_round(project.context, 1, on_metrics=stop)
    assert project.registry.numbers() == []
    assert list(work.rglob("checkpoint-*"))
    assert seen
    assert seen.isdisjoint(development_tasks(project.context) | tasks_of(project.context, "holdout"))
    train(project)
    assert digest(project.folder) == digest(raced)


@pytest.mark.e2e
def test_a_plan_saved_before_its_race_holds_after_it(built: Path, raced: Path) -> None:
    project = copied(built, "saved")
    flywheel(project, "plan", "--out", str(project / "plan.json"))
    shutil.copytree(
        raced / ".flywheel" / "cache" / "race", project / ".flywheel" / "cache" / "race", dirs_exist_ok=True
    )
    assert race_of(Project(project).plan()) == race_of(Project(raced).registry.manifest(1))
    flywheel(project, "train", "--plan", str(project / "plan.json"))
    assert digest(project) == digest(raced)


def remember(racing: Racing, ours: float | None, theirs: float) -> None:
    """Let the parent and every candidate have scored so much in each case; None: no candidate could be trained."""

    def entry(score: float | None) -> dict[str, Any]:
        if score is None:
            return {"error": "its trainer refused it", "scores": [], "seconds": 1.0}
        cases = racing.development.cases.items()
        scores = [CaseScore(case, task, racing.development.metric, score, primary=True) for case, task in cases]
        return {"error": "", "scores": [asdict(one) for one in scores], "seconds": 1.0}

    store, rungs = racing.ctx.store, sizes(len(racing.names))
    store.cache("race", racing._parent_key(), entry(theirs))
    for number, size in enumerate(rungs, 1):
        for heat in racing._heats(Rung(number, tuple(racing.names), racing.tokens // len(rungs) // size)):
            store.cache("race", heat.key, entry(ours))


@pytest.mark.e2e
def test_where_nothing_is_as_good_as_the_champion_nothing_is_trained(raced: Path) -> None:
    folder = copied(raced, "lost")
    Project(folder).promote(1, force=True, reason="a test")
    project = Project(folder)
    ingest(project, "round 1")
    racing = make_plan(project.context, 2).racing
    assert racing is not None
    assert {"sft", "expert"} <= set(racing.names)

    remember(racing, 1.0, 1.0)
    assert race_of(project.plan()).state == "won", "a tie is trained"
    assert project.plan().method == "sft", "and won by the simplest"
    remember(racing, 0.0, 1.0)
    refused = flywheel(folder, "train", check=False)
    assert refused.returncode == 1
    assert "no method scores as much as round 1" in refused.stderr
    assert project.registry.numbers() == [1]
    race = race_of(project.plan())
    assert (race.state, race.parent_score) == ("lost", 1.0)
    assert "no method is worth a round" in flywheel(folder, "plan").stdout
    night = flywheel(folder, "run", "nightly", "--from", "train")
    assert f"0 of 1 methods as good as round 1 on {race.tasks} development tasks" in night.stdout


@pytest.mark.e2e
def test_where_no_candidate_can_be_trained_the_rule_decides_and_says_so(built: Path) -> None:
    folder = copied(built, "failed")
    write_config(folder, steps=2)
    project = Project(folder)
    racing = make_plan(project.context, 1).racing
    assert racing is not None
    remember(racing, None, 0.0)
    shown = flywheel(folder, "plan").stdout
    assert "no method could be trained in the race; by the rule: " in shown
    assert "sft: rung 1: not trained: its trainer refused it" in shown
    manifest = train(project)
    assert (race_of(manifest).state, race_of(manifest).winner, manifest.method) == ("failed", None, "sft")
    assert manifest.state == "trained"


def test_expert_iteration_trains_on_the_start_policys_own_successes(raced: Path) -> None:
    folder = copied(raced, "expert")
    Project(folder).promote(1, force=True, reason="a test")
    project = Project(folder)
    ingest(project, "round 1")
    planned = make_plan(project.context.with_method("expert"), 2)
    examples = read_table(project.store, "examples").collect()
    episodes = dict(read_table(project.store, "episodes").select("episode_id", "policy").collect().iter_rows())
    policy = {row: episodes[episode] for row, episode in examples.select("example_id", "episode_id").iter_rows()}
    ids = [json.loads(line)["id"] for line in planned.dataset.splitlines()]
    assert ids
    assert {policy[name] for name in ids} == {"round 1"}
    counts = planned.plan.counts
    assert counts["considered"] == counts["kept"] + sum(n for k, n in counts.items() if k.startswith("dropped: "))


def test_a_race_remembers_no_words_of_a_policy() -> None:
    score = CaseScore("c1", "t1", "good", 1.0, primary=True, slices={"kind": "a"}, did="mail Ann")
    (row,) = stored({"c1": score})
    assert CaseScore(**row) == replace(score, slices={}, did="")
