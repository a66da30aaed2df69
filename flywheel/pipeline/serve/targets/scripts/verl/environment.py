"""An agent loop in which recorded results answer the calls that veRL's own policy samples.

Its prompts are scenarios.parquet (`python environment.py` writes it). An attempt that leaves the log is masked whole
and has the reward UNKNOWN, because veRL needs a number: its group's mean counts it.
"""

import json
from functools import cache
from pathlib import Path
from uuid import uuid4

from flywheel_replay import Recorded

UNKNOWN = 0.0
MOST = 512  # tokens of one attempt, results included; at most data.max_response_length
_FILE = Path(__file__).parent / "scenarios.jsonl"


@cache
def recorded(tokenizer):
    return Recorded(_FILE, tokenizer, MOST)


def agent_loop():
    """Return the class, made late so that this file also runs without veRL."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

    class Environment(AgentLoopBase):
        async def run(self, sampling_params, **row):
            attempt = recorded(self.tokenizer).begin(row["extra_info"]["scenario"])
            while not attempt.over:
                written = await self.server_manager.generate(
                    request_id=uuid4().hex,
                    prompt_ids=attempt.ids,
                    sampling_params={**sampling_params, "max_tokens": attempt.room},
                )
                attempt.take(list(written.token_ids), written.log_probs)
            known = attempt.reward is not None
            return AgentLoopOutput(
                prompt_ids=attempt.prompt_ids,
                response_ids=attempt.completion_ids,
                response_mask=attempt.mask if known else [0] * len(attempt.mask),
                response_logprobs=attempt.log_probs,
                reward_score=attempt.reward if known else UNKNOWN,
                num_turns=2 + 2 * attempt.outcome.calls,
                metrics={},
                extra_fields={"replay_why": attempt.outcome.why},
            )

    return Environment


def __getattr__(name):
    if name == "Environment":
        return agent_loop()
    raise AttributeError(name)


def prompts():
    """Write the scenarios as veRL's prompts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
    pq.write_table(
        pa.Table.from_pylist(
            [
                {
                    "data_source": "flywheel",
                    "prompt": [{"role": "user", "content": row["id"]}],  # the attempt renders its own
                    "agent_name": "flywheel_environment",
                    "reward_model": {"style": "rule", "ground_truth": ""},
                    "extra_info": {"index": index, "scenario": row["id"]},
                }
                for index, row in enumerate(rows)
            ]
        ),
        _FILE.with_name("scenarios.parquet"),
    )


if __name__ == "__main__":
    prompts()
