"""A workflow that plays back logged attempts in AReaL's RL trainer: the n-th call for a prompt is its n-th attempt."""

import json
import os
from pathlib import Path

import torch
from areal.api.workflow_api import RolloutWorkflow

ASKED = Path(__file__).parent / "asked"


def number(group):
    """Return how often a group was asked for before, by any process: each appends a byte to one file."""
    ASKED.mkdir(exist_ok=True)
    file = os.open(ASKED / group, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR) - 1
    finally:
        os.close(file)


def trajectory(member):
    """Return an attempt as AReaL's tensors of one row; -1 is the version of what no policy wrote."""
    before, after = len(member["prompt_ids"]), len(member["completion_ids"])
    mask = [0] * before + member["mask"]
    log_probs = [0.0] * before + (member["log_probs"] or [0.0] * after)
    return {
        "input_ids": torch.tensor([member["prompt_ids"] + member["completion_ids"]], dtype=torch.int32),
        "loss_mask": torch.tensor([mask], dtype=torch.int32),
        "logprobs": torch.tensor([log_probs], dtype=torch.float32),
        "versions": torch.tensor([[0 if trained else -1 for trained in mask]], dtype=torch.int32),
        "attention_mask": torch.ones(1, before + after, dtype=torch.bool),
        "rewards": torch.tensor([member["reward"]], dtype=torch.float32),
    }


class Replay(RolloutWorkflow):
    async def arun_episode(self, engine, data):
        members = json.loads(data["members"])
        return trajectory(members[number(data["group_id"]) % len(members)])
