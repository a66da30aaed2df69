"""TRL: its own parser reads the launch files, its trainers read the files, and each trains a step."""

import os

from _common import FOLDER, MODEL, ids, mask, run, same, tokens

os.chdir(FOLDER)
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
CPU = ["--max_steps", "1", "--use_cpu", "true", "--bf16", "false", "--logging_steps", "1", "--save_strategy", "no"]


def parsed(name, config):
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, TrlParser

    parser = TrlParser((ScriptArguments, config, ModelConfig, DatasetMixtureConfig))
    return parser.parse_args_and_config(args=["--config", f"{name}.yaml", *CPU])


def trainer_of(name, config, trainer):
    from trl import get_dataset, get_peft_config

    _, arguments, model, data = parsed(name, config)
    return trainer(
        model=str(MODEL), args=arguments, train_dataset=get_dataset(data)["train"], peft_config=get_peft_config(model)
    )


def config():
    from trl import DPOConfig, KTOConfig, SFTConfig

    for name, one in (("dpo", DPOConfig), ("kto", KTOConfig), ("sft", SFTConfig)):
        parsed(name, one)
    return "TrlParser takes dpo.yaml, kto.yaml and sft.yaml"


def pairs():
    from trl import DPOConfig, DPOTrainer

    trainer = trainer_of("dpo", DPOConfig, DPOTrainer)
    (row,), (chosen, rejected) = list(trainer.train_dataset), tokens("preference")
    same(list(row["prompt_ids"]), chosen["prompt_ids"], "prompt")
    same(list(row["chosen_ids"]), chosen["completion_ids"], "chosen")
    same(list(row["rejected_ids"]), rejected["completion_ids"], "rejected")
    trainer.train()
    return trainer.state.log_history[0]["loss"]


def single():
    from trl import KTOConfig, KTOTrainer

    trainer = trainer_of("kto", KTOConfig, KTOTrainer)
    for row, written in zip(trainer.train_dataset, tokens("unpaired"), strict=True):
        same(list(row["prompt_ids"]), written["prompt_ids"], "prompt")
        same(list(row["completion_ids"]), written["completion_ids"], "the action, which alone is trained")
        same(row["label"], written["label"], "label")
    trainer.train()
    return trainer.state.log_history[0]["loss"]


def demonstrations():
    from trl import SFTConfig, SFTTrainer

    trainer = trainer_of("sft", SFTConfig, SFTTrainer)
    for row, written in zip(trainer.train_dataset, tokens("sft"), strict=True):
        same(list(row["input_ids"]), ids(written), "sft")
        same([int(label != -100) for label in row["labels"]], mask(written), "mask")
    trainer.train()
    return trainer.state.log_history[0]["loss"]


def read():
    losses = [round(one(), 4) for one in (pairs, single, demonstrations)]
    same(losses[:2], [0.6931, 0.5], "losses at step 0")
    return f"every token and mask; losses at step 0: DPO {losses[0]}, KTO {losses[1]}, SFT {losses[2]}"


def replay():
    """What the trainer would learn of every attempt, and the advantages that it computes itself."""
    import grpo

    seen, groups = [], {}

    class Seen(grpo.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            batch = super()._generate_and_score_completions(inputs)
            for n, advantage in enumerate(batch["advantages"].tolist()):
                prompt = batch["prompt_ids"][n][batch["prompt_mask"][n].bool()].tolist()
                completion = batch["completion_ids"][n][batch["completion_mask"][n].bool()].tolist()
                trained = batch["tool_mask"][n][: len(completion)].tolist()
                if any(trained):  # else it fills a smaller group
                    seen.append((prompt + completion, [0] * len(prompt) + trained, round(advantage, 4)))
            return batch

    grpo.GRPOTrainer = Seen
    settings = {"save_strategy": "no", "logging_steps": 1, "use_cpu": True, "bf16": False}
    for own in tokens("groups"):
        groups.setdefault(own["row"], []).append(own)
    grpo.main(str(MODEL), max_steps=len(groups), **settings)
    written = [
        (ids(own), mask(own), round(own["reward"] - sum(one["reward"] for one in group) / len(group), 4))
        for group in groups.values()
        for own in group
    ]
    same(sorted(seen), sorted(written), "tokens, masks, and rewards less their group's mean")
    return f"GRPOTrainer trains on {len(seen)} logged attempts: ids, masks, and rewards less their group's mean"


def sampled():
    """Half of the attempts do what was recorded, token by token; the others are sampled by the model."""
    import environment
    from transformers import AutoTokenizer

    (group,) = [row for row in tokens("groups") if (row["row"], row["side"]) == ("group", "0")]
    actions = [group["completion_ids"][start:end] for start, end in group["windows"]]
    made = []

    class Both(environment.Rollouts):
        def attempt(self, name, model, temperature):
            if len(made) % 2:
                made.append(super().attempt(name, model, temperature))
                return made[-1]
            attempt = self.recorded.begin(name)
            for ids in actions[len(made) % 4 // 2 :]:
                attempt.take(ids)
            made.append(attempt)
            return attempt

    environment.MOST, environment.Rollouts = 128, Both
    trainer = environment.main(str(MODEL), max_steps=1, save_strategy="no", logging_steps=1, use_cpu=True, bf16=False)
    whole, short = made[0], made[2]
    same(whole.prompt_ids + whole.completion_ids, ids(group), "tokens of the attempt that was recorded")
    same([0] * len(whole.prompt_ids) + whole.mask, mask(group), "mask")
    same([whole.reward, short.reward], [1.0, -0.5], "rewards")
    known = [attempt.reward for attempt in made if attempt.reward is not None]
    logged = trainer.state.log_history[0]["reward"]
    assert abs(logged - sum(known) / len(known)) < 1e-6, (logged, known)
    return (
        f"GRPOTrainer trains a step on {len(made)} attempts in the replay environment, {len(made) // 2} of them its "
        "own; tokens and masks of the recorded one are the log's"
    )


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(FOLDER))
    run(config=config, read=read, replayed=replay, trained=sampled)
