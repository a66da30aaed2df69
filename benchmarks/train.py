"""What training costs compared with TRL's own trainer and a plain GRPO loss, on logged pairs with long prompts.

`python benchmarks/train.py [--json] [--data FOLDER] [--steps N]`: SmolLM2-135M, float32, LoRA on all linear layers, the
same rows in the same order in one run. Pairs: TRL's DPOTrainer as it comes, the same with precomputed references, and
flywheel's. Groups of 8: one logged prompt with eight logged actions, row by row and as a tree. Alone: two rows
that begin differently, in the same two ways: what a tree costs where it gains nothing. Every side is a process of its
own (peak memory), and the sides take their steps in turn: a busy machine slows all alike. flywheel's time includes its
one reference pass where it is compared with stock TRL, and excludes it where TRL precomputes too. Where there is a GPU,
all sides run on it, memory is the GPU's, and the tree is measured with both of its kernels.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TAU2 = ROOT.parent / "shared" / "data" / "tau2-bench" / "airline"
LEAST, MOST = 700, 763  # tokens of a prompt; a longer one is cut to its last ones
ANSWER = (10, 100)  # tokens of an action
GROUP = 8
PAIR_SIDES = ("stock", "precomputed", "flywheel")
TREE_SIDES = ("rows", "tree")
ON_GPU = ("tree-blocks",)  # next to `tree`, which is one FlexAttention kernel there


def logged_pairs(data: Path, folder: Path) -> list[dict[str, list[int]]]:
    """Return tokenised pairs of logged actions after a logged prompt, shortest first: its own, and another state's.

    Which of the two is better does not matter to what they cost, and few logs have so many real pairs this long.
    """
    from flywheel.config import load_config
    from flywheel.funnel import Funnel
    from flywheel.models.chat import ChatFormat
    from flywheel.models.load import load_tokenizer
    from flywheel.pipeline.build.tables import read_table
    from flywheel.project import Project
    from flywheel.stages.selection.rows import select_demonstrations
    from flywheel.stages.train.rows import tokenise

    (folder / "flywheel.toml").write_text("[train]\nmax_length = 100000\nmax_rows = 400\n", encoding="utf-8")
    config = load_config(folder / "flywheel.toml")
    project = Project(folder)
    project.ingest([data] if data.is_dir() else [ROOT / "sample_logs"])
    project.build()
    table = read_table(project.store, "examples").collect()
    rows = select_demonstrations(table, config.train, Funnel())
    rows.sort(key=lambda row: (len(json.dumps([row["prompt"], row["tools"]])), row["id"]))
    pairs = [
        {"prompt": row["prompt"], "tools": row["tools"], "chosen": row["completion"], "rejected": other["completion"]}
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]
    made = tokenise(pairs, ChatFormat(load_tokenizer(config.model)), ("chosen", "rejected"), config.train).rows
    return sorted((_windowed(row) for row in made), key=lambda r: (len(r["prompt_ids"]), r["prompt_ids"]))


def _windowed(row: dict[str, list[int]]) -> dict[str, list[int]]:
    """Keep a prompt's last tokens and an action's first ones, so that every side fits a small machine alike."""
    prompt = row["prompt_ids"][-MOST:]
    return {"prompt_ids": prompt, **{k: row[k][: ANSWER[1]] for k in ("chosen_ids", "rejected_ids")}}


def chosen_rows(pairs: list[dict[str, list[int]]], count: int) -> dict[str, Any]:
    """Return the pairs and groups that are measured."""
    fitting = [
        p
        for p in pairs
        if LEAST <= len(p["prompt_ids"]) <= MOST
        and all(ANSWER[0] <= len(p[s]) <= ANSWER[1] for s in ("chosen_ids", "rejected_ids"))
        and p["chosen_ids"] != p["rejected_ids"]
    ]
    if len(fitting) < count:
        raise SystemExit(f"only {len(fitting)} pairs with prompts of {LEAST} tokens and more; give other --data")
    actions = list({tuple(p[s]) for p in fitting for s in ("chosen_ids", "rejected_ids")})
    actions.sort(key=lambda a: (abs(len(a) - 60), a))
    groups = [[[p["prompt_ids"], action] for action in actions[:GROUP]] for p in fitting[:count]]
    alone = [[[p["prompt_ids"], p["chosen_ids"]], _unlike(p["prompt_ids"], fitting)] for p in fitting[:count]]
    return {"pairs": fitting[:count], "groups": groups, "alone": alone}


def _unlike(prompt: list[int], pairs: list[dict[str, list[int]]]) -> list[list[int]]:
    """Return a prompt that begins differently, and its action."""
    other = next(p for p in pairs if p["prompt_ids"][0] != prompt[0])
    return [other["prompt_ids"], other["chosen_ids"]]


# --- one side, in a process of its own -----------------------------------------------------------------------------


def on_gpu() -> bool:
    """Return whether torch sees a GPU."""
    import torch

    return torch.cuda.is_available()


def settle() -> None:
    """Wait until the device has done what it was given."""
    import torch

    if on_gpu():
        torch.cuda.synchronize()


def peak_gb() -> float:
    """Return the most memory so far: the GPU's, or the process's."""
    import torch

    if on_gpu():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class Turns:
    """Waits for a line before each step, and answers with the step's seconds and loss."""

    def begin(self) -> None:
        """Wait for one's turn."""
        sys.stdin.readline()
        settle()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def end(self, loss: float) -> None:
        """Say what the step took."""
        settle()
        took = {"s": time.perf_counter() - self._wall, "cpu_s": time.process_time() - self._cpu, "loss": loss}
        print("STEP " + json.dumps({**took, "peak_gb": peak_gb()}), flush=True)


def model_with_lora(dtype: str) -> Any:
    """Return the embedded model under a seeded LoRA."""
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_base
    from peft import LoraConfig, get_peft_model
    from transformers import set_seed

    base = load_base(ModelConfig.model_validate({"dtype": dtype}))
    set_seed(0)
    return get_peft_model(
        base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    ).train()


def stock_settings(folder: Path) -> dict[str, Any]:
    """Return TRL's settings for one pair a step; all else is TRL's own default."""
    return {
        "output_dir": str(folder), "per_device_train_batch_size": 1, "num_train_epochs": 1, "use_cpu": not on_gpu(),
        "bf16": False, "learning_rate": 5e-5, "report_to": [], "logging_steps": 1, "save_strategy": "no",
        "disable_tqdm": True, "max_length": None, "beta": 0.1, "seed": 0,
    }  # fmt: skip


def pair_side(side: str, rows: list[dict[str, list[int]]], folder: Path, dtype: str) -> None:  # noqa: PLR0915 - one side, one story
    """Train on one pair a step: TRL's DPOTrainer, or flywheel's over it."""
    from datasets import Dataset
    from flywheel.config import Config
    from flywheel.extensions import TrainSpec
    from flywheel.models.load import load_tokenizer
    from flywheel.stages.train import dpo
    from flywheel.stages.train.offline import Order, collate, prepare_items, reference_scores
    from flywheel.stages.train.rows import answers
    from torch.utils.data import SequentialSampler
    from transformers import TrainerCallback
    from trl import DPOConfig, DPOTrainer

    turns = Turns()

    class Timed(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            turns.begin()

        def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
            if logs and "loss" in logs:
                turns.end(logs["loss"])

    class Stock(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return SequentialSampler(range(len(rows)))

    class Ours(dpo.PairLoss, Stock):
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return SequentialSampler(range(len(rows)))

    settings = stock_settings(folder / side)
    tokenizer, model = load_tokenizer(Config().model), model_with_lora(dtype)
    if side != "flywheel":
        data = Dataset.from_list(rows)
        turns.begin()
        args = DPOConfig(**settings, precompute_ref_log_probs=side == "precomputed")
        trainer: Any = Stock(
            model=model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Timed()]
        )
    else:
        config = Config.model_validate({"train": {"dpo_sft_weight": 0.0, "batch_size": 1}})
        none = Path()
        spec = TrainSpec(1, "dpo", none, none, none, "embedded", None, "base", config, 0)
        bare = prepare_items(spec, model, [answers(row) for row in rows], reference=False)
        turns.begin()
        flat = iter(reference_scores(bare.scorer, spec, [row for item in bare.rows for row in item]).rows)
        items = dataclasses.replace(bare, reference=[[next(flat) for _ in item] for item in bare.rows])
        data = Dataset.from_dict({"item": list(range(len(rows)))})
        args = DPOConfig(**settings, remove_unused_columns=False, gradient_checkpointing=False)
        trainer = Ours(
            model=model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Timed()],
            data_collator=collate,
        )  # fmt: skip
        trainer.model.delete_adapter("ref")
        trainer.setup(spec, items, {}, Order(items.rows, 1, 0))
        trainer.of_pairs(spec, [{} for _ in rows])
    turns.end(0.0)  # the first line is what came before the first step: a reference pass, where there is one
    trainer.train()


def tree_side(side: str, items: list[list[list[list[int]]]], dtype: str) -> None:
    """Take policy gradient steps on one group each, [prompt, action] a member, from rows one by one or from a tree."""
    import torch
    from flywheel.stages.train.sharing.attention import kernels
    from flywheel.stages.train.sharing.packed import Scorer
    from flywheel.stages.train.sharing.tree import Row

    turns, model = Turns(), model_with_lora(dtype)
    scorer = Scorer(model)
    tree = side.startswith("tree")
    scorer.kernel = "blocks" if side == "tree-blocks" else kernels(scorer.device.type)[0]
    together = GROUP if tree or on_gpu() else 2  # eight rows need more memory than a small machine has
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    advantages = torch.tensor([1.0 if i % 2 else -1.0 for i in range(GROUP)], device=scorer.device)
    turns.begin()
    turns.end(0.0)
    for item in items:
        members = [Row((*prompt, *a), ((len(prompt), len(prompt) + len(a)),)) for prompt, a in item]
        turns.begin()
        total = sum(len(row.trained) for row in members)
        found = 0.0
        for at in range(0, len(members), together):
            part = members[at : at + together]
            scores = scorer.shared(part) if tree else scorer.plain(part)
            signs = advantages[at : at + len(part)]
            loss = -torch.stack([a * s.sum() for a, s in zip(signs, scores, strict=True)]).sum() / total
            torch.autograd.backward(loss)
            found += float(loss.detach())
        optimiser.step()
        optimiser.zero_grad()
        turns.end(found)


# --- all sides in turn ---------------------------------------------------------------------------------------------


def in_turns(
    what: str, sides: tuple[str, ...], path: Path, turns: int, dtype: str
) -> dict[str, list[dict[str, float]]]:
    """Run every side in its own process, one step at a time, and return what each step took."""
    running = {
        side: subprocess.Popen(
            [sys.executable, __file__, "--side", f"{what}:{side}", "--rows", str(path), "--dtype", dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(path.parent / f"{what}-{side}.log").open("w"),
            text=True,
        )
        for side in sides
    }
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(turns):
        for side, process in running.items():
            process.stdin.write("go\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            line = next((text for text in process.stdout or [] if text.startswith("STEP ")), None)
            if line is None:
                raise SystemExit(f"{what}:{side} ended early: {_end_of(path.parent / f'{what}-{side}.log')}")
            found[side].append(json.loads(line[5:]))
            print(f"{what} {side} turn {turn}: {line[5:].strip()}", file=sys.stderr, flush=True)
    for process in running.values():
        process.communicate()
    return found


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def summary(steps: list[dict[str, float]], warm: int, computed: float, trained: float, plain: float) -> dict[str, Any]:
    """Return a side's medians over its measured steps."""
    seconds = statistics.median(s["s"] for s in steps[1 + warm :])
    return {
        "s_a_step": round(seconds, 4),
        "cpu_s_a_step": round(statistics.median(s["cpu_s"] for s in steps[1 + warm :]), 4),
        "before_s": round(steps[0]["s"], 4),
        "rows_tokens_per_s": round(plain / seconds, 1),
        "useful_share": round(trained / computed, 4),
        "peak_gb": round(max(s["peak_gb"] for s in steps), 2),
        "losses": [round(s["loss"], 6) for s in steps[1:]],
    }


def measure(rows: dict[str, Any], folder: Path, steps: int, warm: int, dtype: str) -> dict[str, Any]:
    """Measure pairs, groups and rows alone; a side takes a turn before its steps, then some to warm up."""
    path = folder / "rows.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    trees = (*TREE_SIDES, *(ON_GPU if on_gpu() else ()))
    measured = {
        what: in_turns(what, sides, path, 1 + warm + steps, dtype)
        for what, sides in (("pairs", PAIR_SIDES), ("groups", trees), ("alone", trees))
    }
    shape = {what: _shape(rows[what]) for what in ("groups", "alone")}
    shape["pairs"] = _shape([[[p["prompt_ids"], p[s]] for s in ("chosen_ids", "rejected_ids")] for p in rows["pairs"]])
    out: dict[str, Any] = {"shape": shape, "pairs": {}, "groups": {}, "alone": {}}
    for what, sides in measured.items():
        s = shape[what]
        for side, found in sides.items():
            shared = side not in {"stock", "precomputed", "rows"}
            out[what][side] = summary(
                found, warm, s["tree_tokens" if shared else "rows_tokens"], s["trained"], s["rows_tokens"]
            )
    one, two, three = (out["pairs"][side] for side in PAIR_SIDES)
    share = three["before_s"] / len(rows["pairs"])  # the reference pass over all rows, a row's part
    out["pairs_ratio"] = round(one["s_a_step"] / (three["s_a_step"] + share), 2)
    out["pairs_ratio_precomputed"] = round(two["s_a_step"] / three["s_a_step"], 2)
    for what in ("groups", "alone"):
        took = out[what]
        out[f"{what}_ratio"] = round(took["rows"]["s_a_step"] / took["tree"]["s_a_step"], 2)
        out[f"{what}_ratio_cpu"] = round(took["rows"]["cpu_s_a_step"] / took["tree"]["cpu_s_a_step"], 2)
    out["device"], out["dtype"] = device(), dtype
    cpu = {side: out["pairs"][side]["cpu_s_a_step"] for side in PAIR_SIDES}
    before = measured["pairs"]["flywheel"][0]["cpu_s"] / len(rows["pairs"])
    out["pairs_ratio_cpu"] = round(cpu["stock"] / (cpu["flywheel"] + before), 2)
    out["pairs_ratio_precomputed_cpu"] = round(cpu["precomputed"] / cpu["flywheel"], 2)
    out["pairs_bound"], out["groups_bound"] = shape["pairs"]["bound"], shape["groups"]["bound"]
    out["largest_loss_difference"] = max(
        abs(a - b) / abs(a) for a, b in zip(one["losses"], three["losses"], strict=True)
    )
    out["memory_no_higher"] = three["peak_gb"] <= one["peak_gb"]
    return out


def device() -> str:
    """Return what was measured on."""
    from flywheel.models.load import describe_device

    return describe_device()


def _shape(items: list[list[list[list[int]]]]) -> dict[str, float]:
    """Return mean tokens of an item: row by row, as a tree, trained; and the bound, of equal prompts G(P+R)/(P+GR)."""
    n = len(items)
    plain = sum(len(p) + len(a) for item in items for p, a in item) / n
    prompts = sum(len(p) for item in items for p in {tuple(p) for p, _ in item}) / n
    trained = sum(len(a) for item in items for _, a in item) / n
    tree = prompts + trained
    prompt = sum(len(item[0][0]) for item in items) / n
    return {
        "prompt": round(prompt, 1), "rows_tokens": plain, "tree_tokens": tree, "trained": trained,
        "bound": round(plain / tree, 2),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")
    parser.add_argument("--data", type=Path, default=TAU2, help="folder with tau2-bench results")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each side")
    parser.add_argument("--warm", type=int, default=1, help="steps of each side that do not count")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--save", type=Path, help="write the chosen rows here and stop: --rows takes them elsewhere")
    parser.add_argument("--side", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help="rows that --save wrote")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.side:
            what, _, side = given.side.partition(":")
            rows = json.loads(given.rows.read_text(encoding="utf-8"))[what]
            pair_side(side, rows, folder, given.dtype) if what == "pairs" else tree_side(side, rows, given.dtype)
            return
        rows = (
            json.loads(given.rows.read_text(encoding="utf-8"))
            if given.rows
            else chosen_rows(logged_pairs(given.data, folder), given.steps + given.warm)
        )
        if given.save:
            given.save.write_text(json.dumps(rows), encoding="utf-8")
            return
        found = measure(rows, folder, given.steps, given.warm, given.dtype)
    for what in ("pairs", "groups", "alone"):
        for side, numbers in found[what].items():
            print(what, side, json.dumps({k: v for k, v in numbers.items() if k != "losses"}))
    print(json.dumps(found) if given.json else json.dumps({k: v for k, v in found.items() if "_" in k}))


if __name__ == "__main__":
    main()
