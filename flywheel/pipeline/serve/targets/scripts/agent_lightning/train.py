"""Train on logged attempts with agent-lightning and veRL: `python train.py KEY=VALUE ...`; needs a GPU."""

import json
import sys

from hydra import compose, initialize_config_module
from agentlightning.verl.entrypoint import run_ppo


def main(overrides):
    with open("tasks.jsonl", encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines]
    with initialize_config_module("agentlightning.verl", version_base=None):
        run_ppo(compose("config", overrides=overrides), tasks, tasks)


if __name__ == "__main__":
    main(sys.argv[1:])
