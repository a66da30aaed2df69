"""A trainer of your own as a backend: DPO and SFT with LoRA in plain PyTorch, for `[train.backends.mine] command`.

It imports nothing of flywheel: the job is JSON, the rows are token ids with the windows that are trained. Its first
metrics line is of the batch before any step, so that flywheel can compare it with its own scoring.
"""

import json
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM


def load(job, adapter, *, trainable=False):
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=getattr(torch, job["settings"]["dtype"]))
    return PeftModel.from_pretrained(model, adapter, is_trainable=trainable) if adapter else model


def policy(job):
    if job["start_adapter"]:
        return load(job, job["start_adapter"], trainable=True)
    lora = job["settings"]["lora"]
    shape = {"r": lora["r"], "lora_alpha": lora["alpha"], "lora_dropout": lora["dropout"]}
    return get_peft_model(
        load(job, None), LoraConfig(**shape, target_modules=lora["target_modules"], task_type="CAUSAL_LM")
    )


def log_probs(model, row):
    """Return the log-probabilities of a row's trained tokens."""
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    first = len(row["prompt_ids"]) - 1
    return torch.cat([scores[first + start : first + end] for start, end in row["windows"]])


def loss_of(items, model, reference, beta):
    if reference is None:
        scores = [log_probs(model, item["completion"]) for item in items]
        return -torch.cat(scores).mean(), {"logps/chosen": torch.stack([s.sum() for s in scores]).mean()}
    sides = [[log_probs(model, item[side]).sum() for side in ("chosen", "rejected")] for item in items]
    with torch.no_grad():
        before = [[log_probs(reference, item[side]).sum() for side in ("chosen", "rejected")] for item in items]
    apart = torch.stack([(c - rc) - (r - rr) for (c, r), (rc, rr) in zip(sides, before, strict=True)])
    good = torch.stack([c for c, _ in sides]).mean()
    return -torch.nn.functional.logsigmoid(beta * apart).mean(), {"logps/chosen": good}


def main(job):
    settings, items = job["settings"], defaultdict(dict)
    torch.manual_seed(settings["seed"])
    with open(job["tokens"], encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            items[row["row"]][row["side"]] = row
    size = settings["batch_size"] * settings["accumulation"]
    ordered = list(items.values()) * max(1, round(settings["epochs"]))
    batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    steps = settings["max_steps"] if settings["max_steps"] > 0 else len(batches)
    model = policy(job)
    reference = load(job, job["reference_adapter"]).eval() if job["reference"] != "none" else None
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings["learning_rate"], weight_decay=0)
    with open(job["metrics"], "a", encoding="utf-8") as metrics:
        for step, batch in enumerate(islice(batches * steps, steps), 1):
            loss, numbers = loss_of(batch, model, reference, settings.get("beta"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            row = {"step": step, "of": steps, "loss": float(loss), **{name: float(n) for name, n in numbers.items()}}
            print(json.dumps(row), file=metrics, flush=True)
    model.save_pretrained(job["adapter"])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
