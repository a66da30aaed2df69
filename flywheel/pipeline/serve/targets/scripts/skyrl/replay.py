"""A generator that plays back logged attempts through SkyRL: `python replay.py` trains on them.

Ids, masks, log-probabilities and rewards are the log's, so SkyRL's own off-policy correction sees the truth.
"""

import json
import sys
from collections import Counter

from skyrl.train.generators.base import GeneratorInterface, GeneratorOutput

STEPS = False  # True: a reward a token, each step's credit at its last one, instead of the attempt's return


def rewards(member):
    if not STEPS or member["step_advantages"] is None:
        return [0.0] * (len(member["completion_ids"]) - 1) + [member["reward"]]
    return member["step_advantages"]


class Replay(GeneratorInterface):
    def __init__(self, *served):
        pass

    async def generate(self, input_batch) -> GeneratorOutput:
        asked, chosen = Counter(), []
        ids = input_batch.get("trajectory_ids") or [None] * len(input_batch["prompts"])
        for extras, trajectory in zip(input_batch["env_extras"], ids, strict=True):
            members = json.loads(extras["members"])
            number = asked[extras["group_id"]] if trajectory is None else trajectory.repetition_id
            asked[extras["group_id"]] += 1
            chosen.append(members[number % len(members)])
        known = all(member["log_probs"] is not None for member in chosen)
        return {
            "prompt_token_ids": [member["prompt_ids"] for member in chosen],
            "response_ids": [member["completion_ids"] for member in chosen],
            "rewards": [rewards(member) for member in chosen],
            "loss_masks": [member["mask"] for member in chosen],
            "stop_reasons": ["stop"] * len(chosen),
            "rollout_metrics": {},
            "rollout_logprobs": [member["log_probs"] for member in chosen] if known else None,
            "trajectory_ids": input_batch.get("trajectory_ids"),
        }


def main(arguments, generator=Replay):
    """Train; `generator` makes rollouts from a tokenizer, a client of the policy's servers and its name there."""
    import ray
    from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.utils import initialize_ray, validate_cfg

    class Logged(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return generator(tokenizer, inference_engine_client, resolve_policy_model_name(cfg))

    cfg = SkyRLTrainConfig.from_cli_overrides(arguments)
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(ray.remote(num_cpus=1)(lambda: Logged(cfg).run()).remote())


if __name__ == "__main__":
    with open("rl.args", encoding="utf-8") as lines:
        main([*lines.read().split(), *sys.argv[1:]])
