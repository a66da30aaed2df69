"""Golden rows: what a user wants every round to be shown again, `golden/*.jsonl`, a row a line (schemas/golden_row).

In: files that the user wrote. Out: rows as trainers get them. A file that is not as it should be is an error with its
line before anything is trained: a rule that is silently left out would be unlearned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.records import GoldenRow, Message, Method, content_id
from flywheel.stages._mix import chance

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
    for place, golden in _read(project, cfg.golden):
        for row in _as_rows(golden, place, method, cfg):
            if row["id"] in found:
                raise TrainError(f"{place}: a golden row again", hint="give each row an `id` of its own, or remove one")
            found[row["id"]] = row
    drawn = sorted(found, key=lambda name: (chance(name, start), name))[: math.ceil(cfg.golden_rows * rows)]
    funnel.considered += len(found)
    funnel.kept += len(drawn)
    funnel.dropped[NOT_DRAWN] += len(found) - len(drawn)
    return [found[name] for name in sorted(drawn)]


def _read(project: Path, pattern: str) -> Iterator[tuple[str, GoldenRow]]:
    for path in sorted(p for p in project.glob(pattern) if p.is_file()):
        name = path.relative_to(project).as_posix()
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise TrainError(f"{name}: not UTF-8", hint="save it as UTF-8") from None
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{name}:{number}", _parsed(line, f"{name}:{number}")


def _parsed(line: str, place: str) -> GoldenRow:
    from pydantic import ValidationError

    try:
        row = GoldenRow.model_validate(json.loads(line))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise TrainError(f"{place}: {field}: {first['msg']}", hint=_SCHEMA) from None
    except (ValueError, RecursionError):
        raise TrainError(f"{place}: not JSON", hint="one JSON object a line, without line breaks in it") from None
    answers = [m for m in (row.completion, row.chosen, row.rejected) if m is not None]
    if (row.completion is None) == (row.chosen is None) or (row.chosen is None) != (row.rejected is None):
        raise TrainError(f"{place}: neither one `completion` nor a `chosen` and a `rejected`", hint=_SCHEMA)
    if any(answer.role != "assistant" or not (answer.content or answer.tool_calls) for answer in answers):
        raise TrainError(f"{place}: an answer is an assistant message with content or tool_calls", hint=_SCHEMA)
    if not row.prompt or (not isinstance(row.prompt, str) and row.prompt[-1].role == "assistant"):
        raise TrainError(f"{place}: prompt: it must end with something to answer", hint=_SCHEMA)
    return row


def _as_rows(golden: GoldenRow, place: str, method: Method, cfg: TrainConfig) -> list[Row]:
    """Return what a method makes of a golden row; its weight is that of a sure row."""
    row = {
        "prompt": _prompt(golden),
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


def _prompt(golden: GoldenRow) -> list[dict[str, Any]]:
    if isinstance(golden.prompt, str):
        system = [{"role": "system", "content": golden.system}] if golden.system else []
        return [*system, {"role": "user", "content": golden.prompt}]
    return [m.model_dump(mode="json", exclude_none=True) for m in golden.prompt]


def _answer(message: Message | None) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True)] if message is not None else []
