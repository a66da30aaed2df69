"""A workflow in which recorded results answer the calls that AReaL's own policy samples.

Give `environment:Environment` with its `gconfig` and `tokenizer`, and the rows of `scenarios()`, to AReaL's RL trainer.
An attempt that leaves the log is None, which AReaL does not train.
"""

import json
from pathlib import Path
from uuid import uuid4

import torch
from areal.api.io_struct import ModelRequest
from areal.api.workflow_api import RolloutWorkflow
from flywheel_replay import Recorded

MOST = 512  # tokens of one attempt, results included
_FILE = Path(__file__).parent / "scenarios.jsonl"


def scenarios():
    """Return the rows of a dataset, one a scenario."""
    return [{"scenario": json.loads(line)["id"]} for line in _FILE.read_text(encoding="utf-8").splitlines()]


class Environment(RolloutWorkflow):
    def __init__(self, gconfig, tokenizer):
        self.gconfig, self.tokenizer = gconfig, tokenizer
        self.recorded = Recorded(_FILE, tokenizer, MOST)

    async def arun_episode(self, engine, data):
        attempt = self.recorded.begin(data["scenario"])
        versions = [-1] * len(attempt.ids)  # of what no policy wrote
        while not attempt.over:
            wanted = self.gconfig.new(n_samples=1, max_new_tokens=attempt.room)
            request = ModelRequest(rid=uuid4().hex, input_ids=attempt.ids, gconfig=wanted, tokenizer=self.tokenizer)
            answer = await engine.agenerate(request)
            attempt.take(list(answer.output_tokens), list(answer.output_logprobs))
            versions += answer.output_versions
            versions += [-1] * (len(attempt.ids) - len(versions))
        if attempt.reward is None:
            return None
        before = len(attempt.prompt_ids)
        return {
            "input_ids": torch.tensor([attempt.ids], dtype=torch.int32),
            "loss_mask": torch.tensor([[0] * before + attempt.mask], dtype=torch.int32),
            "logprobs": torch.tensor([[0.0] * before + attempt.log_probs], dtype=torch.float32),
            "versions": torch.tensor([versions], dtype=torch.int32),
            "attention_mask": torch.ones(1, len(attempt.ids), dtype=torch.bool),
            "rewards": torch.tensor([attempt.reward], dtype=torch.float32),
        }
