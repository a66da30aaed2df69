"""What a step of SFT saves: steps of a conversation as one sequence, and shared beginnings and the head computed once.

`python benchmarks/shared_sequences.py`: the demonstrations of sample_logs/ under the embedded model; tokens, and the
time of one forward and backward pass over the same rows, three ways in one run: TRL's pass over a row for each step,
TRL's pass over a sequence for each conversation, and flywheel's pass over these.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.stages.train.sharing.tree import Row

SAMPLE_LOGS = Path(__file__).resolve().parents[1] / "sample_logs"
ROWS = 96
BATCH = 4
NO_LOSS = -100


def demonstration_rows(folder: Path) -> list[dict[str, list[int]]]:
    """Return the tokenised rows of a first round on the sample logs."""
    from flywheel.config import Config, load_config
    from flywheel.funnel import Funnel
    from flywheel.models.chat import ChatFormat
    from flywheel.models.load import load_tokenizer
    from flywheel.project import Project
    from flywheel.stages.selection.rows import select_demonstrations
    from flywheel.stages.train.rows import tokenise

    (folder / "flywheel.toml").write_text(f"[train]\nmax_rows = {ROWS}\n", encoding="utf-8")
    config: Config = load_config(folder / "flywheel.toml")
    project = Project(folder)
    project.ingest([SAMPLE_LOGS])
    project.build()
    examples = project.store.table("examples", "examples").collect()
    rows = select_demonstrations(examples, config.train, Funnel())
    return tokenise(rows, ChatFormat(load_tokenizer(config.model)), ("completion",), config.train).rows


def trl_pass(model: Any, rows: Sequence[Row]) -> Callable[[], Any]:
    """Return TRL's loss of a batch: padded rows, its head at every position where no Triton is."""
    import torch

    width = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows])
    labels = torch.full(ids.shape, NO_LOSS)
    for place, row in enumerate(rows):
        labels[place, row.trained] = ids[place, row.trained]
    return lambda: -model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs.sum()


def flywheel_pass(scorer: Any, rows: Sequence[Row]) -> Callable[[], Any]:
    """Return flywheel's loss of a batch."""
    import torch

    return lambda: -torch.cat(scorer(rows)).sum()


def seconds(loss: Callable[[Sequence[Row]], Callable[[], Any]], rows: Sequence[Row]) -> float:
    """Return the processor's time of a forward and a backward pass over all rows, in batches."""
    started = time.process_time()
    for i in range(0, len(rows), BATCH):
        loss(rows[i : i + BATCH])().backward()
    return time.process_time() - started


def main() -> None:
    """Measure and print."""
    from flywheel.config import ModelConfig
    from flywheel.models.load import load_base
    from flywheel.stages.train.rows import answers, demonstrations
    from flywheel.stages.train.sharing.decide import decide
    from flywheel.stages.train.sharing.packed import Scorer
    from peft import LoraConfig, get_peft_model
    from trl.trainer.utils import add_fused_lm_head

    with tempfile.TemporaryDirectory() as folder:
        rows = demonstration_rows(Path(folder))
    apart = [row for r in rows for row in answers(r)]
    talks = [one.row for one in demonstrations(rows)]
    random.Random(0).shuffle(talks)  # noqa: S311 - as training takes them
    base = load_base(ModelConfig(dtype="auto"))
    add_fused_lm_head(base, outputs=("log_probs", "entropy", "is_top1"))
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).train()
    scorer = Scorer(model)
    scorer.sharing = decide(scorer, [talks[i : i + BATCH] for i in range(0, len(talks), BATCH)]).on
    plain, ours = partial(trl_pass, model), partial(flywheel_pass, scorer)
    found: dict[str, dict[str, float]] = {}
    for name, sequences, way in (
        ("TRL, a row a step", apart, plain),
        ("TRL, a sequence a conversation", talks, plain),
        ("flywheel", talks, ours),
    ):
        seconds(way, sequences[:BATCH])  # kernels are chosen on first use
        found[name] = {
            "sequences": len(sequences),
            "tokens": sum(len(row.ids) for row in sequences),
            "trained_tokens": sum(len(row.trained) for row in sequences),
            "seconds": round(seconds(way, sequences), 1),
        }
    print(json.dumps(found, indent=1))
    fastest = found["flywheel"]["seconds"]
    print("times flywheel's", json.dumps({name: round(row["seconds"] / fastest, 2) for name, row in found.items()}))


if __name__ == "__main__":
    main()
