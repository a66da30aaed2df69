"""Tianshou: its replay buffer is the attempts, and discrete BCQ trains on it."""

import os
import sys

from _common import FOLDER, run, same, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from train import buffer

    logged, attempts = buffer(), tokens("groups")
    same(int(logged.terminated.sum()), len(attempts), "attempts")
    same(round(float(logged.rew.sum()), 4), round(sum(row["reward"] for row in attempts), 4), "returns")
    return f"ReplayBuffer.from_data holds {len(logged)} steps of {len(attempts)} attempts, with the returns of the log"


def trained():
    from train import main

    main(20)
    return "DiscreteBCQ makes 20 updates and saves a policy"


run(read=read, trained=trained)
