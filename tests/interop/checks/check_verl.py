"""veRL: its datasets read the files, Hydra composes the launch files, its agent loop's type takes the replay."""

import asyncio
import os
import sys

from _common import FOLDER, MODEL, actions, ids, mask, run, same, spread, tokens

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
            count += 1
    return f"{count} logged attempts as AgentLoopOutput: ids, masks, log-probabilities, rewards"


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
    return f"{replay()}; its loop samples in the replay environment, with the tokens and the reward of the log"


run(read=read, config=config, replayed=environment)
