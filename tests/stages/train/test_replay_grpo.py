"""GRPO in the replay environment on a tiny Llama that makes three calls: one good, one bad, one unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flywheel.config import Config, ModelConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io import files
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_base, load_tokenizer
from flywheel.models.rollout import result_ids
from flywheel.records import canonical_json
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.replay import START, call_text, next_state
from flywheel.stages.train import replay_grpo
from flywheel.stages.train.process.checkpoints import trim_metrics

TOOLS = [
    {
        "type": "function",
        "function": {"name": "move", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}},
    }
]
PROMPT = [{"role": "user", "content": "Move me."}]
CALLS = {"good": {"to": "up"}, "bad": {"to": "down"}, "unknown": {"to": "out"}}
DONE = {"role": "assistant", "content": "Done."}


def move(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "", "name": "move", "arguments": arguments}]}


def scenario(name: str = "s0", *, known: tuple[str, ...] = ("good", "bad")) -> dict[str, Any]:
    texts = {kind: call_text("move", CALLS[kind]) for kind in known}
    worth = {"good": 1.0, "bad": -1.0, "unknown": 0.0}
    return {
        "id": name, "task_id": name, "prompt": PROMPT, "tools": TOOLS, "state": START, "judged_by": "state",
        "endings": [[next_state(START, text), "", worth[kind], 0.5, 2] for kind, text in texts.items()],
        "calls": [[START, text, "moved", "ok", True] for text in texts.values()], "n_calls": 1,
    }  # fmt: skip


def texts_of(chat: ChatFormat) -> dict[str, tuple[list[int], list[int], list[int]]]:
    """Each kind's action, what came back, and the last word, as token ids."""
    made = {}
    for kind, arguments in CALLS.items():
        action = chat.ids(chat.completion(PROMPT, TOOLS, move(arguments)))
        back = result_ids(chat, [{"role": "tool", "name": "move", "content": "moved"}])
        made[kind] = (action, back, chat.ids(chat.completion(PROMPT, TOOLS, DONE)))
    return made


TEMPLATE = (  # as SmolLM2's: it knows no tools
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small(folder: Path) -> Any:
    """A random Llama that reads bytes, so that a step takes milliseconds."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    marks = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **marks)
    tokenizer.pad_token, tokenizer.chat_template = tokenizer.eos_token, TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=1024, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model taught to make each of the three calls about equally often, and to end after the result."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "mover"
    model = small(folder)
    chat = ChatFormat(load_tokenizer(ModelConfig(base=str(folder))))
    start = chat.ids(chat.prompt(PROMPT, TOOLS))
    rows = [start + action + back + last for action, back, last in texts_of(chat).values()]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    seen = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(seen == 0, -100)
    labels[:, : len(start)] = -100
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(250):
        model(input_ids=ids, attention_mask=seen, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return folder


def spec(folder: Path, model: Path, rows: list[dict[str, Any]], **train: Any) -> TrainSpec:
    settings = {
        "max_steps": 5, "checkpoint_every": 2, "batch_size": 2, "threads": 1, "grpo_learning_rate": 4e-4,
        "replay_attempts": 8, "replay_tokens": 160, "replay_max_miss": 0.9, "max_kl": 100,
    }  # fmt: skip
    config = Config.model_validate({"model": {"base": str(model), "dtype": "float32"}, "train": {**settings, **train}})
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    files.atomic_write(folder / "train.jsonl", "".join(canonical_json(row) + "\n" for row in rows))
    data, out = folder / "train.jsonl", folder / "adapter"
    return TrainSpec(1, "grpo-replay", data, out, work, str(model), None, "parent", config, 0)


def metrics(made: TrainSpec) -> list[dict[str, Any]]:
    lines = (made.work_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "rewarded" in row]


def log_probs(made: TrainSpec) -> dict[str, float]:
    """How likely each of the three calls is under the trained adapter."""
    from peft import PeftModel

    cfg = made.config.model
    model = PeftModel.from_pretrained(load_base(cfg), str(made.out_dir)).eval()
    chat = ChatFormat(load_tokenizer(cfg))
    start = chat.ids(chat.prompt(PROMPT, TOOLS))
    found = {}
    for kind, (action, _, _) in texts_of(chat).items():
        ids = torch.tensor([start + action])
        with torch.inference_mode():
            logp = torch.log_softmax(model(input_ids=ids).logits[0, len(start) - 1 : -1], -1)
        found[kind] = float(logp.gather(-1, ids[0, len(start) :, None]).sum())
    return found


ROWS = [scenario("s0"), scenario("s1")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, mover: Path) -> tuple[TrainSpec, TrainResult]:
    """An uninterrupted round."""
    made = spec(tmp_path_factory.mktemp("whole"), mover, ROWS)
    return made, replay_grpo.train(made)


@pytest.mark.e2e
def test_what_is_worth_more_becomes_likelier(whole: tuple[TrainSpec, TrainResult]) -> None:
    made, result = whole
    seen, found = metrics(made), log_probs(made)

    assert found["good"] > found["bad"] + 0.5
    assert seen[0]["kl"] == pytest.approx(0.0, abs=1e-3)
    assert result.checks["replay_missed"] == pytest.approx(sum(row["missed"] for row in seen) / len(seen), abs=1e-4)
    assert result.checks["replay_missed"] > 0
    assert result.checks["scenarios"] == 2
    assert result.tokens > 0


@pytest.mark.e2e
def test_refused_misses_teach_nothing_and_a_round_goes_on_from_its_checkpoint(
    tmp_path: Path, mover: Path, whole: tuple[TrainSpec, TrainResult]
) -> None:
    with pytest.raises(TrainError, match=r"step 4: unknown was 0\.\d+ over 4 steps, its limit is 0\.01") as refused:
        replay_grpo.train(spec(tmp_path, mover, ROWS, replay_max_miss=0.01))
    assert "train.replay_max_miss" in refused.value.hint
    assert (tmp_path / "work" / "checkpoints" / "checkpoint-2" / "complete").exists()

    made = spec(tmp_path, mover, ROWS)
    trim_metrics(made)
    resumed = replay_grpo.train(made)

    assert files.hash_file(made.out_dir / ADAPTER_WEIGHTS) == files.hash_file(whole[0].out_dir / ADAPTER_WEIGHTS)
    assert resumed.checks == whole[1].checks


@pytest.mark.e2e
def test_attempts_that_leave_the_log_move_nothing(tmp_path: Path, mover: Path) -> None:
    """Not even by the KL to the reference, which is not 0 for an adapter that was trained before."""
    nothing = [{**row, "calls": [], "endings": []} for row in ROWS]
    with pytest.raises(TrainError, match="unrewarded was 1"):
        replay_grpo.train(spec(tmp_path, mover, nothing, replay_max_miss=1.0))
    seen = metrics(spec(tmp_path, mover, nothing))

    assert [(row["loss"], row["grad_norm"], row["rewarded"]) for row in seen] == [(0.0, 0.0, 0.0)] * 4
    assert seen[0]["missed"] > 0
