"""A scheduler that plays back logged attempts in ms-swift's GRPO; the n-th request for a prompt is its n-th attempt.

`swift rollout --model MODEL --use_chat_template false --vllm_use_async_engine true --external_plugins replay.py
--multi_turn_scheduler flywheel_replay`, and `swift rlhf --rlhf_type grpo --dataset grpo.jsonl --use_chat_template false
--use_vllm true --vllm_mode server --vllm_server_host 127.0.0.1 --vllm_server_pass_dataset true --use_gym_env true`.
"""

import json
import os
from pathlib import Path

from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

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


def rollout(member):
    """Return an attempt as ms-swift's: its ids and mask as they are, log-probabilities of the trained tokens alone."""
    ids, mask, known = member["completion_ids"], member["mask"], member["log_probs"]
    trained = [] if known is None else [value for value, on in zip(known, mask) if on]
    before, after = len(member["prompt_ids"]), len(ids)
    answer = ChatCompletionResponseChoice(
        index=0, message=ChatMessage("assistant", "logged"), finish_reason="stop", token_ids=ids
    )
    return RolloutOutput(
        response=ChatCompletionResponse(
            model=member["policy"] or "logged", choices=[answer], usage=UsageInfo(before, after, before + after)
        ),
        messages=[{"role": "user", "content": member["prompt"]}, {"role": "assistant", "content": "logged"}],
        response_token_ids=[ids],
        response_loss_mask=[mask],
        rollout_logprobs=[trained] if trained else [],
        rollout_infos={"num_turns": 1, "total_reward": member["reward"], "episode": member["episode"]},
    )


class Replay(MultiTurnScheduler):
    async def run(self, infer_request, request_config, **kwargs):
        data = infer_request.data_dict
        members = json.loads(data["members"])
        return rollout(members[number(data["group_id"]) % len(members)])


multi_turns["flywheel_replay"] = Replay
