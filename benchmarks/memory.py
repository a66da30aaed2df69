"""The memory that `flywheel plan` estimates for a pass, and the peak that a round takes.

`python benchmarks/memory.py [--json FILE] [--only NAME...]` trains two steps of each shape in a process of its own and
reads its peak from /proc (Linux, on CPUs). `growth` is the peak less what the libraries held before a model was loaded;
`ratio` the estimate over the measured: of the growth, and of all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.extensions import TrainSpec

SHAPES: dict[str, dict[str, Any]] = {
    f"{model} {method} {dtype} {tokens}{more}": {
        "model": model, "method": method, "dtype": dtype, "tokens": tokens, "settings": settings,
    }
    for model, method, dtype, tokens, more, settings in [
        ("tiny", "sft", "float32", 512, "", {}),
        ("tiny", "sft", "float32", 2048, "", {}),
        ("tiny", "dpo", "float32", 2048, "", {}),
        ("tiny", "dpo", "float32", 2048, ", a row for each side", {"lora": {"dropout": 0.01}}),
        ("tiny", "sft", "bfloat16", 2048, "", {}),
        ("tiny", "sft", "float32", 2048, ", nf4", {"quantise": "nf4"}),
        ("tiny", "sft", "float32", 2048, ", int8", {"quantise": "int8"}),
        ("tiny", "sft", "float32", 2048, ", DoRA", {"lora": {"dora": True}}),
        ("smollm2", "sft", "float32", 512, "", {}),
        ("smollm2", "sft", "float32", 512, ", DoRA", {"lora": {"dora": True}}),
        ("smollm2", "dpo", "float32", 512, "", {}),
        ("smollm2", "sft", "bfloat16", 512, "", {}),
        ("smollm2", "sft", "float32", 512, ", nf4", {"quantise": "nf4"}),
        ("smollm2", "sft", "float32", 512, ", int8", {"quantise": "int8"}),
        ("smollm2", "sft", "float32", 2048, "", {}),
        ("smollm2", "sft", "float32", 2048, ", recomputed", {"gradient_checkpointing": "on"}),
        ("smollm2", "sft", "float32", 2048, ", DoRA", {"lora": {"dora": True}}),
        ("smollm2", "dpo", "float32", 2048, "", {}),
        ("smollm2", "dpo", "float32", 2048, ", a row for each side", {"lora": {"dropout": 0.01}}),
        ("smollm2", "sft", "bfloat16", 2048, "", {}),
        ("smollm2", "sft", "bfloat16", 2048, ", recomputed", {"gradient_checkpointing": "on"}),
        ("smollm2", "sft", "float32", 2048, ", nf4", {"quantise": "nf4"}),
        ("smollm2", "sft", "float32", 2048, ", int8", {"quantise": "int8"}),
    ]
}  # fmt: skip
_ACTION = 40  # words of an action


def tiny(folder: Path) -> None:
    """Write a Llama of eight layers with random weights and the embedded model's tokenizer."""
    import torch
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_tokenizer(ModelConfig())
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=8192, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def row(method: str, words: int, number: int) -> dict[str, Any]:
    """Return a row with a prompt of so many words, another one for each number."""
    action = {"role": "assistant", "content": "yes " * _ACTION}
    asked = {"role": "user", "content": f"{number} " + "word " * words}
    prompt: dict[str, Any] = {"prompt": [asked], "tools": None, "task_id": "t"}
    if method == "sft":
        return {**prompt, "completion": [action], "weight": 1.0}
    worse = {"role": "assistant", "content": "no " * _ACTION}
    return {**prompt, "chosen": [action], "rejected": [worse], "p_better": 1.0, "weight": 1.0}


def round_of(shape: dict[str, Any], folder: Path) -> TrainSpec:
    """Return a round of two rows of a shape, after all that is done once a machine."""
    from flywheel.config import Config
    from flywheel.extensions import TrainSpec
    from flywheel.io import files
    from flywheel.models.load import base_folder
    from flywheel.records import canonical_json

    settings = dict(shape["settings"])
    quantise = {"quantise": settings.pop("quantise")} if "quantise" in settings else {}
    base = "embedded"
    if shape["model"] == "tiny":
        tiny(folder / "model")
        base = str(folder / "model")
    train = {"max_steps": 2, "batch_size": 1, "max_kl": 1e6, "threads": 1, **settings}
    config = Config.model_validate({"model": {"base": base, "dtype": shape["dtype"], **quantise}, "train": train})
    base_folder(config.model)  # a GGUF file is dequantised once, which is none of a round's memory
    actions = 2 * _ACTION * (2 if shape["method"] == "dpo" else 1)
    rows = [row(shape["method"], shape["tokens"] - actions, number) for number in (1, 2)]
    files.atomic_write(folder / "train.jsonl", "".join(canonical_json(one) + "\n" for one in rows))
    (folder / "work").mkdir()
    return TrainSpec(
        round=1, method=shape["method"], data=folder / "train.jsonl", out_dir=folder / "adapter",
        work_dir=folder / "work", base_model=base, start_adapter=None,
        reference="none" if shape["method"] == "sft" else "parent", config=config, seed=0,
    )  # fmt: skip


def measure(shape: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train two steps in this process; return the estimate and the measured peak, in bytes."""
    import datasets  # noqa: F401 - before the first reading: it is of the libraries
    import trl  # noqa: F401
    from flywheel.models.footprint import Footprint
    from flywheel.stages.train import dpo, sft
    from transformers import Trainer  # noqa: F401

    spec = round_of(shape, folder)
    footprint = Footprint(spec.config.model, spec.config.train)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins again here
    result = (sft if shape["method"] == "sft" else dpo).train(spec)
    peak = _status("VmHWM")
    estimate = footprint.estimate(1, result.tokens // 2)
    return {
        "tokens": result.tokens // 2,
        "estimate": estimate.model_dump(),
        "libraries": before,
        "growth": peak - before,
        "peak": peak,
        "ratio_growth": round((estimate.needed - estimate.runtime) / (peak - before), 2),
        "ratio": round(estimate.needed / peak, 2),
        "checks": dict(result.checks),
    }


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--only", nargs="*", default=[], help="names that begin so")
    parser.add_argument("--one", help="used by itself")
    arguments = parser.parse_args()
    if arguments.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(SHAPES[arguments.one], Path(folder))))
        return
    results: dict[str, Any] = {}
    for name in SHAPES:
        if arguments.only and not any(name.startswith(wanted) for wanted in arguments.only):
            continue
        done = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        found = results[name] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{name}: {found['tokens']:,} tokens, growth {found['growth'] / 1e6:,.0f} MB, estimate over it "
            f"{found['ratio_growth']}; libraries {found['libraries'] / 1e6:,.0f} MB, of all {found['ratio']}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
