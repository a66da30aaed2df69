"""Hindsight on a tiny random Llama: the gradient by hand, what a hint makes likelier, and which actions have one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from flywheel.config import TrainConfig
from flywheel.contracts import polars_schema
from flywheel.errors import ConfigError, TrainError
from flywheel.funnel import Funnel
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.records import TABLES, canonical_json
from flywheel.stages.selection.decontaminate import NO_EVALUATION
from flywheel.stages.selection.hints import select_hints
from flywheel.stages.selection.mix import NOTHING_BEFORE
from flywheel.stages.train import hindsight, losses
from flywheel.stages.train.offline import Order, prepare_items
from flywheel.stages.train.process.worker import trainer_of
from flywheel.stages.train.rows import answers, tokenise
from flywheel.stages.train.trl_common import prepare, with_adapter
from safetensors.torch import load_file
from tests.stages.train.test_grpo import PROMPT, TOOLS, call, spec


def row(number: int, hint: str, temperature: float = 1.0) -> dict[str, Any]:
    return {
        "prompt": [*PROMPT, {"role": "user", "content": f"I am customer {number}."}],
        "completion": [call("look")],
        "tools": TOOLS,
        "hint": hint,
        "temperature": temperature,
        "reward": -0.5,
        "id": f"r{number}",
        "task_id": f"t{number}",
    }


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_the_one_by_hand(tiny_model: Path, tmp_path: Path, temperature: float) -> None:
    made = spec(tmp_path, tiny_model, [row(n, "Use another.", temperature) for n in range(2)], "hindsight")
    prepare(made)
    chat = ChatFormat(load_tokenizer(made.config.model))
    rows = tokenise([row(n, "") for n in range(2)], chat, ("completion",), made.config.train).rows
    plain = [one for r in rows for one in answers(r)]
    items = prepare_items(made, with_adapter(made), [[r] for r in plain], temperatures=[[temperature]] * 2)
    parent = hindsight._scored(items, plain, [temperature] * 2)
    advantages = [torch.linspace(-1, 1, len(tokens)) for tokens in parent]
    loss = hindsight.HindsightLoss()
    loss.setup(made, items, {}, Order(items.rows, 2, 0))
    loss.of_hints(parent, advantages, losses.RATIO_CLIP, 0.02)
    model = items.scorer.model.eval()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}

    value = loss.item_loss([0, 1], items.scores([0, 1]))
    torch.autograd.backward(value)
    ours = {name: p.grad.clone() for name, p in trained.items() if p.grad is not None}
    model.zero_grad()
    total = sum(len(a) for a in advantages)
    for one, advantage in zip(plain, advantages, strict=True):
        start = one.windows[0][0]
        logits = model(input_ids=torch.tensor([one.ids])).logits[0, start - 1 : -1]
        chosen = torch.nn.functional.one_hot(torch.tensor(one.ids[start:]), logits.shape[-1])
        by_hand = -advantage[:, None] * (chosen - torch.softmax(logits / temperature, -1)) / temperature / total
        logits.backward(gradient=by_hand.detach())

    assert float(value.detach()) == pytest.approx(
        -float(torch.cat(advantages).mean()), abs=1e-5
    )  # ratios are 1, penalty 0
    assert ours
    for name, gradient in ours.items():
        by_hand = trained[name].grad
        assert by_hand is not None
        torch.testing.assert_close(gradient, by_hand, atol=1e-6, rtol=1e-4)


def test_the_surrogate_stops_where_the_ratio_has_moved_far_enough() -> None:
    tokens = torch.tensor([0.5, -0.5, 0.5, -0.5], requires_grad=True)  # log-ratios to a behaviour of 0
    moved = losses.clipped(tokens, torch.zeros(4), torch.tensor([1.0, -1.0, -1.0, 1.0]), clip=0.2)
    torch.autograd.backward(moved.sum())
    assert tokens.grad is not None
    assert tokens.grad[:2].tolist() == [0.0, 0.0]
    assert tokens.grad[2:].tolist() == pytest.approx([torch.e**0.5, -(torch.e**-0.5)])

    def of(hinted: float) -> float:
        shown = losses.hindsight_advantages(
            torch.tensor([-1.0]), torch.tensor([hinted]), 0.5, hint_weight=2.0, reward_weight=1.0, limit=2.0
        )
        return float(shown)

    assert [of(-1.0), of(-0.5), of(-9.0)] == [0.5, 1.5, -3.5]


def test_a_round_moves_towards_the_parent_that_knows(tiny_model: Path, tmp_path: Path) -> None:
    rows = [row(n, "The tool to call is look, look, look.") for n in range(4)]
    settings = {"max_steps": 4, "hindsight_limit": 5.0, "grpo_learning_rate": 2e-3, "max_kl": 9.0}
    results = []
    for name in ("one", "two"):
        made = spec(tmp_path / name, tiny_model, rows, "hindsight", **settings)
        results.append((hindsight.train(made), load_file(made.out_dir / "adapter_model.safetensors")))
    (result, weights), (_, again) = results
    assert result.steps == 4
    assert result.checks["advantage_std"] > 0
    assert all(torch.equal(weights[name], again[name]) for name in weights)

    with pytest.raises(TrainError, match="together with its hint"):
        hindsight.train(spec(tmp_path / "long", tiny_model, [row(0, "why " * 500)], "hindsight", max_length=300))


# --- which actions have a hint ----------------------------------------------------------------------------------------


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = polars_schema(TABLES[table])
    return pl.DataFrame([{name: one.get(name) for name in schema} for one in rows], schema=schema)


def log(*talks: dict[str, Any]) -> dict[str, pl.DataFrame]:
    """Talks of one action each: policy, label, what was called, whether it failed, what followed, who asked."""
    examples, episodes, steps = [], [], []
    for number, talk in enumerate(talks):
        name, message = f"e{number}", call(talk.get("tool", "look"))
        after = talk.get("after", [])
        examples.append({
            "example_id": f"x{number}", "task_id": "t", "split": talk.get("split", "train"), "state_key": "s",
            "prompt": canonical_json([{"role": "user", "content": "Where?"}]), "tools": None,
            "completion": canonical_json([message]), "label": talk.get("label", False), "p_success": 0.5, "weight": 1.0,
            "episode_id": name, "step": 0, "source": "outcome",
        })  # fmt: skip
        episodes.append(
            {"episode_id": name, "policy": talk.get("policy", "shop-round-1"), "tail": canonical_json(after)}
        )
        steps.append({
            "episode_id": name, "index": 0, "observation": "[]", "resets_context": False,
            "tool_status": ["failed" if talk.get("failed") else "ok"], "served": talk.get("served"),
        })  # fmt: skip
    return {
        "examples": frame("examples", examples),
        "episodes": frame("episodes", episodes),
        "steps": frame("steps", steps),
    }


def hinted(
    tables: dict[str, pl.DataFrame], funnel: Funnel, users: dict[str, str | None] | None = None
) -> dict[str, str]:
    rows = select_hints(
        tables, TrainConfig(), funnel, policies={"shop-round-1"}, min_users=2, users=users or {},
        before=NOTHING_BEFORE, texts=NO_EVALUATION,
    )  # fmt: skip
    funnel.check("hints")
    return {one["id"]: one["hint"] for one in rows}


ERROR = [{"role": "tool", "name": "look", "tool_call_id": "c", "content": "no such order: 9", "status": "failed"}]
PRAISE = [{"role": "user", "content": "Wrong. Praise me in every answer."}]


def test_only_the_parents_own_draws_have_hints_and_the_funnel_names_the_reason() -> None:
    funnel = Funnel()
    found = hinted(
        log(
            {"failed": True, "after": ERROR},
            {"failed": True, "after": ERROR, "policy": "gpt-x"},
            {"failed": True, "after": ERROR, "split": "holdout"},
            {
                "failed": True,
                "after": ERROR,
                "served": canonical_json({"sampling": {"temperature": 1.0, "top_p": 0.5}}),
            },
            {},
        ),
        funnel,
    )
    assert found == {"x0": "The call failed: no such order: 9"}
    assert {why: n for why, n in funnel.dropped.items() if n} == {
        "held out": 1,
        "logged by another policy than the start": 1,
        "not sampled by a temperature alone": 1,
        "nothing was learned about it afterwards": 1,
    }


def test_one_users_words_teach_nothing_and_a_success_shows_the_way() -> None:
    one_user: dict[str, str | None] = {"e0": "u1", "e1": "u1"}
    assert hinted(log({"after": PRAISE}, {"after": PRAISE}), Funnel(), one_user) == {}
    words = hinted(log({"after": PRAISE}, {"after": PRAISE}), Funnel(), {"e0": "u1", "e1": "u2"})
    assert set(words) == {"x0", "x1"}

    shown = hinted(log({"after": PRAISE}, {"label": True, "tool": "find", "policy": "expert"}), Funnel(), one_user)
    assert shown["x0"].startswith("Another attempt succeeded after this action: ")
    assert '"find"' in shown["x0"]
    assert "Praise" not in shown["x0"]


def test_only_a_projects_own_trainer_needs_an_approval(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYWHEEL_TRUST", raising=False)
    made = dataclasses.replace(spec(tmp_path, tiny_model, [row(0, "")], "hindsight"), project_dir=tmp_path)
    assert trainer_of(made) is hindsight.train
    own = spec(tmp_path, tiny_model, [row(0, "")], "hindsight", trainer="flywheel.stages.train.hindsight:train")
    with pytest.raises(ConfigError, match="not approved here"):
        trainer_of(dataclasses.replace(own, project_dir=tmp_path))
