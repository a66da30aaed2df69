"""GRPO on logged groups with ART: `python train.py MODEL`; needs openpipe-art[backend] and a GPU."""

import asyncio
import sys

import art
from art.utils.trajectory_logging import read_trajectory_groups_parquet


def policy(model):
    return art.TrainableModel(name="flywheel", run_name="flywheel", project="flywheel", base_model=model)


async def main(model):
    from art.local import LocalBackend

    trained = policy(model)
    backend = LocalBackend()
    await trained.register(backend)
    groups = read_trajectory_groups_parquet("trajectories.parquet")
    await backend.train(trained, groups, learning_rate=2e-5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
