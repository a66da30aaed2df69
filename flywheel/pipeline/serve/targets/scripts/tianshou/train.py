"""Discrete BCQ on logged transitions with Tianshou: `python train.py`; `encoder.json` names the numbers."""

import json
import sys

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DiscreteBCQ
from tianshou.algorithm.imitation.discrete_bcq import DiscreteBCQPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import ReplayBuffer
from tianshou.trainer import OfflineTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor


def buffer():
    steps = np.load("transitions.npz", allow_pickle=False)
    return ReplayBuffer.from_data(
        obs=steps["observations"],
        act=steps["actions"],
        rew=steps["rewards"],
        terminated=steps["terminals"],
        truncated=steps["timeouts"],
        done=steps["terminals"] | steps["timeouts"],
        obs_next=steps["next_observations"],
    )


def main(updates=200):
    with open("encoder.json", encoding="utf-8") as file:
        actions = gym.spaces.Discrete(len(json.load(file)["actions"]))
    logged = buffer()
    torch.manual_seed(0)
    np.random.seed(0)  # its buffer draws with it
    size = logged.obs.shape[1]
    nets = [
        DiscreteActor(
            preprocess_net=Net(state_shape=size, hidden_sizes=(64,)), action_shape=actions.n, softmax_output=False
        )
        for _ in range(2)
    ]
    policy = DiscreteBCQPolicy(model=nets[0], imitator=nets[1], action_space=actions)
    algorithm = DiscreteBCQ(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.99)
    result = algorithm.run_training(
        OfflineTrainerParams(buffer=logged, max_epochs=1, epoch_num_steps=updates, batch_size=64, test_collector=None)
    )
    print(f"{len(logged)} steps, {updates} updates in {result.timing.total_time:.1f} s")
    torch.save(policy.state_dict(), "policy.pth")
    return algorithm


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
