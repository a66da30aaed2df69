"""Tianshou: its replay buffer is the attempts, and discrete BCQ trains on it."""

import os
import sys

import numpy as np
from _common import FOLDER, lines, run, same, steps, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from train import buffer

    logged, attempts = buffer(), tokens("groups")
    same(int(logged.terminated.sum()), len(attempts), "attempts")
    same(round(float(logged.rew.sum()), 4), round(sum(row["reward"] for row in attempts), 4), "returns")
    (encoder,) = lines(FOLDER / "encoder.json")
    written, did = np.load("transitions.npz", allow_pickle=False), {}
    for n, name in enumerate(written["episodes"]):
        did.setdefault(str(name), []).append((encoder["actions"][logged.act[n]], float(written["credit"][n])))
    same(did, steps(), "actions and credit by step")
    same(logged.obs.tolist(), written["observations"].tolist(), "states")
    last = [n for n, over in enumerate(logged.terminated) if over]
    rewards = {str(written["episodes"][n]): round(float(logged.rew[n]), 4) for n in last}
    same(rewards, {row["episode"]: row["reward"] for row in attempts}, "returns by episode")
    return (
        f"ReplayBuffer.from_data holds {len(logged)} steps of {len(attempts)} attempts: states, actions and returns of "
        "the log"
    )


def trained():
    from train import main

    main(20)
    return "DiscreteBCQ makes 20 updates and saves a policy"


run(read=read, trained=trained)
