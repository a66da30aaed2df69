"""GRPO on logged attempts with TRL: `python grpo.py MODEL`.

What was logged comes in as rollouts, with its own ids, masks and rewards. A group with fewer members than the largest
is filled with rollouts that have no reward, which take no part.
"""

import json
import sys
from collections import Counter

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

with open("groups.jsonl", encoding="utf-8") as lines:
    GROUPS = [json.loads(line) for line in lines]


MEMBERS = {group["id"]: group["members"] for group in GROUPS}
LARGEST = max(map(len, MEMBERS.values()))


def replay(prompts, trainer):
    """Return the n-th member of a group for the n-th time that it is asked for; a prompt is a group's id."""
    asked, rows = Counter(), []
    for prompt in prompts:
        members, n = MEMBERS[prompt], asked[prompt]
        asked[prompt] += 1
        filler = {
            "prompt_ids": members[0]["prompt_ids"],
            "completion_ids": members[0]["completion_ids"][:1],
            "mask": [0],
            "reward": None,
        }
        rows.append(members[n] if n < len(members) else filler)
    return {
        "prompt_ids": [row["prompt_ids"] for row in rows],
        "completion_ids": [row["completion_ids"] for row in rows],
        "env_mask": [row["mask"] for row in rows],
        "logprobs": [[0.0] * len(row["completion_ids"]) for row in rows],
        "logged_reward": [row["reward"] for row in rows],
    }


def logged(logged_reward, **_):
    return logged_reward


def main(model, **settings):
    config = GRPOConfig(
        **{
            "output_dir": "out-grpo",
            "num_generations": LARGEST,
            "per_device_train_batch_size": LARGEST,
            "max_completion_length": max(len(r["completion_ids"]) for ms in MEMBERS.values() for r in ms),
            "learning_rate": 2e-5,
            "scale_rewards": "none",
            "loss_type": "dr_grpo",
            "bf16": torch.cuda.is_available(),
            "use_cpu": not torch.cuda.is_available(),
            "report_to": "none",
            **settings,
        }
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": name} for name in MEMBERS]),
        reward_funcs=logged,
        rollout_func=replay,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("out-grpo")
    return trainer


if __name__ == "__main__":
    main(sys.argv[1])
