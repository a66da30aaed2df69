"""GRPO with TRL on the policy's own attempts: `python environment.py MODEL`. Recorded results answer its calls.

An attempt that leaves the log has no reward and takes no part: 0 would teach to imitate the log.
"""

import sys

import torch
from datasets import Dataset
from flywheel_replay import Recorded
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

MOST = 512  # tokens of one attempt, results included


class Rollouts:
    def __init__(self, tokenizer):
        self.recorded = Recorded("scenarios.jsonl", tokenizer, MOST)
        self.end = tokenizer.eos_token_id

    def attempt(self, name, model, temperature):
        """Return one attempt, sampled action by action; what a call gives back is not trained."""
        attempt = self.recorded.begin(name)
        while not attempt.over:
            ids = torch.tensor([attempt.ids], device=model.device)
            with torch.no_grad():
                written = model.generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=attempt.room,
                    do_sample=True,
                    temperature=temperature,
                    top_k=0,
                    eos_token_id=self.end,
                    pad_token_id=self.end,
                )
            attempt.take(written[0, ids.shape[1] :].tolist())
        return attempt

    def __call__(self, prompts, trainer):
        model = trainer.accelerator.unwrap_model(trainer.model)
        training = model.training
        model.eval()
        attempts = [self.attempt(name, model, trainer.args.temperature) for name in prompts]
        model.train(training)
        return {
            "prompt_ids": [attempt.prompt_ids for attempt in attempts],
            "completion_ids": [attempt.completion_ids for attempt in attempts],
            "env_mask": [
                attempt.mask if attempt.reward is not None else [0] * len(attempt.mask) for attempt in attempts
            ],
            "logprobs": [attempt.log_probs for attempt in attempts],
            "replay_reward": [attempt.reward for attempt in attempts],
            "replay_why": [attempt.outcome.why for attempt in attempts],
        }


def rewards(replay_reward, **_):
    return replay_reward


def main(model, **settings):
    tokenizer = AutoTokenizer.from_pretrained(model)
    rollouts = Rollouts(tokenizer)
    config = GRPOConfig(
        **{
            "output_dir": "out-environment",
            "num_generations": 8,
            "per_device_train_batch_size": 8,
            "max_completion_length": MOST,
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
        train_dataset=Dataset.from_list([{"prompt": name} for name in rollouts.recorded]),
        reward_funcs=rewards,
        rollout_func=rollouts,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model("out-environment")
    return trainer


if __name__ == "__main__":
    main(sys.argv[1])
