"""Offline GRPO on a tiny random Llama: logged log-probabilities matter, groups may be ragged, far logs are refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.config import Config, ModelConfig, TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io import files
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_base, load_tokenizer
from flywheel.models.token_rows import attempt_rows
from flywheel.records import canonical_json
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.datasets.groups import advantages
from flywheel.stages.train import dpo, grpo, kto
from flywheel.stages.train.group_rows import Member, read_groups
from flywheel.stages.train.kl import Probe
from flywheel.stages.train.offline import Items
from flywheel.stages.train.process.checkpoints import trim_metrics
from flywheel.stages.train.sharing import tree
from flywheel.stages.train.sharing.decide import Sharing
from flywheel.stages.train.sharing.kernels import head_log_probs
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.trl_common import with_adapter
from safetensors.torch import load_file

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
PROMPT = [{"role": "system", "content": "Help with orders. " * 6}, {"role": "user", "content": "Where is order 7?"}]


def call(name: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", "name": name, "arguments": {}}]}


def attempt(last: str, *, tool: str = "look") -> list[dict[str, Any]]:
    """Two actions with a tool's result between them."""
    result = {"role": "tool", "name": tool, "tool_call_id": "c", "content": "secret result of the tool"}
    return [call(tool), result, {"role": "assistant", "content": last}]


def group(number: int, size: int) -> dict[str, Any]:
    texts = ["It is on its way.", "I do not know.", "It is lost.", "Tomorrow.", "Please wait."][:size]
    rewards = [1.0 if i % 2 == 0 else 0.0 for i in range(size)]
    return {
        "prompt": [*PROMPT, {"role": "user", "content": f"I am customer {number}."}],
        "tools": TOOLS,
        "completions": [attempt(text) for text in texts],
        "rewards": rewards,
        "advantages": advantages(rewards),
        "policies": ["base"] * size,
        "task_id": f"t{number}",
    }


GROUPS = [group(0, 4), group(1, 2), group(2, 3), group(3, 5)]


def spec(folder: Path, model: Path, rows: list[dict[str, Any]], method: Any = "grpo", **train: Any) -> TrainSpec:
    settings = {"max_steps": 3, "checkpoint_every": 2, "batch_size": 2, "threads": 1, "grpo_learning_rate": 5e-3}
    config = Config.model_validate({"model": {"base": str(model), "dtype": "float32"}, "train": {**settings, **train}})
    files.atomic_write(folder / "train.jsonl", "".join(canonical_json(r) + "\n" for r in rows))
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    return TrainSpec(1, method, folder / "train.jsonl", folder / "adapter", work, str(model), None, "parent", config, 0)


def trained(made: TrainSpec) -> tuple[TrainResult, dict[str, torch.Tensor], list[dict[str, Any]]]:
    result = {"grpo": grpo, "kto": kto, "dpo": dpo}[made.method].train(made)
    metrics = [json.loads(line) for line in (made.work_dir / "metrics.jsonl").read_text().splitlines()]
    return result, load_file(made.out_dir / ADAPTER_WEIGHTS), [m for m in metrics if "loss" in m]


def member_rows(messages: Any, prompt: Any, tools: Any, chat: ChatFormat) -> list[Row]:
    return [Row(part.ids, part.windows) for part in attempt_rows(messages, prompt, tools, chat)]


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[k] - other[k]).abs().max()) for k in one)


def with_log_probs(rows: list[dict[str, Any]], model: Path, a_token: float) -> list[dict[str, Any]]:
    """The same groups, every action's tokens logged with one log-probability."""
    chat = ChatFormat(load_tokenizer(ModelConfig(base=str(model))))
    made = []
    for row in rows:
        told = []
        for messages in row["completions"]:
            members = member_rows(messages, row["prompt"], row["tools"], chat)
            windows = [r.ids[a:b] for r in members for a, b in r.windows]
            told.append([{"ids": list(w), "log_probs": [a_token] * len(w)} for w in windows])
        made.append({**row, "log_probs": told, "policies": [""] * len(row["policies"])})
    return made


def with_own_log_probs(rows: list[dict[str, Any]], model: Path, temperature: float) -> list[dict[str, Any]]:
    """The same groups by an unnamed policy, every token logged with what the model gives it at a temperature."""
    settings = ModelConfig(base=str(model), dtype="float32")
    scorer = Scorer(load_base(settings).eval())
    chat = ChatFormat(load_tokenizer(settings))
    made = []
    for row in rows:
        told: list[list[dict[str, Any]]] = []
        for messages in row["completions"]:
            members = member_rows(messages, row["prompt"], row["tools"], chat)
            with torch.inference_mode(), scorer.at(temperature):
                scores = [s.tolist() for s in scorer.plain(members)]
            told.append([])
            for member, own in zip(members, scores, strict=True):
                left = iter(own)
                told[-1] += [
                    {"ids": list(member.ids[a:b]), "log_probs": [next(left) for _ in range(a, b)]}
                    for a, b in member.windows
                ]
        made.append({**row, "log_probs": told, "policies": [""] * len(row["policies"])})
    return made


def test_only_actions_are_trained_and_steps_that_continue_are_one_row(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(base=str(tiny_model)))
    (row,) = member_rows(attempt("It is on its way."), PROMPT, TOOLS, ChatFormat(tokenizer))
    texts = [tokenizer.decode(row.ids[a:b]) for a, b in row.windows]

    assert len(texts) == 2
    assert "look" in texts[0]
    assert "on its way" in texts[1]
    assert not any("secret" in t or "customer" in t for t in texts)
    assert "secret" in tokenizer.decode(row.ids)


def test_an_attempt_is_trained_after_what_it_was_asked_itself(tiny_model: Path) -> None:
    """Attempts at one task are asked in other words, and for other numbers."""
    tokenizer, own = load_tokenizer(ModelConfig(base=str(tiny_model))), group(0, 2)
    asked = [[PROMPT[0], {"role": "user", "content": f"Where is order {n}?"}] for n in (7, 9)]
    (members,), _ = read_groups([own | {"prompts": asked}], ChatFormat(tokenizer), TrainConfig())
    texts = [tokenizer.decode(member.rows[0].ids) for member in members]
    assert [[f"order {n}?" in text for n in (7, 9)] for text in texts] == [[True, False], [False, True]]
    (members,), _ = read_groups([own], ChatFormat(tokenizer), TrainConfig())
    assert all("customer 0" in tokenizer.decode(member.rows[0].ids) for member in members)


@pytest.mark.e2e
def test_logged_log_probabilities_change_what_is_learned(tmp_path: Path, tiny_model: Path) -> None:
    """TRL's GRPOTrainer without vLLM ends with the same weights for -0.5 and -25 a token."""
    near, far = (
        trained(spec(tmp_path / n, tiny_model, with_log_probs(GROUPS, tiny_model, x), grpo_mask_kl=100, grpo_min_ess=0))
        for n, x in (("near", -0.5), ("far", -25.0))
    )

    assert apart(near[1], far[1]) > 1e-4
    assert near[2][0]["ratio"] < far[2][0]["ratio"]
    assert near[0].checks["behaviour_known"] == 1.0


def test_behaviour_of_the_base_is_scored_again_and_starts_at_one(tmp_path: Path, tiny_model: Path) -> None:
    result, _, seen = trained(spec(tmp_path, tiny_model, GROUPS))

    assert result.checks["ess_step0"] == pytest.approx(1.0, abs=1e-4)
    assert result.checks["members"] == 14
    assert result.checks["shared_prefix"] == 1.0
    assert seen[0]["ratio"] == pytest.approx(1.0, abs=1e-3)
    assert seen[0]["penalty"] == pytest.approx(0.0, abs=1e-6)
    assert {"ess", "clipped", "positive_share", "masked", "positive_log_prob"} <= set(seen[-1])


def drawn(model: Any, prompt: list[int], temperature: float, length: int) -> tuple[list[int], list[float]]:
    """Draw tokens at a temperature, as generation does, with the log-probability of each draw."""
    chance, ids, told = torch.Generator().manual_seed(7), list(prompt), []
    with torch.inference_mode(), model.disable_adapter():
        for _ in range(length):
            chances = torch.softmax(model(torch.tensor([ids])).logits[0, -1].double() / temperature, -1)
            ids.append(int(torch.multinomial(chances, 1, generator=chance)))
            told.append(float(chances[ids[-1]].log()))
    return ids, told


@pytest.mark.parametrize("share", [False, True])
def test_scored_again_a_draw_has_the_probabilities_that_it_was_drawn_with(
    tmp_path: Path, tiny_model: Path, *, share: bool
) -> None:
    made = spec(tmp_path, tiny_model, GROUPS)
    model = with_adapter(made)
    groups, told = [], []
    for temperature in (0.7, 1.0, 1.6):
        ids, log_probs = drawn(model, [5, 9, 30, 41], temperature, 24)
        rows = (Row(tuple(ids), ((4, len(ids)),)),)
        groups.append([Member(rows, -1.0, "base", None, temperature), Member(rows, 1.0, "", None)])
        told.append(log_probs)
    scorer = Scorer(model.eval())
    scorer.sharing = share
    items = Items(
        [[row for m in group for row in m.rows] for group in groups], [], scorer, Sharing(share, "as the test says")
    )
    found = grpo.behaviour_scores(made, items, groups)
    for (scores, nobody), log_probs in zip(found, told, strict=True):
        assert nobody is None
        assert scores is not None
        assert scores.tolist() == pytest.approx(log_probs, abs=1e-4)
    at_one = items.scorer([groups[0][0].rows[0]])[0].tolist()
    assert at_one != pytest.approx(told[0], abs=1e-2)  # as it was, it would have been another policy


@pytest.mark.parametrize(
    ("temperature", "logged"),
    [
        pytest.param(temperature, logged, marks=[pytest.mark.e2e] if temperature != 0.7 else [])
        for temperature in (0.5, 0.7, 1.0)
        for logged in (False, True)
    ],
)
def test_a_policys_own_logs_overlap_with_it_at_any_temperature(
    tmp_path: Path, tiny_model: Path, *, temperature: float, logged: bool
) -> None:
    own = [{**row, "temperatures": [temperature] * len(row["policies"])} for row in GROUPS]
    if logged:  # as a server logs them that gives the sampler's probabilities
        own = with_own_log_probs(own, tiny_model, temperature)
    result, _, seen = trained(spec(tmp_path, tiny_model, own, max_steps=1, grpo_kl=0.5))
    assert result.checks["behaviour_known"] == 1.0
    assert result.checks["overlap_step0"] == pytest.approx(1.0, abs=2e-3)
    assert result.checks["ess_step0"] == pytest.approx(1.0, abs=2e-3)
    assert seen[0]["ratio"] == pytest.approx(1.0, abs=2e-3)
    assert seen[0]["penalty"] == pytest.approx(0.0, abs=1e-5), "the reference is the model at this temperature too"


def test_members_of_several_temperatures_are_each_trained_at_their_own(tmp_path: Path, tiny_model: Path) -> None:
    mixed = [{**row, "temperatures": [(0.5, 1.0, 1.3)[i % 3] for i in range(len(row["policies"]))]} for row in GROUPS]
    result, _, _ = trained(spec(tmp_path, tiny_model, mixed, max_steps=1))
    assert result.checks["overlap_step0"] == pytest.approx(1.0, abs=2e-3)


def test_each_action_is_trained_by_its_own_step(tmp_path: Path, tiny_model: Path) -> None:
    """A success's bad step is pushed down and its good one up, where whole attempts would raise both."""
    steps = [{**row, "step_advantages": [[-1.0, 1.0] for _ in row["policies"]]} for row in GROUPS]
    made = spec(tmp_path, tiny_model, steps, max_steps=12, grpo_min_ess=0, grpo_kl=0.0, grpo_mask_kl=100.0, max_kl=100)
    trained(made)
    settings = ModelConfig(base=str(tiny_model), dtype="float32")
    chat = ChatFormat(load_tokenizer(settings))
    (row,) = member_rows(GROUPS[0]["completions"][0], GROUPS[0]["prompt"], GROUPS[0]["tools"], chat)
    first = len(Row(row.ids, row.windows[:1]).trained)
    model = with_adapter(dataclasses.replace(made, start_adapter=made.out_dir))
    with torch.inference_mode():
        after = Scorer(model.eval()).plain([row])[0]
        with model.disable_adapter():
            before = Scorer(model).plain([row])[0]
    change = (after - before).tolist()
    assert sum(change[:first]) < 0 < sum(change[first:])


def test_a_draw_that_nobody_can_score_again_is_not_trained_against(tmp_path: Path, tiny_model: Path) -> None:
    cut = [{**row, "temperatures": [None] * len(row["policies"])} for row in GROUPS]
    result, _, seen = trained(spec(tmp_path, tiny_model, cut))
    assert result.checks["behaviour_known"] == 0.0
    assert all(m["positive_share"] == pytest.approx(1.0) for m in seen)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_the_slope_at_a_temperature_is_autograds(cap: float | None) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 20).requires_grad_(requires_grad=False)
    targets, hidden = torch.randint(0, 20, (300,)), torch.randn(300, 8, requires_grad=True)
    weights = torch.randn(300)
    (ours,) = torch.autograd.grad((head_log_probs(hidden, head, targets, cap, 0.7) * weights).sum(), hidden)
    logits = head(hidden)
    logits = torch.tanh(logits / cap) * cap if cap else logits
    told = torch.log_softmax(logits / 0.7, -1)[torch.arange(300), targets]
    (theirs,) = torch.autograd.grad((told * weights).sum(), hidden)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_bad_attempts_of_an_unknown_policy_are_not_trained_against(tmp_path: Path, tiny_model: Path) -> None:
    unknown = [{**row, "policies": ["gpt"] * len(row["policies"])} for row in GROUPS]
    result, _, seen = trained(spec(tmp_path, tiny_model, unknown))

    assert result.checks["behaviour_known"] == 0.0
    assert all(m["positive_share"] == pytest.approx(1.0) for m in seen)


def test_logs_too_far_from_the_policy_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    rows = with_log_probs(GROUPS, tiny_model, -5.0)
    for row in rows:
        for told in row["log_probs"]:
            step = float(torch.rand(1, generator=chance)) * 9
            told[:] = [{**t, "log_probs": [-step] * len(t["ids"])} for t in told]
    with pytest.raises(TrainError, match=r"too far from the policy: effective sample size"):
        trained(spec(tmp_path, tiny_model, rows, grpo_min_ess=0.9))


@pytest.mark.e2e
@pytest.mark.parametrize("method", ["grpo", *(pytest.param(name, marks=pytest.mark.e2e) for name in ("dpo", "kto"))])
def test_accumulated_passes_and_separate_rows_end_alike(
    method: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 x 4 == 4 x 1 (but for KTO, whose loss is of a batch), and packed == padded."""
    rows: list[dict[str, Any]] = {"grpo": GROUPS, "dpo": pairs(4), "kto": actions(4)}[method]
    ways = {"whole": (4, 1, 1.15), "cut": (1, 4, 1.15), "padded": (4, 1, 1e9)}
    found = {}
    for name, (batch, accumulation, worth) in ways.items():
        monkeypatch.setattr(tree, "_WORTH", worth)
        made = spec(tmp_path / name, tiny_model, rows, method, batch_size=batch, accumulation=accumulation, max_steps=2,
                    dpo_learning_rate=5e-3)  # fmt: skip
        result, found[name], _ = trained(made)
        assert result.checks["shared_prefix"] == float(name != "padded")

    assert apart(found["whole"], found["padded"]) < 1e-4
    if method != "kto":
        assert apart(found["whole"], found["cut"]) < 1e-4
    assert max(float(v.abs().max()) for k, v in found["whole"].items() if "lora_B" in k) > 1e-3


def pairs(n: int) -> list[dict[str, Any]]:
    """Pairs of two states, one of them with several."""
    return [
        {
            "prompt": [*PROMPT, {"role": "user", "content": f"I am customer {i // 3}."}],
            "tools": TOOLS,
            "chosen": [{"role": "assistant", "content": f"It is on its way, {i}."}],
            "rejected": [{"role": "assistant", "content": f"I do not know, {i}."}],
            "p_better": 0.9 - 0.1 * (i % 3),
            "weight": 1.0 + i % 2,
        }
        for i in range(n)
    ]


def actions(n: int) -> list[dict[str, Any]]:
    made = pairs(n)
    return [
        {"prompt": r["prompt"], "tools": TOOLS, "completion": r[side], "label": side == "chosen", "weight": 1.0}
        for r in made
        for side in ("chosen", "rejected")
    ][:n]


@pytest.mark.e2e
def test_a_limit_stops_with_the_reason_and_the_round_goes_on_from_its_checkpoint(
    tmp_path: Path, tiny_model: Path
) -> None:
    rows = [{**row, "p_better": 0.0, "nll_weight": 0.0} for row in pairs(4)]
    steps = {"max_steps": 6, "dpo_learning_rate": 5e-3, "batch_size": 2}
    _, uninterrupted, _ = trained(spec(tmp_path / "whole", tiny_model, rows, "dpo", **steps))
    made = spec(tmp_path / "cut", tiny_model, rows, "dpo", max_chosen_drop=1e-9, **steps)
    with pytest.raises(TrainError, match=r"step 4: chosen_drop was .* its limit is 1e-09") as caught:
        trained(made)
    assert "checkpoint is kept" in caught.value.hint
    kept = {path.name for path in (made.work_dir / "checkpoints" / "checkpoint-2").iterdir()}
    assert {"complete", ADAPTER_WEIGHTS} <= kept
    assert not {"README.md", "tokenizer.json"} & kept, "what training does not go on from"
    trim_metrics(made)  # as a launch does
    with pytest.raises(TrainError) as again:
        trained(made)
    assert str(again.value) == str(caught.value), "the steps before the checkpoint count"
    _, resumed, _ = trained(spec(tmp_path / "cut", tiny_model, rows, "dpo", **steps))

    assert apart(uninterrupted, resumed) == 0.0


@pytest.mark.parametrize("method", ["grpo", *(pytest.param(name, marks=pytest.mark.e2e) for name in ("dpo", "kto"))])
def test_a_round_ends_at_its_distance_from_the_parent(method: str, tmp_path: Path, tiny_model: Path) -> None:
    """With the adapter of the measurement before: a round of just so many steps has the same."""
    rows: list[dict[str, Any]] = {"grpo": GROUPS, "dpo": pairs(4), "kto": actions(4)}[method]
    settings = {"dpo_learning_rate": 5e-3, "trl": {"lr_scheduler_type": "constant"}}
    free, _, seen = trained(spec(tmp_path / "free", tiny_model, rows, method, max_steps=4, max_kl=1e9, **settings))
    (_, second), (_, third) = free.kl[1:3]
    assert [step for step, _ in free.kl] == [1, 2, 3, 4]
    assert (free.stopped, free.steps) == ("steps", 4)
    assert 0 < second < third
    limit = (second + third) / 2
    near, kept, steps = trained(
        spec(tmp_path / "near", tiny_model, rows, method, max_steps=4, max_kl=limit, **settings)
    )
    _, two, _ = trained(spec(tmp_path / "two", tiny_model, rows, method, max_steps=2, max_kl=1e9, **settings))

    assert (near.stopped, near.steps, near.kl) == ("kl", 2, free.kl[:3])
    assert [row["kl_parent"] for row in steps] == [kl for _, kl in near.kl]
    assert apart(kept, two) == 0.0
    assert seen[2]["loss"] == steps[2]["loss"], "nothing but the end differs"
    with pytest.raises(TrainError, match=r"step 1: the policy is .* the limit is 1e-09") as caught:
        trained(spec(tmp_path / "far", tiny_model, rows, method, max_steps=4, max_kl=1e-9, **settings))
    assert "learning_rate" in caught.value.hint


def test_the_distance_from_the_parent_is_the_kl_divergence(tmp_path: Path, tiny_model: Path) -> None:
    """Of whole distributions at the trained tokens, as transformers computes them, at the temperature of the draw."""
    made = spec(tmp_path, tiny_model, GROUPS)
    model = with_adapter(made)
    row = Row((1, 5, 9, 17, 4, 30), ((2, 4), (5, 6)))
    probe = Probe(Scorer(model), [row], seed=0, temperatures=[0.5])
    assert probe.kl() == 0.0
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        now = torch.log_softmax(model(torch.tensor([row.ids])).logits[0] / 0.5, -1)[[1, 2, 4]]
        with model.disable_adapter():
            before = torch.log_softmax(model(torch.tensor([row.ids])).logits[0] / 0.5, -1)[[1, 2, 4]]
    expected = torch.nn.functional.kl_div(now, before, reduction="none", log_target=True).sum(-1).mean()

    assert float(expected) > 1e-3
    assert probe.kl() == pytest.approx(float(expected), rel=1e-4)


def test_a_loss_that_is_no_number_stops_the_round(tmp_path: Path, tiny_model: Path) -> None:
    rows = [{**row, "p_better": 1e39} for row in pairs(4)]
    with pytest.raises(TrainError, match=r"step 1: the loss is .*, not a number"):
        trained(spec(tmp_path, tiny_model, rows, "dpo"))


@pytest.mark.e2e
def test_a_chosen_action_that_becomes_less_likely_stops_the_round(tmp_path: Path, tiny_model: Path) -> None:
    """The two sides differ in one word: plain DPO lets both fall, the NLL term holds the chosen one."""
    rows = [
        {**row, "chosen": [{"role": "assistant", "content": f"Order {i}: yes"}],
         "rejected": [{"role": "assistant", "content": f"Order {i}: no"}], "p_better": 0.0}
        for i, row in enumerate(pairs(4))
    ]  # fmt: skip
    settings = {"dpo_learning_rate": 1e-2, "max_steps": 20, "batch_size": 4, "max_kl": 1e9}
    with pytest.raises(TrainError, match=r"chosen_drop was .* its limit is 0\.1"):
        trained(spec(tmp_path / "plain", tiny_model, rows, "dpo", dpo_sft_weight=0, max_chosen_drop=0.1, **settings))
    trained(spec(tmp_path / "held", tiny_model, rows, "dpo", dpo_sft_weight=5.0, max_chosen_drop=0.1, **settings))


@pytest.mark.e2e
def test_forgotten_rows_leave_no_trace(tmp_path: Path, tiny_model: Path) -> None:
    """Trained without some rows after they were in the reference's cache == trained where they never were."""
    cache = tmp_path / "cache"
    trained(dataclasses.replace(spec(tmp_path / "all", tiny_model, pairs(6), "dpo"), cache_dir=cache))
    shutil.rmtree(tmp_path / "all")
    after = trained(dataclasses.replace(spec(tmp_path / "after", tiny_model, pairs(4), "dpo"), cache_dir=cache))
    never = trained(spec(tmp_path / "never", tiny_model, pairs(4), "dpo"))

    assert apart(after[1], never[1]) == 0.0


def test_the_loss_curve_is_trls_own(tmp_path: Path, tiny_model: Path) -> None:
    """The same pairs in the same order through TRL's DPOTrainer, one a step."""
    from datasets import Dataset
    from flywheel.stages.train import trl_common
    from flywheel.stages.train.offline import Order
    from flywheel.stages.train.rows import answers, tokenise
    from trl import DPOConfig, DPOTrainer

    rows = [{**row, "p_better": 1.0, "weight": 1.0} for row in pairs(6)]
    made = spec(tmp_path, tiny_model, rows, "dpo", max_steps=6, batch_size=1, dpo_sft_weight=0, dpo_learning_rate=1e-2)
    _, _, ours = trained(made)
    tokenizer = load_tokenizer(made.config.model)
    data = tokenise(rows, ChatFormat(tokenizer), ("chosen", "rejected"), made.config.train)
    order = Order([answers(row) for row in data.rows], 1, 0)

    class Stock(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def _get_train_sampler(self, *_: Any, **__: Any) -> Order:
            return order

    trl_common.prepare(made)
    trainer = Stock(
        model=trl_common.with_adapter(made),
        args=trl_common.trl_arguments(DPOConfig, made, data.longest, learning_rate=1e-2, beta=0.1),
        train_dataset=Dataset.from_list(data.rows),
        processing_class=tokenizer,
    )
    trainer.train()
    theirs = [m["loss"] for m in trainer.state.log_history if "loss" in m]

    assert len(theirs) == 6
    assert theirs[-1] != pytest.approx(theirs[0], rel=1e-2)
    assert [m["loss"] for m in ours] == pytest.approx(theirs, rel=1e-3)
