"""Train on logged attempts with agent-lightning and veRL: `python train.py KEY=VALUE ...`; needs a GPU."""

import json
import sys

from hydra import compose, initialize_config_module

REPLAY = [
    "agentlightning.hooks=hooks.py",
    "agentlightning.local.agent_class=replay:Replay",
    "+agentlightning.local.env_map.FLY_FILE=input.file",
    "+agentlightning.local.env_map.FLY_INSTANCE=input.instance_id",
    "+agentlightning.local.env_map.FLY_MEMBER=input.member",
]


def composed(overrides, agent=REPLAY):
    with open("rl.args", encoding="utf-8") as lines:
        settings = lines.read().split()
    with initialize_config_module("agentlightning.verl", version_base=None):
        return compose("config", overrides=[*agent, *settings, *overrides])


def main(overrides, agent, tasks):
    from agentlightning.verl.entrypoint import run_ppo

    run_ppo(composed(overrides, agent), tasks, tasks)


if __name__ == "__main__":
    with open("tasks.jsonl", encoding="utf-8") as lines:
        main(sys.argv[1:], REPLAY, [json.loads(line) for line in lines])
