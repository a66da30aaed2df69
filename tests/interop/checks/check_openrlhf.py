"""OpenRLHF: its datasets read the files, its executor's base class takes the replay."""

import asyncio
import os
import sys
from types import SimpleNamespace

from _common import FOLDER, MODEL, ids, mask, run, same, spread, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def loaded(name, **keys):
    from openrlhf.datasets.utils import blending_datasets

    strategy = SimpleNamespace(args=SimpleNamespace(data=SimpleNamespace(**keys)), print=print, is_rank_0=lambda: True)
    return blending_datasets(f"{name}.jsonl", None, strategy, 42), strategy


def read():
    from openrlhf.datasets import RewardDataset, SFTDataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data, strategy = loaded("dpo", prompt_key="prompt", chosen_key="chosen", rejected_key="rejected")
    pairs = RewardDataset(data, tokenizer, 8192, strategy, is_dpo=True, num_processors=1)
    (chosen, rejected) = tokens("preference")
    same(len(pairs), 1, "pairs")
    one = pairs[0]
    same(one[0][0].tolist(), ids(chosen), "chosen")
    same(one[2][0].tolist(), ids(rejected), "rejected")
    same(one[4], len(chosen["prompt_ids"]), "where the loss begins")
    data, strategy = loaded("sft", input_key="input", output_key="output")
    rows = SFTDataset(data, tokenizer, 8192, strategy, num_processors=1)
    for row, written in zip([rows[n] for n in range(len(rows))], tokens("sft"), strict=True):
        same(row[0][0].tolist(), ids(written), "sft")
    return "RewardDataset(is_dpo) and SFTDataset give every token, and the place where the loss begins"


def replay():
    from replay import AgentExecutor

    executor, count = AgentExecutor(), 0
    for own in tokens("groups"):
        played = asyncio.run(executor.execute("", own["row"], None, 8192, None, None))
        same(played["observation_tokens"], ids(own), "tokens")
        ranges = [n for a, b in played["action_ranges"] for n in range(a, b)]
        same([int(n in ranges) for n in range(len(ids(own)))], mask(own), "mask")
        if own["log_probs"] is not None:
            same(played["rollout_log_probs"], spread(own), "log-probabilities")
        same(played["reward"], own["reward"], "reward")
        count += 1
    return f"{count} logged attempts through AgentExecutor: ids, ranges, log-probabilities, rewards"


def flags():
    import re

    cli = {
        name: (__import__("pathlib").Path(__import__("openrlhf").__file__).parent / "cli" / name).read_text()
        for name in ("train_dpo.py", "train_sft.py", "train_ppo_ray.py")
    }
    for script, name in (("dpo", "train_dpo.py"), ("sft", "train_sft.py"), ("grpo", "train_ppo_ray.py")):
        flags = re.findall(r"--[a-z_]+(?:\.[a-z_]+)+", (FOLDER / f"{script}.sh").read_text())
        unknown = [flag for flag in flags if f'"{flag}"' not in cli[name]]
        same(unknown, [], f"unknown flags of {script}.sh")
    return "each flag of the scripts is one that its command line declares (names compared; not parsed: it needs CUDA)"


run(read=read, flags=flags, replayed=replay)
