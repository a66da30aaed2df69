"""An executor that plays back logged attempts: `--train.agent_func_path replay.py`."""

import json
from collections import Counter
from pathlib import Path

from openrlhf.utils.agent import AgentExecutorBase

with (Path(__file__).parent / "members.jsonl").open(encoding="utf-8") as lines:
    MEMBERS = {row["label"]: row["members"] for row in map(json.loads, lines)}


class AgentExecutor(AgentExecutorBase):
    def __init__(self, *arguments):
        self.asked = Counter()

    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
        members = MEMBERS[label]
        member = members[self.asked[label] % len(members)]
        self.asked[label] += 1
        start, ranges = len(member["prompt_ids"]), []
        for place, trained in enumerate([*member["mask"], 0]):
            open_range = bool(ranges) and ranges[-1][1] is None
            if trained and not open_range:
                ranges.append([start + place, None])
            elif not trained and open_range:
                ranges[-1][1] = start + place
        log_probs = member["log_probs"]
        return {
            "prompt": prompt,
            "label": label,
            "reward": member["reward"],
            "scores": member["reward"],
            "observation_tokens": member["prompt_ids"] + member["completion_ids"],
            "action_ranges": [tuple(one) for one in ranges],
            "rollout_log_probs": None if log_probs is None else [0.0] * start + log_probs,
            "extra_logs": {},
        }
