"""Offline learning of the next tool with RLlib: `python train.py [bc|marwil] [UPDATES]` writes policy-NAME.pth.

Learner and data stay in one process; `encoder.json` names the numbers.
"""

import copy
import json
import sys

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch


def spaces():
    with open("encoder.json", encoding="utf-8") as file:
        encoder = json.load(file)
    size = len(encoder["state"])
    return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32), gym.spaces.Discrete(len(encoder["actions"]))


def episodes():
    """Return the attempts as RLlib's own episodes."""
    observations, actions = spaces()
    with open("episodes.json", encoding="utf-8") as lines:
        batches = [json.loads(line) for line in lines]
    return [
        SingleAgentEpisode(
            id_=str(batch["eps_id"][0]),
            observation_space=observations,
            action_space=actions,
            observations=[np.array(x, np.float32) for x in [*batch["obs"], batch["new_obs"][-1]]],
            actions=[int(a) for a in batch["actions"]],
            rewards=batch["rewards"],
            terminated=True,
            len_lookback_buffer=0,
        )
        for batch in batches
    ]


def settings(name):
    """Return RLlib's own configuration of BC or MARWIL."""
    observations, actions = spaces()
    config = {"bc": BCConfig, "marwil": MARWILConfig}[name]()
    config = config.environment(observation_space=observations, action_space=actions)
    config = config.offline_data(input_=["episodes.json"], dataset_num_iters_per_learner=1)
    return config.training(lr=1e-3, **({"beta": 1.0} if name == "marwil" else {}))


def main(name="bc", updates=200):
    torch.manual_seed(0)
    (observations, actions), config = spaces(), settings(name)
    learner = config.build_learner(env=None, spaces={DEFAULT_MODULE_ID: (observations, actions)})
    connector = config.build_learner_connector(observations, actions)
    logged, losses = [episode.to_numpy() for episode in episodes()], []
    for _ in range(int(updates)):
        batch = connector(
            rl_module=learner.module, batch={}, episodes=copy.deepcopy(logged), shared_data={}, metrics=None
        )
        samples = {module: SampleBatch(columns) for module, columns in batch.items()}
        steps = sum(map(len, logged))
        results = learner.update(training_data=TrainingData(batch=MultiAgentBatch(samples, env_steps=steps)))
        losses.append(float(results[DEFAULT_MODULE_ID]["policy_loss"].peek()))
    print(f"{name}: policy loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {updates} updates")
    torch.save(learner.module[DEFAULT_MODULE_ID].state_dict(), f"policy-{name}.pth")
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:3])
