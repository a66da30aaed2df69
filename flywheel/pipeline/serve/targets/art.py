"""ART: groups of trajectories in its Parquet format, version 2, each call with its token ids; and demonstrations."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from flywheel.pipeline.serve.targets.target import (
    DataFile,
    Lost,
    Mined,
    Row,
    Target,
    chat_exchange,
    json_lines,
    openai_messages,
    openai_tools,
    parquet,
)
from flywheel.records import canonical_json
from flywheel.records.token_rows import TokenRow

_WHEN = "1970-01-01T00:00:00Z"  # its exchanges must have a time; the tables keep none
_SCHEMA = pa.schema(
    [
        ("format_version", pa.int16()),
        ("group_index", pa.int64()),
        ("trajectory_index", pa.int64()),
        ("group_json", pa.string()),
        ("trajectory_json", pa.string()),
    ],
    metadata={"art.trajectory_parquet.version": "2"},
)


def _data(mined: Mined) -> Iterator[DataFile]:
    if "groups" in mined.rows:
        groups = [(row, [(n, parts) for n, parts in enumerate(members) if parts]) for row, members in mined.attempts()]
        rows = [
            {
                "format_version": 2,
                "group_index": index,
                "trajectory_index": place,
                "group_json": canonical_json({"metadata": {"group_id": row["id"], "task_id": row["task_id"]}}),
                "trajectory_json": canonical_json(_trajectory(mined, row, n, parts)),
            }
            for index, (row, played) in enumerate(groups)
            for place, (n, parts) in enumerate(played)
        ]
        yield parquet("trajectories.parquet", "groups", rows, _SCHEMA)
    if "sft" in mined.rows:
        yield json_lines("sft.jsonl", "sft", [_demonstration(row) for row, _ in mined.of("sft")])


def _trajectory(mined: Mined, row: Row, n: int, parts: list[TokenRow]) -> Row:
    exchanges = [
        {"start_time": _WHEN, "end_time": _WHEN, "request": request, "response": response}
        for request, response in chat_exchange(mined, row, n, parts)
    ]
    return {
        "exchanges": {"chat_completions": exchanges},
        "reward": row["rewards"][n],
        "metrics": {"advantage": row["advantages"][n]},
        "metadata": {"episode_id": row["episodes"][n], "policy": row["policies"][n] or ""},
    }


def _demonstration(row: Row) -> Row:
    tools = {"tools": openai_tools(row["tools"])} if row["tools"] else {}
    return {"messages": openai_messages([*row["prompt"], *row["completion"]]), **tools}


ART = Target(
    "art",
    "ART 0.5.23",
    ("groups", "sft"),
    _data,
    (("groups", "python train.py $model_quoted"),),
    lost=(
        Lost("advantage", ("groups",), "it computes its own from the rewards; ours is there as a metric"),
        Lost("step_advantages", ("groups",), "a trajectory has one reward"),
        Lost("weight", ("sft",), "its SFT weighs all rows alike"),
    ),
    notes=(
        "It trains what was sampled by token id; the ids are those of the base model's template, not of a server.",
        'For SFT pass `assistant_turns="last"`: only the last message of a row is a demonstration.',
        "Its trainer needs a GPU, or a service of its makers'; `train.py` names the local one.",
    ),
)
