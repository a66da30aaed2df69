"""veRL: its datasets read the files, Hydra composes the launch files, its agent loop's type takes the replay."""

import asyncio
import os
import sys

from _common import FOLDER, MODEL, actions, credit, ids, mask, run, same, spread, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def composed(name, extra=()):
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(FOLDER.resolve()), version_base=None):
        return compose(name, overrides=list(extra))


def read():
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.trainer.sft_trainer import create_sft_dataset
    from verl.utils.dataset.rl_dataset import RLHFDataset

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    cfg = composed("grpo").data
    rows = RLHFDataset(data_files=["prompts.parquet"], tokenizer=tokenizer, config=cfg)
    groups = {row["row"] for row in tokens("groups")}
    same(len(rows), len(groups), "rows")
    sft = create_sft_dataset("sft.parquet", composed("sft").data, tokenizer, None)
    for row, written in zip(sft, tokens("sft"), strict=True):
        same(row["input_ids"].tolist(), ids(written), "sft")
        same(row["loss_mask"].tolist(), mask(written), "mask")
    return f"RLHFDataset keeps {len(rows)} of {len(groups)} groups; create_sft_dataset gives every token and mask"


def config():
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    cfg = composed("grpo", ["actor_rollout_ref.rollout.name=sglang"])
    validate_config(cfg, use_reference_policy=need_reference_policy(cfg), use_critic=need_critic(cfg))
    composed("sft")
    try:
        composed("grpo", ["actor_rollout_ref.actor.beta=1"])
    except Exception as error:
        assert "actor.beta" in str(error) or "beta" in str(error), error
        return "Hydra composes grpo.yaml and sft.yaml and refuses an unknown key; validate_config passes (as SGLang)"
    raise AssertionError("an unknown key was taken")


def replay():
    import pandas
    from replay import Replay

    written = {(row["row"], int(row["side"])): row for row in tokens("groups") if not row["part"]}
    count = 0
    for row in pandas.read_parquet("prompts.parquet").to_dict("records"):
        for session in range(row["__rollout_n__"]):
            played = asyncio.run(Replay.run(object.__new__(Replay), {}, session_id=session, **row))
            own = written[row["extra_info"]["group_id"], session]
            same(played.prompt_ids + played.response_ids, ids(own), "tokens")
            same([0] * len(played.prompt_ids) + played.response_mask, mask(own), "mask")
            same([0.0] * len(played.prompt_ids) + played.response_logprobs, spread(own), "log-probabilities")
            same(played.reward_score, own["reward"], "reward")
            same(played.extra_fields["step_advantages"], credit(own), "step credit, for an estimator of one's own")
            count += 1
    return f"{count} logged attempts as AgentLoopOutput: ids, masks, log-probabilities, rewards"


def learned():
    """veRL's own worker makes its batch of the attempts; its advantages and its correction are known beforehand."""
    import numpy
    import torch
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    cfg = composed("grpo", ["actor_rollout_ref.rollout.name=sglang"])
    rows = RLHFDataset(data_files=["prompts.parquet"], tokenizer=AutoTokenizer.from_pretrained(MODEL), config=cfg.data)
    batch = DataProto.from_single_dict(collate_fn([rows[n] for n in range(len(rows))]))
    batch.non_tensor_batch.pop("__rollout_n__")  # its trainer repeats by rollout.n
    asked = batch.repeat(cfg.actor_rollout_ref.rollout.n, interleave=True)
    made = asyncio.run(AgentLoopWorker(cfg, None).generate_sequences(asked))
    groups = [row["group_id"] for row in asked.non_tensor_batch["extra_info"]]
    sizes = {group: sum(row["row"] == group for row in tokens("groups")) for group in groups}
    written = {(row["row"], int(row["side"])): row for row in tokens("groups")}
    played = [written[group, groups[:n].count(group) % sizes[group]] for n, group in enumerate(groups)]
    for n, own in enumerate(played):
        attended = made.batch["attention_mask"][n].bool()
        length, total = made.batch["prompts"].shape[1], len(own["completion_ids"])
        same(made.batch["input_ids"][n][attended].tolist(), ids(own), "tokens")
        same(made.batch["response_mask"][n][:total].tolist(), mask(own)[-total:], "mask")
        assert not made.batch["response_mask"][n][total:].any() and length >= len(own["prompt_ids"])
        same(made.batch["rm_scores"][n].sum().item(), own["reward"], "reward")
    trained, known = made.batch["response_mask"], made.batch["rollout_log_probs"]
    advantages, _ = compute_grpo_outcome_advantage(
        token_level_rewards=made.batch["rm_scores"], response_mask=trained, index=numpy.array(groups),
        norm_adv_by_std_in_grpo=cfg.algorithm.norm_adv_by_std_in_grpo,
    )  # fmt: skip
    means = {
        group: sum(p["reward"] for p, g in zip(played, groups) if g == group) / groups.count(group) for group in sizes
    }
    for n, own in enumerate(played):
        wanted = [(own["reward"] - means[groups[n]]) * one for one in trained[n].tolist()]
        assert torch.allclose(advantages[n], torch.tensor(wanted), atol=1e-4), "rewards less their group's mean"
    logged = [n for n, own in enumerate(played) if own["log_probs"] is not None]
    correction, _, _ = compute_rollout_correction_and_rejection_mask(
        old_log_prob=known[logged] - 0.1, rollout_log_prob=known[logged], response_mask=trained[logged],
        rollout_is="token", rollout_is_threshold=cfg.algorithm.rollout_correction.rollout_is_threshold,
    )  # fmt: skip
    weights = correction.batch["rollout_is_weights"][trained[logged].bool()]
    assert torch.allclose(weights, torch.full_like(weights, 0.904837), atol=1e-4), "exp(-0.1)"
    return "its worker's batch gives rewards less their group's mean as advantages, and weights from the log's numbers"


def environment():
    """The agent loop samples through a server that writes what was recorded; the log answers the call."""
    import hydra
    import yaml
    from types import SimpleNamespace
    from transformers import AutoTokenizer

    windows, group = actions()

    class Server:
        def __init__(self):
            self.read = []

        async def generate(self, request_id, prompt_ids, sampling_params):
            self.read.append(prompt_ids)
            ids = windows[len(self.read) - 1]
            return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids))

    loops = {row["name"]: row["_target_"] for row in yaml.safe_load(open("agent_loops.yaml"))}
    loop = object.__new__(hydra.utils.get_class(loops["flywheel_environment"]))
    loop.tokenizer, loop.server_manager = AutoTokenizer.from_pretrained(MODEL), Server()
    played = asyncio.run(loop.run({}, extra_info={"index": 0, "scenario": "where"}))
    same(played.prompt_ids + played.response_ids, ids(group), "tokens")
    same([0] * len(played.prompt_ids) + played.response_mask, mask(group), "mask")
    same(played.reward_score, 1.0, "reward")
    return f"{replay()}; {learned()}; its loop samples in the replay environment, with the tokens and the reward of the log"


run(read=read, config=config, replayed=environment)
