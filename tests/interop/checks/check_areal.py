"""AReaL: its dataset loader, collator, configuration and trajectory check take the files."""

import asyncio
import os
import sys

from _common import FOLDER, MODEL, actions, ids, mask, run, same, spread, tokens

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))


def read():
    from areal.dataset import _get_custom_dataset

    (pair,) = list(_get_custom_dataset(path="dpo", type="dpo", split="train"))
    for side, written in zip(("chosen", "rejected"), tokens("preference"), strict=True):
        same(list(pair[f"{side}_ids"]), ids(written), side)
        same(list(pair[f"{side}_loss_mask"]), mask(written), f"{side} mask")
    for row, written in zip(_get_custom_dataset(path="sft", type="sft", split="train"), tokens("sft"), strict=True):
        same(list(row["input_ids"]), ids(written), "sft")
        same(list(row["loss_mask"]), mask(written), "mask")
    return "its dataset loader gives every token and mask of pairs and demonstrations"


def config():
    from areal.api.cli_args import DPOConfig, SFTConfig, load_expr_config

    load_expr_config(["--config", "dpo.yaml"], DPOConfig)
    load_expr_config(["--config", "sft.yaml"], SFTConfig)
    try:
        load_expr_config(["--config", "dpo.yaml", "actor.no_such_key=1"], DPOConfig)
    except Exception:
        return "load_expr_config takes dpo.yaml and sft.yaml, and refuses an unknown key"
    raise AssertionError("an unknown key was taken")


def replay():
    from areal.dataset import _get_custom_dataset
    from areal.infra.workflow_executor import check_trajectory_format
    from replay import Replay

    rows = {row["group_id"]: row for row in _get_custom_dataset(path="rl", type="rl", split="train")}
    workflow, count = Replay(), 0
    for own in tokens("groups"):
        played = asyncio.run(workflow.arun_episode(None, rows[own["row"]]))
        assert check_trajectory_format(played)
        same(played["input_ids"][0].tolist(), ids(own), "tokens")
        same(played["loss_mask"][0].tolist(), mask(own), "mask")
        same(played["logprobs"][0].tolist(), spread(own), "log-probabilities")
        same(played["rewards"].tolist(), [own["reward"]], "reward")
        count += 1
    return f"check_trajectory_format takes {count} logged attempts: ids, masks, log-probabilities, rewards"


def environment():
    """AReaL's requests and responses between the workflow and a server that writes what was recorded, and a wrong end."""
    from areal.api.cli_args import GenerationHyperparameters
    from areal.api.io_struct import ModelRequest, ModelResponse
    from areal.infra.workflow_executor import check_trajectory_format
    from environment import Environment, scenarios
    from transformers import AutoTokenizer

    written, own = actions()

    class Server:
        def __init__(self, answers):
            self.answers = iter(answers)

        async def agenerate(self, request):
            assert isinstance(request, ModelRequest) and request.gconfig.max_new_tokens > 0
            answer = next(self.answers)
            return ModelResponse(
                input_tokens=request.input_ids, output_tokens=answer, output_logprobs=[-0.5] * len(answer),
                output_versions=[7] * len(answer),
            )  # fmt: skip

    workflow = Environment(GenerationHyperparameters(), AutoTokenizer.from_pretrained(MODEL))
    (row,) = scenarios()
    played = asyncio.run(workflow.arun_episode(Server(written), row))
    assert check_trajectory_format(played)
    same(played["input_ids"][0].tolist(), ids(own), "tokens")
    same(played["loss_mask"][0].tolist(), mask(own), "mask")
    same([int(version == 7) for version in played["versions"][0].tolist()], mask(own), "who wrote which token")
    same(played["rewards"].tolist(), [1.0], "reward")
    cut = written[0][:-1]  # without the end of its turn
    left = asyncio.run(workflow.arun_episode(Server([cut]), row))
    assert left is None and check_trajectory_format(left)
    return f"{replay()}; its workflow samples in the replay environment, and rejects an attempt that leaves the log"


run(read=read, config=config, replayed=environment)
