"""An executor in which recorded results answer the calls that OpenRLHF's own policy samples.

`python environment.py` writes its prompts: `--data.prompt_dataset scenario_prompts.jsonl --train.agent_func_path
environment.py`. An attempt that leaves the log has no action to train and the reward UNKNOWN, because OpenRLHF needs a
number: its group's mean counts it.
"""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path

from flywheel_replay import Recorded

UNKNOWN = 0.0
MOST = 512  # tokens of one attempt, results included; with the prompt at most data.max_len
_FILE = Path(__file__).parent / "scenarios.jsonl"


@cache
def recorded(tokenizer):
    return Recorded(_FILE, tokenizer, MOST)


def executor():
    """Return the class, made late so that this file also runs without OpenRLHF."""
    from openrlhf.utils.agent import AgentExecutorBase

    class AgentExecutor(AgentExecutorBase):
        def __init__(self, *arguments):
            pass

        async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
            attempt, ranges = recorded(hf_tokenizer).begin(label), []
            while not attempt.over:
                params = deepcopy(sampling_params)
                params.max_tokens = attempt.room
                answer = (await llm_engine.generate(attempt.ids, params)).outputs[0]
                ids, start = list(answer.token_ids), len(attempt.ids)
                known = [one[token].logprob for one, token in zip(answer.logprobs, ids)] if answer.logprobs else None
                ranges.append((start, start + len(ids)))
                attempt.take(ids, known)
            known = attempt.reward is not None
            reward = attempt.reward if known else UNKNOWN
            log_probs = [0.0] * len(attempt.prompt_ids) + attempt.log_probs
            return {
                "prompt": prompt,
                "label": label,
                "reward": reward,
                "scores": reward,
                "observation_tokens": attempt.ids,
                "action_ranges": ranges if known else [],
                "rollout_log_probs": log_probs if sampling_params.logprobs is not None else None,
                "extra_logs": {"left_the_log": float(not known)},
            }

    return AgentExecutor


def __getattr__(name):
    if name == "AgentExecutor":
        return executor()
    raise AttributeError(name)


def prompts():
    """Write the scenarios as OpenRLHF's prompts; an attempt renders its own."""
    names = [json.loads(line)["id"] for line in _FILE.read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({"input": name, "label": name}) + "\n" for name in names]
    _FILE.with_name("scenario_prompts.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    prompts()
