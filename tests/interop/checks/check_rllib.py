"""RLlib: its episodes are the attempts, and BC and MARWIL train on them."""

import os
import sys

from _common import FOLDER, lines, run, same, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from train import episodes

    rewards = {row["episode"]: row["reward"] for row in tokens("groups")}
    names = {row["eps_id"]: row["episode"] for row in lines(FOLDER / "ids.jsonl")}
    read = {names[int(e.id_)]: e.get_return() for e in episodes()}
    same(read, rewards, "returns by episode")
    return f"{len(read)} attempts as SingleAgentEpisode, with the returns of the log"


def trained():
    from train import main

    losses = {name: main(name, 10) for name in ("bc", "marwil")}
    assert all(series[-1] < series[0] for series in losses.values()), losses
    return ", ".join(
        f"{name} from {series[0]:.3f} to {series[-1]:.3f} in 10 updates" for name, series in losses.items()
    )


run(read=read, trained=trained)
