"""SkyRL: its loaders read the files, its configurations take the arguments, its validator takes the replay."""

import asyncio
import os
import re
import sys
import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # declared for Python 3.12

from _common import FOLDER, MODEL, actions, credit, ids, mask, run, same, spread, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def prompts():
    from skyrl.train.dataset import PromptDataset
    from transformers import AutoTokenizer

    allowed = re.search(r"max_prompt_length=(\d+)", (FOLDER / "rl.args").read_text())  # it leaves longer ones out
    return PromptDataset("prompts.parquet", AutoTokenizer.from_pretrained(MODEL), int(allowed[1]), num_workers=1)


def read():
    from skyrl.train.dataset.pretokenized import load_from_pretokenized

    groups = {row["row"] for row in tokens("groups")}
    same(len(prompts()), len(groups), "prompts")
    rows = load_from_pretokenized("sft.parquet")
    same(len(rows), len(tokens("sft")), "rows")
    for n, written in enumerate(tokens("sft")):
        same(list(rows[n]["input_ids"]), ids(written), "sft")
        same(list(rows[n]["loss_mask"]), mask(written)[-len(rows[n]["loss_mask"]) :], "mask")
    return (
        f"PromptDataset keeps {len(groups)} of {len(groups)} groups; load_from_pretokenized gives every token and mask"
    )


def config():
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.config.sft_config import SFTConfig, validate_sft_cfg

    arguments = {name: (FOLDER / f"{name}.args").read_text().split() for name in ("rl", "sft")}
    SkyRLTrainConfig.from_cli_overrides(arguments["rl"])
    validate_sft_cfg(SFTConfig.from_cli_overrides(arguments["sft"]))
    try:
        SkyRLTrainConfig.from_cli_overrides(["trainer.no_such_key=1"])
    except Exception:
        return "SkyRLTrainConfig takes rl.args and refuses an unknown key; validate_sft_cfg passes sft.args"
    raise AssertionError("an unknown key was taken")


def replay():
    import replay as played
    from skyrl.train.generators.base import TrajectoryID
    from skyrl.train.utils.trainer_utils import validate_generator_output

    written = {(row["row"], int(row["side"])): row for row in tokens("groups")}
    data = prompts()
    extras = {data[n][2]["group_id"]: data[n] for n in range(len(data))}
    wanted = sorted(written)
    batch = {
        "prompts": [extras[group][0] for group, _ in wanted],
        "env_classes": ["flywheel"] * len(wanted),
        "env_extras": [extras[group][2] for group, _ in wanted],
        "trajectory_ids": [TrajectoryID(group, member) for group, member in wanted],
        "sampling_params": None,
        "batch_metadata": None,
    }
    for steps in (False, True):
        played.STEPS = steps
        output = asyncio.run(played.Replay().generate(batch))
        validate_generator_output(len(wanted), output)
        for n, key in enumerate(wanted):
            own = written[key]
            same(output["prompt_token_ids"][n] + output["response_ids"][n], ids(own), "tokens")
            same([0] * len(own["prompt_ids"]) + output["loss_masks"][n], mask(own), "mask")
            last = [0.0] * (len(own["completion_ids"]) - 1)
            same(output["rewards"][n], credit(own) if steps else [*last, own["reward"]], "rewards by token")
    one = {**batch, **{k: batch[k][:1] for k in ("prompts", "env_classes", "env_extras", "trajectory_ids")}}
    known = asyncio.run(played.Replay().generate(one))["rollout_logprobs"]
    own = written[wanted[0]]
    same([0.0] * len(own["prompt_ids"]) + known[0], spread(own), "log-probabilities")
    return f"validate_generator_output takes {len(wanted)} logged attempts, with returns and with step credit by token"


def environment():
    """A client writes what was recorded; SkyRL reads the prompts and checks what the generator returns."""
    import environment as sampled
    from skyrl.train.dataset import PromptDataset
    from skyrl.train.generators.base import GeneratorInterface, TrajectoryID
    from skyrl.train.utils.trainer_utils import validate_generator_output
    from transformers import AutoTokenizer

    written, own = actions()
    begun = len(own["prompt_ids"])

    class Client:
        async def generate(self, asked, model=None):
            (read,), (session,) = asked["prompt_token_ids"], asked["session_ids"]
            assert asked["sampling_params"]["max_tokens"] > 0 and session
            answer = written[0 if len(read) == begun else 1]
            return {"responses": [""], "response_ids": [answer], "stop_reasons": ["stop"],
                    "response_logprobs": [[-0.5] * len(answer)]}  # fmt: skip

    sampled.prompts()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data = PromptDataset("scenarios.parquet", tokenizer, 512, num_workers=1)
    (prompt, env_class, extras, *_) = data[0]
    batch = {
        "prompts": [prompt] * 2,
        "env_classes": [env_class] * 2,
        "env_extras": [extras] * 2,
        "trajectory_ids": [TrajectoryID("where", n) for n in range(2)],
        "sampling_params": {"temperature": 1.0},
        "batch_metadata": None,
    }
    generator = sampled.Environment(tokenizer, Client(), "policy")
    assert isinstance(generator, GeneratorInterface)
    output = asyncio.run(generator.generate(batch))
    validate_generator_output(2, output)
    for n in range(2):
        same(output["prompt_token_ids"][n] + output["response_ids"][n], ids(own), "tokens")
        same([0] * begun + output["loss_masks"][n], mask(own), "mask")
        same(sum(output["rewards"][n]), 1.0, "reward")
        same([0.0] * begun + output["rollout_logprobs"][n], [-0.5 * one for one in mask(own)], "log-probabilities")
    return f"{replay()}; a generator samples in the replay environment, with the tokens and the reward of the log"


run(read=read, config=config, replayed=environment)
