"""AReaL: its dataset loader, collator, configuration and trajectory check take the files."""

import asyncio
import os
import sys

from _common import FOLDER, ids, mask, run, same, spread, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from areal.dataset import _get_custom_dataset

    (pair,) = list(_get_custom_dataset(path="dpo", type="dpo", split="train"))
    for side, written in zip(("chosen", "rejected"), tokens("preference"), strict=True):
        same(list(pair[f"{side}_ids"]), ids(written), side)
        same(list(pair[f"{side}_loss_mask"]), mask(written), f"{side} mask")
    for row, written in zip(_get_custom_dataset(path="sft", type="sft", split="train"), tokens("sft"), strict=True):
        same(list(row["input_ids"]), ids(written), "sft")
        same(list(row["loss_mask"]), mask(written), "mask")
    return "its dataset loader gives every token and mask of pairs and demonstrations"


def config():
    from areal.api.cli_args import DPOConfig, SFTConfig, load_expr_config

    load_expr_config(["--config", "dpo.yaml"], DPOConfig)
    load_expr_config(["--config", "sft.yaml"], SFTConfig)
    try:
        load_expr_config(["--config", "dpo.yaml", "actor.no_such_key=1"], DPOConfig)
    except Exception:
        return "load_expr_config takes dpo.yaml and sft.yaml, and refuses an unknown key"
    raise AssertionError("an unknown key was taken")


def replay():
    from areal.dataset import _get_custom_dataset
    from areal.infra.workflow_executor import check_trajectory_format
    from replay import Replay

    rows = {row["group_id"]: row for row in _get_custom_dataset(path="rl", type="rl", split="train")}
    workflow, count = Replay(), 0
    for own in tokens("groups"):
        played = asyncio.run(workflow.arun_episode(None, rows[own["row"]]))
        assert check_trajectory_format(played)
        same(played["input_ids"][0].tolist(), ids(own), "tokens")
        same(played["loss_mask"][0].tolist(), mask(own), "mask")
        same(played["logprobs"][0].tolist(), spread(own), "log-probabilities")
        same(played["rewards"].tolist(), [own["reward"]], "reward")
        count += 1
    return f"check_trajectory_format takes {count} logged attempts: ids, masks, log-probabilities, rewards"


run(read=read, config=config, replayed=replay)
