"""Off-policy estimates of a round on a log of a tiny model's actions: what is scored, what is refused at no cost."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel.config import EvalConfig, ModelConfig
from flywheel.io import files
from flywheel.models.policy import PolicySet
from flywheel.pipeline.evaluate.holdout import read_holdout
from flywheel.pipeline.evaluate.off_policy import off_policy_rows
from flywheel.pipeline.evaluate.scorer import PolicyScorer
from flywheel.project import Project
from flywheel.records import EvalReport, OffPolicyEstimate
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.projects import write_config
from tests.reports import manifest, report, row

if TYPE_CHECKING:
    from flywheel.pipeline.context import Context

SAID = ("Yes.", "No.", "Look at the orders.")
ENOUGH = dict.fromkeys(("told", "tilted", "plain", "warm", "round"), 60)  # an effective sample of 50 is asked for
TASKS = {**ENOUGH, "cut": 20, "stranger": 20, "retold": 20}
TELLING = ("told", "tilted", "retold")  # groups whose log tells tokens


def _adapter(tiny_model: Path, folder: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    made = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    made.save_pretrained(folder)


def _question(group: str, i: int) -> str:
    return f"Question {i} of {group}?"


def _served(group: str, i: int, ids: list[int], own: float) -> dict[str, Any]:
    """Return what the log tells of a draw; `own` is the base's log-probability of these tokens."""
    share = {"tilted": math.log(1.5 if i % 2 else 0.5)}.get(group, 0.0)
    told = {"completion_token_ids": ids, "completion_logprobs": [(own - share) / max(1, len(ids))] * len(ids)}
    found: dict[str, dict[str, Any]] = {
        "told": told,
        "tilted": told,
        "warm": {"sampling": {"temperature": 0.7}},
        "cut": {"sampling": {"temperature": 0.7, "top_p": 0.9}},
        "retold": {**told, "completion_token_ids": [*ids[:-1], 5]},
    }
    return found.get(group, {})


def _turns(group: str, i: int) -> list[dict[str, Any]]:
    """Return a conversation; those of the group `told` have two turns."""
    said = [{"role": "assistant", "content": SAID[(i + turn) % 3]} for turn in range(2)]
    asked = [{"role": "user", "content": _question(group, i)}, {"role": "user", "content": "And now?"}]
    return [asked[0], said[0], asked[1], said[1]] if group == "told" else [asked[0], said[0]]


def _log(tiny_model: Path) -> list[dict[str, Any]]:
    made = [(group, i, _turns(group, i)) for group, tasks in TASKS.items() for i in range(tasks)]
    acts = [(t[:at], t[at]) for group, _, t in made if group in TELLING for at in range(1, len(t), 2)]
    policy = PolicySet(ModelConfig(base=str(tiny_model), dtype="float32"), EvalConfig()).policy(None, "base")
    asked = [before for before, _ in acts], [None] * len(acts), [answer for _, answer in acts]
    known = iter(zip(policy.completion_ids(*asked), policy.log_prob(*asked), strict=True))
    events: list[dict[str, Any]] = []
    for group, i, talk in made:
        who = {"round": "round 1", "stranger": "agent-v1", "retold": "agent-v1"}.get(group, "base")
        shared = {"conversation_id": f"{group}{i}", "task_key": f"{group}{i}", "model": group, "policy": who}
        payloads: list[tuple[str, dict[str, Any]]] = []
        for message in talk:
            if message["role"] == "user":
                payloads.append(("request", {"messages": [message]}))
            else:
                ids, (own, _) = next(known) if group in TELLING else ([], (0.0, 0))
                payloads.append(("model_call", {"message": message, **_served(group, i, ids, own)}))
        payloads.append(("outcome", {"name": "check", "value": float(i % 4 > 0), "source": "verifier"}))
        events += [{**shared, "seq": seq, "kind": kind, "payload": told} for seq, (kind, told) in enumerate(payloads)]
    return events


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Project:
    folder = tmp_path_factory.mktemp("likelihoods")
    write_config(folder, tiny_model)
    config = folder / "flywheel.toml"
    config.write_text(f"{config.read_text()}\n[episodes]\nholdout_share = 0.9\n")
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in _log(tiny_model)))
    made = Project(folder)
    made.ingest([folder / "log.jsonl"])
    made.build()
    weights = made.registry.folder(1) / "adapter" / ADAPTER_WEIGHTS
    _adapter(tiny_model, weights.parent)
    made.registry.save(manifest(1, adapter_sha256=files.hash_file(weights)))
    return made


Found = dict[tuple[str, str], OffPolicyEstimate]


def _context(project: Project, said: list[str]) -> Context:
    return replace(project.context, say=said.append)


def _found(ctx: Context, *groups: str) -> tuple[Found, float]:
    """Return the estimates on a part of the log, and its mean reward."""
    holdout = read_holdout(ctx)
    mine = holdout.episodes.filter(pl.col("model").is_in(groups))
    rewards = [float(int(talk.lstrip("abcdefghijklmnopqrstuvwxyz")) % 4 > 0) for talk in _talks(ctx, mine)]
    rows = off_policy_rows(
        ctx, PolicyScorer(ctx, replace(holdout, episodes=mine)), replace(holdout, episodes=mine), (1, None)
    )
    return {(e.target, e.name): e for e in rows}, math.fsum(rewards) / len(rewards)


def _talks(ctx: Context, episodes: pl.DataFrame) -> list[str]:
    events = ctx.store.table("events", "ingest").select("conversation_id", "task_key").unique().collect()
    keys = dict(events.iter_rows())
    return [keys[talk] for talk in episodes["conversation_id"].to_list()]


@pytest.mark.e2e
def test_on_the_policy_that_acted_weights_are_one(project: Project) -> None:
    found, mean = _found(_context(project, []), "told")

    for name in ("IPS", "SNIPS", "MIPS", "PDIS"):
        one = found["baseline", name]
        assert one.state == "good", one.reasons
        assert one.value == pytest.approx(mean, abs=1e-3)
        assert one.earned == pytest.approx(mean)
    numbers = found["baseline", "DR"].certificate
    assert numbers["mean_weight"] == pytest.approx(1, abs=1e-3)
    assert numbers["max_weight"] == pytest.approx(1, abs=1e-3)
    assert found["baseline", "PDIS"].certificate["max_weight"] == pytest.approx(1, abs=1e-3)  # of two decisions
    assert (numbers["logged"], numbers["rescored"], numbers["unknown"]) == (found["baseline", "DR"].n, 0, 0)
    assert found["candidate", "IPS"].certificate["mean_weight"] != pytest.approx(1, abs=1e-2)


def test_logged_probabilities_give_the_known_weights(project: Project) -> None:
    found, _ = _found(_context(project, []), "tilted")

    assert found["baseline", "IPS"].certificate["max_weight"] == pytest.approx(1.5, abs=1e-3)
    assert found["baseline", "IPS"].certificate["mean_weight"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("group", "target"), [("plain", "baseline"), ("warm", "baseline"), ("round", "candidate")])
def test_our_own_policies_are_scored_again_at_the_temperature_of_the_draw(
    project: Project, group: str, target: str
) -> None:
    said: list[str] = []
    found, mean = _found(_context(project, said), group)

    one, other = found[target, "IPS"], found["candidate" if target == "baseline" else "baseline", "IPS"]
    assert one.value == pytest.approx(mean, abs=1e-6)
    assert one.certificate["rescored"] == one.n
    assert one.certificate["max_weight"] == pytest.approx(1, abs=1e-6)
    assert other.certificate["max_weight"] > 1.01
    assert len(said) == 2  # each policy is asked once, though it is target and logger


@pytest.mark.parametrize("group", ["stranger", "cut", "retold"])
def test_unknown_probabilities_are_refused_and_nothing_is_scored(project: Project, group: str) -> None:
    said: list[str] = []
    ctx = _context(project, said)
    scored = {p.name for p in (ctx.store.root / "cache" / "log_probs").glob("*")}
    found, _ = _found(ctx, group)

    assert len(found) == 12
    assert {e.state for e in found.values()} == {"REFUSED"}
    assert {e.value for e in found.values()} == {None}
    (reason,) = {r for e in found.values() for r in e.reasons}
    n = found["candidate", "DR"].n
    assert reason.startswith(f"the probabilities of the policies that acted are unknown for {n} of {n} rows")
    assert said == []
    assert {p.name for p in (ctx.store.root / "cache" / "log_probs").glob("*")} == scored


def test_a_few_unknown_ones_are_left_out_and_counted(project: Project) -> None:
    found, _ = _found(_context(project, []), "tilted", "plain", "stranger")
    numbers = found["baseline", "DR"].certificate
    assert all(numbers[name] > 0 for name in ("logged", "rescored", "unknown"))
    assert found["baseline", "DR"].n == numbers["logged"] + numbers["rescored"]
    assert sum(numbers[name] for name in ("logged", "rescored", "unknown")) == 100  # eval.off_policy_cases


def test_the_same_log_gives_the_same_estimates_scored_or_remembered(project: Project) -> None:
    ctx, said = project.context, list[str]()
    first, _ = _found(ctx, "tilted")
    again, _ = _found(_context(project, said), "tilted")
    assert (again, said) == (first, [])
    for path in (ctx.store.root / "cache").rglob("*.json"):
        path.unlink()
    assert _found(ctx, "tilted")[0] == first


def test_none_are_asked_for(project: Project) -> None:
    cfg = project.config.model_copy(update={"eval": project.config.eval.model_copy(update={"off_policy_cases": 0})})
    assert _found(replace(project.context, config=cfg), "told")[0] == {}


def test_a_template_that_refuses_the_log_fails_nothing(project: Project, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "strict"
    shutil.copytree(tiny_model, folder)
    for path in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        if path.suffix == ".jinja" and path.exists():
            path.unlink()
        elif path.suffix == ".json":
            strict = "{{ raise_exception('only what I know') }}"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": strict}))
    model = project.config.model.model_copy(update={"base": str(folder)})
    ctx = replace(project.context, config=project.config.model_copy(update={"model": model}))

    found, _ = _found(ctx, "told")
    assert {(e.state, *e.reasons) for e in found.values()} == {
        ("REFUSED", "the policies could not be asked: the chat template raises TemplateError")
    }


def test_a_report_keeps_them(project: Project) -> None:
    found, _ = _found(project.context, "tilted")
    made = report(row(3, 1, 20), off_policy=list(found.values()))
    assert EvalReport.model_validate_json(made.model_dump_json()) == made
