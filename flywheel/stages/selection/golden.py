"""Golden rows: what a user wants every round to be shown again, `golden/*.jsonl`, a row a line (schemas/golden_row).

In: files that the user wrote. Out: rows as trainers get them. A file that is not as it should be is an error with its
line before anything is trained: a rule that is silently left out would be unlearned.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.io.user_files import matching_files, read_records
from flywheel.records import GoldenRow, Message, Method, content_id
from flywheel.stages.selection.mix import chance

if TYPE_CHECKING:
    from flywheel.config import TrainConfig
    from flywheel.funnel import Funnel

__all__ = ["NOT_DRAWN", "golden_rows"]

NOT_DRAWN = "golden, not drawn"
_SCHEMA = "`flywheel schema golden_row` prints the format"

Row = dict[str, Any]


def golden_rows(project: Path, cfg: TrainConfig, method: Method, start: int, rows: int, funnel: Funnel) -> list[Row]:
    """Return golden rows for a round of so many others: `train.golden_rows` for each, drawn anew for each start.

    A right answer is a demonstration to SFT and DPO and a desirable action to KTO; a pair is one to DPO, and its better
    side alone to SFT. GRPO has nothing to learn from rows without an attempt.

    Raises:
        TrainError: a line is no golden row, or two rows have one id; names file and line.
    """
    found: dict[str, Row] = {}
    for place, _, golden in read_records(matching_files(project, cfg.golden), project, GoldenRow, TrainError):
        for row in _as_rows(_checked(golden, place), place, method, cfg):
            if row["id"] in found:
                raise TrainError(f"{place}: a golden row again", hint="give each row an `id` of its own, or remove one")
            found[row["id"]] = row
    drawn = sorted(found, key=lambda name: (chance(name, cfg.seed, start), name))[: math.ceil(cfg.golden_rows * rows)]
    funnel.considered += len(found)
    funnel.kept += len(drawn)
    funnel.dropped[NOT_DRAWN] += len(found) - len(drawn)
    return [found[name] for name in sorted(drawn)]


def _checked(golden: GoldenRow, place: str) -> GoldenRow:
    answers = [m for m in (golden.completion, golden.chosen, golden.rejected) if m is not None]
    paired = golden.chosen is not None
    if (golden.completion is None) != paired or (golden.rejected is not None) != paired:
        raise TrainError(f"{place}: neither one `completion` nor a `chosen` and a `rejected`", hint=_SCHEMA)
    if any(answer.role != "assistant" or not (answer.content or answer.tool_calls) for answer in answers):
        raise TrainError(f"{place}: an answer is an assistant message with content or tool_calls", hint=_SCHEMA)
    return golden


def _as_rows(golden: GoldenRow, place: str, method: Method, cfg: TrainConfig) -> list[Row]:
    """Return what a method makes of a golden row; its weight is that of a sure row."""
    row = {
        "prompt": golden.messages(),
        "tools": golden.tools,
        "weight": 1.0,
        "id": content_id("golden", golden.id or golden.model_dump(mode="json")),
        "task_id": content_id("golden", golden.id or place),
        "mix": "golden",
    }
    if method == "sft":
        return [{**row, "completion": _answer(golden.completion or golden.chosen)}]
    if method == "kto":
        sides = [(golden.completion or golden.chosen, True), (golden.rejected, False)]
        return [
            {**row, "id": content_id(row["id"], label), "completion": _answer(side), "label": label}
            for side, label in sides
            if side is not None
        ]
    if method == "dpo" and golden.completion is not None:
        return [{**row, "nll_weight": cfg.dpo_verified_sft_weight, "completion": _answer(golden.completion)}]
    if method == "dpo":
        sure = {"p_better": 1.0, "nll_weight": cfg.dpo_verified_sft_weight}
        return [{**row, **sure, "chosen": _answer(golden.chosen), "rejected": _answer(golden.rejected)}]
    return []


def _answer(message: Message | None) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True)] if message is not None else []
