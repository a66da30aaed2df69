"""ART: its Parquet reader takes the trajectories and finds our tokens as sampled; its SFT reader takes the rest."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import art
from _common import FOLDER, ids, lines, mask, run, same, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from art.utils.sft import iterate_file
    from art.utils.trajectory_logging import read_trajectory_groups_parquet

    groups = read_trajectory_groups_parquet("trajectories.parquet")
    written = {(row["row"], int(row["side"])): row for row in tokens("groups")}
    played = [(g.metadata["group_id"], n, t) for g in groups for n, t in enumerate(g.trajectories)]
    same(len(played), len(written), "trajectories")
    for group, member, trajectory in played:
        same(trajectory.reward, written[group, member]["reward"], "reward")
    demonstrations = list(iterate_file("sft.jsonl", epochs=1))
    same(len(demonstrations), len(lines(FOLDER / "sft.jsonl")), "demonstrations")
    return f"read_trajectory_groups_parquet: {len(played)} trajectories with their rewards; iterate_file: all demonstrations"


def tokenized():
    from art.trajectories import TokenFlag
    from art.utils.trajectory_logging import read_trajectory_groups_parquet

    written = {(row["row"], int(row["side"])): row for row in tokens("groups")}
    count = 0
    for group in read_trajectory_groups_parquet("trajectories.parquet"):
        for n, trajectory in enumerate(group.trajectories):
            own = written[group.metadata["group_id"], n]
            same(trajectory.metrics["advantage"], own["advantage"], "advantage")
            read = trajectory.tokenize(model=own["policy"])
            sampled = [int(bool(flag & TokenFlag.SAMPLED)) for flag in read.flags]
            same(list(read.tokens), ids(own), "tokens")
            same(sampled, mask(own), "sampled tokens")
            if own["log_probs"] is not None:
                same([x for x, one in zip(read.logprobs, sampled) if one], own["log_probs"], "log-probabilities")
            count += sum(sampled)
    return f"Trajectory.tokenize gives the same ids and log-probabilities, and {count} tokens as sampled: our masks"


def config():
    from train import policy

    same(policy("tiny").base_model, "tiny", "base model")
    try:
        art.TrainableModel(name="a", project="a", base_model="tiny")
    except TypeError:
        return "TrainableModel takes what train.py gives it; it has no configuration files"
    raise AssertionError("a model without a run was taken")


run(read=read, config=config, replayed=tokenized)
