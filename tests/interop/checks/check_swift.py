"""ms-swift: its loader and template give our tokens and masks, its parser takes the files, and it trains on a CPU."""

import json
import os
import subprocess
import sys

os.environ["USE_HF"] = "1"
from _common import FOLDER, MODEL, ids, mask, run, same, tokens

os.chdir(FOLDER)
FAMILY = ["--model_type", "llama", "--template", "llama3_2"]
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
    one = get_template(processor, template_type="llama3_2", use_chat_template=False, loss_scale="default")
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
        call = [sys.executable, "-m", "swift.cli.main", command, f"{name}.yaml", *FAMILY, *CPU]
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


run(read=read, trained=trained)
