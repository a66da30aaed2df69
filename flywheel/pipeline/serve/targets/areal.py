"""AReaL: folders that `datasets.load_from_disk` opens, with its own columns of ids and masks."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flywheel.pipeline.serve.targets.target import (
    LONGEST_PART,
    ONE_TEMPERATURE,
    OWN_ADVANTAGE,
    SMALLER_GROUPS,
    DataFile,
    Lost,
    Mined,
    Target,
    longest_parts,
)
from flywheel.records import canonical_json, content_id
from flywheel.records.token_rows import TokenRow

_PART = "data-00000-of-00001.arrow"


def _data(mined: Mined) -> Iterator[DataFile]:
    if "preference" in mined.tokens:
        sides = {(row.row, row.side): row for row in mined.tokens["preference"]}
        rows = [
            {f"{side}_{name}": value for side in ("chosen", "rejected") for name, value in _masked(sides[id_, side])}
            for id_ in sorted({row for row, _ in sides})
        ]
        yield from _folder("dpo", "preference", rows)
    if "sft" in mined.tokens:
        rows = [{"input_ids" if k == "ids" else k: v for k, v in _masked(r)} for r in mined.tokens["sft"]]
        yield from _folder("sft", "sft", rows)
    if "groups" in mined.rows:
        tasks = [
            {"messages": mined.text_messages(row), "group_id": row["id"], "members": canonical_json(members)}
            for row, members in ((row, longest_parts(parts)) for row, parts in mined.attempts())
        ]
        yield from _folder("rl", "groups", tasks)


def _masked(row: TokenRow) -> Iterator[tuple[str, list[int]]]:
    yield "ids", row.ids
    yield "loss_mask", [0] * len(row.prompt_ids) + row.mask


def _folder(name: str, form: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[DataFile]:
    """Yield the files of a dataset saved to disk."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    state: dict[str, Any] = {
        "_data_files": [{"filename": _PART}],
        "_fingerprint": content_id(name, [canonical_json(dict(row)) for row in rows])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    yield DataFile(f"{name}/{_PART}", form, len(rows), sink.getvalue())
    yield DataFile(f"{name}/state.json", form, None, canonical_json(state).encode())
    yield DataFile(f"{name}/dataset_info.json", form, None, b"{}")


AREAL = Target(
    "areal",
    "AReaL 1.0.4",
    ("preference", "sft", "groups"),
    _data,
    (("preference", "python train.py dpo --config dpo.yaml"), ("sft", "python train.py sft --config sft.yaml")),
    lost=(
        OWN_ADVANTAGE,
        ONE_TEMPERATURE,
        Lost("margin", ("preference",), "its DPO has no margin"),
        Lost("weight", ("preference", "sft"), "its trainers weigh all rows alike"),
        Lost("step_advantages", ("groups",), "a trajectory has one reward"),
        LONGEST_PART,
    ),
    notes=(
        "Name no folder after `gsm8k`, `hh-rlhf` or another dataset that it knows: it looks for these words in paths.",
        (
            "Groups have no launch file: give `replay:Replay` and `rl` to its RL trainer. An attempt without logged "
            "log-probabilities has zeros for them: there leave `actor.use_decoupled_loss` out and set "
            "`actor.recompute_logprob`."
        ),
        (
            "Attempts of its own: give `environment.py`'s `Environment` and the rows of its `scenarios()` to the RL "
            "trainer. One that leaves the log is rejected."
        ),
        SMALLER_GROUPS,
        "It has no KTO, so single actions are not written. It needs a GPU.",
    ),
    environment=True,
)
