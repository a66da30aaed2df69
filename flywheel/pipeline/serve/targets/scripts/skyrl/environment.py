"""A generator in which recorded results answer the calls that SkyRL's own policy samples: `python environment.py`.

It takes and gives tokens. An attempt that leaves the log is masked whole and has the reward UNKNOWN, because SkyRL
needs a number: its group's mean counts it.
"""

import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

from flywheel_replay import Recorded
from replay import main
from skyrl.train.generators.base import GeneratorInterface, GeneratorOutput

UNKNOWN = 0.0
MOST = 512  # tokens of one attempt, results included
_FILE = Path(__file__).parent / "scenarios.jsonl"


class Environment(GeneratorInterface):
    def __init__(self, tokenizer, client, model=None):
        self.recorded, self.client, self.model = Recorded(_FILE, tokenizer, MOST), client, model

    async def attempted(self, scenario, sampling):
        """Return an attempt, and whether the server gave log-probabilities."""
        attempt, session, known = self.recorded.begin(scenario), uuid4().hex, True
        while not attempt.over:
            asked = {
                "prompt_token_ids": [attempt.ids],
                "session_ids": [session],
                "sampling_params": {**(sampling or {}), "max_tokens": attempt.room},
            }
            answer = await self.client.generate(asked, model=self.model)
            log_probs = (answer.get("response_logprobs") or [None])[0]
            known = known and log_probs is not None
            attempt.take(list(answer["response_ids"][0]), log_probs)
        return attempt, known

    async def generate(self, input_batch, disable_tqdm=False) -> GeneratorOutput:
        sampling = input_batch.get("sampling_params")
        played = await asyncio.gather(
            *(self.attempted(extras["scenario"], sampling) for extras in input_batch["env_extras"])
        )
        attempts, known = [one for one, _ in played], all(known for _, known in played)
        rewards = [UNKNOWN if one.reward is None else one.reward for one in attempts]
        left = [one.reward is None for one in attempts]
        return {
            "prompt_token_ids": [one.prompt_ids for one in attempts],
            "response_ids": [one.completion_ids for one in attempts],
            "rewards": [[0.0] * (len(one.mask) - 1) + [reward] for one, reward in zip(attempts, rewards, strict=True)],
            "loss_masks": [[0] * len(one.mask) if gone else one.mask for one, gone in zip(attempts, left, strict=True)],
            "stop_reasons": ["stop"] * len(attempts),
            "rollout_metrics": {"environment/left_the_log": sum(left) / len(left)},
            "rollout_logprobs": [one.log_probs for one in attempts] if known else None,
            "trajectory_ids": input_batch.get("trajectory_ids"),
        }


def prompts():
    """Write the scenarios as SkyRL's prompts; an attempt renders its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [json.loads(line)["id"] for line in _FILE.read_text(encoding="utf-8").splitlines()]
    rows = [
        {
            "prompt": [{"role": "user", "content": name}],
            "env_class": "flywheel",
            "data_source": "flywheel",
            "scenario": name,
        }
        for name in names
    ]
    pq.write_table(pa.Table.from_pylist(rows), _FILE.with_name("scenarios.parquet"))


if __name__ == "__main__":
    prompts()
    with open("rl.args", encoding="utf-8") as lines:
        arguments = [line for line in lines.read().split() if not line.startswith("data.train_data=")]
    main([*arguments, "data.train_data=['scenarios.parquet']", *sys.argv[1:]], Environment)
