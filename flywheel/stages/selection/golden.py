"""Golden rows: a user's own rows for every round, `golden/*.jsonl`, a row a line (schemas/golden_row).

In: files that the user wrote. Out: rows as trainers get them. A malformed file is an error with its line before
anything is trained: a rule that is silently left out would be unlearned.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.funnel import Funnel
from flywheel.io.user_files import matching_files, read_records
from flywheel.records import GoldenRow, Message, content_id
from flywheel.records.methods import ACTIONS, EXAMPLES, PAIRS, SUCCESSES, Dataset
from flywheel.stages.selection.mix import chance

NOT_SAMPLED = "golden, not sampled"
_SCHEMA = "`flywheel schema golden_row` prints the format"

Row = dict[str, Any]


def golden_rows(project: Path, cfg: TrainConfig, dataset: Dataset, start: int, rows: int, funnel: Funnel) -> list[Row]:
    """Return golden rows for a round of so many others: `train.golden_rows` for each, another sample for each start.

    A right answer is a demonstration to SFT and DPO and a desirable action to KTO; a pair is one to DPO, and its better
    side alone to SFT. GRPO has nothing to learn from rows without an attempt.

    Raises:
        TrainError: a line is not a golden row, or two rows have one id; names file and line.
    """
    golden_by_id: dict[str, Row] = {}
    for place, _, golden in read_records(matching_files(project, cfg.golden), project, GoldenRow, TrainError):
        for row in _as_rows(_checked(golden, place), place, dataset, cfg):
            if row["id"] in golden_by_id:
                raise TrainError(
                    f"{place}: duplicate golden row", hint="give each row an `id` of its own, or remove one"
                )
            golden_by_id[row["id"]] = row
    order = sorted(golden_by_id, key=lambda name: (chance(name, cfg.seed, start), name))
    sampled = order[: math.ceil(cfg.golden_rows * rows)]
    funnel.considered += len(golden_by_id)
    funnel.kept += len(sampled)
    funnel.dropped[NOT_SAMPLED] += len(golden_by_id) - len(sampled)
    return [golden_by_id[name] for name in sorted(sampled)]


def _checked(golden: GoldenRow, place: str) -> GoldenRow:
    answers = [m for m in (golden.completion, golden.chosen, golden.rejected) if m is not None]
    paired = golden.chosen is not None
    if (golden.completion is None) != paired or (golden.rejected is not None) != paired:
        raise TrainError(f"{place}: neither one `completion` nor a `chosen` and a `rejected`", hint=_SCHEMA)
    if any(answer.role != "assistant" or not (answer.content or answer.tool_calls) for answer in answers):
        raise TrainError(f"{place}: an answer is an assistant message with content or tool_calls", hint=_SCHEMA)
    return golden


def _as_rows(golden: GoldenRow, place: str, dataset: Dataset, cfg: TrainConfig) -> list[Row]:
    """Return the rows of a dataset that a golden row becomes; their weight is that of a certain row."""
    row = {
        "prompt": golden.messages(),
        "tools": golden.tools,
        "weight": 1.0,
        "id": content_id("golden", golden.id or golden.model_dump(mode="json")),
        "task_id": content_id("golden", golden.id or place),
        "mix": "golden",
    }
    if dataset in {EXAMPLES, SUCCESSES}:
        return [{**row, "completion": _answer(golden.completion or golden.chosen)}]
    if dataset is ACTIONS:
        sides = [(golden.completion or golden.chosen, True), (golden.rejected, False)]
        return [
            {**row, "id": content_id(row["id"], label), "completion": _answer(side), "label": label}
            for side, label in sides
            if side is not None
        ]
    if dataset is PAIRS and golden.completion is not None:
        return [{**row, "nll_weight": cfg.dpo_verified_sft_weight, "completion": _answer(golden.completion)}]
    if dataset is PAIRS:
        certain = {"p_better": 1.0, "nll_weight": cfg.dpo_verified_sft_weight}
        return [{**row, **certain, "chosen": _answer(golden.chosen), "rejected": _answer(golden.rejected)}]
    return []


def _answer(message: Message | None) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True)] if message is not None else []
