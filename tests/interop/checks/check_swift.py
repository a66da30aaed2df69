"""ms-swift: its loader and template give our tokens and masks, its parser takes the files, and it trains on a CPU."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

os.environ["USE_HF"] = "1"
from _common import FOLDER, MODEL, ids, lines, mask, run, same, spread, tokens

os.chdir(FOLDER)
CPU = [
    "--max_steps",
    "1",
    "--gradient_accumulation_steps",
    "1",
    "--use_cpu",
    "true",
    "--logging_steps",
    "1",
    "--torch_dtype",
    "float32",
]


def template():
    from swift.model import get_processor
    from swift.template import get_template

    processor = get_processor(str(MODEL), model_type="llama")
    one = get_template(processor, template_type="dummy", use_chat_template=False, loss_scale="default")
    one.set_mode("train")
    return one


def encoded(one, name):
    from swift.dataset import load_dataset

    rows, _ = load_dataset(f"{name}.jsonl", strict=True, split_dataset_ratio=0)
    return [one.encode(dict(row)) for row in rows]


def read():
    one = template()
    for name, form in (("sft", "sft"), ("kto", "unpaired")):
        one.set_mode("train")
        for row, written in zip(encoded(one, name), tokens(form), strict=True):
            same(list(row["input_ids"]), ids(written), name)
            same([int(label != -100) for label in row["labels"]], mask(written), f"{name} mask")
    one.set_mode("rlhf")
    (pair,) = encoded(one, "dpo")
    for side, written in zip(("chosen", "rejected"), tokens("preference"), strict=True):
        same(list(pair[f"{side}_input_ids"]), ids(written), side)
        same([int(label != -100) for label in pair[f"{side}_labels"]], mask(written), f"{side} mask")
    return "load_dataset(strict) and the template give every token and mask of pairs, single actions, demonstrations"


def trained():
    losses = []
    for command, name in (("rlhf", "dpo"), ("rlhf", "kto"), ("sft", "sft")):
        call = [sys.executable, "-m", "swift.cli.main", command, f"{name}.yaml", *CPU]
        done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        assert done.returncode == 0, done.stderr[-400:]
        (log,) = (FOLDER / f"out-{name}").glob("*/logging.jsonl")
        losses.append(round(json.loads(log.read_text().splitlines()[0])["loss"], 4))
        (adapter,) = (FOLDER / f"out-{name}").glob("*/checkpoint-1/adapter_model.safetensors")
        assert adapter.stat().st_size
    same(losses[:2], [0.6931, 0.5], "losses at step 0")
    return (
        f"swift rlhf and swift sft on the files as written: DPO {losses[0]}, KTO {losses[1]}, SFT {losses[2]} at step 0"
    )


def arguments(kind, name, *extra):
    """Return a launch file as its own command line reads and checks it; what it does not know is refused."""
    from swift.arguments import RLHFArguments, SftArguments
    from swift.cli.main import parse_yaml_args
    from swift.pipelines.base import SwiftPipeline

    words = [f"{name}.yaml", *CPU, *extra]
    parse_yaml_args(words)
    own = SimpleNamespace(args_class={"rlhf": RLHFArguments, "sft": SftArguments}[kind])
    return SwiftPipeline._parse_args(own, words)


def config():
    longest = max(len(ids(row)) for form in ("preference", "unpaired", "sft") for row in tokens(form))
    for kind, name in (("rlhf", "dpo"), ("rlhf", "kto"), ("sft", "sft")):
        read = arguments(kind, name)
        assert read.max_length >= longest, "rows would be cut"
        same((read.use_chat_template, read.loss_scale, read.strict), (False, "default", True), name)
        same(read.template_backend, "swift", "the backend that masks")  # with jinja the prompt is trained
    try:
        arguments("rlhf", "dpo", "--no_such_flag", "1")
    except ValueError as error:
        assert "no_such_flag" in str(error), error
        return "RLHFArguments and SftArguments take dpo.yaml, kto.yaml and sft.yaml, and an unknown flag is refused"
    raise AssertionError("an unknown flag was taken")


def replay():
    """Row, request, scheduler, rollout and the trainer's own encoding of it: all ms-swift's but the scheduler."""
    import asyncio

    import torch
    from swift.rl_core.data import OnPolicySample
    from swift.rlhf_trainers.utils import build_rollout_logps, encode_sample
    from swift.rollout.multi_turn import multi_turns

    sys.path.insert(0, str(FOLDER))
    import replay as plugin

    assert plugin.Replay is multi_turns["flywheel_replay"]
    scheduler = multi_turns["flywheel_replay"](SimpleNamespace(engine=None))
    one, rows = template(), {row["group_id"]: row for row in lines(FOLDER / "grpo.jsonl")}
    for own in tokens("groups"):
        sample = OnPolicySample.from_row(rows[own["row"]])
        request = sample.to_infer_request(include_extra=True)
        sample.apply_rollout_output(rollout_output=asyncio.run(scheduler.run(request, None)))
        encoded = encode_sample(sample, one)
        same(list(encoded["input_ids"]), ids(own), "tokens")
        same([int(label != -100) for label in encoded["labels"]], mask(own), "mask")
        same(sample.rollout_infos["total_reward"], own["reward"], "reward")
        trained = torch.tensor([mask(own)])
        known = build_rollout_logps([sample.rollout_logprobs], trained, torch.device("cpu"))
        assert (known is None) == (own["log_probs"] is None)
        if known is not None:
            same(known[0].tolist(), spread(own), "log-probabilities")
    return (
        f"{len(tokens('groups'))} logged attempts from its scheduler through the GRPO trainer's encoding: ids, masks, "
        "log-probabilities, rewards"
    )


run(read=read, config=config, replayed=replay, trained=trained)
