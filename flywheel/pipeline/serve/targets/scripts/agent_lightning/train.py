"""Train on logged attempts with agent-lightning and veRL: `python train.py KEY=VALUE ...`; needs a GPU."""

import json
import sys

from hydra import compose, initialize_config_module
from agentlightning.verl.entrypoint import run_ppo


REPLAY = [
    "agentlightning.hooks=hooks.py",
    "agentlightning.local.agent_class=replay:Replay",
    "agentlightning.local.env_map={FLY_FILE:input.file,FLY_INSTANCE:input.instance_id,FLY_MEMBER:input.member}",
]


def main(overrides):
    with open("tasks.jsonl", encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines]
    with open("rl.args", encoding="utf-8") as lines:
        settings = lines.read().split()
    with initialize_config_module("agentlightning.verl", version_base=None):
        run_ppo(compose("config", overrides=[*REPLAY, *settings, *overrides]), tasks, tasks)


if __name__ == "__main__":
    main(sys.argv[1:])
