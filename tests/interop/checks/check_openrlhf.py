"""OpenRLHF: its datasets read the files, its executor's base class takes the replay."""

import asyncio
import os
import sys
from types import SimpleNamespace

from _common import FOLDER, MODEL, actions, ids, mask, run, same, spread, tokens

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
        same([0, *map(int, row[2][0].tolist()[:-1])], mask(written), "mask")  # its own is of the token after
    return (
        "RewardDataset(is_dpo) and SFTDataset give every token and the mask; pairs as well, from where the loss begins"
    )


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


def environment():
    """A server writes what was recorded; OpenRLHF makes an experience of what its executor returns."""
    import subprocess
    from types import ModuleType

    from transformers import AutoTokenizer

    for name in ("vllm", "vllm.inputs", "vllm.utils"):  # imported at the top, and needs CUDA
        sys.modules[name] = ModuleType(name)
    sys.modules["vllm"].SamplingParams = sys.modules["vllm.inputs"].TokensPrompt = SimpleNamespace
    sys.modules["vllm.utils"].random_uuid = str
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    subprocess.run([sys.executable, "environment.py"], check=True)
    data, _ = loaded("scenario_prompts", input_key="input", label_key="label")
    executor = _load_agent_executor(str(FOLDER / "environment.py"))
    written, own = actions()

    class Server:
        def __init__(self, answers):
            self.answers = iter(answers)

        async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
            answer = next(self.answers)
            known = [{token: SimpleNamespace(logprob=-0.5)} for token in answer]
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=answer, logprobs=known)])

    tokenizer, sampling = AutoTokenizer.from_pretrained(MODEL), SimpleNamespace(max_tokens=None, logprobs=1)

    def experience(answers):
        row = next(iter(data))
        call = executor.execute(row["input"], row["label"], sampling, 8192, tokenizer, Server(answers))
        return SamplesGenerator._process_response_into_experience(None, asyncio.run(call), max_len=8192)

    played = experience(written)
    same(played.sequences[0].tolist(), ids(own), "tokens")
    same([0, *played.action_mask[0].tolist()], mask(own), "mask")
    same([0.0, *played.rollout_log_probs[0].tolist()], [-0.5 * one for one in mask(own)], "log-probabilities")
    same(played.rewards.tolist(), [1.0], "reward")
    left = experience([written[0][:-1]])
    same((left.action_mask.sum().item(), left.rewards.tolist()), (0, [0.0]), "an attempt that leaves the log")
    return f"{replay()}; its executor samples in the replay environment, with the tokens and the reward of the log"


def parsed(script, module, extra=()):
    """Return the arguments as the module's own command line reads and checks them; its imports alone need CUDA."""
    import argparse
    import ast
    import pathlib
    import shlex
    from datetime import datetime

    import openrlhf

    source = (pathlib.Path(openrlhf.__file__).parent / "cli" / f"{module}.py").read_text()
    command = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    given, read = shlex.split((FOLDER / f"{script}.sh").read_text().replace("\\\n", " ")), []
    sys.argv = ["train", *given[given.index(f"openrlhf.cli.{module}") + 1 :], *extra]
    names = {"argparse": argparse, "os": os, "datetime": datetime, "train": read.append}
    exec(compile(ast.Module(command.body, []), module, "exec"), names)
    return read[0]


def config():
    dpo, sft = parsed("dpo", "train_dpo"), parsed("sft", "train_sft")
    grpo = parsed("grpo", "train_ppo_ray")
    longest = max(len(ids(row)) for form in ("preference", "sft", "groups") for row in tokens(form))
    for one in (dpo, sft, grpo):
        assert one.data.max_len >= longest, "rows would be cut"
    same(grpo.reward.remote_url, ["agent"], "who gives rewards")
    try:
        parsed("dpo", "train_dpo", ["--no.such_flag", "1"])
    except SystemExit:
        return (
            "the command lines of train_dpo, train_sft and train_ppo_ray take the scripts, and refuse an unknown flag"
        )
    raise AssertionError("an unknown flag was taken")


run(read=read, config=config, replayed=environment)
