"""An agent loop that plays back logged attempts: the n-th session of a prompt is its n-th attempt.

Ids, masks, log-probabilities and rewards are the log's, so veRL's own rollout correction sees the truth. An attempt
without logged log-probabilities has zeros there, and `rollout_is` is null in grpo.yaml where there is such a one.
"""

import json
from collections import Counter

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

_ASKED = Counter()


class Replay(AgentLoopBase):
    async def run(self, sampling_params, **row):
        info = row["extra_info"]
        members = json.loads(info["members"])
        number = row.get("session_id")
        if number is None:
            number = _ASKED[info["group_id"]]
            _ASKED[info["group_id"]] += 1
        member = members[int(number) % len(members)]
        log_probs = member["log_probs"] or [0.0] * len(member["completion_ids"])
        return AgentLoopOutput(
            prompt_ids=member["prompt_ids"],
            response_ids=member["completion_ids"],
            response_mask=member["mask"],
            response_logprobs=log_probs,
            reward_score=member["reward"],
            num_turns=2,
            metrics={},
            extra_fields={"episode": member["episode"], "step_advantages": member["step_advantages"]},
        )
